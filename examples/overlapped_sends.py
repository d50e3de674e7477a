"""Overlapped sends: a stream of messages, several under way at a time, each with an outcome of its own.

`python examples/overlapped_sends.py` starts two namespaces of its own. In earnest they are two connection strings.
"""

import time

from azure.servicebus import ServiceBusMessage

from twinbus.pair import PairedServiceBusClient, SendAvailabilityOptions
from twinbus.testing import pair


def main() -> None:
    orders = [ServiceBusMessage(f"order {number}", message_id=f"order-{number}") for number in range(200)]
    options = SendAvailabilityOptions(backlog_queue_count=1, attempts=1)
    with pair() as (primary, secondary):
        primary.create_queue("orders")
        client = PairedServiceBusClient.from_connection_strings(
            primary.connection_string, secondary.connection_string, options
        )
        with client, client.get_queue_sender("orders") as sender:
            began = time.perf_counter()
            for order in orders[:50]:
                sender.send_messages(order)
            one_by_one = (time.perf_counter() - began) / 50
            began = time.perf_counter()
            outcomes = sender.send_many(orders[50:], max_in_flight=20)
            overlapped = (time.perf_counter() - began) / 150
        print(f"acknowledged: {50 + sum(outcome.error is None for outcome in outcomes)}")
        print(f"in the queue: {primary.counts('orders')['active']}")
        print(f"one by one {one_by_one * 1000:.1f} ms a message, overlapped {overlapped * 1000:.1f} ms")


if __name__ == "__main__":
    main()
