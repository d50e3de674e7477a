"""Two gateways, each its own process, on one PostgreSQL database: any of them serves any entity, and they agree."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest
import pytest_asyncio
from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusReceivedMessage

from faults.load import Load, body_of, contradictions, message, noticed, read
from faults.remains import look_at_all
from support.broker import SOON_S, BrokerProcess, HttpError, wait_for
from support.gateways import Gateways, new_database
from support.ports import free_ports
from support.postgres import PostgresServer
from twinbus.client import ClientError, Connection, ConnectionString, Receiver, WantedSession, connect
from twinbus.client.atom import administer
from twinbus.model.message import Outcome
from twinbus.model.topic import SubscriptionDescription, TopicDescription
from twinbus.rules.description import RuleDescription, SqlFilter
from twinbus.wire import outgoing

SECRET = "a-password-that-must-not-be-seen"
SKEW_S = 600
LOCK_S = 12  # Of what must not come back before a busy machine has done the rest.

pytestmark = pytest.mark.feature("several gateways on PostgreSQL")


@pytest.fixture(scope="module")
def gateways(postgres: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateways]:
    """Two gateways for tests that leave them running."""
    store = new_database(postgres).replace("twinbus@", f"twinbus:{SECRET}@")
    both = Gateways(tmp_path_factory.mktemp("gateways"), [store, store])
    with both:
        yield both
        assert both.stop() == 0, both.log[-4000:]
    assert "Traceback" not in both.log, both.log[-8000:]
    assert SECRET not in both.log + both.output


@pytest.fixture(scope="module")
def unpolled(
    postgres: PostgresServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[BrokerProcess, BrokerProcess]]:
    """Two gateways that never look by themselves what others did, one started after the other."""
    directory, options = tmp_path_factory.mktemp("unpolled"), ("--store", new_database(postgres))
    with (
        ChangedGateway(directory / "early", options=options, change=NO_POLL) as early,
        ChangedGateway(directory / "late", options=options, change=NO_POLL) as late,
    ):
        yield early, late
        assert (late.stop(), early.stop()) == (0, 0)
    assert "Traceback" not in early.log + late.log


@pytest.fixture
def first(gateways: Gateways) -> BrokerProcess:
    return gateways.members[0]


@pytest.fixture
def second(gateways: Gateways) -> BrokerProcess:
    return gateways.members[1]


@pytest_asyncio.fixture
async def here(first: BrokerProcess) -> AsyncIterator[Connection]:
    async with connect(first.connection_string()) as connection:
        yield connection


@pytest_asyncio.fixture
async def there(second: BrokerProcess) -> AsyncIterator[Connection]:
    async with connect(second.connection_string()) as connection:
        yield connection


@asynccontextmanager
async def connected_to(early: BrokerProcess, late: BrokerProcess) -> AsyncIterator[tuple[Connection, Connection]]:
    """Connections to the later of two gateways, which has known the other from its beginning, and to the earlier."""
    async with connect(late.connection_string()) as here, connect(early.connection_string()) as there:
        yield here, there


async def taken(receiver: Receiver, count: int, timeout_s: float = SOON_S) -> dict[str, int]:
    """The ids of so many messages with their delivery counts; fewer if no more come in time."""
    seen: dict[str, int] = {}
    deadline = time.monotonic() + timeout_s
    while len(seen) < count and time.monotonic() < deadline:
        for received in await receiver.receive(count, timeout_s=max(deadline - time.monotonic(), 0)):
            each = read(received.payload)
            seen[each.message_id] = each.delivery_count
    return seen


def scheduled(message_id: str) -> bytes:
    """A message that is due in a second."""
    return outgoing.build(body_of(message_id), message_id=message_id, due_at_ms=int(time.time() * 1000) + 1000)


async def test_what_one_gateway_accepts_the_other_delivers_and_completes(
    first: BrokerProcess, second: BrokerProcess
) -> None:
    queue = first.create_queue("delivered")

    def use_official_client() -> None:
        with (
            ServiceBusClient.from_connection_string(first.connection_string()) as client,
            client.get_queue_sender(queue) as sender,
        ):
            sender.send_messages([ServiceBusMessage(f"m{n}") for n in range(10)])
        with (
            ServiceBusClient.from_connection_string(second.connection_string()) as client,
            client.get_queue_receiver(queue) as receiver,
        ):
            got: list[ServiceBusReceivedMessage] = []
            while len(got) < 10:
                page = receiver.receive_messages(10 - len(got), max_wait_time=SOON_S)
                assert page, f"only {len(got)} came"
                got += page
            assert [str(each) for each in got] == [f"m{n}" for n in range(10)]
            for each in got:
                receiver.complete_message(each)

    await asyncio.to_thread(use_official_client)
    assert first.count(queue) == second.count(queue) == 0


async def test_a_message_is_locked_for_one_receiver_whatever_its_gateway(
    first: BrokerProcess, here: Connection, there: Connection
) -> None:
    queue = first.create_queue("exclusive")
    sent = {f"m{n}" for n in range(60)}
    await (await here.sender(queue)).send([message(each) for each in sorted(sent)])
    receivers = [await connection.receiver(queue, credit=0) for connection in (here, there) for _ in range(3)]
    got = await asyncio.gather(*(taken(receiver, 10) for receiver in receivers))
    assert sorted(each for seen in got for each in seen) == sorted(sent)
    assert {count for seen in got for count in seen.values()} == {0}


async def test_a_lock_of_one_gateway_is_settled_only_there_and_counts_everywhere(
    first: BrokerProcess, here: Connection, there: Connection
) -> None:
    queue = first.create_queue("abandoned", MaxDeliveryCount=2)
    await (await here.sender(queue)).send([message("m")])
    for connection, expected in ((here, 0), (there, 1)):
        receiver = await connection.receiver(queue, credit=0)
        (received,) = await receiver.receive(1, timeout_s=SOON_S)
        assert read(received.payload).delivery_count == expected
        await receiver.settle([received], Outcome.ABANDON)
        await receiver.close()
    assert first.count(queue, "DeadLetterMessageCount") == 1


async def test_a_session_is_held_through_one_gateway_at_a_time(
    unpolled: tuple[BrokerProcess, BrokerProcess],
) -> None:
    async with connected_to(*unpolled) as (here, there):
        await held_here_and_then_there(unpolled[0], here, there)


async def held_here_and_then_there(first: BrokerProcess, here: Connection, there: Connection) -> None:
    queue = first.create_queue("sessions", RequiresSession=True, LockDuration="PT5M")
    await (await here.sender(queue)).send([message("m", "s")])
    holder = await here.receiver(queue, credit=1, session=WantedSession("s"))
    assert list(await taken(holder, 1)) == ["m"]
    with pytest.raises(ClientError) as refused:
        await there.receiver(queue, credit=1, session=WantedSession("s"))
    assert refused.value.condition == "com.microsoft:session-cannot-be-locked"
    # Whoever waits for any session gets this one as soon as it is free.
    waiting = asyncio.create_task(there.receiver(queue, credit=1, session=WantedSession(None), session_wait_s=SOON_S))
    await asyncio.sleep(0.2)
    assert not waiting.done()
    await holder.close()
    next_holder = await waiting
    assert next_holder.session_id == "s"
    assert list(await taken(next_holder, 1)) == ["m"]


async def test_session_state_is_the_same_through_both(
    first: BrokerProcess, here: Connection, there: Connection
) -> None:
    queue = first.create_queue("state", RequiresSession=True)
    await (await here.sender(queue)).send([message("m", "s")])
    await here.receiver(queue, credit=1, session=WantedSession("s"))
    await (await here.management(queue)).set_session_state("s", b"half done")
    assert await (await there.management(queue)).session_state("s") == b"half done"


async def test_a_waiting_receiver_is_woken_by_a_send_through_the_other_gateway(
    unpolled: tuple[BrokerProcess, BrokerProcess],
) -> None:
    async with connected_to(*unpolled) as (here, there):
        queue = unpolled[0].create_queue("woken")
        sender = await here.sender(queue)
        receiver = await there.receiver(queue, credit=10)
        for number in range(10):
            waiting = asyncio.create_task(receiver.receive(1, timeout_s=SOON_S))
            await asyncio.sleep(0.05)
            assert not waiting.done()
            await sender.send([message(f"m{number}")])
            received = await waiting
            assert received, "it was woken, since it does not look by itself"
            await receiver.settle(received)


async def test_a_scheduled_message_comes_once_through_any_gateway(
    first: BrokerProcess, here: Connection, there: Connection
) -> None:
    queue = first.create_queue("scheduled")
    await (await here.management(queue)).schedule([scheduled("m")])
    receiver = await there.receiver(queue, credit=5)
    assert list(await taken(receiver, 1)) == ["m"]
    assert await receiver.receive(1, timeout_s=1) == []


class TestChanges:
    """What is administered through one gateway holds for the other when the answer comes."""

    def test_a_queue_made_here_is_there(self, first: BrokerProcess, second: BrokerProcess) -> None:
        queue = first.create_queue("made-here", MaxDeliveryCount=7)
        assert second.queue(queue)["MaxDeliveryCount"] == "7"
        second.update_queue(queue, MaxDeliveryCount=8)
        assert first.queue(queue)["MaxDeliveryCount"] == "8"
        second.delete_queue(queue)
        with pytest.raises(HttpError) as refused:
            first.queue(queue)
        assert refused.value.status == 404

    async def test_a_queue_can_be_used_at_once_through_the_other(self, first: BrokerProcess, there: Connection) -> None:
        for number in range(5):
            queue = first.create_queue(f"at-once-{number}")
            await (await there.sender(queue)).send([message("m")])
            assert first.count(queue) == 1

    async def test_what_was_made_while_a_gateway_slept_is_there_when_it_wakes(
        self, first: BrokerProcess, second: BrokerProcess
    ) -> None:
        assert second.process is not None
        second.process.send_signal(signal.SIGSTOP)
        try:
            # One that does not answer is not waited for.
            queue = await asyncio.to_thread(first.create_queue, "made-meanwhile")
        finally:
            second.process.send_signal(signal.SIGCONT)
        async with connect(second.connection_string()) as there:
            await (await there.sender(queue)).send([message("m")])
        assert first.count(queue) == 1

    def test_of_two_gateways_that_make_one_name_one_is_refused(
        self, first: BrokerProcess, second: BrokerProcess
    ) -> None:
        def create(broker: BrokerProcess, name: str) -> int:
            try:
                broker.create_queue(name)
            except HttpError as refused:
                return refused.status
            return 201

        with ThreadPoolExecutor(2) as pool:
            for number in range(5):
                names = f"twins-{number}", f"TWINS-{number}"
                answers = sorted(pool.map(create, (first, second), names))
                assert answers == [201, 409]
                assert first.queue(names[0])["MaxDeliveryCount"] == second.queue(names[0])["MaxDeliveryCount"]

    async def test_receivers_of_a_deleted_queue_are_told_by_their_gateway(
        self, first: BrokerProcess, there: Connection
    ) -> None:
        queue = first.create_queue("deleted")
        receiver = await there.receiver(queue, credit=1)
        waiting = asyncio.create_task(receiver.receive(1, timeout_s=SOON_S))
        await asyncio.sleep(0)
        await asyncio.to_thread(first.delete_queue, queue)
        with pytest.raises(ClientError) as told:
            await waiting
        assert told.value.condition == "amqp:resource-deleted"

    async def test_a_disabled_queue_takes_nothing_through_the_other(
        self, first: BrokerProcess, there: Connection
    ) -> None:
        queue = first.create_queue("disabled")
        sender = await there.sender(queue)
        await sender.send([message("m")])
        await asyncio.to_thread(first.update_queue, queue, Status="SendDisabled")
        with pytest.raises(ClientError) as refused:
            await sender.send([message("n")])
        assert refused.value.condition == "com.microsoft:entity-disabled"

    async def test_a_rule_holds_for_the_next_message_through_the_other(
        self, first: BrokerProcess, there: Connection
    ) -> None:
        target, address = ConnectionString.parse(first.connection_string()), f"http://{first.host}:{first.http_port}"
        async with administer(target, address) as admin:
            await admin.create(TopicDescription(name="news"))
            await admin.create(SubscriptionDescription(topic="news", name="big"))
            sender = await there.sender("news")
            await sender.send([outgoing.build(b"", message_id="before", properties={"size": 1})])
            for number in range(5):
                await admin.create_rule("news/Subscriptions/big", RuleDescription("only", SqlFilter("size > 10")))
                if number == 0:
                    await admin.delete_rule("news/Subscriptions/big", "$Default")
                await sender.send(
                    [outgoing.build(b"", message_id=f"{number}:{size}", properties={"size": size}) for size in (1, 20)]
                )
                await admin.delete_rule("news/Subscriptions/big", "only")
                await sender.send([outgoing.build(b"", message_id=f"{number}:none", properties={"size": 30})])
        receiver = await there.receiver("news/Subscriptions/big", credit=20)
        assert list(await taken(receiver, 6)) == ["before", *(f"{number}:20" for number in range(5))]
        assert await receiver.receive(1, timeout_s=0.7) == []

    async def test_a_key_that_is_rotated_away_here_is_worth_nothing_there(
        self, first: BrokerProcess, second: BrokerProcess
    ) -> None:
        queue = first.create_queue("guarded")
        made = asked(first, "POST", "policies", {"name": "shop", "rights": ["Send"]})
        async with connect(second.connection_string("shop", made["primary_key"])) as shop:
            sender = await shop.sender(queue)
            await sender.send([message("m")])
            await asyncio.to_thread(asked, first, "POST", "policies/shop/rotate", {"key": "primary"})
            with pytest.raises(ClientError) as refused:
                await sender.send([message("n")])
        assert refused.value.condition == "amqp:unauthorized-access"
        assert first.count(queue) == 1
        asked(second, "DELETE", "policies/shop")

    def test_of_policies_made_through_both_at_once_none_is_lost(
        self, first: BrokerProcess, second: BrokerProcess
    ) -> None:
        names = [f"p{number}" for number in range(10)]

        def make(name: str, gateway: BrokerProcess) -> None:
            asked(gateway, "POST", "policies", {"name": name, "rights": ["Send"]})

        with ThreadPoolExecutor(10) as pool:
            list(pool.map(make, names, [first, second] * 5))
        for gateway in (first, second):
            assert sorted(each["name"] for each in asked(gateway, "GET", "policies")["policies"])[1:] == names
        with ThreadPoolExecutor(10) as pool:
            list(
                pool.map(lambda name, gateway: asked(gateway, "DELETE", f"policies/{name}"), names, [second, first] * 5)
            )
        assert len(asked(first, "GET", "policies")["policies"]) == 1


def asked(gateway: BrokerProcess, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    """The answer of a gateway's JSON API."""
    status, text = gateway.request(method, f"/$api/{path}", None if body is None else json.dumps(body))
    assert status == 200, text
    answer: dict[str, Any] = json.loads(text)
    return answer


def test_each_gateway_knows_the_others(gateways: Gateways) -> None:
    told = [json.loads(member.request("GET", "/$api/status")[1]) for member in gateways.members]
    assert sorted(each["number"] for each in told[0]["gateways"]) == sorted(each["gateway"] for each in told)
    assert [store["state"] for store in told[0]["stores"]] == ["up", "up"]


def test_status_and_metrics_tell_no_password(gateways: Gateways) -> None:
    for member in gateways.members:
        for path in ("/metrics", "/$api/status", "/$api/stores"):
            assert SECRET not in member.request("GET", path)[1]


@pytest.mark.timeout(120)
async def test_the_clock_of_a_gateway_does_not_matter(gateways: Gateways, first: BrokerProcess, tmp_path: Path) -> None:
    """Gateways whose machines are ten minutes ahead and behind, each beside one that is right."""
    await asyncio.gather(
        *(
            beside_a_clock_that_is_right(
                first, ChangedGateway(tmp_path / name, options=first.options, change=SKEW.format(skew_s))
            )
            for name, skew_s in (("ahead", SKEW_S), ("behind", -SKEW_S))
        )
    )


async def beside_a_clock_that_is_right(first: BrokerProcess, skewed: ChangedGateway) -> None:
    queue = first.create_queue(
        f"timed-{skewed.directory.name}", LockDuration=f"PT{LOCK_S}S", DefaultMessageTimeToLive="PT2M"
    )
    await asyncio.to_thread(skewed.start)
    try:
        async with connect(skewed.connection_string()) as there, connect(first.connection_string()) as here:
            await (await there.sender(queue)).send([message("sent")])
            await (await there.management(queue)).schedule([scheduled("scheduled")])
            receiver = await here.receiver(queue, credit=10)
            locked_at_s = time.monotonic()
            assert set(await taken(receiver, 2)) == {"sent", "scheduled"}  # Neither expired nor in the future.
            await receiver.close()
            await (await here.sender(queue)).send([message("answered")])
            other = await there.receiver(queue, credit=10)
            (received,) = await other.receive(1, timeout_s=SOON_S)
            assert read(received.payload).message_id == "answered"
            await other.settle([received])
            # The locks that the closed receiver left last as long as they shall, and not as long as clocks disagree.
            assert set(await taken(other, 2)) == {"sent", "scheduled"}
            assert time.monotonic() - locked_at_s > LOCK_S - 1
        assert await asyncio.to_thread(skewed.stop) == 0
    finally:
        skewed.kill()
    assert "Traceback" not in skewed.log


# A machine's clock that is wrong.
SKEW = """
import time
real, skew_s = (time.time_ns, time.time), {}
time.time_ns = lambda: real[0]() + skew_s * 10**9
time.time = lambda: real[1]() + skew_s
"""
# A gateway that beats once and is taken for alive ever after, so that it has no reason to look what others did.
NO_POLL = """
from twinbus.store.postgres import store
store.PostgresStore.__init__.__kwdefaults__["poll_ms"] = 3_600_000
assert "5 seconds" in store._BEAT
store._BEAT = store._BEAT.replace("5 seconds", "1 hour")
"""


class ChangedGateway(BrokerProcess):
    """A gateway in whose process something is different."""

    def __init__(self, directory: Path, *, options: tuple[str, ...], change: str) -> None:
        super().__init__(directory, options=options)
        self._change = change

    @property
    def command(self) -> list[str]:
        python, _, _, *words = super().command
        begin = "import runpy, sys\nsys.argv[0] = 'twinbus'\nrunpy.run_module('twinbus', run_name='__main__')\n"
        return [python, "-c", self._change + begin, *words]


HELD = f'LockDuration = "PT{LOCK_S}S"\n'
PATIENT = 'LockDuration = "PT5M"\nMaxDeliveryCount = 100000\n'
SHORT = 'LockDuration = "PT5S"\nMaxDeliveryCount = 100000\n'
SESSIONS = ["s0", "s1", "s2"]


async def progress(load: Load, amount: int, stall_s: float = 45.0) -> None:
    goal, deadline = load.progress + amount, time.monotonic() + stall_s
    while load.progress < goal:
        assert time.monotonic() < deadline, f"nothing is answered any more: {load.problems()}"
        await asyncio.sleep(0.01)


@pytest.mark.timeout(120)
async def test_a_killed_gateway_loses_nothing_and_its_locks_expire(postgres: PostgresServer, tmp_path: Path) -> None:
    config = (
        f'[[queues]]\nName = "plain"\n{SHORT}[[queues]]\nName = "held"\n{HELD}'
        f'[[queues]]\nName = "sessions"\nRequiresSession = true\n{PATIENT}'
    )
    both = Gateways(tmp_path, [new_database(postgres)], config=config, log_level="warning")
    with both:
        doomed, other = both.members
        loads = [Load(member.connection_string(), Random(7)) for member in both.members]
        loads[0].plain("plain")
        loads[1].sessions("sessions", SESSIONS)
        await progress(loads[0], 300)
        async with connect(doomed.connection_string()) as connection:
            await (await connection.sender("held")).send([message(f"held {n}") for n in range(3)])
            held_at_s = time.monotonic()
            assert len(await taken(await connection.receiver("held", credit=0), 3)) == 3
            await asyncio.to_thread(doomed.kill)
            killed_at_s = time.monotonic()
            await noticed(connection)
        await progress(loads[1], 200)
        print(f"the other gateway did 200 more things within {1000 * (time.monotonic() - killed_at_s):.0f} ms")
        async with connect(other.connection_string()) as connection:
            again = await taken(await connection.receiver("held", credit=0), 3)
            assert again == {f"held {n}": 1 for n in range(3)}
            assert time.monotonic() - held_at_s > LOCK_S - 1
        await loads[1].stop()
        await asyncio.to_thread(doomed.start)
        await progress(loads[0], 300)
        await loads[0].stop()
        await asyncio.sleep(8)  # What the load's receivers held when they were stopped.
        await asyncio.to_thread(judge, other, *loads)
        assert both.stop() == 0
    assert "Traceback" not in both.log, both.log[-8000:]


@pytest.mark.timeout(120)
async def test_gateways_find_their_way_back_after_a_restart_of_the_database(tmp_path: Path) -> None:
    postgres = PostgresServer().start()
    config = f'[[queues]]\nName = "plain"\n{SHORT}[[queues]]\nName = "sessions"\nRequiresSession = true\n{PATIENT}'
    both = Gateways(tmp_path, [new_database(postgres)], config=config, log_level="warning")
    try:
        with both:
            load = Load(both.connection_string(), Random(7))
            load.plain("plain")
            load.sessions("sessions", SESSIONS)
            for end in (postgres.stop, postgres.kill):
                await progress(load, 300)
                await asyncio.to_thread(end)
                await asyncio.sleep(0.5)
                await asyncio.to_thread(postgres.start)
                restarted_at_s = time.monotonic()
                await progress(load, 50)
                print(f"served again {1000 * (time.monotonic() - restarted_at_s):.0f} ms after the database")
            # Each gateway notices by itself that the database is back; one of them may need a second more.
            for number, member in enumerate(both.members):
                wait_for(partial(is_made, member, f"made-afterwards-{number}"), "a queue can be made again")
            await progress(load, 200)
            await load.stop()
            assert contradictions(load) == []
            for member in both.members:
                assert {member.queue(f"made-afterwards-{number}")["Status"] for number in range(2)} == {"Active"}
            both.stop()
            both.start()
            await asyncio.to_thread(judge, both, load)
    finally:
        both.kill()
        postgres.remove()
    assert "Traceback" not in both.log, both.log[-8000:]


def is_made(broker: BrokerProcess, queue: str) -> bool:
    try:
        broker.create_queue(queue)
    except HttpError as refused:
        return refused.status == 409  # An attempt whose answer was not known had succeeded.
    return True


def judge(broker: BrokerProcess, *loads: Load) -> None:
    found = look_at_all(broker, ["plain"], "sessions", SESSIONS)
    for load in loads:
        for queue, history in load.histories.items():
            history.judge(found[queue])
        assert contradictions(load) == []


def test_a_database_that_loses_what_it_acknowledged_is_refused(postgres: PostgresServer, tmp_path: Path) -> None:
    careless = PostgresServer(fsync="off").start()
    good = new_database(postgres)
    try:
        for stores in ([careless.connection_url], [good, careless.connection_url]):
            options = tuple(word for store in stores for word in ("--store", store))
            broker = BrokerProcess(tmp_path / str(len(stores)), options=options)
            with pytest.raises(AssertionError, match="fsync is off"):
                broker.start()
            assert "Traceback" not in broker.log
    finally:
        careless.remove()


def test_a_database_that_is_not_there_is_told_without_its_password(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    broker = BrokerProcess(tmp_path, options=("--store", f"postgresql://me:{SECRET}@127.0.0.1:{port}/bus"))
    with pytest.raises(AssertionError, match=f"127.0.0.1:{port}/bus"):
        broker.start()
    assert SECRET not in broker.log + broker.output


def test_stores_in_another_order_are_set_aside_and_fewer_are_refused(postgres: PostgresServer, tmp_path: Path) -> None:
    one, other = new_database(postgres), new_database(postgres)
    with BrokerProcess(tmp_path / "a", options=("--store", one, "--store", other)) as broker:
        assert broker.stop() == 0
    with BrokerProcess(tmp_path / "b", options=("--store", one, "--store", one)) as twice:
        _, text = twice.request("GET", "/$api/stores")
        first, second = json.loads(text)["stores"]
        assert (first["state"], second["state"]) == ("up", "set-aside")
        assert "is missing" in second["reason"]
    with BrokerProcess(tmp_path / "a", options=("--store", one, "--store", other)) as again:
        _, text = again.request("GET", "/$api/stores")
        assert [store["state"] for store in json.loads(text)["stores"]] == ["up", "up"]
    fewer = BrokerProcess(tmp_path / "c", options=("--store", one))
    with pytest.raises(AssertionError, match="has 2 messaging stores"):
        fewer.start()
