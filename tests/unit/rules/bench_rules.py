"""How long rules take for one message; run by hand: `python tests/unit/rules/bench_rules.py`."""

from __future__ import annotations

import timeit
from collections.abc import Callable
from typing import Any
from uuid import UUID

from twinbus.rules.description import CorrelationFilter, Filter, RuleDescription, SqlAction, SqlFilter, TrueFilter
from twinbus.rules.index import RuleSet, TopicRules
from twinbus.rules.matching import compile_rule
from twinbus.rules.view import MessageView

ROUNDS = 7
SECONDS_A_ROUND = 0.05


class Int(int):
    """As a decoded AMQP int arrives."""


SYSTEM = {"Label": "order", "MessageId": "m-1", "CorrelationId": "c-77", "To": "billing", "EnqueuedTimeUtc": 1_700_000}
USER = {"color": "red", "quantity": Int(12), "price": 9.5, "region": "eu-west", "StoreId": "Store 7", "key": "k0001"}

FILTERS: dict[str, Filter] = {
    "1=1": SqlFilter("1=1"),
    "color = 'red'": SqlFilter("color = 'red'"),
    "color = 'red' AND quantity > 10": SqlFilter("color = 'red' AND quantity > 10"),
    "sys.Label = 'order' AND quantity = 12": SqlFilter("sys.Label = 'order' AND quantity = 12"),
    "sys.Label LIKE '%rde%'": SqlFilter("sys.Label LIKE '%rde%'"),
    "region LIKE 'e_-%st'": SqlFilter("region LIKE 'e_-%st'"),
    "StoreId IN (8 texts)": SqlFilter("StoreId IN (" + ", ".join(f"'Store {n}'" for n in range(8)) + ")"),
    "quantity * price > 100 OR EXISTS(urgent)": SqlFilter("quantity * price > 100 OR EXISTS(urgent)"),
    "correlation: Label and color": CorrelationFilter(subject="order", properties={"color": "red"}),
}


def view() -> MessageView:
    return MessageView(SYSTEM, USER, lambda: UUID(int=1))


def fastest_us(action: Callable[[], object]) -> float:
    number = max(int(SECONDS_A_ROUND / max(timeit.timeit(action, number=10) / 10, 1e-8)), 1)
    return min(timeit.repeat(action, number=number, repeat=ROUNDS)) / number * 1e6


def one_rule() -> None:
    print(f"{'one rule':44} {'compile':>9} {'matches':>9}   microseconds, best of {ROUNDS}")
    seen = view()
    for name, found in FILTERS.items():
        description = RuleDescription("rule", found)
        rule = compile_rule(description)
        made = fastest_us(lambda description=description: compile_rule(description))  # type: ignore[misc]
        print(f"{name:44} {made:9.1f} {fastest_us(lambda rule=rule: rule.matches(seen)):9.2f}")  # type: ignore[misc]
    action = compile_rule(RuleDescription("a", TrueFilter(), SqlAction("SET quantity = quantity / 2; REMOVE price")))
    print(f"{'SET quantity = quantity / 2; REMOVE price':44} {'':9} {fastest_us(lambda: action.apply(seen)):9.2f}")
    print(f"{'view of 6 application properties':44} {'':9} {fastest_us(lambda: view().user):9.2f}")


def many(count: int) -> dict[str, list[Filter]]:
    """Sets of which one rule matches, but for the last two."""
    return {
        "correlation on one property": [CorrelationFilter(properties={"key": f"k{n:04}"}) for n in range(count)],
        "SQL key = 'k…' AND quantity > 10": [SqlFilter(f"key = 'k{n:04}' AND quantity > 10") for n in range(count)],
        "SQL without equality": [SqlFilter(f"quantity > {10 + n} AND color = 'red'") for n in range(count)],
        "true": [TrueFilter() for _ in range(count)],
    }


def sets() -> None:
    counts = (1, 100, 2000)
    header = " ".join(f"{count:>9}" for count in counts)
    for title, made in (
        ("RuleSet of one subscription", rule_set),
        ("TopicRules, one rule a subscription", topic_rules),
    ):
        print(f"\n{title:44} {header}   microseconds a message, view included")
        for name in many(1):
            times = [fastest_us(made(many(count)[name])) for count in counts]
            print(f"{name:44} {' '.join(f'{time:9.2f}' for time in times)}")


def rule_set(filters: list[Filter]) -> Callable[[], Any]:
    rules = RuleSet([compile_rule(RuleDescription(f"r{n}", found)) for n, found in enumerate(filters)])
    return lambda: rules.match(view())


def topic_rules(filters: list[Filter]) -> Callable[[], Any]:
    rules = TopicRules({f"s{n}": [compile_rule(RuleDescription("r", found))] for n, found in enumerate(filters)})
    return lambda: rules.match(view())


if __name__ == "__main__":
    one_rule()
    sets()
