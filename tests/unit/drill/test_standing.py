"""Whether a drill may begin on a pair that is up, and when it must end: decided from what a survey found."""

from __future__ import annotations

import os
from typing import Any

import pytest

from twinbus.drill.standing import BACKLOG_MAX, PREFIX, breach_in, named, obstacles
from twinbus.pair.description import HalfDescription, PairDescription
from twinbus.pair.survey import HalfFound, PairFound, QueueFound

PLAIN = "Endpoint=sb://127.0.0.1:5672;SharedAccessKeyName=k;SharedAccessKey=secretsecret;UseDevelopmentEmulator=true"
TLS = "Endpoint=sb://contoso.servicebus.windows.net;SharedAccessKeyName=k;SharedAccessKey=secretsecret"
PAIR = PairDescription(HalfDescription(PLAIN), HalfDescription(PLAIN.replace("5672", "5772")))


def found(**settings: Any) -> PairFound:
    halves = [HalfFound(role, "127.0.0.1", reachable=True, name=role) for role in ("primary", "secondary")]
    return PairFound(halves[0], halves[1], **{"queues": [QueueFound("backlog/0", "as documented")], **settings})


def client(process: int, ill: dict[str, str]) -> dict[str, Any]:
    return {"host": "app1", "process": process, "kind": "paired-client", "state": {"ill": ill}}


def test_a_pair_that_is_well_has_nothing_in_the_way() -> None:
    assert obstacles(found(clients=[client(1, {})]), PAIR) == []
    assert breach_in(found(clients=[client(1, {})])) is None


def test_a_backlog_that_is_not_empty_is_in_the_way() -> None:
    assert obstacles(found(queues=[QueueFound("backlog/0", "as documented", messages=3)]), PAIR) == [
        "3 messages wait in the backlog already"
    ]


@pytest.mark.parametrize("role", ["primary", "secondary"])
def test_a_namespace_that_does_not_answer_is_in_the_way_and_ends_a_drill(role: str) -> None:
    pair = found()
    half = getattr(pair, role)
    half.reachable, half.problem = False, "no answer within 10 s"

    assert obstacles(pair, PAIR) == [f"the {role} is not well: no answer within 10 s"]
    assert breach_in(pair) == f"the {role} itself does not answer: no answer within 10 s"


def test_other_clients_that_divert_are_in_the_way_and_end_a_drill_but_not_its_own() -> None:
    own = client(os.getpid(), {"orders": "failed over"})
    other = client(1, {"orders": "failed over"})

    assert breach_in(found(clients=[own])) is None
    assert breach_in(found(clients=[own, other])) == "other clients divert: app1/1"
    assert obstacles(found(clients=[other]), PAIR) == ["clients are diverting already: app1/1"]


def test_a_backlog_without_bounds_ends_a_drill() -> None:
    queues = [QueueFound("backlog/0", "as documented", messages=BACKLOG_MAX + 1)]

    assert breach_in(found(queues=queues)) == f"{BACKLOG_MAX + 1:,} messages wait in the backlog"


def test_tls_is_in_the_way_since_the_drill_stands_on_the_wire() -> None:
    pair = PairDescription(HalfDescription(TLS), PAIR.secondary)

    assert obstacles(found(), pair) == ["the primary speaks TLS, and the drill cannot stand on that wire"]


def test_the_entities_of_a_drill_tell_what_they_are() -> None:
    assert [path for path, _, _ in named(f"{PREFIX}ab12-")] == [
        "twinbus-drill-ab12-orders",
        "twinbus-drill-ab12-carts",
        "twinbus-drill-ab12-events",
    ]
