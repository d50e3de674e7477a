"""Opening, proving who we are, keeping the connection, and losing it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from twinbus.amqp.performatives import Error
from twinbus.client import Authentication, ClientError, ConnectionString, connect
from twinbus.wire import sas

Turns = Callable[[], Awaitable[None]]


async def test_plain_sends_policy_and_key(peer: Any, open_connection: Any) -> None:
    async with open_connection(Authentication.PLAIN):
        assert peer.logins == [("PLAIN", b"\0root\0secret")]


async def test_a_refused_login_says_so(peer: Any, open_connection: Any) -> None:
    peer.takes_login = False
    with pytest.raises(ClientError) as refusal:
        async with open_connection():
            pass
    assert refusal.value.condition == "amqp:unauthorized-access"
    assert (refusal.value.transient, refusal.value.definite) == (False, True)


async def test_cbs_puts_one_token_for_each_entity(peer: Any, open_connection: Any, clock: Any) -> None:
    async with open_connection(Authentication.CBS) as connection:
        assert peer.logins == [("ANONYMOUS", b"")]
        await connection.sender("orders")
        await connection.receiver("orders")
        await connection.sender("bills")
    assert [request.audience for request in peer.tokens] == [
        "sb://broker.test:5672/orders",
        "sb://broker.test:5672/bills",
    ]
    token = sas.parse(peer.tokens[0].token)
    assert token.policy == "root"
    assert token.expires_at_s == clock.now_ms() // 1000 + 3600
    assert sas.verify(token, ["secret"])


@pytest.mark.parametrize(
    ("status", "condition"), [(401, "amqp:unauthorized-access"), (404, "amqp:not-found"), (500, "twinbus:status-500")]
)
async def test_a_refused_token_says_so(peer: Any, open_connection: Any, status: int, condition: str) -> None:
    peer.token_status = status
    async with open_connection(Authentication.CBS) as connection:
        with pytest.raises(ClientError, match="as the test says") as refusal:
            await connection.sender("orders")
    assert refusal.value.condition == condition
    assert refusal.value.definite


async def test_a_connection_that_is_lost_while_a_token_is_put_says_nothing_about_the_caller_s_messages(
    peer: Any, open_connection: Any
) -> None:
    """Somebody who opens a sender for a batch must not take all but the first message for sent."""
    async with open_connection(Authentication.CBS) as connection:
        peer.take = lambda link, items: peer.hang_up()
        with pytest.raises(ClientError) as loss:
            await connection.sender("orders")
    assert (loss.value.condition, loss.value.failed) == ("twinbus:connection-lost", {})


async def test_a_token_is_renewed_before_it_expires(
    peer: Any, open_connection: Any, clock: Any, let_turns_pass: Turns
) -> None:
    async with open_connection(Authentication.CBS, token_lifetime_ms=20_000) as connection:
        await connection.sender("orders")
        clock.at_ms += 17_000
        connection.tick()
        await let_turns_pass()
        assert len(peer.tokens) == 1
        clock.at_ms += 1_000
        connection.tick()
        await let_turns_pass()
    first, second = (sas.parse(request.token).expires_at_s for request in peer.tokens)
    assert second - first == 18


async def test_a_renewal_that_fails_is_tried_again(
    peer: Any, open_connection: Any, clock: Any, let_turns_pass: Turns
) -> None:
    async with open_connection(Authentication.CBS, token_lifetime_ms=20_000) as connection:
        sender = await connection.sender("orders")
        peer.token_status = 500
        clock.at_ms += 18_000
        connection.tick()
        await let_turns_pass()
        peer.token_status = 202
        clock.at_ms += 10_000
        connection.tick()
        await let_turns_pass()
        await sender.send([b"still here"])
    assert len(peer.tokens) == 3


async def test_heartbeats_keep_the_connection_and_silence_ends_it(
    peer: Any, open_connection: Any, clock: Any, let_turns_pass: Turns
) -> None:
    async with open_connection() as connection:
        sender = await connection.sender()
        before = len(peer.transport.writes)
        clock.at_ms += 30_000
        connection.tick()
        assert peer.transport.writes[before:] == [b"\x00\x00\x00\x08\x02\x00\x00\x00"]
        clock.at_ms += 400_000
        connection.tick()
        assert connection.error is not None
        assert "idle time-out" in connection.error.text
        assert connection.error.transient
        with pytest.raises(ClientError, match="idle time-out"):
            sender.send_nowait([b"too late"])


async def test_a_peer_that_is_slow_is_told_from_a_connection_that_is_dead(peer: Any, open_connection: Any) -> None:
    async with open_connection() as connection:
        sender = await connection.sender()
        peer.outcome = None
        answer = sender.send_nowait([b"slow"])
        await connection.check(60)
        assert connection.error is None
        assert not answer.done()
        peer.transport.is_open = False  # Bytes go nowhere any more, and nobody says so.
        await connection.check(0.001)
        with pytest.raises(ClientError, match="does not answer any more") as lost:
            await answer
        assert (lost.value.condition, lost.value.definite) == ("twinbus:connection-lost", False)


async def test_several_may_ask_at_once_whether_a_peer_is_there(open_connection: Any) -> None:
    async with open_connection() as connection:
        asking = asyncio.create_task(connection.check(60))
        await asyncio.sleep(0)
        stream = connection._stream
        stream.data_received(b"")  # It answers, and before who asked learns of it somebody else begins to ask.
        stream._sign_of_life.clear()
        await asking
        assert connection.error is None


async def test_a_refused_link_says_why(peer: Any, open_connection: Any) -> None:
    peer.refusals["gone"] = Error("amqp:not-found", "there is no such queue")
    async with open_connection() as connection:
        with pytest.raises(ClientError, match="there is no such queue") as refusal:
            await connection.receiver("gone")
        assert refusal.value.condition == "amqp:not-found"
        await connection.sender("orders")  # The connection goes on.


@pytest.mark.parametrize("has_link", [True, False], ids=["closing a link", "closing the connection"])
async def test_a_close_that_is_cancelled_leaves_no_socket_behind(
    peer: Any, open_connection: Any, let_turns_pass: Turns, has_link: bool
) -> None:
    async def use() -> None:
        async with open_connection() as connection:
            if has_link:
                await connection.sender()
            peer.receive = lambda data: None  # It answers no goodbye.

    using = asyncio.ensure_future(use())
    await let_turns_pass()
    await let_turns_pass()
    assert not using.done()
    using.cancel()
    with pytest.raises(asyncio.CancelledError):
        await using
    assert not peer.transport.is_open


async def test_a_peer_that_closes_tells_everyone_why(peer: Any, open_connection: Any, let_turns_pass: Turns) -> None:
    peer.outcome = None
    async with open_connection() as connection:
        sender, receiver = await connection.sender(), await connection.receiver()
        sending = sender.send_nowait([b"one"])
        receiving = asyncio.ensure_future(receiver.receive(1))
        await let_turns_pass()
        peer.core.close(Error("amqp:connection:forced", "the broker is going down"))
        peer.flush()
        for waiting in (sending, receiving):
            with pytest.raises(ClientError, match="the broker is going down") as problem:
                await waiting
            assert problem.value.condition == "amqp:connection:forced"
            assert problem.value.transient
        with pytest.raises(ClientError, match="the broker is going down"):
            await connection.sender()


async def test_a_connection_that_breaks_off_leaves_sends_indefinite(
    peer: Any, open_connection: Any, let_turns_pass: Turns
) -> None:
    peer.outcome = None
    peer.credit = 2
    async with open_connection() as connection:
        sender = await connection.sender()
        sending = sender.send_nowait([b"one", b"two", b"three"])
        await let_turns_pass()
        peer.hang_up()
        with pytest.raises(ClientError, match="hung up") as problem:
            await sending
    failed = problem.value.failed
    assert {position: error.definite for position, error in failed.items()} == {0: False, 1: False, 2: True}
    assert not problem.value.definite
    assert problem.value.transient


async def test_a_link_that_the_peer_detaches_leaves_the_others_alone(
    peer: Any, open_connection: Any, let_turns_pass: Turns
) -> None:
    async with open_connection() as connection:
        orders, bills = await connection.sender("orders"), await connection.sender("bills")
        peer.links["orders in"].detach(Error("com.microsoft:entity-disabled", "sending is disabled"))
        peer.flush()
        await let_turns_pass()
        with pytest.raises(ClientError, match="sending is disabled") as problem:
            await orders.send([b"one"])
        assert problem.value.condition == "com.microsoft:entity-disabled"
        await bills.send([b"two"])
    assert peer.sent == [b"two"]


async def test_a_session_that_the_peer_ends_takes_its_link_along(
    peer: Any, open_connection: Any, let_turns_pass: Turns
) -> None:
    async with open_connection() as connection:
        receiver = await connection.receiver("orders")
        peer.links["orders out"].session.end(Error("amqp:session:window-violation", "too much"))
        peer.flush()
        with pytest.raises(ClientError, match="too much"):
            await receiver.receive(1)


async def test_closing_is_polite(peer: Any, open_connection: Any) -> None:
    async with open_connection(Authentication.CBS) as connection:
        await connection.sender("orders")
        await connection.receiver("orders")
    assert peer.core.wants_close
    assert peer.core.sessions == []


async def test_closing_a_link_ends_at_once_when_the_connection_dies_meanwhile(
    peer: Any, open_connection: Any, let_turns_pass: Turns
) -> None:
    async with open_connection() as connection:
        sender = await connection.sender()
        peer.receive = lambda data: None  # It answers nothing any more.
        closing = asyncio.ensure_future(sender.close())
        await let_turns_pass()
        assert not closing.done()
        peer.hang_up()
        await let_turns_pass()
        assert closing.done()
        await closing


async def test_an_entity_must_be_named_somewhere(peer: Any, clock: Any) -> None:
    target = ConnectionString("h", tls=False, policy="root", key="k")
    async with connect(target, authentication=Authentication.ANONYMOUS, clock=clock, dial=peer.dial) as connection:
        with pytest.raises(ValueError, match="names an entity"):
            await connection.sender()


async def test_nobody_there_is_unreachable() -> None:
    async def dial(protocol: asyncio.Protocol) -> None:
        raise ConnectionRefusedError("connection refused")

    with pytest.raises(ClientError, match="connection refused") as problem:
        async with connect(ConnectionString("h", tls=False), authentication=Authentication.ANONYMOUS, dial=dial):
            pass
    assert problem.value.condition == "twinbus:unreachable"
    assert (problem.value.transient, problem.value.definite) == (True, True)


async def test_plain_without_a_key_is_a_mistake_of_the_caller() -> None:
    with pytest.raises(ValueError, match="policy and its key"):
        async with connect(ConnectionString("h", tls=False), authentication=Authentication.PLAIN):
            pass
