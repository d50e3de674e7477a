"""What one small delivery costs in the core, without sockets: run by hand, not collected by pytest.

    PYTHONPATH=src python tests/unit/amqp/bench_core.py

Prints the best of several runs in microseconds for each delivery; the payload's copy is included.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable

from twinbus.amqp import Connection, Link, LinkRole, Role, Settings
from twinbus.amqp.events import Deliveries, LinkAttached, SaslInit
from twinbus.amqp.performatives import ACCEPTED, Source, Target

COUNT = 20_000
CHUNK = 100
PAYLOAD = bytes(1024)


def connected() -> tuple[Connection, Connection]:
    """A client and a server that have opened and begun."""
    settings = Settings(incoming_window=1_000_000, max_unsettled=1_000_000)
    client = Connection(Role.CLIENT, "client", settings)
    server = Connection(Role.SERVER, "server", settings)
    client.start("ANONYMOUS")
    talk(client, server)
    return client, server


def talk(client: Connection, server: Connection) -> list[Link]:
    """Carries bytes both ways until nobody has any; accepts every link."""
    attached = []
    while True:
        there, back = client.take(), server.take()
        if not there and not back:
            return attached
        for event in server.receive(there, 0):
            if isinstance(event, SaslInit):
                server.sasl_outcome(True)
            elif isinstance(event, LinkAttached):
                event.link.accept()
                attached.append(event.link)
        client.receive(back, 0)


def best(run: Callable[[], float], rounds: int = 5) -> float:
    return min(run() for _ in range(rounds)) / COUNT * 1e6


def measure_sending_and_receiving(role_of_client: LinkRole) -> None:
    client, server = connected()
    session = client.begin()
    link = session.attach("link", role_of_client, Source("queue"), Target("queue"), rcv_settle_mode=0)
    server_link = talk(client, server)[0]
    sender, receiver = (link, server_link) if role_of_client is LinkRole.SENDER else (server_link, link)
    out_conn, in_conn = sender.session.connection, receiver.session.connection
    times: dict[str, list[float]] = {"transfer out": [], "transfer in": [], "settle out": [], "settle in": []}
    tags = [number.to_bytes(16, "big") for number in range(COUNT)]

    for _ in range(5):
        spent = dict.fromkeys(times, 0.0)
        for first in range(0, COUNT, CHUNK):
            started = time.perf_counter()
            for tag in tags[first : first + CHUNK]:
                sender.transfer(tag, PAYLOAD, False)
            chunk = out_conn.take()
            spent["transfer out"] += time.perf_counter() - started
            started = time.perf_counter()
            events = in_conn.receive(chunk, 0)
            spent["transfer in"] += time.perf_counter() - started
            ids = [item[0] for event in events if isinstance(event, Deliveries) for item in event.items]
            assert len(ids) == CHUNK
            started = time.perf_counter()
            receiver.session.settle(ids, ACCEPTED, LinkRole.RECEIVER)
            answer = in_conn.take()
            spent["settle out"] += time.perf_counter() - started
            started = time.perf_counter()
            out_conn.receive(answer, 0)
            spent["settle in"] += time.perf_counter() - started
        for name, seconds in spent.items():
            times[name].append(seconds)
        assert not sender.session.outgoing
        assert not receiver.session.incoming
    for name, seconds in times.items():
        print(f"  {name:14} {min(seconds) / COUNT * 1e6:6.2f} us")


def measure_single_dispositions() -> None:
    client, server = connected()
    session = client.begin()
    link = session.attach("link", LinkRole.RECEIVER, Source("queue"), Target("queue"))
    sender = talk(client, server)[0]

    def run() -> float:
        for number in range(COUNT):
            sender.transfer(number.to_bytes(16, "big"), b"", False)
        client.receive(server.take(), 0)
        for delivery_id in list(session.incoming):
            session.settle([delivery_id], ACCEPTED, LinkRole.RECEIVER)
        answer = client.take()
        started = time.perf_counter()
        server.receive(answer, 0)
        return time.perf_counter() - started

    print(f"  disposition in, one for each delivery {best(run):6.2f} us")
    assert link.attached


if __name__ == "__main__":
    gc.freeze()
    gc.set_threshold(100_000, 50, 50)
    for role in LinkRole:
        print(f"client is the {role.name.lower()}, {len(PAYLOAD)} bytes, chunks of {CHUNK}")
        measure_sending_and_receiving(role)
    measure_single_dispositions()
