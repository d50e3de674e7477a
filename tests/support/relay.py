"""A relay in this process with limits of a test's own, and listeners and senders that speak its protocol by hand.

What a relay must do is judged by the tests; the published clients are in tests/compat/js.
"""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from math import ceil
from pathlib import Path
from typing import Any

import aiohttp

from support.broker import KEY, ROOT_POLICY, SOON_S
from twinbus.broker.process import Broker
from twinbus.broker.settings import NamespaceSettings, Settings
from twinbus.model.hybrid import HybridConnectionDescription
from twinbus.model.security import AuthorizationRule, Rights
from twinbus.relay.limits import Limits
from twinbus.wire.sas import make_token

FEW = Limits(listeners_max=2, goodbye_s=0.5)
LISTENER_KEY, SENDER_KEY = "the-key-of-one-who-listens", "the-key-of-one-who-sends"
SERVICE = HybridConnectionDescription(
    name="service",
    authorization_rules=(
        AuthorizationRule("listener", LISTENER_KEY, LISTENER_KEY, Rights.LISTEN),
        AuthorizationRule("sender", SENDER_KEY, SENDER_KEY, Rights.SEND),
    ),
)
OPEN = HybridConnectionDescription(name="open", requires_client_authorization=False)


class Relay:
    """A broker with two hybrid connections, and a way to talk to it."""

    def __init__(self, broker: Broker, session: aiohttp.ClientSession) -> None:
        self.broker = broker
        self.session = session
        self.host = f"127.0.0.1:{broker.ports['http']}"

    @property
    def namespace(self) -> Any:
        return self.broker.hosted[0].namespace

    @property
    def connections(self) -> int:
        """How many sockets and requests of senders the relay counts at present."""
        return self.broker.relay._connections[self.namespace]

    @contextmanager
    def limited(self, **limits: float) -> Iterator[None]:
        """Other limits for what begins meanwhile: a short time must end only what a test wants it to end."""
        door = self.broker.relay
        before = door._limits
        door._limits = replace(before, **limits)  # type: ignore[arg-type]
        try:
            yield
        finally:
            door._limits = before

    def token(self, path: str = "service", policy: str = ROOT_POLICY, key: str = KEY, lifetime_s: float = 300.0) -> str:
        return make_token(f"http://{self.host}/{path}", policy, key, ceil(time.time() + lifetime_s))

    def headers(self, **of_token: Any) -> dict[str, str]:
        return {"ServiceBusAuthorization": self.token(**of_token)}

    def url(self, action: str, path: str = "service", more: str = "") -> str:
        return f"ws://{self.host}/$hc/{path}?sb-hc-action={action}{more}"

    async def listen(self, path: str = "service", token: str | None = None) -> Listener:
        headers = {"ServiceBusAuthorization": token or self.token(path)}
        return Listener(self, await self.session.ws_connect(self.url("listen", path), headers=headers))

    async def connect(self, path: str = "service", more: str = "", **options: Any) -> aiohttp.ClientWebSocketResponse:
        options.setdefault("headers", self.headers(path=path.partition("/")[0]))
        return await self.session.ws_connect(self.url("connect", path, more), **options)

    async def request(self, method: str = "GET", below: str = "", **options: Any) -> tuple[int, bytes, dict[str, str]]:
        options.setdefault("headers", self.headers())
        async with self.session.request(method, f"http://{self.host}/service{below}", **options) as answer:
            return answer.status, await answer.read(), dict(answer.headers)


class Listener:
    """A control channel, one command at a time."""

    def __init__(self, relay: Relay, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.relay = relay
        self.socket = socket

    async def command(self, name: str) -> dict[str, Any]:
        told = await self.socket.receive_json(timeout=SOON_S)
        assert [name] == list(told), told
        command: dict[str, Any] = told[name]
        return command

    async def socket_body(self) -> bytes:
        """The body of the request that came before."""
        return await self.socket.receive_bytes(timeout=SOON_S)

    async def respond(self, number: str, body: bytes = b"", **told: Any) -> None:
        await answer_on(self.socket, number, body, **told)

    async def accept(self) -> aiohttp.ClientWebSocketResponse:
        told = await self.command("accept")
        return await self.relay.session.ws_connect(told["address"], max_msg_size=0)


async def answer_on(socket: aiohttp.ClientWebSocketResponse, number: str, body: bytes = b"", **told: Any) -> None:
    response = {"requestId": number, "statusCode": 200, "responseHeaders": {}, "body": bool(body)} | told
    await socket.send_str(json.dumps({"response": response}))
    if body:
        await socket.send_bytes(body)


async def closing(socket: aiohttp.ClientWebSocketResponse) -> int | None:
    """The code that the other side closes with."""
    message = await socket.receive(timeout=SOON_S)
    assert message.type is aiohttp.WSMsgType.CLOSE, message
    return socket.close_code


@asynccontextmanager
async def relay_in(directory: Path, limits: Limits = FEW) -> AsyncIterator[Relay]:
    """A relay that is started and stopped."""
    namespace = NamespaceSettings(name="relay", data=directory, key=KEY, stores=1, hybrid_connections=[SERVICE, OPEN])
    broker = Broker(Settings(amqp_port=0, http_port=0, namespaces=[namespace]), limits)
    await broker.start()
    try:
        async with aiohttp.ClientSession() as session:
            yield Relay(broker, session)
    finally:
        await broker.stop()
