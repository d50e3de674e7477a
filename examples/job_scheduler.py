"""A job scheduler: MessageId is the job's id, the worker is killed between work and complete, each job is done once.

`python examples/job_scheduler.py` starts two namespaces and the workers. A result and the mark in the ledger are one
transaction of the worker's own database; that is what makes it once.
"""

import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
from datetime import timedelta
from pathlib import Path

from azure.servicebus import ServiceBusMessage

from twinbus.pair import AlreadyDoneError, Ledger, ReplicatedClient
from twinbus.testing import pair

JOBS = ["invoice-1", "invoice-2", "invoice-3"]


def main(folder: Path) -> None:
    with pair() as namespaces:
        for namespace in namespaces:
            namespace.create_queue("jobs", lock_duration=timedelta(seconds=5))
        strings = [namespace.connection_string for namespace in namespaces]
        with (
            ReplicatedClient.from_connection_strings(*strings, mode="active") as client,
            client.get_queue_sender("jobs") as sender,
        ):
            sender.send_messages([ServiceBusMessage(job, message_id=job) for job in JOBS])
        for worker in ("killed after its work", "killed after its work", "not killed"):
            command = [sys.executable, __file__, str(folder / "jobs.db"), worker, *strings]
            print(f"a worker, {worker}: exit code {subprocess.run(command, check=False).returncode}")
    with sqlite3.connect(folder / "jobs.db") as results:
        print("done:", *(job for (job,) in results.execute("SELECT job FROM result ORDER BY job")))


def work(database: str, fate: str, *strings: str) -> None:
    results = sqlite3.connect(database)
    results.execute("CREATE TABLE IF NOT EXISTS result (job TEXT)")
    with Ledger(database) as ledger:
        client = ReplicatedClient.from_connection_strings(*strings, mode="active", ledger=ledger)
        with client, client.get_queue_receiver("jobs", max_wait_time=10) as receiver:
            for message in receiver:
                try:
                    results.execute("INSERT INTO result VALUES (?)", (message.message_id,))
                    ledger.done(message, connection=results)
                except AlreadyDoneError:
                    results.rollback()
                results.commit()
                if fate == "killed after its work":
                    os.kill(os.getpid(), signal.SIGKILL)
                receiver.complete_message(message)
    results.close()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        work(*sys.argv[1:])
    else:
        with tempfile.TemporaryDirectory() as directory:
            main(Path(directory))
