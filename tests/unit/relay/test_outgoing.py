"""A response on its way: what fits into the control channel goes there, all else in parts of bounded size."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

import pytest

from twinbus.relay.messages import RelayedRequest, RelayedResponse, whole
from twinbus.relay.outgoing import CHUNK_BYTES, CONTROL_BODY_BYTES_MAX, Outgoing


async def parts(*given: bytes) -> AsyncIterator[bytes]:
    for part in given:
        yield part


async def never(*given: bytes) -> AsyncIterator[bytes]:
    for part in given:
        yield part
    await asyncio.Event().wait()


@pytest.mark.parametrize(
    ("response", "body"),
    [
        (RelayedResponse(), b""),
        (RelayedResponse(body=b"all"), b"all"),
        (RelayedResponse(body=b"a", more=parts(b"b", b"", b"c")), b"abc"),
        (RelayedResponse(more=parts()), b""),
        (RelayedResponse(body=bytes(CONTROL_BODY_BYTES_MAX)), bytes(CONTROL_BODY_BYTES_MAX)),
        (RelayedResponse(body=bytes(CONTROL_BODY_BYTES_MAX + 1)), None),
        (RelayedResponse(more=parts(bytes(CONTROL_BODY_BYTES_MAX), b"x")), None),
        (RelayedResponse(more=never(b"the beginning")), None),
    ],
)
async def test_a_body_that_soon_has_ended_is_short_if_the_control_channel_takes_it(
    response: RelayedResponse, body: bytes | None
) -> None:
    outgoing = Outgoing(response)
    assert await outgoing.short_body() == body
    await outgoing.close()


async def test_nothing_is_lost_of_a_body_that_turned_out_to_be_long() -> None:
    long = bytes(range(256)) * 2_000
    outgoing = Outgoing(RelayedResponse(body=b"first", more=parts(long, b"last")))
    assert await outgoing.short_body() is None
    chunks = [chunk async for chunk in outgoing.chunks()]
    assert b"".join(chunks) == b"first" + long + b"last"
    assert max(map(len, chunks)) <= CHUNK_BYTES
    await outgoing.close()


async def test_an_empty_body_is_one_empty_part() -> None:
    outgoing = Outgoing(RelayedResponse(more=parts()))
    assert outgoing.may_have_body
    assert [chunk async for chunk in outgoing.chunks()] == [b""]
    assert not Outgoing(RelayedResponse()).may_have_body


async def test_whoever_makes_a_body_is_let_go_when_it_is_not_wanted_any_more() -> None:
    released = asyncio.Event()

    async def held() -> AsyncIterator[bytes]:
        try:
            yield b"one"
            await asyncio.Event().wait()
        finally:
            released.set()

    outgoing = Outgoing(RelayedResponse(more=held()))
    assert await outgoing.short_body() is None
    await outgoing.close()
    assert released.is_set()


async def test_a_head_tells_status_reason_and_headers_of_which_some_come_twice() -> None:
    headers = [("X-One", "1"), ("Set-Cookie", "a"), ("Set-Cookie", "b")]
    told = json.loads(Outgoing(RelayedResponse(418, b"", headers, "Teapot")).head("7", has_body=True))
    assert told == {
        "response": {
            "requestId": "7",
            "statusCode": 418,
            "statusDescription": "Teapot",
            "responseHeaders": {"X-One": "1", "Set-Cookie": ["a", "b"]},
            "body": True,
        }
    }


@pytest.mark.parametrize(
    ("target", "below"),
    [
        ("/My%20Service/a?b=c", "/a?b=c"),
        ("/my%20service", "/"),
        ("/my%20service?b", "/?b"),
        ("/elsewhere", "/elsewhere"),
    ],
)
def test_a_service_sees_what_is_below_the_name_at_which_it_listens(target: str, below: str) -> None:
    assert RelayedRequest("GET", target, {}, whole(b""), 0, 0, "my service").below == below


async def test_a_request_is_read_once() -> None:
    request = RelayedRequest("POST", "/service", {}, whole(b"body"), 0, 4)
    assert [await request.read(), await request.read()] == [b"body", b""]
