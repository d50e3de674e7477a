"""Whether a drill may begin on a pair that is up, and when it must end: decided from what a survey found."""

from __future__ import annotations

from typing import Any

import pytest

from twinbus.client import ConnectionString
from twinbus.drill.course import Course
from twinbus.drill.stage import Site
from twinbus.drill.standing import BACKLOG_MAX, PREFIX, breach_in, named, obstacles, prefix_of
from twinbus.pair.description import NamespaceDescription, PairDescription
from twinbus.pair.survey import NamespaceFound, PairFound, QueueFound

PLAIN = "Endpoint=sb://127.0.0.1:5672;SharedAccessKeyName=k;SharedAccessKey=secretsecret;UseDevelopmentEmulator=true"
TLS = "Endpoint=sb://contoso.servicebus.windows.net;SharedAccessKeyName=k;SharedAccessKey=secretsecret"
OWN = prefix_of("ab12")
PAIR = PairDescription(NamespaceDescription(PLAIN), NamespaceDescription(PLAIN.replace("5672", "5772")))


def found(**settings: Any) -> PairFound:
    namespaces = [NamespaceFound(role, "127.0.0.1", reachable=True, name=role) for role in ("primary", "secondary")]
    return PairFound(namespaces[0], namespaces[1], **{"queues": [QueueFound("backlog/0", "as documented")], **settings})


def client(process: int, ill: dict[str, str]) -> dict[str, Any]:
    return {"host": "app1", "process": process, "kind": "paired-client", "state": {"ill": ill}}


def test_a_pair_that_is_well_has_nothing_in_the_way() -> None:
    assert obstacles(found(clients=[client(1, {})]), PAIR) == []
    assert breach_in(found(clients=[client(1, {})]), OWN) is None


def test_a_backlog_that_is_not_empty_is_in_the_way() -> None:
    assert obstacles(found(queues=[QueueFound("backlog/0", "as documented", messages=3)]), PAIR) == [
        "3 messages wait in the backlog already"
    ]


@pytest.mark.parametrize("role", ["primary", "secondary"])
def test_a_namespace_that_does_not_answer_is_in_the_way_and_ends_a_drill(role: str) -> None:
    pair = found()
    namespace = getattr(pair, role)
    namespace.reachable, namespace.problem = False, "no answer within 10 s"

    assert obstacles(pair, PAIR) == [f"the {role} is not well: no answer within 10 s"]
    assert breach_in(pair, OWN) == f"the {role} itself does not answer: no answer within 10 s"


def test_other_clients_that_divert_are_in_the_way_and_end_a_drill_but_not_its_own() -> None:
    """In containers everybody is process 1 of a host that may have the same name."""
    own = client(1, {f"{OWN}orders": "failed over"})
    other = client(1, {"orders": "failed over"})
    of_another_drill = client(1, {f"{PREFIX}cd34-orders": "failed over"})
    both = client(1, {f"{OWN}orders": "failed over", "orders": "suspect"})

    assert breach_in(found(clients=[own]), OWN) is None
    for one in (other, of_another_drill, both):
        assert breach_in(found(clients=[own, one]), OWN) == "other clients divert: app1/1"
        assert obstacles(found(clients=[one]), PAIR) == ["clients are diverting already: app1/1"]


@pytest.mark.parametrize("endpoint", ["sb://localhost", "sb://LocalHost:5672", "sb://localhost/", "sb://[::1]:5672/"])
async def test_the_drill_s_wire_is_used_however_the_endpoint_is_written(endpoint: str) -> None:
    described = NamespaceDescription(PLAIN.replace("sb://127.0.0.1:5672", endpoint))
    site = Site(Course("outage"), "primary", described, None)
    async with site.proxy:
        wired = ConnectionString.parse(site.wired.connection_string)
        assert (wired.host, wired.port) == ("127.0.0.1", site.proxy.port)
    assert (wired.tls, wired.policy, wired.key) == (False, "k", "secretsecret")


def test_a_backlog_without_bounds_ends_a_drill() -> None:
    queues = [QueueFound("backlog/0", "as documented", messages=BACKLOG_MAX + 1)]

    assert breach_in(found(queues=queues), OWN) == f"{BACKLOG_MAX + 1:,} messages wait in the backlog"


def test_tls_is_in_the_way_since_the_drill_stands_on_the_wire() -> None:
    pair = PairDescription(NamespaceDescription(TLS), PAIR.secondary)

    assert obstacles(found(), pair) == ["the primary speaks TLS, and the drill cannot stand on that wire"]


def test_the_entities_of_a_drill_tell_what_they_are() -> None:
    assert [path for path, _, _ in named(f"{PREFIX}ab12-")] == [
        "twinbus-drill-ab12-orders",
        "twinbus-drill-ab12-carts",
        "twinbus-drill-ab12-events",
    ]
