"""Workers for tests to kill: each reads two namespaces through a ledger, and ends itself with -9 at a chosen point.

`python -m support.replicated_worker PRIMARY SECONDARY QUEUE DATABASE JOINS` starts one for each line that it reads,
from the same warm process, and prints how it ended. The lines are `receive`, `work`, `mark`, `complete` (killed right
after that step) and `none` (works until nothing comes). Work is a row in the table `job`; a mark is in its transaction
if JOINS is 1.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import sys
from contextlib import closing

from azure.servicebus.exceptions import ServiceBusError

from twinbus.pair import AlreadyDoneError, Ledger, ReplicatedClient

WAIT_S = 1.2


def work(primary: str, secondary: str, queue: str, database: str, joins: bool, point: str) -> None:
    def reached(step: str) -> None:
        if step == point:
            os.kill(os.getpid(), signal.SIGKILL)

    with closing(sqlite3.connect(database)) as connection, Ledger(database, lease=2) as ledger:
        connection.execute("CREATE TABLE IF NOT EXISTS job (id TEXT, worker INTEGER)")
        client = ReplicatedClient.from_connection_strings(
            primary, secondary, mode="active", ledger=ledger, names=("contoso", "fabrikam"), attempt_timeout=20.0
        )
        with client, client.get_queue_receiver(queue, max_wait_time=WAIT_S) as receiver:
            for message in receiver:
                reached("receive")
                connection.execute("INSERT INTO job VALUES (?, ?)", (str(message.message_id), os.getpid()))
                if joins:
                    try:
                        ledger.done(message, connection=connection)
                    except AlreadyDoneError:
                        connection.rollback()
                    connection.commit()
                    reached("work")
                else:
                    connection.commit()
                    reached("work")
                    ledger.done(message)
                reached("mark")
                receiver.complete_message(message)
                reached("complete")


def main(primary: str, secondary: str, queue: str, database: str, joins: str) -> None:
    for point in map(str.strip, sys.stdin):
        child = os.fork()
        if child == 0:
            try:
                work(primary, secondary, queue, database, joins == "1", point)
            except ServiceBusError as error:
                print(f"{point}: {error}", file=sys.stderr, flush=True)
                os._exit(1)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        print("killed" if os.WIFSIGNALED(status) else os.WEXITSTATUS(status), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
