"""Passive replication: one namespace is enough until it fails; then the other one is, and the two change roles.

`python examples/passive_replication.py` starts two namespaces of its own. In earnest they are two connection strings.
"""

import tempfile
from pathlib import Path

from azure.servicebus import ServiceBusMessage

from twinbus.pair import Ledger, ReplicatedClient
from twinbus.testing import pair


def main(folder: Path) -> None:
    with pair() as (primary, secondary), Ledger(folder / "ledger.db") as ledger:
        for namespace in (primary, secondary):
            namespace.create_queue("orders")
        client = ReplicatedClient.from_connection_strings(
            primary.connection_string,
            secondary.connection_string,
            mode="passive",
            ledger=ledger,
            attempts=1,
            names=("primary", "secondary"),
            on_sent=lambda sent: print(f"{sent.tags[0]} is in the {sent.namespaces[0]}"),
        )
        with client, client.get_queue_sender("orders") as sender:
            sender.send_messages(ServiceBusMessage("first", message_id="m1"))
            primary.kill()
            sender.send_messages(ServiceBusMessage("second", message_id="m2"))
            print(f"the active namespace is the {client.active('orders')} now")
            with client.get_queue_receiver("orders", max_wait_time=30) as receiver:
                for message in receiver:
                    print(f"worked on {message.message_id}")
                    receiver.complete_message(message)
                    if message.message_id == "m1":
                        break
                    primary.start()  # What was shut in comes out, later than what followed it.


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        main(Path(directory))
