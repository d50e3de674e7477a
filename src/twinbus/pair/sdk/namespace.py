"""The port over the official SDK: for namespaces behind WebSockets, a proxy or another address.

Each link has a connection of its own, as the SDK has it. How links carry messages is in `links`; what is sent where is
decided by `route`, `backlog` and `syphon`.
"""

from __future__ import annotations

import asyncio
import inspect
import ssl
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from azure.core.credentials import AzureNamedKeyCredential, AzureSasCredential
from azure.servicebus import NEXT_AVAILABLE_SESSION, TransportType
from azure.servicebus._pyamqp import utils
from azure.servicebus.aio import ServiceBusClient

from twinbus.client import ConnectionString, messages
from twinbus.client.connection_string import TLS_PORT
from twinbus.client.doors import http_address, http_port_in, namespace_in
from twinbus.client.endpoint import within
from twinbus.client.errors import NO_TOKEN, TIMED_OUT, ClientError, of_each
from twinbus.client.hearing import Heard, What
from twinbus.client.management import NOT_FOUND
from twinbus.pair.namespace.open_links import OpenLinks
from twinbus.pair.namespace.port import ATTEMPT_TIMEOUT_S, BrokerFacts, Receiver, RemoteNamespace
from twinbus.pair.namespace.soundness import Sign
from twinbus.pair.sdk.attempts import attempt_of, remember_attempt
from twinbus.pair.sdk.client_errors import heard_in, text
from twinbus.pair.sdk.links import ReceiveLink, SdkLink, SendLink, properties_of
from twinbus.pair.sdk.messages import target_of

if TYPE_CHECKING:
    from twinbus.client.atom import Administration

_typed: Any = utils  # Numbers by their AMQP type.
_SIGNS = {
    What.TOKEN_REFUSED: Sign.REFUSED,
    What.RIGHT_REFUSED: Sign.TAKEN,  # Nobody is refused a right before the token is read.
    What.PROTOCOL_BROKEN: Sign.GARBLED,
    None: Sign.SILENT,
}
# What a client that is made after another one has of it, apart from the way to its namespace.
_TRYING = (
    "retry_total",
    "retry_backoff_factor",
    "retry_backoff_max",
    "try_timeout",
    "socket_timeout",
    "use_tls",
    "user_agent",
    "logging_enable",
)
_NOWHERE = "$cbs"  # The SDK wants to know an entity even for a connection without links.


class SdkNamespace(RemoteNamespace):
    """A namespace over the official SDK. `settings` are those of its client: transport, proxy, address, trust."""

    def __init__(
        self,
        role: str,
        target: ConnectionString,
        *,
        settings: Mapping[str, Any] | None = None,
        tls: ssl.SSLContext | None = None,
        http_address: str | None = None,
        timeout_s: float = ATTEMPT_TIMEOUT_S,
    ) -> None:
        super().__init__(role, target, tls=tls, http_address=http_address, timeout_s=timeout_s)
        settings = dict(settings or {})
        self._proxy: Mapping[str, Any] | None = settings.get("http_proxy")
        self._is_elsewhere = bool(settings.get("custom_endpoint_address"))
        if not target.tls:
            settings["use_tls"] = False
            settings.setdefault("ssl_context", ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))  # Nobody is asked for anything.
        elif tls is not None and not settings.get("connection_verify"):
            settings.setdefault("ssl_context", tls)
        self._client = _client(target, settings, _PortCredential)
        self._senders = OpenLinks(self._open_sender)
        self._leaving: set[asyncio.Task[None]] = set()

    @classmethod
    def instead_of(cls, namespace: RemoteNamespace, client: Any) -> SdkNamespace:
        """The same namespace, reached as a client of the SDK reaches it."""
        return cls(
            namespace.role,
            namespace.target,
            settings=settings_of(client),
            tls=namespace._tls,
            http_address=namespace._http_address,
            timeout_s=namespace.timeout_s,
        )

    # Messages

    async def sender(self, path: str) -> SendLink:
        """A link to an entity, kept for the next one who asks; those who ask at once wait for the same one."""
        self.check_open()
        return await self._senders.get(path)

    async def _open_sender(self, path: str) -> SendLink:
        link = SendLink(self._client.get_queue_sender(path), path, self.timeout_s)
        await self._open(link)
        return link

    async def _open(self, link: SdkLink, extra_s: float = 0.0) -> None:
        """Open a link, and hear what that says of the client."""
        self.check_open()
        try:
            await link.open(extra_s)
        except ClientError as error:
            what = heard_in(error)
            if what is not None:
                self.hear(Heard(what, link.path))
            raise
        self.took_token(link.path)

    async def send(
        self, path: str, payloads: Sequence[bytes], *, timeout_s: float | None = None, together: bool = False
    ) -> None:
        """Over the kept link; one that is silent is not used again."""
        timeout_s = self.timeout_s if timeout_s is None else timeout_s
        used: list[SendLink] = []

        async def send() -> None:
            used.append(link := await self.sender(path))
            if not together or len(payloads) < 2:
                await link.send(payloads)
            else:
                await _send_together(link, payloads)

        try:
            await within(timeout_s, send(), f"sending to '{path}'")
        except ClientError as error:
            if error.condition == TIMED_OUT and used:
                self._leave(path, used[0])
            raise

    async def be_there(self) -> None:
        """Its links cannot ask; a send finds it out."""

    def _leave(self, path: str, link: SendLink) -> None:
        """Have the next one open another link; who still waits for an answer over this one gets what comes."""
        self._senders.forget(path, link)
        leaving = asyncio.create_task(link.leave())
        self._leaving.add(leaving)
        leaving.add_done_callback(self._leaving.discard)

    async def message_bytes_max(self, path: str) -> int | None:
        """As the broker said when the link was attached."""
        return (await self.sender(path)).message_bytes_max

    async def receiver(self, path: str) -> ReceiveLink:
        """A receiver without credit in advance."""
        link = ReceiveLink(self._client.get_queue_receiver(path), path, self.timeout_s)
        await self._open(link)
        return link

    async def session_receiver(self, path: str, wait_s: float) -> ReceiveLink:
        """The broker waits so long for a session to become free."""
        handler = self._client.get_queue_receiver(path, session_id=NEXT_AVAILABLE_SESSION, max_wait_time=wait_s)
        link = ReceiveLink(handler, path, self.timeout_s)
        await self._open(link, wait_s)
        return link

    async def renew_session(self, receiver: Receiver) -> None:
        """Over the receiver's own connection."""
        assert isinstance(receiver, ReceiveLink)
        await receiver.ask("renew-session-lock", {"session-id": receiver.session_id})

    async def peek(self, path: str, session_id: str) -> bool:
        """Over the connection of the entity's sender; one that failed is not used again."""
        link = await self.sender(path)
        asked = {"from-sequence-number": _typed.amqp_long_value(0), "message-count": 1, "session-id": session_id}
        try:
            found = await link.ask("peek-message", asked)
        except ClientError as error:
            if error.condition == NOT_FOUND:
                return False
            self._leave(path, link)
            raise
        return bool(found and found.get("messages"))

    # Over connections of their own

    async def ping(self, path: str, payload: bytes) -> None:
        """A new connection shows that the namespace can be reached now."""
        async with self._fresh(path) as link:
            await within(self.timeout_s, link.send([payload]), f"sending to '{path}'")

    async def probe(self, path: str, payload: bytes) -> None:
        """Nothing of it is left when this returns."""
        message = messages.read(payload)
        entry: dict[str, Any] = {"message-id": message.message_id, "message": payload}
        if message.session_id is not None:
            entry["session-id"] = message.session_id
        if message.partition_key is not None:
            entry["partition-key"] = message.partition_key
        async with self._fresh(path) as link:
            scheduled = await link.ask("schedule-message", {"messages": [entry]})
            numbers = [_typed.amqp_long_value(number) for number in (scheduled or {}).get("sequence-numbers") or ()]
            await link.ask("cancel-scheduled-message", {"sequence-numbers": _typed.amqp_array_value(numbers)})

    async def ask(self) -> BrokerFacts:
        """The properties of a connection."""
        self.check_open()
        found = await properties_of(self._client.get_queue_sender(_NOWHERE), self.timeout_s)
        is_twinbus = text(found.get("product")).startswith("Twinbus")
        return BrokerFacts(is_twinbus, http_port_in(found, self.target.tls), *namespace_in(found))

    async def show_token(self, path: str) -> tuple[Sign, str]:
        """The SDK attaches, too; that it may not says nothing of its token."""
        link = SendLink(self._client.get_queue_sender(path), path, self.timeout_s)
        try:
            facts = await self.ask()
        except ClientError:
            return Sign.SILENT, ""
        try:
            await link.open()
        except ClientError as error:
            return _SIGNS[heard_in(error)], facts.namespace_id
        await link.close()
        return Sign.TAKEN, facts.namespace_id

    @asynccontextmanager
    async def _fresh(self, path: str) -> AsyncIterator[SendLink]:
        link = await self._open_sender(path)
        try:
            yield link
        finally:
            await link.close()

    # Administration

    async def administer(self) -> AbstractAsyncContextManager[Administration]:
        """Through the same proxy."""
        from twinbus.client.atom import administer

        self.check_open()
        address, proxy = await self.http_address(), _proxy(self._proxy)
        return administer(
            self.target, address, tls=self._tls, timeout_s=self.timeout_s, proxy=proxy, listener=self.hear
        )

    async def http_address(self) -> str:
        """Behind another address may be a broker of ours, which says its port."""
        if self._http_address is None and self._is_elsewhere:
            self._http_address = http_address(self.target, (await self.facts()).http_port)
        return await super().http_address()

    # The end

    async def close(self) -> None:
        """Let go of the connections."""
        self._asking.cancel()
        links = await asyncio.gather(*self._senders.clear(), return_exceptions=True)
        await asyncio.gather(*(link.close() for link in links if isinstance(link, SdkLink)), *self._leaving)


async def _send_together(link: SendLink, payloads: Sequence[bytes]) -> None:
    """Of one transfer all messages have the same outcome."""
    try:
        await link.send([messages.batch(payloads)], messages.BATCH_FORMAT)
    except ClientError as error:
        raise of_each(error, len(payloads)) from error


def _client(target: ConnectionString, chosen: dict[str, Any], credential: type[AnyCredential]) -> ServiceBusClient:
    """Trying again is for those who use the port: they know what else could be done."""
    settings: dict[str, Any] = {"transport_type": TransportType.Amqp, "retry_total": 0} | chosen
    host = target.host if target.tls else f"{target.host}:{target.port}"
    if target.tls and target.port != TLS_PORT and not _is_websocket(settings["transport_type"]):
        settings.setdefault("custom_endpoint_address", f"sb://{target.host}:{target.port}")
    return ServiceBusClient(host, _credential_of(target, credential), **settings)


def _is_websocket(transport_type: Any) -> bool:
    return bool(transport_type.value == TransportType.AmqpOverWebsocket.value)


def settings_of(client: Any) -> dict[str, Any]:
    """How a client of the SDK, of either flavour, reaches its namespace."""
    config = client._config
    settings = {
        "transport_type": config.transport_type,
        "http_proxy": config.http_proxy,
        "custom_endpoint_address": client._custom_endpoint_address,
        "connection_verify": client._connection_verify,
        "ssl_context": getattr(client, "_ssl_context", None),
    }
    return {name: value for name, value in settings.items() if value is not None}


def needs_sdk(client: Any, target: ConnectionString) -> bool:
    """Whether a client of the SDK uses a way that our own client does not know; `target` is where ours would go."""
    config = client._config
    if config.http_proxy or _is_websocket(config.transport_type):
        return True
    address = client._custom_endpoint_address
    if not address:
        return False
    parts = urlsplit(address if "//" in address else f"sb://{address}")
    return (parts.hostname, parts.port) != (target.host, target.port)


def _credential_of(target: ConnectionString, kind: type[AnyCredential]) -> Any:
    if target.credential is not None:
        return kind(target.credential)
    if target.signature is not None:
        return AzureSasCredential(target.signature)
    return AzureNamedKeyCredential(target.policy or "", target.key or "")


class AnyCredential:
    """A credential of an application of either flavour, awaited as the asynchronous SDK does."""

    def __init__(self, credential: Any) -> None:
        self._credential = credential
        token_type = getattr(credential, "token_type", None)
        if token_type is not None:
            self.token_type = token_type

    async def get_token(self, *scopes: str, **kwargs: Any) -> Any:
        """It may ask a service, for as long as that takes."""
        get_token: Callable[..., Any] = self._credential.get_token
        if inspect.iscoroutinefunction(get_token):
            return await get_token(*scopes, **kwargs)
        return await asyncio.to_thread(get_token, *scopes, **kwargs)


class _PortCredential(AnyCredential):
    """The same where all failures are a ClientError."""

    async def get_token(self, *scopes: str, **kwargs: Any) -> Any:
        """The service that is asked may be down."""
        try:
            return await super().get_token(*scopes, **kwargs)
        except Exception as problem:
            raise ClientError(NO_TOKEN, f"no token for '{' '.join(scopes)}': {problem}") from problem


def asynchronous(client: Any) -> ServiceBusClient:
    """A client for asyncio with the settings of a synchronous one; call it on the loop that it shall run on."""
    config = client._config
    settings = {name: getattr(config, name) for name in _TRYING if hasattr(config, name)}
    settings |= {"retry_mode": config.retry_mode.value, **settings_of(client)}
    made = _client(target_of(client), settings, AnyCredential)
    remember_attempt(made, attempt_of(client))
    return made


def _proxy(settings: Mapping[str, Any] | None) -> str | None:
    """The SDK's way of naming a proxy, as an address."""
    if not settings:
        return None
    host = str(settings["proxy_hostname"])
    scheme, _, rest = host.rpartition("://")
    user = settings.get("username")
    secret = f"{user}:{settings.get('password', '')}@" if user else ""
    return f"{scheme or 'http'}://{secret}{rest}:{settings['proxy_port']}"
