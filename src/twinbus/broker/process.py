"""One broker process from start to stop: opens the data, wires the doors to the namespace, serves, ends politely.

What the parts do is theirs; the order in which they come and go is told here.
"""

from __future__ import annotations

import asyncio
import base64
import os
import signal
import ssl
from collections.abc import Callable
from contextlib import AsyncExitStack
from uuid import UUID

from aiohttp import web

from twinbus import __version__
from twinbus.admin.app import make_app
from twinbus.admin.server import bound_port, start_http
from twinbus.broker.clock import SystemClock
from twinbus.broker.datadir import DataDirectory
from twinbus.broker.settings import ROOT_POLICY, Policy, Settings, SettingsError
from twinbus.broker.stores import CatalogShell, StoreShell
from twinbus.entities.namespace import Namespace
from twinbus.gateway import websocket
from twinbus.gateway.server import Gateway
from twinbus.model.clock import Clock
from twinbus.model.security import AuthorizationRule, Rights
from twinbus.store.catalog import CatalogFile
from twinbus.store.commands import Hints
from twinbus.store.sqlite import SqliteStore
from twinbus.wire import view

NOTES_INTERVAL_S = 0.5
IDLE_CHECK_S = 5.0


def new_id() -> str:
    """32 hex digits that nobody used before."""
    return os.urandom(16).hex()


def new_uuid() -> UUID:
    """A random id, for rules that ask for one."""
    return UUID(bytes=os.urandom(16), version=4)


def new_key() -> str:
    """A 256-bit key as text."""
    return base64.b64encode(os.urandom(32)).decode()


class Broker:
    """A namespace that is being served."""

    def __init__(self, settings: Settings, clock: Clock | None = None) -> None:
        settings.check()
        self.settings = settings
        self.clock = clock or SystemClock()
        self.is_ready = False
        self.ports: dict[str, int] = {}
        self._directory = DataDirectory(settings.data_directory)
        self._opened = AsyncExitStack()  # What must be closed again, also when a start fails halfway.
        self._opened.callback(self._directory.release)
        self.gateway: Gateway | None = None
        self._stores: list[StoreShell] = []
        self._held: list[list[int]] = []  # Entities that each store's file held at start.
        self._runners: list[web.AppRunner] = []
        self._timer: asyncio.TimerHandle | None = None
        self._idle_checks: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Open everything; when this returns, clients can connect."""
        settings = self.settings
        try:
            tls = self._tls()
            file = CatalogFile(str(self._directory.catalog))
            meta, rows = file.load()
            self._catalog = CatalogShell(file)
            self._opened.callback(self._catalog.close)
            self._opened.push_async_callback(self._close_stores)
            self._open_stores()
            self.namespace = Namespace(settings.namespace, self.clock, self._stores, self._catalog, view, new_uuid)
            self.namespace.load(meta, rows)
            await self.namespace.keep_creation_date()
            self.namespace.drop_orphans(self._held)
            await self._ensure_policies()
            await self._ensure_entities()
            self.gateway = gateway = Gateway(self.namespace, new_id, f"Twinbus {__version__}")
            self._opened.callback(self.namespace.flush_notes)
            self._opened.push_async_callback(self._close_doors, gateway)
            await self._listen(gateway, tls)
        except BaseException:
            await self._opened.aclose()
            raise
        self._flush_notes()
        self._idle_checks = asyncio.create_task(self._delete_idle())
        self.is_ready = True

    def _open_stores(self) -> None:
        count = self._directory.stores(self.settings.stores)
        for index in range(count):
            store = SqliteStore(
                str(self._directory.store(index)), epoch=os.urandom(8), now_ms=self.clock.now_ms(), number=index
            )
            self._held.append(store.entities())
            self._stores.append(StoreShell(store, self.clock, self._hinted, self._flush))

    def _hinted(self, hints: Hints) -> None:
        self.namespace.hinted(hints)

    def _flush(self) -> None:
        if self.gateway is not None:
            self.gateway.flush()

    async def _ensure_policies(self) -> None:
        """Policies that the settings name; what they leave open, above all a key, is made once and kept."""
        rules = {rule.name: rule for rule in self.namespace.rules}
        for policy in (Policy(ROOT_POLICY, Rights.ALL, self.settings.key), *self.settings.policies):
            known = rules.get(policy.name)
            primary_key = policy.primary_key or (known.primary_key if known else new_key())
            secondary_key = policy.secondary_key or (known.secondary_key if known else new_key())
            rules[policy.name] = AuthorizationRule(policy.name, primary_key, secondary_key, policy.rights)
        if tuple(rules.values()) != self.namespace.rules:
            await self.namespace.set_rules(list(rules.values()))

    async def _ensure_entities(self) -> None:
        """What the settings declare and the namespace lacks; what is there is left as it is."""
        namespace = self.namespace
        for description in self.settings.queues:
            if namespace.find(description.name) is None:
                await namespace.create_queue(description)
        for topic in self.settings.topics:
            if namespace.find(topic.description.name) is None:
                await namespace.create_topic(topic.description)
            for subscription in topic.subscriptions:
                if namespace.find(subscription.description.path) is None:
                    await namespace.create_subscription(subscription.description, subscription.rules)

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
                self.ports["amqp"] = await gateway.listen(settings.host, settings.amqp_port)
                self.ports["http"] = await self._serve_http(settings.http_port, None)
            if tls is not None:
                self.ports["amqps"] = await gateway.listen(settings.host, settings.amqps_port, tls)
                self.ports["https"] = await self._serve_http(settings.https_port, tls)
        except OSError as problem:
            raise SettingsError(f"A port cannot be opened: {problem.strerror or problem}.") from None

    async def _serve_http(self, port: int, tls: ssl.SSLContext | None) -> int:
        assert self.gateway is not None
        routes = dict.fromkeys(websocket.PATHS, websocket.WebSocketDoor(self.gateway).answer)
        app = make_app(self.namespace, metrics=self.counters, ready=lambda: self.is_ready, routes=routes)
        runner = await start_http(app, self.settings.host, port, tls)
        self._runners.append(runner)
        return bound_port(runner)

    def counters(self) -> dict[str, int]:
        """Plain numbers for the metrics page."""
        gateway = self.gateway
        assert gateway is not None
        return {
            **{f"{name}_total": value for name, value in gateway.context.counters.items()},
            "synced_commits_total": sum(store.synced_commits for store in self._stores),
            "open_connections": len(gateway.connections),
            "open_links": sum(len(connection.nodes) for connection in gateway.connections),
            "pending_bytes": sum(store.pending_bytes for store in self._stores),
            "queues": len(self.namespace.queues()),
            "topics": len(self.namespace.topics()),
        }

    def connection_strings(self) -> dict[str, str]:
        """What applications need, ready to paste, by policy."""
        host = "localhost" if self.settings.is_loopback else self.settings.host
        port, mark = "", ""
        if "amqp" in self.ports:
            port, mark = f":{self.ports['amqp']}", ";UseDevelopmentEmulator=true"
        return {
            rule.name: f"Endpoint=sb://{host}{port};SharedAccessKeyName={rule.name};SharedAccessKey={rule.primary_key}{mark}"
            for rule in self.namespace.rules
        }

    def _flush_notes(self) -> None:
        self.namespace.flush_notes()
        self._timer = asyncio.get_running_loop().call_later(NOTES_INTERVAL_S, self._flush_notes)

    async def _delete_idle(self) -> None:
        while True:
            await asyncio.sleep(IDLE_CHECK_S)
            await self.namespace.delete_idle()

    async def stop(self) -> None:
        """Stop accepting, let clients go, finish commits, release the files."""
        self.is_ready = False
        if self._idle_checks is not None:
            self._idle_checks.cancel()
        if self._timer is not None:
            self._timer.cancel()
        await self._opened.aclose()

    async def _close_doors(self, gateway: Gateway) -> None:
        await gateway.close()
        for runner in self._runners:
            await runner.cleanup()

    async def _close_stores(self) -> None:
        await asyncio.gather(*(store.close() for store in self._stores))


async def serve(settings: Settings, announce: Callable[[Broker], None]) -> None:
    """Run a broker until SIGTERM or SIGINT."""
    broker = Broker(settings)
    await broker.start()
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    announce(broker)
    try:
        await ended.wait()
    finally:
        await broker.stop()
