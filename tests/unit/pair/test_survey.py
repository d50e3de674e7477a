"""What an operator is warned of, from what was found."""

from __future__ import annotations

from typing import Any

from twinbus.client.descriptions import Entry
from twinbus.model.entity import QueueDescription
from twinbus.model.message import Counts
from twinbus.pair.description import PairDescription
from twinbus.pair.replaced import Replaced
from twinbus.pair.survey import (
    NamespaceFound,
    PairFound,
    QueueFound,
    _say_who_drains,
    candidates,
    left_behind,
    notes,
    stranded,
    warnings,
)

DESCRIPTION = PairDescription.read(
    None,
    {
        "TWINBUS_PRIMARY": "Endpoint=sb://a.example;SharedAccessKeyName=r;SharedAccessKey=k",
        "TWINBUS_SECONDARY": "Endpoint=sb://b.example;SharedAccessKeyName=r;SharedAccessKey=k",
        "TWINBUS_PRIMARY_DATACENTER": "north",
    },
)


def found(*queues: QueueFound, clients: list[dict[str, Any]] | None = None, **changes: Any) -> PairFound:
    primary = NamespaceFound("primary", "a:1", reachable=True, name="a", datacenter=changes.get("datacenter", "north"))
    secondary = NamespaceFound("secondary", "b:1", reachable=True, name="b", datacenter="south")
    made = PairFound(primary, secondary, list(queues), clients)
    _say_who_drains(made)
    return made


def record(kind: str, **state: Any) -> dict[str, Any]:
    return {"kind": kind, "state": state, "pair": "a", "host": "here", "process": 7}


def test_a_pair_that_is_well_warns_of_nothing() -> None:
    assert warnings(found(QueueFound("a/x-servicebus-transfer/0", "as documented"), clients=[]), DESCRIPTION) == []


def test_a_syphon_of_either_kind_is_enough() -> None:
    waiting = QueueFound("a/x-servicebus-transfer/0", "as documented", messages=3)
    alone, beside = record("syphon"), record("paired-client", syphon={"moved": 0})

    assert warnings(found(waiting, clients=[alone]), DESCRIPTION) == []
    assert warnings(found(waiting, clients=[beside]), DESCRIPTION) == []
    assert "no syphon runs" in warnings(found(waiting, clients=[record("paired-client", syphon=None)]), DESCRIPTION)[0]


def test_where_nobody_tells_who_is_alive_it_is_said() -> None:
    told = warnings(
        found(QueueFound("a/x-servicebus-transfer/0", "as documented", messages=1), clients=None), DESCRIPTION
    )

    assert told == ["1 message is in the backlog, and whether a syphon runs is not known."]


def test_a_namespace_elsewhere_than_described_is_told() -> None:
    told = warnings(found(datacenter="south"), DESCRIPTION)

    assert told == [
        "The primary says that it is in 'south', and the description 'north'.",
        "Both namespaces are in the datacenter 'south', and would be lost together.",
    ]


def test_an_extra_queue_is_drained_like_any_other() -> None:
    extra = QueueFound("a/x-servicebus-transfer/12", "extra", messages=3)
    assert warnings(found(QueueFound("a/x-servicebus-transfer/12", "extra"), clients=[]), DESCRIPTION) == []
    assert stranded(found(extra, clients=[record("syphon", syphon={"queues": "0-20"})])) == []
    few = record("syphon", syphon={"queues": "0-9"})
    expected = "3 messages are in 'a/x-servicebus-transfer/12', and no syphon that is alive drains it."
    assert stranded(found(extra, clients=[few])) == [expected]
    assert warnings(found(extra, clients=[few]), DESCRIPTION) == [expected]


def test_an_ordered_queue_is_drained_by_who_says_so() -> None:
    kept = QueueFound("a/x-servicebus-transfer-ordered/1", "ordered", messages=1)
    assert stranded(found(kept, clients=[record("syphon", syphon={"queues": "0-9", "ordered_queues": "0-1"})])) == []
    assert stranded(found(kept, clients=[record("syphon", syphon={"queues": "0-9", "ordered_queues": ""})]))


def test_the_backlog_of_a_replaced_primary_is_shown_while_something_is_in_it() -> None:
    lost = Replaced("gone", "id", "north:1")
    names = ("gone/x-servicebus-transfer/0", "north-1/x-servicebus-transfer-ordered/0", "a/x-servicebus-transfer/0")
    entries = [Entry(QueueDescription(name=name), Counts(active=1), 0) for name in names]
    empty = Entry(QueueDescription(name="gone/x-servicebus-transfer/1"), Counts(), 0)

    queues = left_behind([*entries, empty], [lost], ["a"])

    assert [(queue.name, queue.state) for queue in queues] == [(name, "replaced") for name in names[:2]]
    assert left_behind(entries, [lost], ["a", "gone", "north-1"]) == []
    assert len(stranded(found(queues[0], clients=[record("syphon", syphon={"queues": "0"})]))) == 1
    assert stranded(found(queues[0], clients=[record("syphon", syphon={"queues": "0", "replaces": ["gone"]})])) == []


def test_what_waits_for_the_primary_is_not_stranded_if_a_syphon_is_ready() -> None:
    waiting = QueueFound("a/x-servicebus-transfer/0", "as documented", messages=3)
    made = found(waiting, clients=[record("syphon", syphon={"queues": "0", "waits_for": "primary"})])
    made.primary.reachable = False
    assert stranded(made) == []
    assert notes(made) == ["3 messages are in the backlog until the primary answers; ready to bring them home: here:7."]


def test_dead_letters_are_stranded() -> None:
    dead = QueueFound("a/x-servicebus-transfer/0", "as documented", dead=2)
    assert stranded(found(dead, clients=[record("syphon")])) == [
        "2 messages are dead in 'a/x-servicebus-transfer/0': what could not be brought home."
    ]


def test_what_blocks_a_syphon_is_said() -> None:
    said = {"queues": "0", "blocked": {"orders": "waits until 12:00:00 UTC for 'orders' to be made"}}
    told = warnings(found(clients=[record("syphon", syphon=said)]), DESCRIPTION)
    assert told == ["'orders' takes nothing from the syphon here:7: waits until 12:00:00 UTC for 'orders' to be made"]


def test_the_primarys_name_is_found_in_the_secondary() -> None:
    queues = ["orders", "Contoso/x-servicebus-transfer/0", "contoso/x-servicebus-transfer/1", "b/x-servicebus-transfer"]
    assert candidates(queues, []) == ["contoso"]
    assert candidates(queues, [record("syphon")]) == ["a", "contoso"]


def test_several_primaries_are_named() -> None:
    made = found(clients=[])
    made.primary.name, made.candidates = None, ["a", "b"]
    assert warnings(made, DESCRIPTION) == [
        "Several primaries use this secondary ('a', 'b'), and all of them are shown: describe yours by its name."
    ]
