"""One broker process from start to stop: opens its namespaces, wires the doors to them, serves, ends politely.

What the parts do is theirs; the order in which they come and go is told here.
"""

from __future__ import annotations

import asyncio
import os
import signal
import ssl
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

from aiohttp import web
from aiohttp.typedefs import Handler

from twinbus import __version__
from twinbus.admin.app import make_app
from twinbus.admin.metrics import Labels
from twinbus.admin.server import bound_port, start_http
from twinbus.admin.site import Site
from twinbus.broker.clock import MovableClock, SystemClock
from twinbus.broker.hosting import Hosted
from twinbus.broker.settings import Settings, SettingsError
from twinbus.entities.hosting import Hosting, nobodys
from twinbus.gateway import telling, websocket
from twinbus.gateway.context import Context
from twinbus.gateway.server import Gateway
from twinbus.relay.door import PATH as RELAY_PATH
from twinbus.relay.door import RelayDoor
from twinbus.relay.limits import Limits as RelayLimits
from twinbus.wire import view

STDIN = 0


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
    ) -> None:
        """`site` are pages for people on the HTTP port, which somebody else serves."""
        settings.check()
        self._site = site
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
                if self.settings.faults:
                    hosted.allow_faults(self.clock)
            self.hosting = Hosting([hosted.namespace for hosted in self.hosted], nobodys(self.clock, view))
            self.gateway = gateway = Gateway(self.hosting, self.clock, new_id, f"Twinbus {__version__}")
            self.relay = RelayDoor(self.hosting, self.clock, limits=self._relay_limits)
            for hosted in self.hosted:
                hosted.tell_connections = partial(self._connections_to, hosted)
            self._opened.push_async_callback(self._close_doors, gateway)
            await self._listen(gateway, tls)
        except BaseException:
            await self._opened.aclose()
            raise
        for hosted in self.hosted:
            hosted.begin()
        self.is_ready = True

    async def stop(self) -> None:
        """Stop accepting, let clients go, finish commits, release the files."""
        self.is_ready = False
        for hosted in self.hosted:
            hosted.end()
        await self._opened.aclose()

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
        settings = self.settings
        try:
            if settings.serves_plain:
                self.ports["http"] = await self._serve_http(gateway, settings.http_port, None)
                self.ports["amqp"] = await gateway.listen(settings.host, settings.amqp_port)
            if tls is not None:
                self.ports["https"] = await self._serve_http(gateway, settings.https_port, tls)
                self.ports["amqps"] = await gateway.listen(settings.host, settings.amqps_port, tls)
        except OSError as problem:
            raise SettingsError(f"A port cannot be opened: {problem.strerror or problem}.") from None

    async def _serve_http(self, gateway: Gateway, port: int, tls: ssl.SSLContext | None) -> int:
        routes: dict[str, Handler] = dict.fromkeys(websocket.PATHS, websocket.WebSocketDoor(gateway).answer)
        routes[RELAY_PATH] = self.relay.answer_socket
        app = make_app(
            self.hosting,
            metrics=self.counters,
            ready=lambda: self.is_ready,
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
        await gateway.close()
        for runner in self._runners:
            await runner.cleanup()

    # What is told about it

    def counters(self) -> Mapping[str, int | dict[Labels, int]]:
        """Plain numbers for the metrics page; of several namespaces, each has its own."""
        counted = {hosted.settings.name: self._counters_of(hosted) for hosted in self.hosted}
        told: dict[str, int | dict[Labels, int]] = {}
        if len(counted) == 1:
            told.update(*counted.values())
        else:
            counted[""] = self._counters_at(self._gateway().choice.entrance)
            for name in sorted({name for numbers in counted.values() for name in numbers}):
                told[name] = {
                    (("namespace", namespace),): numbers[name]
                    for namespace, numbers in counted.items()
                    if name in numbers
                }
        by_store: dict[str, dict[Labels, int]] = {}
        for hosted in self.hosted:
            for name, samples in hosted.store_metrics().items():
                by_store.setdefault(name, {}).update(samples)
        told.update(by_store)
        told["namespace_info"] = {
            (("namespace", hosted.settings.name), ("datacenter", hosted.settings.datacenter)): 1
            for hosted in self.hosted
        }
        return told

    def _connections_to(self, hosted: Hosted) -> list[dict[str, Any]]:
        context = self._gateway().choice.contexts[hosted.settings.name]
        return telling.documents(each for each in self._gateway().connections if each.context is context)

    def _counters_of(self, hosted: Hosted) -> dict[str, int]:
        context = self._gateway().choice.contexts[hosted.settings.name]
        return self._counters_at(context) | hosted.counters() | self.relay.numbers(hosted.namespace)

    def _counters_at(self, context: Context) -> dict[str, int]:
        connected = [connection for connection in self._gateway().connections if connection.context is context]
        return {
            **{f"{name}_total": value for name, value in context.counters.items()},
            "open_connections": len(connected),
            "open_links": sum(len(connection.nodes) for connection in connected),
        }

    def _gateway(self) -> Gateway:
        assert self.gateway is not None
        return self.gateway

    def connection_strings(self, hosted: Hosted) -> dict[str, str]:
        """What applications need to use a namespace, ready to paste, by policy."""
        # The host is the same for all: `NAME.localhost` is not known to every system's resolver, and the keys tell.
        host = "localhost" if self.settings.is_loopback else self.settings.host
        return hosted.connection_strings(host, self.ports.get("amqp"))

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


async def serve(
    settings: Settings,
    announce: Callable[[Broker], None],
    *,
    stop_with_stdin: bool = False,
    site: Site | None = None,
) -> None:
    """Run a broker until SIGTERM or SIGINT, or until its parent is gone and standard input ends with it."""
    broker = Broker(settings, site=site)
    await broker.start()
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    if stop_with_stdin:
        loop.add_reader(STDIN, _watch_stdin, loop, ended)
    announce(broker)
    try:
        await ended.wait()
    finally:
        await broker.stop()
