"""What an operator is warned of, from what was found."""

from __future__ import annotations

from typing import Any

from twinbus.pair.description import PairDescription
from twinbus.pair.survey import HalfFound, PairFound, QueueFound, warnings

DESCRIPTION = PairDescription.read(
    None,
    {
        "TWINBUS_PRIMARY": "Endpoint=sb://a.example;SharedAccessKeyName=r;SharedAccessKey=k",
        "TWINBUS_SECONDARY": "Endpoint=sb://b.example;SharedAccessKeyName=r;SharedAccessKey=k",
        "TWINBUS_PRIMARY_DATACENTER": "north",
    },
)


def found(*queues: QueueFound, clients: list[dict[str, Any]] | None = None, **changes: Any) -> PairFound:
    primary = HalfFound("primary", "a:1", reachable=True, name="a", datacenter=changes.get("datacenter", "north"))
    secondary = HalfFound("secondary", "b:1", reachable=True, name="b", datacenter="south")
    return PairFound(primary, secondary, list(queues), clients)


def record(kind: str, **state: Any) -> dict[str, Any]:
    return {"kind": kind, "state": state}


def test_a_pair_that_is_well_warns_of_nothing() -> None:
    assert warnings(found(QueueFound("q", "as documented"), clients=[]), DESCRIPTION) == []


def test_a_syphon_of_either_kind_is_enough() -> None:
    waiting = QueueFound("q", "as documented", messages=3)
    alone, beside = record("syphon"), record("paired-client", syphon={"moved": 0})

    assert warnings(found(waiting, clients=[alone]), DESCRIPTION) == []
    assert warnings(found(waiting, clients=[beside]), DESCRIPTION) == []
    assert "no syphon runs" in warnings(found(waiting, clients=[record("paired-client", syphon=None)]), DESCRIPTION)[0]


def test_where_nobody_tells_who_is_alive_it_is_said() -> None:
    told = warnings(found(QueueFound("q", "as documented", messages=1), clients=None), DESCRIPTION)

    assert told == ["1 message is in the backlog, and whether a syphon runs is not known."]


def test_a_namespace_elsewhere_than_described_is_told() -> None:
    told = warnings(found(datacenter="south"), DESCRIPTION)

    assert told == [
        "The primary says that it is in 'south', and the description 'north'.",
        "Both namespaces are in the datacenter 'south', and would be lost together.",
    ]


def test_a_surplus_queue_without_messages_is_no_warning() -> None:
    assert warnings(found(QueueFound("q", "surplus"), clients=[]), DESCRIPTION) == []
