"""Hybrid Connections as the protocol describes them, spoken by hand: statuses, close codes, limits, rights, headers.

The relay runs in this process, so that a limit can be short for one request. The published clients are in
test_relay_javascript.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

import aiohttp
import pytest
import pytest_asyncio

from support import journals
from support.broker import KEY, ROOT_POLICY
from support.relay import LISTENER_KEY, SENDER_KEY, SERVICE, Relay, answer_on, closing, relay_in
from twinbus.model.entity import QueueDescription
from twinbus.model.errors import BusError, Fault
from twinbus.model.hybrid import HybridConnectionDescription
from twinbus.wire.sas import make_token

pytestmark = [pytest.mark.feature("relay"), pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def relay(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Relay]:
    async with relay_in(tmp_path_factory.mktemp("relay")) as started:
        yield started


async def refused(opening: object) -> int:
    with pytest.raises(aiohttp.WSServerHandshakeError) as refusal:
        await opening  # type: ignore[misc]
    return refusal.value.status


# Rights


async def test_a_listener_needs_a_good_token_with_the_listen_right(relay: Relay) -> None:
    url = relay.url("listen")
    assert await refused(relay.session.ws_connect(url)) == 401
    assert await refused(relay.listen(token=relay.token(key="another-key-than-the-right-one"))) == 401
    assert await refused(relay.listen(token=relay.token(lifetime_s=-5))) == 401
    assert await refused(relay.listen(token=relay.token(policy="sender", key=SENDER_KEY))) == 403
    assert await refused(relay.listen(token=relay.token(path="other"))) == 401
    listener = await relay.listen(token=relay.token(policy="listener", key=LISTENER_KEY))
    await listener.socket.close()


async def test_a_sender_needs_the_send_right(relay: Relay) -> None:
    headers = relay.headers(policy="listener", key=LISTENER_KEY)
    assert (await relay.request(headers=headers))[0] == 403
    assert (await relay.request(headers={}))[0] == 401
    assert await refused(relay.connect(headers=headers)) == 403
    assert await refused(relay.connect(headers={})) == 401


async def test_a_token_is_found_in_all_its_places_with_and_without_a_port(relay: Relay) -> None:
    for host in (relay.host, "127.0.0.1"):
        token = make_token(f"sb://{host}/service", ROOT_POLICY, KEY, 1 << 34)
        assert (await relay.request(headers={"ServiceBusAuthorization": token}))[0] == 502
        assert (await relay.request(headers={"Authorization": token}))[0] == 502
        assert (await relay.request(below=f"?sb-hc-token={quote(token, safe='')}", headers={}))[0] == 502


async def test_an_open_hybrid_connection_takes_senders_without_a_token(relay: Relay) -> None:
    listener = await relay.listen("open")
    sending = asyncio.create_task(relay.session.get(f"http://{relay.host}/open", headers={"Authorization": "mine"}))
    told = await listener.command("request")
    assert told["requestHeaders"]["Authorization"] == "mine"
    await listener.respond(told["id"])
    assert (await sending).status == 200
    assert await refused(relay.session.ws_connect(relay.url("listen", "open"))) == 401
    await listener.socket.close()


# Paths


async def test_a_path_that_is_not_there_is_not_found(relay: Relay) -> None:
    assert await refused(relay.listen("nowhere")) == 404
    assert await refused(relay.listen("service/below")) == 404
    assert await refused(relay.connect("nowhere")) == 404
    async with relay.session.get(f"http://{relay.host}/nowhere", headers=relay.headers()) as answer:
        assert (answer.status, "Via" in answer.headers) == (404, False)


async def test_what_is_no_websocket_or_no_action_is_refused(relay: Relay) -> None:
    async with relay.session.get(relay.url("listen").replace("ws:", "http:")) as answer:
        assert answer.status == 426
    assert await refused(relay.session.ws_connect(relay.url("dance"))) == 400
    assert await refused(relay.session.ws_connect(relay.url("accept", more="&sb-hc-id=unknown"))) == 404
    assert await refused(relay.session.ws_connect(relay.url("request", more="&sb-hc-id=unknown"))) == 404


async def test_a_name_is_a_hybrid_connection_s_or_a_queue_s_and_not_both(relay: Relay) -> None:
    token = relay.token(path="")
    put = f"http://{relay.host}/$api/hybrid-connections"
    entry = (
        '<entry xmlns="http://www.w3.org/2005/Atom"><content type="application/xml"><QueueDescription '
        'xmlns="http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"/></content></entry>'
    )
    headers = {"Authorization": token}
    queue = f"http://{relay.host}/a-queue?api-version=2021-05"
    async with relay.session.put(queue, data=entry, headers=headers) as answer:
        assert answer.status == 201
    async with relay.session.put(f"{put}/a-queue/below", json={}, headers=headers) as answer:
        assert answer.status == 409
    async with relay.session.put(f"{put}/a/relay", json={"user_metadata": "mine"}, headers=headers) as answer:
        assert (await answer.json())["name"] == "a/relay"
    with pytest.raises(BusError) as refusal:
        await relay.namespace.create_queue(QueueDescription(name="a"))
    assert refusal.value.fault is Fault.ENTITY_EXISTS
    async with relay.session.get(put, headers=headers) as answer:
        names = [each["name"] for each in (await answer.json())["hybrid_connections"]]
    assert names == ["a/relay", "open", "service"]
    async with relay.session.delete(f"{put}/a/relay", headers=headers) as answer:
        assert await answer.json() == {"deleted": "a/relay"}
    async with relay.session.get(queue, headers=headers) as answer:
        assert answer.status == 200  # Administration goes on beside the relay.


# Requests


async def test_without_a_listener_a_sender_is_told_502(relay: Relay) -> None:
    status, _, headers = await relay.request()
    assert (status, "Via" in headers) == (502, False)
    assert await refused(relay.connect()) == 502


async def test_a_request_is_told_as_the_protocol_says(relay: Relay) -> None:
    listener = await relay.listen()
    sent = {"X-Mine": "1", "Connection": "keep-alive, X-Hop", "X-Hop": "no", "TE": "trailers", **relay.headers()}
    sending = asyncio.create_task(relay.request("PUT", "/below?a=1&sb-hc-id=x&b=2", data=b"body", headers=sent))
    told = await listener.command("request")
    assert (told["method"], told["requestTarget"], told["body"]) == ("PUT", "/service/below?a=1&b=2", True)
    assert told["address"].startswith(f"ws://{relay.host}/$hc/service?sb-hc-action=request&sb-hc-id=")
    names = {name.lower() for name in told["requestHeaders"]}
    assert names.isdisjoint({"x-hop", "te", "host", "connection", "content-length", "servicebusauthorization"})
    assert (told["requestHeaders"]["X-Mine"], told["requestHeaders"]["Via"]) == ("1", f"1.1 {relay.host}")
    assert await listener.socket_body() == b"body"
    cookies = ["a=1", "b=2"]
    await listener.respond(
        told["id"], b"done", statusCode="201", statusDescription="Made", responseHeaders={"Set-Cookie": cookies}
    )
    status, body, headers = await sending
    assert (status, body, headers["Via"]) == (201, b"done", f"1.1 {relay.host}")
    await listener.socket.close()


async def test_an_authorization_header_that_was_for_the_relay_is_not_passed_on(relay: Relay) -> None:
    listener = await relay.listen()
    sending = asyncio.create_task(relay.request(headers={"Authorization": relay.token()}))
    told = await listener.command("request")
    assert "Authorization" not in told["requestHeaders"]
    await listener.respond(told["id"])
    assert (await sending)[0] == 200
    await listener.socket.close()


async def test_a_listener_that_does_not_answer_is_waited_for_and_then_504(relay: Relay) -> None:
    listener = await relay.listen()
    with relay.limited(response_s=0.3):
        status, _, headers = await relay.request()
    assert (status, "Via" in headers) == (504, False)
    told = await listener.command("request")
    sending = asyncio.create_task(relay.request())
    other = await listener.command("request")
    await listener.respond(told["id"], b"too late")
    await listener.respond(other["id"], b"in time")
    assert (await sending)[1] == b"in time"
    await listener.socket.close()


async def test_a_listener_that_goes_away_before_it_answered_is_504(relay: Relay) -> None:
    listener = await relay.listen()
    sending = asyncio.create_task(relay.request())
    await listener.command("request")
    await listener.socket.close()
    assert (await sending)[0] == 504


async def test_a_response_that_stops_halfway_breaks_the_sender_s_connection_off(relay: Relay) -> None:
    listener = await relay.listen()
    with relay.limited(idle_s=0.3):
        sending = asyncio.create_task(relay.request())
        told = await listener.command("request")
    async with relay.session.ws_connect(told["address"]) as rendezvous:
        response = {"requestId": told["id"], "statusCode": 200, "responseHeaders": {}, "body": True}
        await rendezvous.send_str(json.dumps({"response": response}))
        with pytest.raises(aiohttp.ClientPayloadError):
            await sending
    await listener.socket.close()


async def test_a_large_request_is_told_on_a_rendezvous_that_is_good_once(relay: Relay) -> None:
    listener = await relay.listen()
    large = b"y" * 300_000
    sending = asyncio.create_task(relay.request("POST", data=large))
    told = await listener.command("request")
    assert list(told) == ["address"]
    async with relay.session.ws_connect(told["address"], max_msg_size=0) as rendezvous:
        assert await refused(relay.session.ws_connect(told["address"])) == 404
        request = (await rendezvous.receive_json())["request"]
        assert await rendezvous.receive_bytes() == large
        await answer_on(rendezvous, "another-request", b"for somebody else")
        await answer_on(rendezvous, request["id"], large)
        assert (await sending)[1] == large
        assert await closing(rendezvous) == 1000
    await listener.socket.close()


async def test_headers_beyond_their_limit_are_refused(relay: Relay) -> None:
    listener = await relay.listen()
    many = {f"X-{number}": "v" * 8_200 for number in range(4)} | relay.headers()
    assert (await relay.request(headers=many))[0] == 431
    await listener.socket.close()


async def test_a_response_that_is_none_ends_the_listener(relay: Relay) -> None:
    listener = await relay.listen()
    await listener.socket.send_bytes(b"a body without a response")
    assert await closing(listener.socket) == 1008


async def test_a_body_too_large_for_the_control_channel_ends_the_listener(relay: Relay) -> None:
    listener = await relay.listen()
    sending = asyncio.create_task(relay.request())
    told = await listener.command("request")
    await listener.respond(told["id"], b"z" * 65_537)
    assert await closing(listener.socket) == 1008
    assert (await sending)[0] == 504


# Listeners


async def test_no_more_listeners_than_allowed_can_be(relay: Relay) -> None:
    listeners = [await relay.listen(), await relay.listen()]
    assert await refused(relay.listen()) == 403
    async with relay.session.get(
        f"http://{relay.host}/$api/hybrid-connections/service", headers={"Authorization": relay.token(path="")}
    ) as answer:
        assert (await answer.json())["listeners"] == 2
    for listener in listeners:
        await listener.socket.close()
    await (await relay.listen()).socket.close()


async def test_a_listener_is_closed_when_its_token_expires_unless_it_renews(relay: Relay) -> None:
    # Long enough for both to come, and for one of them to renew it, however busy the machine is.
    token = relay.token(lifetime_s=6)
    renewed = await relay.listen(token=token)
    await renewed.socket.send_json({"renewToken": {"token": relay.token()}})
    short = await relay.listen(token=token)
    assert await closing(short.socket) == 1008
    sending = asyncio.create_task(relay.request())
    told = await renewed.command("request")
    await renewed.respond(told["id"])
    assert (await sending)[0] == 200
    await renewed.socket.send_json({"renewToken": {"token": relay.token(key="another-key-than-the-right-one")}})
    assert await closing(renewed.socket) == 1008


async def test_when_a_hybrid_connection_is_deleted_everybody_is_told_1001(relay: Relay) -> None:
    await relay.namespace.hybrids.create(HybridConnectionDescription(name="short-lived"))
    listener = await relay.listen("short-lived")
    connecting = asyncio.create_task(relay.connect("short-lived"))
    accepted = await listener.accept()
    sender = await connecting
    await relay.namespace.hybrids.delete("short-lived")
    assert [await closing(each) for each in (listener.socket, accepted, sender)] == [1001] * 3
    assert await refused(relay.listen("short-lived")) == 404


async def test_a_listener_whose_key_is_gone_is_closed(relay: Relay) -> None:
    hybrids = relay.namespace.hybrids
    await hybrids.create(replace(SERVICE, name="keyed"))
    listener = await relay.listen("keyed", relay.token("keyed", "listener", LISTENER_KEY))
    url = f"http://{relay.host}/$api/hybrid-connections/keyed"
    async with relay.session.put(url, json={"policies": []}, headers={"Authorization": relay.token(path="")}) as answer:
        assert (answer.status, (await answer.json())["policies"]) == (200, [])
    assert await closing(listener.socket) == 1008
    await hybrids.delete("keyed")


# Sockets


async def test_a_sender_and_a_listener_talk_in_messages(relay: Relay) -> None:
    listener = await relay.listen()
    more = "&a=1&sb-hc-id=mine"
    connecting = asyncio.create_task(relay.connect("service/below", more, protocols=["chat", "talk"]))
    told = await listener.command("accept")
    assert f"/$hc/service/below?sb-hc-action=accept&sb-hc-id={told['id']}&a=1" in told["address"]
    headers = {name.lower(): value for name, value in told["connectHeaders"].items()}
    assert headers["sec-websocket-protocol"] == "chat,talk"
    assert "sec-websocket-key" in headers
    assert "servicebusauthorization" not in headers
    accepted = await relay.session.ws_connect(told["address"], protocols=["talk"])
    sender = await connecting
    assert (sender.protocol, accepted.protocol) == ("talk", "talk")
    await sender.send_str("a text")
    await sender.send_bytes(b"")
    assert (await accepted.receive()).data == "a text"
    assert (await accepted.receive()).data == b""
    await accepted.send_bytes(b"bytes" * 100_000)
    received = (await sender.receive()).data
    assert len(received) == 500_000
    assert received.count(b"bytes") == 100_000
    assert await refused(relay.session.ws_connect(told["address"])) == 404
    await accepted.close(code=4001, message=b"enough")
    assert await closing(sender) == 4001
    await listener.socket.close()


async def test_a_sender_that_goes_away_closes_the_rendezvous_with_1001(relay: Relay) -> None:
    listener = await relay.listen()
    connecting = asyncio.create_task(relay.connect())
    accepted = await listener.accept()
    sender = await connecting
    assert sender._response.connection is not None
    transport = sender._response.connection.transport
    assert transport is not None
    transport.abort()
    assert await closing(accepted) == 1001
    await listener.socket.close()


async def test_a_listener_s_rejection_reaches_the_sender_and_is_confirmed_with_410(relay: Relay) -> None:
    listener = await relay.listen()
    connecting = asyncio.create_task(relay.connect())
    told = await listener.command("accept")
    reject = f"{told['address']}&sb-hc-statusCode=429&sb-hc-statusDescription=Too%20busy"
    assert await refused(relay.session.ws_connect(reject)) == 410
    with pytest.raises(aiohttp.WSServerHandshakeError) as refusal:
        await connecting
    assert (refusal.value.status, refusal.value.headers and "Via" in refusal.value.headers) == (429, True)
    await listener.socket.close()


async def test_a_listener_that_does_not_come_for_a_socket_is_504(relay: Relay) -> None:
    listener = await relay.listen()
    with relay.limited(accept_s=0.3):
        assert await refused(relay.connect()) == 504
    told = await listener.command("accept")
    assert await refused(relay.session.ws_connect(told["address"])) == 404
    await listener.socket.close()


# The journal, and a restart


async def test_what_is_relayed_is_in_the_journal_with_its_size(tmp_path: Path) -> None:
    async with relay_in(tmp_path) as relay:
        listener = await relay.listen()
        sending = asyncio.create_task(relay.request("POST", data=b"b" * 1000))
        told = await listener.command("request")
        await listener.socket_body()
        await listener.respond(told["id"], b"r" * 2000)
        await sending
        connecting = asyncio.create_task(relay.connect())
        accepted = await listener.accept()
        sender = await connecting
        await sender.send_bytes(b"s" * 3000)
        await accepted.receive()
        await sender.close()
        await closing(accepted)
    entries = journals.entries_in(tmp_path, "service")
    assert [(entry.operation, entry.outcome) for entry in entries] == [
        ("relay_listen", ""),
        ("relay_request", ""),
        ("relay_response", "200"),
        ("relay_connect", ""),
    ]
    sizes = [entry.bytes for entry in entries]
    assert sizes[0] == 0
    assert 1000 < sizes[1] < 2000 < sizes[2] < 3000 == sizes[3]
    assert {entry.tracking_id for entry in entries[1:3]} == {told["id"]}


async def test_hybrid_connections_are_kept_over_a_restart(tmp_path: Path) -> None:
    async with relay_in(tmp_path) as first:
        await first.namespace.hybrids.create(HybridConnectionDescription(name="kept", user_metadata="mine"))
    async with relay_in(tmp_path) as second:
        assert second.namespace.hybrids.get("KEPT").description.user_metadata == "mine"
        await (await second.listen("kept")).socket.close()
