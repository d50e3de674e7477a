"""Management requests: what is asked, read by the broker's own reader, and what becomes of the answers."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from twinbus.amqp.performatives import Error, Rejected
from twinbus.client import ClientError
from twinbus.client.messages import build, read
from twinbus.model.message import Delivered, Outcome, ReceiveMode
from twinbus.wire import message as wire
from twinbus.wire import operations

TOKEN = UUID("00112233-4455-6677-8899-aabbccddeeff")


def peeked(*numbers: int) -> tuple[int, dict[str, Any], None]:
    return 200, operations.peeked(map(numbered, numbers)), None


def numbered(number: int) -> bytes:
    (incoming,) = wire.read(build(b"x", message_id=str(number)), 0, ttl_ceiling_ms=None, new_id=str)
    return wire.stamp(Delivered(number, incoming.record, str(number), 0, 1), locked=False, peeked=True)


def asked(peer: Any) -> Any:
    return operations.read_operation(peer.requests[-1])


async def test_a_request_goes_to_the_node_of_the_entity(peer: Any, open_connection: Any) -> None:
    peer.responses = [peeked(7, 9)]
    async with open_connection() as connection:
        found = await (await connection.management("orders")).peek(3, 10, "s")
    assert [read(payload).sequence_number for payload in found] == [7, 9]
    assert asked(peer) == operations.PeekMessages(3, 10, "s")
    assert peer.requests[0].reply_to == "orders/$management"
    assert peer.requests[0].server_timeout_ms == 1000


@pytest.mark.parametrize("answer", [(204, {}, None), (202, {}, None), (404, {}, "com.microsoft:message-not-found")])
async def test_nothing_to_see_is_no_error(peer: Any, open_connection: Any, answer: Any) -> None:
    peer.responses = [answer] * 3
    async with open_connection() as connection:
        management = await connection.management()
        assert await management.peek(0, 1) == []
        assert await management.sessions() == []
        assert await management.delete(10, 5) == 0


async def test_peeking_goes_on_from_the_last_message_until_there_is_none(peer: Any, open_connection: Any) -> None:
    peer.responses = [peeked(1, 2), peeked(5), (204, {}, None)]
    async with open_connection() as connection:
        pages = [page async for page in (await connection.management()).peek_all()]
    assert [len(page) for page in pages] == [2, 1]
    assert [operations.read_operation(request).from_sequence_number for request in peer.requests] == [0, 3, 6]  # type: ignore[union-attr]


async def test_peeking_stops_at_the_count(peer: Any, open_connection: Any) -> None:
    peer.responses = [peeked(1, 2), peeked(3)]
    async with open_connection() as connection:
        pages = [page async for page in (await connection.management()).peek_all(0, 3)]
    assert sum(map(len, pages)) == 3
    assert asked(peer).limit == 1


@pytest.mark.parametrize("there", [[], [1], [5], [1, 2, 3], [3, 900, 2**48 + 17], list(range(10, 60, 7))])
async def test_the_last_number_is_found(peer: Any, open_connection: Any, there: list[int]) -> None:
    class Shown(list[Any]):
        """Shows the first message from the number that was asked for."""

        def pop(self, _: Any = -1) -> Any:
            start = asked(peer).from_sequence_number
            found = [number for number in there if number >= start]
            return peeked(found[0]) if found else (204, {}, None)

    peer.responses = Shown(["an answer to everything"])
    async with open_connection() as connection:
        assert await (await connection.management()).last_sequence_number() == (there[-1] if there else None)
    assert len(peer.requests) <= 130


async def test_deferred_messages_come_with_their_tokens(peer: Any, open_connection: Any) -> None:
    peer.responses = [(200, operations.received([(b"payload", TOKEN.bytes_le)]), None)]
    async with open_connection() as connection:
        held = await (await connection.management()).receive_deferred([4, 5], ReceiveMode.RECEIVE_AND_DELETE, "s")
    assert held == [(TOKEN, b"payload")]
    assert asked(peer) == operations.ReceiveDeferred([4, 5], ReceiveMode.RECEIVE_AND_DELETE, "s")


@pytest.mark.parametrize("outcome", [Outcome.COMPLETE, Outcome.ABANDON, Outcome.DEFER, Outcome.DEAD_LETTER])
async def test_settling_by_token(peer: Any, open_connection: Any, outcome: Outcome) -> None:
    peer.responses = [(200, {}, None)]
    async with open_connection() as connection:
        await (await connection.management()).settle([TOKEN], outcome, reason="r", description="d")
    request = asked(peer)
    assert request.tokens == [TOKEN.bytes_le]
    assert request.decision.outcome is outcome
    dead = outcome is Outcome.DEAD_LETTER
    assert (request.decision.reason, request.decision.description) == (("r", "d") if dead else (None, None))


async def test_scheduling_and_cancelling(peer: Any, open_connection: Any) -> None:
    payload = build(b"x", message_id="id", session_id="s", partition_key="s", due_at_ms=5)
    peer.responses = [(200, operations.sequence_numbers([11]), None), (200, {}, None)]
    async with open_connection() as connection:
        management = await connection.management()
        numbers = await management.schedule([payload])
        entry = peer.requests[0].body["messages"][0]
        await management.cancel(numbers)
    assert numbers == [11]
    assert entry == {"message-id": "id", "message": payload, "session-id": "s", "partition-key": "s"}
    assert asked(peer) == operations.CancelScheduled([11])


async def test_locks_are_renewed(peer: Any, open_connection: Any) -> None:
    peer.responses = [(200, operations.expirations([5]), None), (200, operations.expiration(6), None)]
    async with open_connection() as connection:
        management = await connection.management()
        assert await management.renew_locks([TOKEN]) == [5]
        assert asked(peer) == operations.RenewLocks([TOKEN.bytes_le])
        assert await management.renew_session_lock("s") == 6
        assert asked(peer) == operations.RenewSessionLock("s")


async def test_session_state_can_be_there_or_not(peer: Any, open_connection: Any) -> None:
    peer.responses = [(200, operations.session_state(state), None) for state in (b"state", None)] + [(200, {}, None)]
    async with open_connection() as connection:
        management = await connection.management()
        assert await management.session_state("s") == b"state"
        assert await management.session_state("s") is None
        await management.set_session_state("s", None)
    assert asked(peer) == operations.SetSessionState("s", None)


async def test_sessions_are_listed_page_by_page(peer: Any, open_connection: Any) -> None:
    names = [f"s-{number}" for number in range(130)]
    peer.responses = [
        (200, operations.session_ids(100, names[:100]), None),
        (200, operations.session_ids(130, names[100:]), None),
    ]
    async with open_connection() as connection:
        assert await (await connection.management()).sessions() == names
    assert asked(peer) == operations.ListSessions(None, 100, 100)


async def test_deleting_tells_how_many(peer: Any, open_connection: Any) -> None:
    peer.responses = [(200, operations.deleted(3), None)]
    async with open_connection() as connection:
        assert await (await connection.management()).delete(10, 5) == 3
    assert asked(peer) == operations.DeleteMessages(10, 5)


@pytest.mark.parametrize(
    ("status", "named", "condition"),
    [
        (410, "com.microsoft:message-lock-lost", "com.microsoft:message-lock-lost"),
        (501, None, "amqp:not-implemented"),
        (599, None, "twinbus:status-599"),
    ],
)
async def test_a_refusal_says_why(peer: Any, open_connection: Any, status: int, named: str, condition: str) -> None:
    peer.responses = [(status, {}, named)]
    async with open_connection() as connection:
        with pytest.raises(ClientError, match="as the test says") as problem:
            await (await connection.management()).renew_locks([TOKEN])
    assert problem.value.condition == condition


async def test_a_request_that_is_not_taken_fails_at_once(peer: Any, open_connection: Any) -> None:
    peer.outcome = Rejected(Error("amqp:decode-error", "what is this?"))
    async with open_connection() as connection:
        with pytest.raises(ClientError, match=r"what is this\?"):
            await (await connection.management()).peek(0, 1)


async def test_a_node_that_hangs_up_leaves_nobody_waiting(peer: Any, open_connection: Any) -> None:
    async with open_connection() as connection:
        management = await connection.management()
        peer.requested = lambda *_: peer.hang_up()
        with pytest.raises(ClientError) as problem:
            await management.peek(0, 1)
        assert problem.value.condition == "twinbus:connection-lost"
        with pytest.raises(ClientError):
            await management.peek(0, 1)


async def test_an_entity_that_is_not_there_is_refused_at_the_attach(peer: Any, open_connection: Any) -> None:
    peer.refusals["nope/$management"] = Error("amqp:not-found", "there is no such thing")
    async with open_connection() as connection:
        with pytest.raises(ClientError, match="no such thing"):
            await connection.management("nope")
