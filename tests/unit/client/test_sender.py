"""Sending: windows, credit, outcomes, and giving up."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from twinbus.amqp.performatives import ACCEPTED, RELEASED, Error, Modified, Rejected
from twinbus.client import ClientError

Turns = Callable[[], Awaitable[None]]


def numbered(count: int) -> list[bytes]:
    return [b"message %d" % number for number in range(count)]


async def test_send_returns_when_all_are_accepted_and_keeps_the_order(peer: Any, open_connection: Any) -> None:
    async with open_connection() as connection:
        sender = await connection.sender()
        await sender.send(numbered(50))
        assert sender.under_way == 0
    assert peer.sent == numbered(50)


async def test_sending_nothing_is_done_at_once(peer: Any, open_connection: Any) -> None:
    async with open_connection() as connection:
        await (await connection.sender()).send([])
    assert peer.sent == []


async def test_one_turn_is_one_write(peer: Any, open_connection: Any, let_turns_pass: Turns) -> None:
    async with open_connection() as connection:
        sender = await connection.sender()
        await let_turns_pass()
        before = len(peer.transport.writes)
        lots = [sender.send_nowait([payload]) for payload in numbered(20)]
        await let_turns_pass()
        assert len(peer.transport.writes) == before + 1
        await asyncio.gather(*lots)


async def test_no_more_than_the_window_waits_for_outcomes(
    peer: Any, open_connection: Any, let_turns_pass: Turns
) -> None:
    peer.outcome = None
    async with open_connection() as connection:
        sender = await connection.sender(window=10)
        sending = sender.send_nowait(numbered(25))
        await let_turns_pass()
        assert len(peer.sent) == 10
        assert sender.under_way == 25
        peer.answer("orders", peer.unsettled[:4], ACCEPTED)
        await let_turns_pass()
        assert len(peer.sent) == 14
        peer.outcome = ACCEPTED
        peer.answer("orders", peer.unsettled[4:], ACCEPTED)
        await sending
    assert peer.sent == numbered(25)


async def test_credit_is_obeyed(peer: Any, open_connection: Any, let_turns_pass: Turns) -> None:
    peer.credit = 3
    async with open_connection() as connection:
        sender = await connection.sender()
        sending = sender.send_nowait(numbered(5))
        await let_turns_pass()
        assert len(peer.sent) == 3
        assert not sending.done()
        peer.links["orders in"].grant(10)
        peer.flush()
        await sending
    assert peer.sent == numbered(5)


async def test_a_paused_socket_is_not_filled_further(peer: Any, open_connection: Any, let_turns_pass: Turns) -> None:
    async with open_connection() as connection:
        sender = await connection.sender()
        peer.transport.protocol.pause_writing()
        sending = sender.send_nowait(numbered(3))
        await let_turns_pass()
        assert peer.sent == []
        peer.transport.protocol.resume_writing()
        await sending
    assert peer.sent == numbered(3)


async def test_lots_have_outcomes_of_their_own_in_any_order(
    peer: Any, open_connection: Any, let_turns_pass: Turns
) -> None:
    peer.outcome = None
    async with open_connection() as connection:
        sender = await connection.sender()
        first, second = sender.send_nowait(numbered(2)), sender.send_nowait(numbered(2))
        await let_turns_pass()
        peer.answer("orders", peer.unsettled[2:], ACCEPTED)
        await second
        assert not first.done()
        peer.answer("orders", peer.unsettled[:2], ACCEPTED)
        await first


async def test_a_rejection_names_condition_text_and_position(
    peer: Any, open_connection: Any, let_turns_pass: Turns
) -> None:
    peer.outcome = None
    async with open_connection() as connection:
        sender = await connection.sender()
        sending = sender.send_nowait(numbered(4))
        await let_turns_pass()
        rejected = Rejected(Error("amqp:link:message-size-exceeded", "too large TrackingId:abc"))
        peer.answer("orders", [peer.unsettled[2]], rejected)
        peer.answer("orders", [peer.unsettled[i] for i in (0, 1, 3)], ACCEPTED)
        with pytest.raises(ClientError, match="too large TrackingId:abc") as problem:
            await sending
        await let_turns_pass()
        peer.outcome = ACCEPTED
        await sender.send([b"the link goes on"])
    assert problem.value.condition == "amqp:link:message-size-exceeded"
    assert list(problem.value.failed) == [2]
    assert (problem.value.transient, problem.value.definite) == (False, True)


@pytest.mark.parametrize("outcome", [RELEASED, Modified(delivery_failed=True), Rejected()])
async def test_an_outcome_other_than_accepted_is_a_failure(peer: Any, open_connection: Any, outcome: Any) -> None:
    peer.outcome = outcome
    async with open_connection() as connection:
        with pytest.raises(ClientError, match=type(outcome).__name__.lower()) as problem:
            await (await connection.sender()).send([b"one"])
    assert problem.value.condition == "twinbus:not-taken"
    assert problem.value.definite


async def test_who_stops_waiting_takes_back_what_was_not_sent(
    peer: Any, open_connection: Any, let_turns_pass: Turns
) -> None:
    peer.outcome = None
    async with open_connection() as connection:
        sender = await connection.sender(window=2)
        sending = asyncio.ensure_future(sender.send(numbered(5)))
        await let_turns_pass()
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        peer.outcome = ACCEPTED
        peer.answer("orders", peer.unsettled, ACCEPTED)
        await sender.send([b"next"])
    assert peer.sent == [*numbered(2), b"next"]


async def test_the_message_format_goes_along(peer: Any, open_connection: Any, let_turns_pass: Turns) -> None:
    formats: list[int] = []
    take = peer.take

    def noting(link: Any, items: Any) -> None:
        formats.extend(item[2] for item in items)
        take(link, items)

    peer.take = noting
    async with open_connection() as connection:
        sender = await connection.sender()
        await sender.send([b"a batch"], 0x80013700)
        await sender.send([b"a message"])
    assert formats == [0x80013700, 0]


async def test_a_closed_sender_refuses_and_leaves_the_connection(peer: Any, open_connection: Any) -> None:
    async with open_connection() as connection:
        sender = await connection.sender()
        await sender.close()
        with pytest.raises(ClientError, match="was closed"):
            sender.send_nowait([b"late"])
        await (await connection.sender()).send([b"again"])
    assert peer.sent == [b"again"]


async def test_a_peer_that_settles_second_is_answered(peer: Any, open_connection: Any, let_turns_pass: Turns) -> None:
    peer.outcome = None
    async with open_connection() as connection:
        sender = await connection.sender()
        sending = sender.send_nowait([b"one"])
        await let_turns_pass()
        session = peer.links["orders in"].session
        session.settle(peer.unsettled, ACCEPTED, peer.links["orders in"].role, settled=False)
        peer.flush()
        await sending
        await let_turns_pass()
        assert session.incoming == {}


async def test_a_sender_knows_the_largest_message_that_its_peer_takes(peer: Any, open_connection: Any) -> None:
    async with open_connection() as connection:
        sender = await connection.sender()
        assert sender.message_bytes_max == peer.core.settings.max_message_size
