"""Paired namespaces: the primary is killed under a sender, which goes on; afterwards everything is in the primary.

`python examples/pairing.py` starts two namespaces of its own. In earnest they are two connection strings.
"""

from queue import SimpleQueue

from azure.servicebus import ServiceBusMessage

from twinbus.pair import Change, PairedServiceBusClient, SendAvailabilityOptions
from twinbus.testing import pair


def main() -> None:
    options = SendAvailabilityOptions(
        failover_interval=0, ping_primary_interval=1, enable_syphon=True, backlog_queue_count=2, attempts=1
    )
    diverted: list[str] = []
    changes: SimpleQueue[Change] = SimpleQueue()  # From a thread of the client to this one, which prints.
    with pair() as (primary, secondary):
        primary.create_queue("orders", requires_duplicate_detection=True)
        client = PairedServiceBusClient.from_connection_strings(
            primary.connection_string,
            secondary.connection_string,
            options,
            on_change=changes.put,
            on_diverted=lambda backlog: diverted.extend(backlog.message_ids),
        )
        with client, client.get_queue_sender("orders") as sender:
            for number in range(20):
                if number == 10:
                    primary.kill()
                sender.send_messages(ServiceBusMessage(f"order {number}", message_id=f"order-{number}"))
            show(changes.get())
            print(f"diverted: {len(diverted)}")
            primary.start()
            show(changes.get(timeout=60))
            received = set()
            with client.get_queue_receiver("orders", max_wait_time=30) as receiver:
                for message in receiver:
                    received.add(str(message.message_id))
                    receiver.complete_message(message)
                    if len(received) == 20:
                        break
            print(f"received from the primary: {len(received)}")


def show(change: Change) -> None:
    print(f"{change.scope}: {change.before.value} -> {change.after.value}")


if __name__ == "__main__":
    main()
