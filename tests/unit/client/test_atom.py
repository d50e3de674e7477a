"""Administration: what is asked, how it is signed, and what becomes of every kind of answer."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import aiohttp
import pytest

from twinbus.admin import atom as broker_atom
from twinbus.admin import queues, subscriptions
from twinbus.admin.faults import Answer, error_document
from twinbus.client import ClientError, ConnectionString
from twinbus.client.atom import PAGE, Administration, AtomError, HttpAnswer
from twinbus.model.entity import QueueDescription
from twinbus.model.message import Counts
from twinbus.model.rule import RuleDescription, SqlFilter
from twinbus.model.topic import SubscriptionDescription
from twinbus.wire import rule_markup, sas

ADDRESS = "https://bus.test"
NOW_S = 1_700_000_000
TARGET = ConnectionString("bus.test", policy="root", key="secret")


class Service:
    """Answers what it is told to, and remembers what it was asked."""

    def __init__(self, *answers: HttpAnswer | Exception) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[str, str, Mapping[str, str], bytes | None]] = []

    async def exchange(self, method: str, url: str, headers: Mapping[str, str], body: bytes | None) -> HttpAnswer:
        self.asked.append((method, url, headers, body))
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def administration(self, target: ConnectionString = TARGET) -> Administration:
        return Administration(target, ADDRESS, self.exchange, lambda: NOW_S)


def item(name: str) -> broker_atom.Entry:
    content = queues.write(QueueDescription(name=name), Counts(active=1), 0)
    return broker_atom.Entry(f"{ADDRESS}/{name}", name, 0, 0, content)


def entry(name: str, status: int = 200) -> HttpAnswer:
    return HttpAnswer(status, broker_atom.entry(item(name), "bus").encode())


def feed(names: list[str], next_url: str | None = None) -> HttpAnswer:
    text = broker_atom.feed("Queues", ADDRESS, next_url, [item(name) for name in names], "bus", 0)
    return HttpAnswer(200, text.encode())


def refused(status: int, text: str) -> HttpAnswer:
    return HttpAnswer(status, error_document(Answer(status, status * 100), text, "id-1", "bus:q", "now").encode())


async def test_a_queue_is_asked_for_by_its_escaped_name() -> None:
    service = Service(entry("a/b c"))
    found = await service.administration().entity("a/b c")
    assert found.description.name == "a/b c"
    assert found.counts.active == 1
    ((method, url, _, body),) = service.asked
    assert (method, url, body) == ("GET", f"{ADDRESS}/a/b%20c?api-version=2021-05", None)


async def test_a_request_is_signed_for_its_own_path_so_that_an_entitys_policy_will_do() -> None:
    service = Service(entry("Orders"))
    await service.administration().entity("Orders")
    token = sas.parse(service.asked[0][2]["Authorization"])
    assert token.resource == f"{ADDRESS}/orders"
    assert token.policy == "root"
    assert NOW_S < token.expires_at_s <= NOW_S + 3600
    assert sas.verify(token, ["secret"])


async def test_a_ready_made_signature_is_passed_on() -> None:
    service = Service(entry("q"))
    await service.administration(ConnectionString("bus.test", signature="SharedAccessSignature x")).entity("q")
    assert service.asked[0][2]["Authorization"] == "SharedAccessSignature x"


async def test_a_list_goes_on_to_its_last_page() -> None:
    more = f"{ADDRESS}/$Resources/queues?$skip={PAGE}&$top={PAGE}"
    service = Service(feed(["a", "b"], more), feed(["c"]))
    names = [found.description.name async for found in service.administration().queues()]
    assert names == ["a", "b", "c"]
    assert [url.partition("?")[2] for _, url, _, _ in service.asked] == [
        f"api-version=2021-05&$skip=0&$top={PAGE}",
        f"api-version=2021-05&$skip={PAGE}&$top={PAGE}",
    ]


async def test_a_list_that_does_not_get_on_ends() -> None:
    service = Service(feed(["a"], f"{ADDRESS}/$Resources/queues?$skip=0"))
    assert len([found async for found in service.administration().queues()]) == 1


async def test_the_next_page_is_asked_for_here_wherever_the_link_leads() -> None:
    service = Service(feed(["a"], "https://evil.test/?$skip=1"), feed([]))
    assert len([found async for found in service.administration().queues()]) == 1
    assert service.asked[1][1].startswith(f"{ADDRESS}/")


async def test_creating_and_updating_differ_by_a_header() -> None:
    service = Service(entry("q", 201), entry("q"))
    administration = service.administration()
    assert (await administration.create(QueueDescription(name="q"))).description.name == "q"
    await administration.update(QueueDescription(name="q", max_delivery_count=4))
    (_, _, creating, _), (_, _, updating, body) = service.asked
    assert "If-Match" not in creating
    assert updating["If-Match"] == "*"
    assert body is not None
    assert b"<MaxDeliveryCount>4</MaxDeliveryCount>" in body


@pytest.mark.parametrize("destination", ["next", "sb://bus.test/next"])
async def test_forwarding_names_the_whole_address_and_proves_the_right_to_send_there(destination: str) -> None:
    service = Service(entry("q", 201))
    await service.administration().create(QueueDescription(name="q", forward_to=destination))
    _, _, headers, body = service.asked[0]
    assert body is not None
    assert b"<ForwardTo>sb://bus.test/next</ForwardTo>" in body
    assert sas.parse(headers["ServiceBusSupplementaryAuthorization"]).resource == f"{ADDRESS}/next"
    assert "ServiceBusDlqSupplementaryAuthorization" not in headers


async def test_deleting_needs_no_answer() -> None:
    service = Service(HttpAnswer(200, b""))
    await service.administration().delete("q")
    assert service.asked[0][:2] == ("DELETE", f"{ADDRESS}/q?api-version=2021-05")


@pytest.mark.parametrize(
    ("status", "condition"),
    [
        (400, "com.microsoft:argument-error"),
        (401, "amqp:unauthorized-access"),
        (404, "amqp:not-found"),
        (409, "com.microsoft:entity-already-exists"),
        (503, "com.microsoft:server-busy"),
        (418, "twinbus:status-418"),
    ],
)
async def test_a_refusal_says_why(status: int, condition: str) -> None:
    service = Service(refused(status, "Because."))
    with pytest.raises(AtomError, match=r"Because\.") as problem:
        await service.administration().entity("q")
    assert (problem.value.status, problem.value.condition) == (status, condition)


@pytest.mark.parametrize(
    ("code", "condition"),
    [("http-409", "twinbus:status-409"), ("entity-exists", "com.microsoft:entity-already-exists")],
)
async def test_a_conflict_that_is_no_taken_name_is_told_apart(code: str, condition: str) -> None:
    error = {"code": code, "message": "Because.", "tracking_id": "id"}
    service = Service(HttpAnswer(409, json.dumps({"error": error}).encode()))
    with pytest.raises(AtomError, match=r"Because\. TrackingId:id") as problem:
        await service.administration().ask_json("GET", "$api/x")
    assert problem.value.condition == condition


async def test_a_refusal_by_somebody_in_between_is_quoted() -> None:
    service = Service(HttpAnswer(502, b"<html><br>\n  Bad   gateway</html>"), HttpAnswer(502, b""))
    with pytest.raises(AtomError, match="Bad gateway"):
        await service.administration().entity("q")
    with pytest.raises(AtomError, match="refused with status 502"):
        await service.administration().entity("q")


async def test_a_missing_queue_may_be_an_empty_feed() -> None:
    service = Service(feed([]))
    with pytest.raises(AtomError, match=r"'q' could not be found") as problem:
        await service.administration().entity("q")
    assert (problem.value.status, problem.value.condition) == (404, "amqp:not-found")


async def test_a_subscription_is_asked_for_by_its_path_and_knows_its_topic() -> None:
    content = subscriptions.write(SubscriptionDescription(topic="a/t", name="s"), Counts(), 0)
    text = broker_atom.entry(broker_atom.Entry(f"{ADDRESS}/s", "s", 0, 0, content), "bus")
    service = Service(HttpAnswer(200, text.encode()))
    found = await service.administration().entity("a/t/subscriptions/s")
    assert found.description == SubscriptionDescription(topic="a/t", name="s")
    assert service.asked[0][1] == f"{ADDRESS}/a/t/subscriptions/s?api-version=2021-05"


async def test_rules_live_below_their_subscription() -> None:
    rule = RuleDescription("big", SqlFilter("size > 5"), None, NOW_S * 1000)
    text = broker_atom.entry(broker_atom.Entry(ADDRESS, "big", 0, 0, rule_markup.write(rule)), "bus").encode()
    service = Service(HttpAnswer(201, text), HttpAnswer(200, text), HttpAnswer(200, text), HttpAnswer(200, b""))
    administration = service.administration()
    path = "t/Subscriptions/s"
    assert await administration.create_rule(path, rule) == rule
    assert await administration.update_rule(path, rule) == rule
    assert await administration.rule(path, "big") == rule
    await administration.delete_rule(path, "big")
    assert [method for method, *_ in service.asked] == ["PUT", "PUT", "GET", "DELETE"]
    assert {url for _, url, *_ in service.asked} == {f"{ADDRESS}/t/Subscriptions/s/Rules/big?api-version=2021-05"}
    assert ["If-Match" in headers for _, _, headers, _ in service.asked] == [False, True, False, False]


@pytest.mark.parametrize("body", [b"", b"welcome to our portal", b'<!DOCTYPE a SYSTEM "x"><a/>'])
async def test_an_answer_that_makes_no_sense_is_told_so(body: bytes) -> None:
    for work in ("entity", "namespace"):
        service = Service(HttpAnswer(200, body))
        arguments = ["q"] if work == "entity" else []
        with pytest.raises(AtomError, match="not understood") as problem:
            await getattr(service.administration(), work)(*arguments)
        assert problem.value.condition == "twinbus:unreadable"


@pytest.mark.parametrize(
    ("failure", "condition"),
    [
        (TimeoutError(), "twinbus:timed-out"),
        (aiohttp.ClientPayloadError("cut off"), "twinbus:unreachable"),
        (OSError("no route"), "twinbus:unreachable"),
    ],
)
async def test_no_answer_is_no_traceback(failure: Exception, condition: str) -> None:
    with pytest.raises(ClientError) as problem:
        await Service(failure).administration().entity("q")
    assert problem.value.condition == condition
    assert ADDRESS in problem.value.text


async def test_the_namespace_tells_of_itself() -> None:
    content = broker_atom.namespace_info("contoso", NOW_S * 1000)
    text = broker_atom.entry(broker_atom.Entry(ADDRESS, "contoso", 0, 0, content), "contoso")
    info: Any = await Service(HttpAnswer(200, text.encode())).administration().namespace()
    assert (info.name, info.tier, info.created_at_ms) == ("contoso", "Standard", NOW_S * 1000)
