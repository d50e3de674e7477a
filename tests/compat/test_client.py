"""Our own client against a broker process: what it sends arrives, what it settles stays settled, failures say why."""

from __future__ import annotations

import json
import ssl
import subprocess
import sys
from pathlib import Path

import pytest

from support.broker import SOON_S, BrokerProcess, NewQueue
from support.ports import free_ports
from twinbus.broker.certs import make_certificates
from twinbus.client import Authentication, ClientError, Connection, ConnectionString, connect
from twinbus.model.message import Outcome, ReceiveMode
from twinbus.wire import outgoing
from twinbus.wire.message import BATCH_FORMAT
from twinbus.wire.sessions import WantedSession

pytestmark = pytest.mark.feature("our own client")


def numbered(count: int) -> list[bytes]:
    return [outgoing.build(b"body %d" % number, message_id=f"id-{number}") for number in range(count)]


async def bodies(connection: Connection, path: str, count: int, outcome: Outcome = Outcome.COMPLETE) -> list[bytes]:
    """Receives so many messages and settles them; the last bytes of each payload are its body."""
    receiver = await connection.receiver(path)
    found: list[bytes] = []
    while len(found) < count:
        messages = await receiver.receive(count - len(found), SOON_S)
        assert messages, f"{len(found)} of {count} came"
        await receiver.settle(messages, outcome)
        found += [message.payload[message.payload.rindex(b"body ") :] for message in messages]
    await receiver.close()
    return found


@pytest.mark.parametrize("authentication", [Authentication.CBS, Authentication.PLAIN])
async def test_what_is_sent_comes_back_in_order(
    broker: BrokerProcess, new_queue: NewQueue, authentication: Authentication
) -> None:
    queue = new_queue()
    async with connect(broker.connection_string(), authentication=authentication) as connection:
        sender = await connection.sender(queue)
        await sender.send(numbered(3000))
        assert broker.count(queue) == 3000
        assert await bodies(connection, queue, 3000) == [b"body %d" % number for number in range(3000)]
    assert broker.count(queue) == 0


async def test_a_batch_is_one_transfer(broker: BrokerProcess, new_queue: NewQueue) -> None:
    queue = new_queue()
    async with connect(broker.connection_string()) as connection:
        sender = await connection.sender(queue)
        await sender.send([outgoing.batch(numbered(5))], BATCH_FORMAT)
        assert await bodies(connection, queue, 5) == [b"body %d" % number for number in range(5)]


async def test_only_the_message_that_is_too_large_is_refused(broker: BrokerProcess, new_queue: NewQueue) -> None:
    queue = new_queue()
    good, large = numbered(2), outgoing.build(b"x" * 300_000, message_id="large")
    async with connect(broker.connection_string()) as connection:
        sender = await connection.sender(queue)
        with pytest.raises(ClientError, match="TrackingId:") as problem:
            await sender.send([good[0], large, good[1]])
        assert problem.value.condition == "amqp:link:message-size-exceeded"
        assert list(problem.value.failed) == [1]
        assert not problem.value.transient
        assert await bodies(connection, queue, 2) == [b"body 0", b"body 1"]


async def test_a_message_of_several_frames_comes_back_whole(broker: BrokerProcess, new_queue: NewQueue) -> None:
    queue = new_queue()
    body = b"body " + b"0123456789" * 25_000
    async with connect(broker.connection_string()) as connection:
        sender = await connection.sender(queue)
        await sender.send([outgoing.build(body, message_id="large")])
        assert await bodies(connection, queue, 1) == [body]


async def test_received_and_deleted_is_gone(broker: BrokerProcess, new_queue: NewQueue) -> None:
    queue = new_queue()
    async with connect(broker.connection_string()) as connection:
        await (await connection.sender(queue)).send(numbered(3))
        receiver = await connection.receiver(queue, mode=ReceiveMode.RECEIVE_AND_DELETE, credit=0)
        messages = await receiver.receive(3, SOON_S)
        assert [message.tag for message in messages] == [b""] * 3
    assert broker.count(queue) == 0


async def test_a_receiver_that_lets_thousands_of_locks_expire_is_served_again(
    broker: BrokerProcess, new_queue: NewQueue
) -> None:
    queue = new_queue(LockDuration="PT5S")
    async with connect(broker.connection_string()) as connection:
        await (await connection.sender(queue)).send(numbered(5_100))
        receiver = await connection.receiver(queue, credit=7_000)
        received = 0
        while received <= 5_100:  # More than there are: some came again, on the same link.
            messages = await receiver.receive(7_000, SOON_S)
            assert messages, f"only {received} came"
            received += len(messages)


async def test_abandoned_messages_come_again_and_dead_ones_go_to_their_queue(
    broker: BrokerProcess, new_queue: NewQueue
) -> None:
    queue = new_queue()
    async with connect(broker.connection_string()) as connection:
        await (await connection.sender(queue)).send(numbered(1))
        await bodies(connection, queue, 1, Outcome.ABANDON)
        receiver = await connection.receiver(queue)
        messages = await receiver.receive(1, SOON_S)
        await receiver.settle(messages, Outcome.DEAD_LETTER, reason="broken", description="no address")
        dead = await connection.receiver(f"{queue}/$DeadLetterQueue")
        (letter,) = await dead.receive(1, SOON_S)
        assert b"DeadLetterReason" in letter.payload
        assert b"broken" in letter.payload
        await dead.settle([letter])
    assert broker.count(queue, "DeadLetterMessageCount") == 0


async def test_what_was_fetched_ahead_and_not_taken_is_given_back(broker: BrokerProcess, new_queue: NewQueue) -> None:
    queue = new_queue()
    async with connect(broker.connection_string()) as connection:
        await (await connection.sender(queue)).send(numbered(10))
        receiver = await connection.receiver(queue, credit=10)
        taken = await receiver.receive(1, SOON_S)
        await receiver.settle(taken)
        await receiver.close()
        assert len(await bodies(connection, queue, 9)) == 9


async def test_on_demand_nothing_is_locked_that_was_not_asked_for(broker: BrokerProcess, new_queue: NewQueue) -> None:
    queue = new_queue()
    async with connect(broker.connection_string()) as connection:
        receiver = await connection.receiver(queue, credit=0)
        assert await receiver.receive(5, timeout_s=0.05) == []
        await (await connection.sender(queue)).send(numbered(3))
        assert len(await bodies(connection, queue, 3)) == 3


async def test_a_late_settlement_is_told_that_the_lock_is_lost(broker: BrokerProcess, new_queue: NewQueue) -> None:
    queue = new_queue(LockDuration="PT30S")
    async with connect(broker.connection_string()) as connection:
        await (await connection.sender(queue)).send(numbered(1))
        receiver = await connection.receiver(queue, credit=0)
        messages = await receiver.receive(1, SOON_S)
        broker.update_queue(queue, LockDuration="PT45S")  # A change of settings drops locks.
        with pytest.raises(ClientError) as problem:
            await receiver.settle(messages)
        assert problem.value.condition == "com.microsoft:message-lock-lost"
        assert (problem.value.transient, problem.value.definite) == (False, True)


async def test_sessions_are_held_one_by_one(broker: BrokerProcess, new_queue: NewQueue) -> None:
    queue = new_queue(RequiresSession=True)
    messages = [
        outgoing.build(b"body %d" % number, message_id=f"id-{number}", session_id=f"s-{number % 2}")
        for number in range(6)
    ]
    async with connect(broker.connection_string()) as connection:
        await (await connection.sender(queue)).send(messages)
        named = await connection.receiver(queue, session=WantedSession("s-1"))
        received = []
        while len(received) < 3:
            received += await named.receive(10, SOON_S)
        assert [message.payload[-6:] for message in received] == [b"body 1", b"body 3", b"body 5"]
        await named.settle(received)
        free = await connection.receiver(queue, session=WantedSession(None), session_wait_s=SOON_S)
        assert free.session_id == "s-0"
        assert free.session_locked_until_ms is not None
        with pytest.raises(ClientError) as problem:
            await connection.receiver(queue, session=WantedSession("s-0"))
        assert problem.value.condition == "com.microsoft:session-cannot-be-locked"
        assert problem.value.transient


async def test_an_unknown_queue_is_not_found(broker: BrokerProcess) -> None:
    for authentication in (Authentication.CBS, Authentication.PLAIN):
        async with connect(broker.connection_string(), authentication=authentication) as connection:
            with pytest.raises(ClientError, match="could not be found") as problem:
                await connection.sender("nowhere")
            assert problem.value.condition == "amqp:not-found"


async def test_a_wrong_key_is_not_let_in(broker: BrokerProcess, new_queue: NewQueue) -> None:
    queue = new_queue()
    target = broker.connection_string(key="not-the-key-of-this-broker")
    async with connect(target) as connection:
        with pytest.raises(ClientError) as problem:
            await connection.sender(queue)
        assert problem.value.condition == "amqp:unauthorized-access"
    with pytest.raises(ClientError) as refusal:
        async with connect(target, authentication=Authentication.PLAIN):
            pass
    assert refusal.value.condition == "amqp:unauthorized-access"


async def test_a_ready_made_signature_opens_the_door_it_was_made_for(
    broker: BrokerProcess, new_queue: NewQueue
) -> None:
    queue, other = new_queue(), new_queue()
    async with connect(broker.connection_string(signature=broker.token(queue))) as connection:
        await (await connection.sender(queue)).send(numbered(1))
        with pytest.raises(ClientError):
            await connection.sender(other)


async def test_a_broker_that_goes_down_politely_says_so(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as process:
        queue = process.create_queue("orders")
        async with connect(process.connection_string()) as connection:
            sender, receiver = await connection.sender(queue), await connection.receiver(queue)
            process.stop()
            with pytest.raises(ClientError) as problem:
                await receiver.receive(1, SOON_S)
            assert problem.value.transient
            with pytest.raises(ClientError) as late:
                await sender.send(numbered(1))
            assert late.value.definite


async def test_a_broker_that_is_killed_leaves_sends_indefinite(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as process:
        queue = process.create_queue("orders")
        async with connect(process.connection_string()) as connection:
            sender = await connection.sender(queue)
            sending = sender.send_nowait(numbered(2000))
            process.kill()
            with pytest.raises(ClientError) as problem:
                await sending
            assert problem.value.transient
            assert problem.value.failed
        with pytest.raises(ClientError) as unreachable:
            async with connect(process.connection_string()):
                pass
        assert unreachable.value.condition == "twinbus:unreachable"
        assert unreachable.value.definite


async def test_tls_is_checked_against_the_authority(tmp_path: Path) -> None:
    certificates = tmp_path / "certificates"
    make_certificates(certificates, [])
    amqps_port, https_port = free_ports(2)
    options = ("--tls", str(certificates), "--amqps-port", str(amqps_port), "--https-port", str(https_port))
    with BrokerProcess(tmp_path / "broker", options=options) as process:
        queue = process.create_queue("orders")
        text = f"Endpoint=sb://localhost:{amqps_port};SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey={process.key}"
        trusted = ssl.create_default_context(cafile=str(certificates / "ca.pem"))
        async with connect(text, tls=trusted) as connection:
            await (await connection.sender(queue)).send(numbered(2))
            assert await bodies(connection, queue, 2) == [b"body 0", b"body 1"]
        with pytest.raises(ClientError, match="is not trusted") as problem:
            async with connect(text):
                pass
        assert not problem.value.transient


def test_the_benchmark_measures_a_broker_of_its_own(tmp_path: Path) -> None:
    options = ["--messages", "3000", "--window", "50", "--connections", "2", "--data", str(tmp_path), "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "twinbus", "bench", *options], check=True, capture_output=True, text=True
    )
    report = json.loads(done.stdout)
    results = report["results"]["twinbus"]
    assert [results[phase]["messages"] for phase in ("send", "receive", "both")] == [3000, 3000, 3000]
    assert 0 < results["alone"]["messages"] <= 1000, "as many as there is time for"
    # The processor time is counted in steps of ten milliseconds, so there must be enough of it.
    assert all(result["per_s"] > 0 and result["broker_cpu_us"] > 0 for result in results.values())
    assert results["send"]["p50_ms"] <= results["send"]["p99_ms"]
    assert report["machine"]["syncs_per_s"] > 0
    assert list(tmp_path.iterdir()) == []


def test_the_benchmark_compares_with_a_peer_and_leaves_a_full_queue_alone(
    broker: BrokerProcess, new_queue: NewQueue
) -> None:
    ours, theirs = new_queue(), new_queue()
    where = ["--connection-string", broker.connection_string(), "--queue", ours]
    target = ConnectionString.parse(broker.connection_string())
    peer = ["--peer", f"{target.host}:{target.port}", "--peer-queue", theirs]
    login = ["--user", str(target.policy), "--password", str(target.key)]
    command = [sys.executable, "-m", "twinbus", "bench", "--messages", "200", *where]
    done = subprocess.run([*command, *peer, *login], check=True, capture_output=True, text=True)
    assert "twinbus: send, window 500: messages/s" in done.stdout
    assert "ratio: both at once: messages/s" in done.stdout
    assert broker.count(ours) == broker.count(theirs) == 0


async def test_the_benchmark_leaves_a_queue_in_use_alone(broker: BrokerProcess, new_queue: NewQueue) -> None:
    queue = new_queue()
    async with connect(broker.connection_string()) as connection:
        await (await connection.sender(queue)).send(numbered(1))
    where = ["--connection-string", broker.connection_string(), "--queue", queue]
    done = subprocess.run([sys.executable, "-m", "twinbus", "bench", *where], capture_output=True, text=True)
    assert done.returncode == 1
    assert "is not empty" in done.stderr
    assert broker.count(queue) == 1
