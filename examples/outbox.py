"""An outbox: the namespace is down, and the application goes on sending; everything arrives, each session in order.

`python examples/outbox.py` starts a namespace of its own. In earnest it is a connection string.
"""

import tempfile
from pathlib import Path

from azure.servicebus import ServiceBusClient, ServiceBusMessage

from twinbus.pair import OutboxClient
from twinbus.testing import namespace


def main(folder: Path) -> None:
    with namespace() as bus:
        bus.create_queue("orders", requires_session=True, requires_duplicate_detection=True)
        with OutboxClient(bus.connection_string, folder / "outbox.db") as client:
            bus.kill()
            print("the namespace is gone")
            sender = client.get_queue_sender("orders")
            for number in range(20):
                sender.send_messages(
                    ServiceBusMessage(f"order {number}", message_id=f"order-{number}", session_id="customer-1")
                )
            print(f"safe on this disk: {client.outbox.counts().messages} messages")
            bus.start()
            client.outbox.wait_until_empty()
            print(f"the namespace is back, and has {bus.counts('orders')['active']}")
        with (
            ServiceBusClient.from_connection_string(bus.connection_string) as bare,
            bare.get_queue_receiver("orders", session_id="customer-1", max_wait_time=30) as receiver,
        ):
            received = []
            for message in receiver:
                received.append(str(message.message_id))
                receiver.complete_message(message)
                if len(received) == 20:
                    break
        print("in order" if received == [f"order-{number}" for number in range(20)] else f"not in order: {received}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        main(Path(directory))
