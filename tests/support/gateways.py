"""Several gateways of one namespace on PostgreSQL, each its own process, behind a balancer that looks like one broker.

The balancer is as plain as can be: it hands each new TCP connection to the next gateway in turn.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path

from support.broker import SOON_S, BrokerProcess
from support.ports import free_ports
from support.postgres import PostgresServer

ON_POSTGRES = os.environ.get("TWINBUS_TEST_STORE") == "postgresql"
# Longer than anything takes on a busy machine. A clock that can be moved passes it at once; a database's clock cannot.
LATER_S = 10 if ON_POSTGRES else 60
_databases = itertools.count(1)


def new_database(server: PostgresServer, copy_of: str | None = None) -> str:
    """The address of a new database: empty, or a copy of one that nobody is connected to, by its address."""
    name = f"bus_{os.getpid()}_{next(_databases)}"
    template = "" if copy_of is None else f' TEMPLATE "{copy_of.rpartition("/")[2]}"'
    server.execute(f'CREATE DATABASE "{name}"{template}')
    return server.connection_url.rpartition("/")[0] + f"/{name}"


class Balancer:
    """Listens on ports and passes each connection on to the next of the ports behind; runs on a thread of its own."""

    def __init__(self, routes: dict[int, Sequence[int]]) -> None:
        self._routes = routes
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), name="balancer", daemon=True)
        self._thread.start()
        assert self._ready.wait(SOON_S)

    async def _run(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._ending = asyncio.Event()
        self._open: set[asyncio.StreamWriter] = set()
        servers = []
        for port, behind in self._routes.items():
            turns = itertools.cycle(behind)
            servers.append(await asyncio.start_server(partial(self._serve, turns), "127.0.0.1", port))
        self._ready.set()
        await self._ending.wait()
        for server in servers:
            server.close()
        for writer in self._open:
            writer.transport.abort()
        await asyncio.sleep(0.05)

    async def _serve(self, turns: Iterator[int], reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with ExitStack() as closing:
            self._keep(writer, closing)
            # A gateway that is gone is passed over, as a balancer's health check would.
            for port in (next(turns), next(turns)):
                with suppress(OSError):
                    back_reader, back_writer = await asyncio.open_connection("127.0.0.1", port)
                    break
            else:
                return
            self._keep(back_writer, closing)
            await asyncio.gather(_pump(reader, back_writer), _pump(back_reader, writer))

    def _keep(self, writer: asyncio.StreamWriter, closing: ExitStack) -> None:
        self._open.add(writer)
        closing.callback(self._open.discard, writer)
        closing.callback(writer.close)

    def close(self) -> None:
        """Cut everything."""
        self._loop.call_soon_threadsafe(self._ending.set)
        self._thread.join(SOON_S)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Pass on what comes; an end is an end, and a connection that breaks off breaks off on the other side too."""
    try:
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
        writer.write_eof()
    except OSError:
        writer.transport.abort()


class Gateways(BrokerProcess):
    """As many broker processes as asked for, used as one. `members` are for tests that want a certain one."""

    def __init__(
        self,
        directory: Path,
        stores: Sequence[str],
        *,
        count: int = 2,
        config: str | None = None,
        options: tuple[str, ...] = (),
        tls: Path | None = None,
        log_level: str = "info",
    ) -> None:
        """`tls` is a directory with certificates; `amqps_port` and `https_port` are then served too."""
        super().__init__(directory, config=config, options=options, log_level=log_level)
        self.stores = list(stores)
        where = tuple(word for store in stores for word in ("--store", store))
        self.members = [
            BrokerProcess(directory / f"gateway-{n}", config=config, options=(*where, *options), log_level=log_level)
            for n in range(1, count + 1)
        ]
        self._routes: dict[int, list[int]] = {
            self.amqp_port: [member.amqp_port for member in self.members],
            self.http_port: [member.http_port for member in self.members],
        }
        if tls is not None:
            self.amqps_port, self.https_port = free_ports(2)
            for member in self.members:
                amqps_port, https_port = free_ports(2)
                member.options += ("--tls", str(tls))
                member.options += ("--amqps-port", str(amqps_port), "--https-port", str(https_port))
                self._routes.setdefault(self.amqps_port, []).append(amqps_port)
                self._routes.setdefault(self.https_port, []).append(https_port)
        self._balancer: Balancer | None = None

    def start(self, timeout_s: float = SOON_S) -> Gateways:
        """Start all gateways, then the balancer."""
        for member in self.members:
            member.start(timeout_s)
        self._balancer = Balancer(self._routes)
        return self

    def stop(self, timeout_s: float = SOON_S) -> int:
        """Ask all to end; the first exit code that is not zero."""
        codes = [member.stop(timeout_s) for member in self.members]
        self._close_balancer()
        return next((code for code in codes if code), 0)

    def kill(self) -> int:
        """End all without notice."""
        for member in self.members:
            member.kill()
        self._close_balancer()
        return 0

    def _close_balancer(self) -> None:
        balancer, self._balancer = self._balancer, None
        if balancer is not None:
            balancer.close()

    @property
    def log(self) -> str:
        """What all of them have written, one after another."""
        return "".join(member.log for member in self.members)

    @property
    def output(self) -> str:
        """What all of them have printed."""
        return "".join(member.output for member in self.members)

    def pass_time(self, seconds: float) -> None:
        """Their clock is the database's, which nobody moves."""
        time.sleep(seconds)

    def metric(self, name: str) -> float:
        """One metric over all its labels and all of them."""
        return sum(member.metric(name) for member in self.members)

    def metrics(self) -> dict[str, float]:
        """Their numbers added up."""
        total: Counter[str] = Counter()
        for member in self.members:
            total.update(member.metrics())
        return dict(total)
