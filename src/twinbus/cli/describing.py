"""Entities on their way to the prompt: a tree of what a namespace holds, and all facts about one thing.

How they are told to scripts is `documents`' business; printing is `output`'s work.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from twinbus.cli.documents import WORDS, document, kind_of, rule_document
from twinbus.cli.output import Output, Table
from twinbus.cli.showing import clean, counted, duration, moment
from twinbus.client.descriptions import Description, Entry
from twinbus.model.rule import CorrelationFilter, FalseFilter, Filter, RuleDescription, SqlFilter, TrueFilter
from twinbus.model.topic import SubscriptionDescription, TopicDescription

_HEADINGS = ("NAME", "KIND", "STATUS", "ACTIVE", "SCHEDULED", "DEAD", "BYTES", "LOCK", "TTL", "DELIVERIES")
_NUMBERS = ("ACTIVE", "SCHEDULED", "DEAD", "BYTES", "DELIVERIES")
_NONE = "-"


class Listed(NamedTuple):
    """An entity in a list, and its rules if they were asked for."""

    entry: Entry[Description]
    rules: Sequence[RuleDescription] | None = None


def show_list(output: Output, found: Sequence[Listed]) -> None:
    """Queues, and topics with their subscriptions below them."""
    kinds: Counter[str] = Counter()
    rows: list[list[str]] = []
    for position, (entry, rules) in enumerate(found):
        kinds[kind_of(entry.description)] += 1
        following = found[position + 1].entry.description if position + 1 < len(found) else None
        rows.append(_row(entry, last=not isinstance(following, SubscriptionDescription)))
        for rule in rules or ():
            line = "│" if isinstance(following, SubscriptionDescription) else " "
            name = f"{line}    {clean(rule.name)}"
            rows.append([name, "rule", clean(rule_text(rule)), *[""] * (len(_HEADINGS) - 3)])
    _aligned(output, rows)
    words = [counted(kinds[kind], kind) for kind in ("queue", "topic", "subscription") if kinds[kind]]
    output.remark(f"{', '.join(words) or 'Nothing'}.")


def _aligned(output: Output, rows: list[list[str]]) -> None:
    """The rules' texts are long, and go over the columns that rules do not have."""
    texts = [row[2] if row[1] == "rule" else None for row in rows]
    if not any(texts):
        Table(output, _HEADINGS, _NUMBERS).rows(rows)
        return
    headings = (*_HEADINGS, "RULE")
    widened = [[*row[:2], "" if text else row[2], *row[3:], text or ""] for row, text in zip(rows, texts, strict=True)]
    Table(output, headings, _NUMBERS).rows(widened)


def _row(entry: Entry[Description], last: bool) -> list[str]:
    entity, counts = entry.description, entry.counts
    name = clean(entity.name)
    active, dead, size = str(counts.active), str(counts.dead_letter), str(counts.size_bytes)
    lock = deliveries = _NONE
    if isinstance(entity, TopicDescription):
        active = dead = _NONE  # A topic itself holds nothing but what is scheduled.
    else:
        lock, deliveries = duration(entity.lock_duration_ms), str(entity.max_delivery_count)
    if isinstance(entity, SubscriptionDescription):
        name, size = f"{'└' if last else '├'} {name}", _NONE  # Its messages are the topic's bytes.
    sizes = (active, str(counts.scheduled), dead, size)
    return [name, kind_of(entity), entity.status.value, *sizes, lock, duration(entity.default_ttl_ms), deliveries]


def show_entity(output: Output, entry: Entry[Description], rules: Sequence[RuleDescription] | None) -> None:
    """Everything about one entity."""
    told = document(entry, rules)
    if output.as_json:
        output.record(told)
        return
    entity = entry.description
    for name, word in WORDS.items():
        if word.attribute.endswith("_ms") and name in told:
            told[name] = duration(getattr(entity, word.attribute))
    for name, at_ms in (("created", entity.created_at_ms), ("updated", entity.updated_at_ms)):
        told[f"{name}_at"] = moment(at_ms)
    told["accessed_at"] = moment(entry.accessed_at_ms)
    counts = told.pop("counts")
    policies = told.pop("authorization_rules", None)
    told.pop("rules", None)
    told |= {f"{name}_messages": count for name, count in counts.items()}
    if policies is not None:
        told["authorization_rules"] = ", ".join(f"{rule['name']} ({', '.join(rule['rights'])})" for rule in policies)
    shown = {name.replace("_", " "): _word(value) for name, value in told.items()}
    for rule in rules or ():
        shown[f"rule {clean(rule.name)}"] = clean(rule_text(rule))
    output.facts(shown)


def show_rule(output: Output, rule: RuleDescription) -> None:
    """Everything about one rule."""
    if output.as_json:
        output.record(rule_document(rule))
        return
    action = rule.action.expression if rule.action is not None else None
    facts = {"kind": "rule", "name": rule.name, "filter": filter_text(rule.filter), "action": action}
    parameters = dict(rule.filter.parameters) if isinstance(rule.filter, SqlFilter) else {}
    if parameters:
        facts["parameters"] = _pairs(parameters)
    facts["created at"] = moment(rule.created_at_ms)
    output.facts({name: _word(value) for name, value in facts.items()})


def rule_text(rule: RuleDescription) -> str:
    """A rule on one line."""
    return filter_text(rule.filter) + (f" → {rule.action.expression}" if rule.action is not None else "")


def filter_text(found: Filter) -> str:
    """A filter on one line."""
    match found:
        case TrueFilter():
            return "everything"
        case FalseFilter():
            return "nothing"
        case SqlFilter():
            return found.expression
        case CorrelationFilter():
            system = {f"sys.{name}": value for name, value in found.system_conditions()}
            return _pairs(system | dict(found.properties))


def _pairs(values: dict[str, Any]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in values.items())


def _word(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return _NONE if value in (None, "") else clean(str(value))
