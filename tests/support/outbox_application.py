"""An application for tests to kill: sends through a pair with an outbox, and writes down what it was told.

`python -m support.outbox_application PRIMARY SECONDARY NAME QUEUE OUTBOX LOG COUNT [OPTION=VALUE …]`; with a count of 0
it sends nothing and ends when the outbox is empty.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError

from twinbus.drill.history import SendLog
from twinbus.pair import PairedServiceBusClient, SendAvailabilityOptions

SESSIONS = 5


def main(primary: str, secondary: str, name: str, queue: str, outbox: str, log: str, count: str, *chosen: str) -> None:
    options = dict(text.split("=", 1) for text in chosen)
    always = json.loads(options.pop("always", "false"))
    client = PairedServiceBusClient.from_connection_strings(
        primary,
        secondary,
        SendAvailabilityOptions(**{key: json.loads(value) for key, value in options.items()}),
        primary_name=name,
        outbox=outbox,
        always=always,
    )
    with client, client.get_queue_sender(queue) as sender, SendLog(Path(log)) as sent:
        for number in range(int(count)):
            session = f"s{number % SESSIONS}"
            message_id = f"{session}.{number // SESSIONS}"
            sent.attempted(message_id, queue, 0)
            while True:
                try:
                    queued = sender.send_messages(ServiceBusMessage(b"x", message_id=message_id, session_id=session))
                    break
                except ServiceBusError as error:
                    sent.failed(message_id, 0, str(error))
                    time.sleep(0.05)
            sent.acknowledged(message_id, 0, queued is not None)
            print("queued" if queued is not None else "sent", message_id, flush=True)
        if not int(count):
            kept = client._core.outbox
            assert kept is not None
            while kept.outbox.counts().messages:
                time.sleep(0.05)
        else:
            print("all", flush=True)
            time.sleep(3600)  # Until it is killed.


if __name__ == "__main__":
    main(*sys.argv[1:])
