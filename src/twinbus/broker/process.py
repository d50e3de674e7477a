"""One broker process from start to stop: opens its namespaces, wires the doors to them, serves, ends politely.

What the parts do is theirs; the order in which they come and go is told here.
"""

from __future__ import annotations

import asyncio
import os
import signal
import ssl
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any

from aiohttp import web
from aiohttp.typedefs import Handler

from twinbus import __version__
from twinbus.admin.app import make_app
from twinbus.admin.server import bound_port, start_http
from twinbus.admin.site import Site
from twinbus.broker.certificate import expires_at_s, hosts_in
from twinbus.broker.clock import MovableClock, SystemClock, WallClock
from twinbus.broker.drilling import Drilling
from twinbus.broker.failing import arm_as_told
from twinbus.broker.health import Health
from twinbus.broker.hosting import Hosted
from twinbus.broker.measuring import Measures, Sheet, write_door, write_process
from twinbus.broker.reaching import host_for_clients, in_url, refused
from twinbus.broker.settings import Settings, SettingsError
from twinbus.entities.hosting import Hosting, nobodys
from twinbus.gateway import telling, websocket
from twinbus.gateway.context import Context
from twinbus.gateway.server import Gateway
from twinbus.model.extras import require
from twinbus.model.logged import EventLog
from twinbus.model.metrics import Numbers
from twinbus.relay.door import PATH as RELAY_PATH
from twinbus.relay.door import RelayDoor
from twinbus.relay.limits import Limits as RelayLimits
from twinbus.wire import view

STDIN = 0

_log = EventLog(__name__)


def new_id() -> str:
    """32 hex digits that nobody used before."""
    return os.urandom(16).hex()


class Broker:
    """Namespaces that are being served."""

    def __init__(
        self,
        settings: Settings,
        relay_limits: RelayLimits | None = None,
        site: Site | None = None,
        drilling: Drilling | None = None,
    ) -> None:
        """`site` are pages for people on the HTTP port, which somebody else serves; `drilling` runs drills."""
        settings.check()
        arm_as_told(os.environ, settings.faults)
        require(*settings.extra_modules)
        self._site = site
        self._drilling = drilling
        self._relay_limits = relay_limits
        self.settings = settings
        self.clock = SystemClock()
        self.is_ready = False
        self.ports: dict[str, int] = {}
        self.hosted: list[Hosted] = []
        self.gateway: Gateway | None = None
        self._opened = AsyncExitStack()  # What must be closed again, also when a start fails halfway.
        self._runners: list[web.AppRunner] = []

    async def start(self) -> None:
        """Open everything; when this returns, clients can connect."""
        try:
            tls = self._tls()
            for settings in self.settings.namespaces:
                clock = MovableClock(self.clock) if self.settings.test_clock else self.clock
                hosted = Hosted(settings, clock, self._flush)
                self.hosted.append(hosted)
                self._opened.push_async_callback(hosted.close)
                await hosted.open()
                hosted.drills = self._drilling
                if self.settings.faults:
                    hosted.allow_faults(self.clock)
            self.hosting = Hosting([hosted.namespace for hosted in self.hosted], nobodys(self.clock, view))
            self.gateway = gateway = Gateway(self.hosting, self.clock, new_id, f"Twinbus {__version__}")
            if self.hosting.only is not None:
                only = self.hosted[0]
                gateway.announce_namespace(only.namespace.name, str(only.describe().get("id") or ""))
            places = {hosted.namespace: hosted.settings.datacenter for hosted in self.hosted}
            self.relay = RelayDoor(self.hosting, self.clock, limits=self._relay_limits, datacenters=places)
            for hosted in self.hosted:
                hosted.tell_connections = partial(self._connections_to, hosted)
            self._opened.push_async_callback(self._close_doors, gateway)
            self._watch()
            if self._drilling is not None:
                self._opened.push_async_callback(self._drilling.close)
            await self._listen(gateway, tls)
        except BaseException:
            await self._opened.aclose()
            raise
        for hosted in self.hosted:
            hosted.begin()
        self.is_ready = True
        if self._site is not None:
            await self._site.begin(self.hosted[0].settings.kept_directory)

    async def stop(self) -> None:
        """Stop accepting, let clients go, finish commits, release the files."""
        self.is_ready = False
        for hosted in self.hosted:
            hosted.end()
        await self._opened.aclose()

    def _watch(self) -> None:
        """Begin to measure, for metrics and checks."""
        self._measures = [Measures(hosted, by_entity=self.settings.entity_metrics) for hosted in self.hosted]
        certificate = self.settings.certificate
        expires_s = None if certificate is None else expires_at_s(certificate)
        self._health = Health(self.hosted, self._measures, self.clock, WallClock(), expires_s)
        self._opened.callback(self._health.loop.end)

    def _flush(self) -> None:
        if self.gateway is not None:
            self.gateway.flush()

    # Doors

    def _tls(self) -> ssl.SSLContext | None:
        if self.settings.certificate is None or self.settings.certificate_key is None:
            return None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            context.load_cert_chain(self.settings.certificate, self.settings.certificate_key)
        except (OSError, ssl.SSLError) as problem:
            raise SettingsError(f"The certificate {self.settings.certificate} cannot be used: {problem}.") from None
        return context

    async def _listen(self, gateway: Gateway, tls: ssl.SSLContext | None) -> None:
        """Open all doors, HTTP before AMQP, whose clients are told of it; name all that do not open at once."""
        settings, problems = self.settings, dict[str, None]()
        doors: dict[str, tuple[int, Callable[[int], Awaitable[int]]]] = {}
        if settings.serves_plain:
            doors["http"] = settings.http_port, lambda port: self._serve_http(gateway, port, None)
            doors["amqp"] = settings.amqp_port, lambda port: gateway.listen(settings.host, port)
        if tls is not None:
            doors["https"] = settings.https_port, lambda port: self._serve_http(gateway, port, tls)
            doors["amqps"] = settings.amqps_port, lambda port: gateway.listen(settings.host, port, tls)
        for door, (port, opened) in doors.items():
            try:
                self.ports[door] = await opened(port)
            except OSError as problem:
                problems[refused(door, settings.host, port, problem)] = None
        if problems:
            raise SettingsError("\n".join(problems))

    async def _serve_http(self, gateway: Gateway, port: int, tls: ssl.SSLContext | None) -> int:
        routes: dict[str, Handler] = dict.fromkeys(websocket.PATHS, websocket.WebSocketDoor(gateway).answer)
        routes[RELAY_PATH] = self.relay.answer_socket
        app = make_app(
            self.hosting,
            metrics=self.numbers,
            ready=lambda: self.is_ready,
            serves=self._health.serves,
            doubts=self._health.doubts,
            checks=self._health.checks(),
            routes=routes,
            relay=self.relay,
            site=self._site,
            clock=self.clock,
            counters=gateway.counters,
            upkeep={hosted.namespace: hosted for hosted in self.hosted},
        )
        runner = await start_http(app, self.settings.host, port, tls)
        self._runners.append(runner)
        bound = bound_port(runner)
        gateway.announce("http" if tls is None else "https", bound)
        return bound

    async def _close_doors(self, gateway: Gateway) -> None:
        await self.relay.close()
        await gateway.close()  # First, because WebSockets are closed by the HTTP door without a word.
        await asyncio.gather(*(runner.cleanup() for runner in self._runners))

    # What is told about it

    async def numbers(self) -> Numbers:
        """Everything for the metrics page."""
        sheet = Sheet()
        for hosted, measures in zip(self.hosted, self._measures, strict=True):
            context = self._gateway().choice.contexts[hosted.settings.name]
            self._write_door(sheet, hosted.settings.name, context)
            measures.write_counted(sheet)
            for name, value in self.relay.numbers(hosted.namespace).items():
                sheet.put(name, value, namespace=hosted.settings.name)
        if len(self.hosted) > 1:
            self._write_door(
                sheet, "", self._gateway().choice.entrance
            )  # Of clients that have not said whom they mean.
        # Last, because stores that are busy let us wait.
        await asyncio.gather(*(measures.look() for measures in self._measures))
        for measures in self._measures:
            measures.write_found(sheet)
        health = self._health
        return write_process(sheet, health.loop.lag_s, health.drift_s, health.certificate_expires_s)

    def _write_door(self, sheet: Sheet, name: str, context: Context) -> None:
        connected = [connection for connection in self._gateway().connections if connection.context is context]
        write_door(sheet, name, lambda what: context.counters[what])
        sheet.put("open_connections", len(connected), namespace=name)
        sheet.put("open_links", sum(len(connection.nodes) for connection in connected), namespace=name)

    def _connections_to(self, hosted: Hosted) -> list[dict[str, Any]]:
        context = self._gateway().choice.contexts[hosted.settings.name]
        return telling.documents(each for each in self._gateway().connections if each.context is context)

    def _gateway(self) -> Gateway:
        assert self.gateway is not None
        return self.gateway

    def address(self, door: str) -> str:
        """Host and port of an open door as clients find it: the same for all namespaces, whose keys tell them apart."""
        host = host_for_clients(self.settings.host, self.certified_hosts() if door in ("amqps", "https") else ())
        return f"{in_url(host)}:{self.ports[door]}"

    def certified_hosts(self) -> list[str]:
        """What the certificate is for, if there is one."""
        return [] if self.settings.certificate is None else hosts_in(self.settings.certificate)

    def connection_strings(self, hosted: Hosted, door: str) -> dict[str, str]:
        """What applications need to use a namespace through a door, ready to paste, by policy."""
        return hosted.connection_strings(self.address(door), plain=door == "amqp")

    @property
    def has_site(self) -> bool:
        """Whether there are pages for people."""
        return self._site is not None

    def shared_keys(self) -> list[str]:
        """Policies whose key is good in several namespaces, which a client at `localhost` cannot tell apart then."""
        holders = Counter(
            (rule.name, key) for hosted in self.hosted for rule in hosted.namespace.rules for key in set(rule.keys)
        )
        return sorted({policy for (policy, _), count in holders.items() if count > 1})


def _watch_stdin(loop: asyncio.AbstractEventLoop, ended: asyncio.Event) -> None:
    if not os.read(STDIN, 4096):
        loop.remove_reader(STDIN)
        ended.set()


class EndedEarlyError(Exception):
    """A signal ended the broker before it was ready."""

    def __init__(self, number: int) -> None:
        super().__init__(f"ended by {signal.Signals(number).name} before it was ready")
        self.number = number


async def _start(broker: Broker, ended: asyncio.Event) -> None:
    """Start a broker, or stop in the midst of it when that is wanted."""
    starting, ending = asyncio.create_task(broker.start()), asyncio.create_task(ended.wait())
    await asyncio.wait([starting, ending], return_when=asyncio.FIRST_COMPLETED)
    ending.cancel()
    if starting.done():
        await starting
        if ended.is_set():
            await broker.stop()
        return
    starting.cancel()
    await asyncio.gather(starting, return_exceptions=True)


async def serve(
    settings: Settings,
    announce: Callable[[Broker], None],
    *,
    stop_with_stdin: bool = False,
    site: Site | None = None,
    pair: Path | None = None,
) -> None:
    """Run a broker until SIGTERM or SIGINT, or until its parent is gone and standard input ends with it.

    EndedEarlyError if a signal came before it was ready: then everything is closed again.
    `pair` describes the pair that drills may be run on.
    """
    drilling = None if pair is None else Drilling(settings.namespaces[0].data_directory / "drills", pair.absolute())
    broker = Broker(settings, site=site, drilling=drilling)
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    heard: list[int] = []

    def hear(number: int) -> None:
        heard.append(number)
        ended.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, hear, number)
    await _start(broker, ended)
    if heard:
        raise EndedEarlyError(heard[0])
    if stop_with_stdin:
        try:
            loop.add_reader(STDIN, _watch_stdin, loop, ended)
        except PermissionError:  # A file, or /dev/null: nobody is at its other end who could go away later.
            ended.set()
    announce(broker)
    names = [hosted.settings.name for hosted in broker.hosted]
    _log.info("broker.started", "serving {namespaces} at {ports}", namespaces=names, ports=broker.ports)
    try:
        await ended.wait()
    finally:
        _log.info("broker.stopping", "stopping {namespaces}", namespaces=names)
        await broker.stop()
        _log.info("broker.stopped", "stopped {namespaces}", namespaces=names)
