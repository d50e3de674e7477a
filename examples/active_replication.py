"""Active replication: each message is in two namespaces, one of them is killed, and each is worked on once.

`python examples/active_replication.py` starts two namespaces of its own. In earnest they are two connection strings.
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
            primary.connection_string, secondary.connection_string, mode="active", ledger=ledger, attempts=1
        )
        worked = []
        with client, client.get_queue_sender("orders") as sender:
            for number in range(10):
                if number == 5:
                    primary.kill()
                    print("the primary is gone")
                sender.send_messages(ServiceBusMessage(f"order {number}", message_id=f"order-{number}"))
            primary.start()
            print("the primary is back, with its copies of the first five")
            with client.get_queue_receiver("orders") as receiver:
                while any(namespace.counts("orders")["active"] for namespace in (primary, secondary)):
                    for message in receiver.receive_messages(max_message_count=10, max_wait_time=1):
                        worked.append(str(message.message_id))
                        receiver.complete_message(message)
        print(f"worked on {len(worked)} orders, {len(set(worked))} of them different")
        print(f"second copies that the ledger suppressed: {ledger.metrics()['suppressed']}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        main(Path(directory))
