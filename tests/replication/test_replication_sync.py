"""The same for synchronous applications: one implementation, waited for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from azure.servicebus import NEXT_AVAILABLE_SESSION, AutoLockRenewer, ServiceBusClient, ServiceBusMessage

from support.broker import BrokerProcess, wait_for
from twinbus.pair import Ledger, ReplicatedClient

Brokers = tuple[BrokerProcess, BrokerProcess]


def test_two_clients_of_the_sdk_can_be_given(brokers: Brokers, tmp_path: Path) -> None:
    for broker in brokers:
        broker.create_queue("sync-clients", RequiresSession=True)
    first, second = (ServiceBusClient.from_connection_string(broker.connection_string()) for broker in brokers)
    renewer = AutoLockRenewer()
    with (
        first,
        second,
        renewer,
        Ledger(tmp_path / "ledger.db") as ledger,
        ReplicatedClient.from_clients(first, second, mode="passive", ledger=ledger) as client,
    ):
        with client.get_queue_sender("sync-clients") as sender:
            sender.send_messages(ServiceBusMessage(b"x", message_id="m", session_id="s"))
        with client.get_queue_receiver("sync-clients", session_id="s", auto_lock_renewer=renewer) as receiver:
            (message,) = receiver.receive_messages(max_wait_time=30)
            receiver.complete_message(message)
    assert brokers[0].count("sync-clients") == 0


def settled(brokers: Brokers, receiver: Any, queue: str) -> None:
    """Go on receiving, which brings nothing, until both queues are empty: second copies are settled on the way."""

    def is_over() -> bool:
        assert receiver.receive_messages(max_wait_time=0.6) == []
        return not any(broker.count(queue) for broker in brokers)

    wait_for(is_over, "the settlement of second copies")


def replicated(brokers: Brokers, mode: str, ledger: Ledger) -> ReplicatedClient:
    primary, secondary = brokers
    return ReplicatedClient.from_connection_strings(
        primary.connection_string(), secondary.connection_string(), mode=mode, ledger=ledger, attempt_timeout=20.0
    )


def test_each_message_is_worked_on_once_by_iteration(brokers: Brokers, tmp_path: Path) -> None:
    for broker in brokers:
        broker.create_queue("sync-active")
    with Ledger(tmp_path / "ledger.db") as ledger, replicated(brokers, "active", ledger) as client:
        with client.get_queue_sender("sync-active") as sender:
            sender.send_messages([ServiceBusMessage(b"x", message_id=f"m{number}") for number in range(5)])
        received: list[str] = []
        with client.get_queue_receiver("sync-active", max_wait_time=30) as receiver:
            for message in receiver:
                received.append(str(message.message_id))
                receiver.complete_message(message)
                if len(received) == 5:
                    break
            settled(brokers, receiver, "sync-active")
        assert sorted(received) == [f"m{number}" for number in range(5)]
        assert ledger.metrics()["suppressed"] == 5
    assert [broker.count("sync-active") for broker in brokers] == [0, 0]


def test_the_lock_renewer_of_the_sdk_keeps_a_message_locked(brokers: Brokers, tmp_path: Path) -> None:
    for broker in brokers:
        broker.create_queue("sync-renewed", LockDuration="PT10S")
    with Ledger(tmp_path / "ledger.db") as ledger, replicated(brokers, "active", ledger) as client:
        with client.get_queue_sender("sync-renewed") as sender:
            sender.send_messages(ServiceBusMessage(b"x", message_id="m"))
        renewer = AutoLockRenewer()
        with renewer, client.get_queue_receiver("sync-renewed", auto_lock_renewer=renewer) as receiver:
            (message,) = receiver.receive_messages(max_wait_time=30)
            locked_until = message.locked_until_utc
            wait_for(lambda: message.locked_until_utc > locked_until, "a renewal")
            assert message.auto_renew_error is None
            receiver.complete_message(message)
            settled(brokers, receiver, "sync-renewed")
            assert receiver.receive_messages(max_wait_time=0.6) == []
    assert [broker.count("sync-renewed") for broker in brokers] == [0, 0]


def test_a_session_is_read_from_both_namespaces_in_order(brokers: Brokers, tmp_path: Path) -> None:
    for broker in brokers:
        broker.create_queue("sync-sessions", RequiresSession=True)
    with Ledger(tmp_path / "ledger.db") as ledger, replicated(brokers, "active", ledger) as client:
        with client.get_queue_sender("sync-sessions") as sender:
            for number in range(6):
                sender.send_messages(ServiceBusMessage(b"x", message_id=f"m{number}", session_id="s"))
        received: list[str] = []
        receiver = client.get_queue_receiver("sync-sessions", session_id=NEXT_AVAILABLE_SESSION, max_wait_time=30)
        with receiver, AutoLockRenewer() as renewer:
            assert receiver.session.session_id == "s"
            renewer.register(receiver, receiver.session)
            receiver.session.set_state(b"so far")
            assert receiver.session.get_state() == b"so far"
            assert receiver.session.renew_lock() is not None
            for message in receiver:
                received.append(str(message.message_id))
                receiver.complete_message(message)
                if len(received) == 6:
                    break
            settled(brokers, receiver, "sync-sessions")
        assert received == [f"m{number}" for number in range(6)]
    assert [broker.count("sync-sessions") for broker in brokers] == [0, 0]
