"""Receiving and settling: credit, drain, echoes, sessions."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from twinbus.amqp.performatives import ACCEPTED, Accepted, Error, Modified, Rejected, Released
from twinbus.client import ClientError
from twinbus.client.receiver import ReceivedMessage
from twinbus.model.message import Outcome, ReceiveMode
from twinbus.wire.sessions import WantedSession

Turns = Callable[[], Awaitable[None]]


async def test_messages_come_as_they_are(peer: Any, open_connection: Any) -> None:
    async with open_connection() as connection:
        receiver = await connection.receiver()
        peer.deliver("orders", b"one", b"two")
        received = await receiver.receive(10)
    assert received == [
        ReceivedMessage(0, b"tag of 16 bytes.", b"one"),
        ReceivedMessage(1, b"tag of 16 bytes.", b"two"),
    ]


async def test_no_more_than_asked_for_is_handed_out(peer: Any, open_connection: Any) -> None:
    async with open_connection() as connection:
        receiver = await connection.receiver()
        peer.deliver("orders", b"one", b"two", b"three")
        assert [message.payload for message in await receiver.receive(2)] == [b"one", b"two"]
        assert [message.payload for message in await receiver.receive(2)] == [b"three"]


async def test_nothing_within_the_time_is_an_empty_list(peer: Any, open_connection: Any) -> None:
    async with open_connection() as connection:
        receiver = await connection.receiver()
        assert await receiver.receive(1, timeout_s=0) == []


async def test_credit_is_granted_in_big_steps(peer: Any, open_connection: Any, let_turns_pass: Turns) -> None:
    async with open_connection() as connection:
        receiver = await connection.receiver(credit=10)
        await let_turns_pass()
        assert peer.flows == [(10, False)]
        peer.deliver("orders", *[b"m"] * 4)
        await receiver.receive(10)
        await let_turns_pass()
        assert peer.flows == [(10, False)]
        peer.deliver("orders", b"m", b"m")
        await receiver.receive(1)
        await let_turns_pass()
        # One message is still held, so nine more may come.
        assert peer.flows == [(10, False), (9, False)]


async def test_without_credit_the_peer_sends_what_is_asked_for(
    peer: Any, open_connection: Any, let_turns_pass: Turns
) -> None:
    async with open_connection() as connection:
        receiver = await connection.receiver(credit=0)
        await let_turns_pass()
        assert peer.flows == []
        receiving = asyncio.ensure_future(receiver.receive(5))
        await let_turns_pass()
        assert peer.flows == [(5, False)]
        peer.deliver("orders", b"one", b"two")
        assert [message.payload for message in await receiving] == [b"one", b"two"]
        assert peer.flows == [(5, False), (3, True)]
        assert await receiver.receive(5, timeout_s=0) == []
        assert peer.links["orders out"].credit == 0


@pytest.mark.parametrize(
    ("outcome", "kind"),
    [
        (Outcome.COMPLETE, Accepted),
        (Outcome.ABANDON, Modified),
        (Outcome.DEFER, Modified),
        (Outcome.DEAD_LETTER, Rejected),
        (Outcome.RELEASE, Released),
    ],
)
async def test_an_outcome_is_told_unsettled_and_confirmed(
    peer: Any, open_connection: Any, outcome: Outcome, kind: type
) -> None:
    peer.echo = Rejected() if outcome is Outcome.DEAD_LETTER else "the same"
    async with open_connection() as connection:
        receiver = await connection.receiver()
        peer.deliver("orders", b"one", b"two")
        await receiver.settle(await receiver.receive(2), outcome)
    assert [(type(state), settled) for _, _, state, settled in peer.decisions] == [(kind, False)] * 2
    if kind is Modified:
        assert {state.undeliverable_here for _, _, state, _ in peer.decisions} == {outcome is Outcome.DEFER}


async def test_dead_lettering_tells_why(peer: Any, open_connection: Any) -> None:
    peer.echo = Rejected()
    async with open_connection() as connection:
        receiver = await connection.receiver()
        peer.deliver("orders", b"one")
        messages = await receiver.receive(1)
        await receiver.settle(
            messages, Outcome.DEAD_LETTER, reason="broken", description="no address", properties={"tries": 3}
        )
    error = peer.decisions[0][2].error
    assert error.condition == "com.microsoft:dead-letter"
    assert error.info == {"DeadLetterReason": "broken", "DeadLetterErrorDescription": "no address", "tries": 3}


async def test_abandoning_can_change_properties(peer: Any, open_connection: Any) -> None:
    async with open_connection() as connection:
        receiver = await connection.receiver()
        peer.deliver("orders", b"one")
        await receiver.settle(await receiver.receive(1), Outcome.ABANDON, properties={"tries": 3})
    assert peer.decisions[0][2].message_annotations == {"tries": 3}


async def test_a_lost_lock_is_told_for_the_message_it_concerns(peer: Any, open_connection: Any) -> None:
    async with open_connection() as connection:
        receiver = await connection.receiver()
        peer.deliver("orders", b"one", b"two")
        messages = await receiver.receive(2)
        peer.echo = None
        settling = receiver.settle_nowait(messages)
        session = peer.links["orders out"].session
        while len(peer.decisions) < 2:
            await asyncio.sleep(0)
        session.settle([0], ACCEPTED, peer.links["orders out"].role)
        lost = Rejected(Error("com.microsoft:message-lock-lost", "the lock has expired"))
        session.settle([1], lost, peer.links["orders out"].role)
        peer.flush()
        with pytest.raises(ClientError, match="the lock has expired") as problem:
            await settling
    assert list(problem.value.failed) == [1]
    assert problem.value.condition == "com.microsoft:message-lock-lost"


async def test_settling_twice_is_refused_here(peer: Any, open_connection: Any) -> None:
    async with open_connection() as connection:
        receiver = await connection.receiver()
        peer.deliver("orders", b"one", b"two")
        one, two = await receiver.receive(2)
        await receiver.settle([one])
        with pytest.raises(ClientError, match="settled already") as problem:
            await receiver.settle([one, two])
    assert list(problem.value.failed) == [0]
    assert len(peer.decisions) == 2


async def test_a_peer_that_settles_first_is_not_waited_for(peer: Any, open_connection: Any) -> None:
    async with open_connection() as connection:
        receiver = await connection.receiver(settle_first=True)
        peer.deliver("orders", b"one")
        await receiver.settle(await receiver.receive(1))
    assert [(state, settled) for _, _, state, settled in peer.decisions] == [(ACCEPTED, True)]


async def test_what_was_deleted_for_us_is_handed_out_even_when_the_link_is_lost(
    peer: Any, open_connection: Any, let_turns_pass: Turns
) -> None:
    async with open_connection() as connection:
        receiver = await connection.receiver(mode=ReceiveMode.RECEIVE_AND_DELETE)
        peer.deliver("orders", b"one", b"two")
        await let_turns_pass()
        peer.hang_up()
        await let_turns_pass()
        assert [message.payload for message in await receiver.receive(1)] == [b"one"]
        assert [message.payload for message in await receiver.receive(1)] == [b"two"]
        with pytest.raises(ClientError, match="hung up"):
            await receiver.receive(1)


async def test_what_was_locked_for_us_is_not_handed_out_when_the_link_is_lost(
    peer: Any, open_connection: Any, let_turns_pass: Turns
) -> None:
    async with open_connection() as connection:
        receiver = await connection.receiver()
        peer.deliver("orders", b"one")
        await let_turns_pass()
        peer.hang_up()
        await let_turns_pass()
        with pytest.raises(ClientError, match="hung up"):
            await receiver.receive(1)


async def test_settling_is_indefinite_when_the_connection_breaks_off(
    peer: Any, open_connection: Any, let_turns_pass: Turns
) -> None:
    peer.echo = None
    async with open_connection() as connection:
        receiver = await connection.receiver()
        peer.deliver("orders", b"one")
        settling = receiver.settle_nowait(await receiver.receive(1))
        await let_turns_pass()
        peer.hang_up()
        with pytest.raises(ClientError, match="hung up") as problem:
            await settling
    assert not problem.value.definite


async def test_closing_gives_back_what_nobody_took(peer: Any, open_connection: Any, let_turns_pass: Turns) -> None:
    async with open_connection() as connection:
        receiver = await connection.receiver()
        peer.deliver("orders", b"one", b"two", b"three")
        await receiver.receive(1)
        await receiver.close()
    assert [(item[0], type(item[2])) for item in peer.decisions] == [(1, Released), (2, Released)]
    assert peer.flows[-1][1]


async def test_closing_asks_for_no_more_of_what_would_be_deleted(
    peer: Any, open_connection: Any, let_turns_pass: Turns
) -> None:
    async with open_connection() as connection:
        receiver = await connection.receiver(mode=ReceiveMode.RECEIVE_AND_DELETE, credit=10)
        peer.deliver("orders", b"one")
        await let_turns_pass()
        await receiver.close()
        assert peer.flows[-1] == (0, False)
        assert [message.payload for message in await receiver.receive(5)] == [b"one"]


async def test_a_session_is_asked_for_and_its_grant_is_told(peer: Any, open_connection: Any, clock: Any) -> None:
    peer.grants_session = "s-7"
    async with open_connection() as connection:
        receiver = await connection.receiver(session=WantedSession(None), session_wait_s=2.5)
        attach = peer.links["orders out"].remote
        assert attach.source.filter == {"com.microsoft:session-filter": None}
        assert attach.properties == {"com.microsoft:timeout": 2500}
        assert receiver.session_id == "s-7"
        assert receiver.session_locked_until_ms == clock.now_ms()


async def test_two_can_wait_at_the_same_time(peer: Any, open_connection: Any, let_turns_pass: Turns) -> None:
    async with open_connection() as connection:
        receiver = await connection.receiver()
        waiting = [asyncio.ensure_future(receiver.receive(1)) for _ in range(2)]
        await let_turns_pass()
        peer.deliver("orders", b"one", b"two")
        received = await asyncio.gather(*waiting)
    assert sorted(message.payload for messages in received for message in messages) == [b"one", b"two"]
