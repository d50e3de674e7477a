"""Administration over HTTP: a namespace's entities listed, read, created, changed and deleted, here and on Azure alike.

What entries look like is known by `descriptions`. Retrying is left to the caller.
"""

from __future__ import annotations

import json
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote

import aiohttp
from yarl import URL

from twinbus.client import descriptions
from twinbus.client.connection_string import ConnectionString
from twinbus.client.descriptions import Description, Entry, MalformedError, NamespaceInfo
from twinbus.client.errors import NO_TLS, TIMED_OUT, UNREACHABLE, WRONG_DOOR, ClientError
from twinbus.client.hearing import Heard, Listener, What
from twinbus.client.requests import CONDITIONS
from twinbus.client.tokens import JWT, CredentialTokens
from twinbus.model.entity import QueueDescription
from twinbus.model.rule import RuleDescription
from twinbus.model.topic import SubscriptionDescription, TopicDescription
from twinbus.wire import sas
from twinbus.wire.markup import Element

API_VERSION = "2021-05"
PAGE = 100
TIMEOUT_S = 30.0
TOKEN_LIFETIME_S = 300
ANSWER_BYTES_MAX = 32 * 1024 * 1024
UNAUTHORIZED = 401

_CONTENT_TYPE = "application/atom+xml;type=entry;charset=utf-8"
_NOT_FOUND = "amqp:not-found"
_UNREADABLE = "twinbus:unreadable"

T = TypeVar("T")


class AtomError(ClientError):
    """A refusal over HTTP, or an answer that makes no sense; the status tells which."""

    def __init__(self, status: int, text: str, condition: str | None = None) -> None:
        super().__init__(condition or CONDITIONS.get(status, f"twinbus:status-{status}"), text)
        self.status = status


class HttpAnswer(NamedTuple):
    """Status and body."""

    status: int
    body: bytes


# Method, address, headers and body of a request, to its answer.
Exchange = Callable[[str, str, Mapping[str, str], bytes | None], Awaitable[HttpAnswer]]


@asynccontextmanager
async def administer(
    target: ConnectionString,
    address: str,
    *,
    tls: ssl.SSLContext | None = None,
    timeout_s: float = TIMEOUT_S,
    proxy: str | None = None,
    listener: Listener | None = None,
) -> AsyncIterator[Administration]:
    """The administration of the namespace at an address such as `https://host` or `http://host:5300`.

    `proxy` is an address, too; without it the environment may name one. `listener` hears that something is refused.
    """
    connector = aiohttp.TCPConnector(ssl=tls if tls is not None else True)
    timeout = aiohttp.ClientTimeout(total=timeout_s)
    # What is plain is near, and no proxy's business.
    proxied = address.startswith("https:")
    async with aiohttp.ClientSession(connector=connector, timeout=timeout, trust_env=proxied) as session:

        async def exchange(method: str, url: str, headers: Mapping[str, str], body: bytes | None) -> HttpAnswer:
            asked = session.request(
                method, URL(url, encoded=True), headers=headers, data=body, allow_redirects=False, proxy=proxy
            )
            async with asked as answer:
                found = bytearray()
                async for chunk in answer.content.iter_any():
                    found += chunk
                    if len(found) > ANSWER_BYTES_MAX:
                        raise aiohttp.ClientPayloadError(f"the answer is larger than {ANSWER_BYTES_MAX} bytes")
                if answer.status == UNAUTHORIZED and listener is not None:
                    listener(Heard(What.RIGHT_REFUSED))
                return HttpAnswer(answer.status, bytes(found))

        yield Administration(target, address, exchange, time.time)


class Administration:
    """The administration of one namespace. Use `administer` to get one."""

    def __init__(self, target: ConnectionString, address: str, exchange: Exchange, now_s: Callable[[], float]) -> None:
        self._target = target
        self._address = address.rstrip("/")
        self._exchange = exchange
        self._now_s = now_s

    async def namespace(self) -> NamespaceInfo:
        """The namespace itself."""
        return self._read(descriptions.read_namespace, await self._ask("GET", "$namespaceinfo"))

    # Reading

    async def queues(self) -> AsyncIterator[Entry[QueueDescription]]:
        """All queues, a page at a time."""
        async for entry in self._list("$Resources/queues", descriptions.read_entry):
            yield entry

    async def topics(self) -> AsyncIterator[Entry[TopicDescription]]:
        """All topics, a page at a time."""
        async for entry in self._list("$Resources/topics", descriptions.read_entry):
            yield entry

    async def subscriptions(self, topic: str) -> AsyncIterator[Entry[SubscriptionDescription]]:
        """All subscriptions of a topic, a page at a time."""
        async for entry in self._list(f"{topic}/Subscriptions", partial(descriptions.read_entry, topic=topic)):
            yield entry

    async def rules(self, subscription: str) -> AsyncIterator[RuleDescription]:
        """All rules of a subscription, which is named by its whole path, a page at a time."""
        async for rule in self._list(f"{subscription}/Rules", descriptions.read_rule):
            yield rule

    async def entity(self, path: str) -> Entry[Description]:
        """The queue, topic or subscription at a path; an AtomError of status 404 if there is none."""
        entry = self._read(partial(descriptions.read_entry, topic=topic_of(path)), await self._ask("GET", path))
        if entry is None:
            raise AtomError(404, f"The entity '{path}' could not be found.", _NOT_FOUND)
        return entry

    async def rule(self, subscription: str, name: str) -> RuleDescription:
        """One rule of a subscription; an AtomError of status 404 if there is none of that name."""
        return self._rule_in(await self._ask("GET", f"{subscription}/Rules/{name}"), subscription, name)

    async def _list(self, path: str, reading: Callable[[Element], T | None]) -> AsyncIterator[T]:
        skip: int | None = 0
        while skip is not None:
            feed = await self._ask("GET", path, f"&$skip={skip}&$top={PAGE}")
            page = self._read(partial(descriptions.read_page, reading=reading), feed)
            for entry in page.entries:
                yield entry
            # A list that does not get on would never end.
            skip = page.next_skip if page.next_skip is not None and page.next_skip > skip else None

    # Changing

    async def create(self, entity: Description, rule: RuleDescription | None = None) -> Entry[Description]:
        """A new entity as it came to be; an AtomError of status 409 if the name is taken.

        A subscription begins with the given rule, or with one that takes everything.
        """
        return await self._put(entity, rule, {})

    async def update(self, entity: Description) -> Entry[Description]:
        """Replaces all that can be set about an entity."""
        return await self._put(entity, None, {"If-Match": "*"})

    async def delete(self, path: str) -> None:
        """Deletes an entity and all that is in it."""
        await self._send("DELETE", path)

    async def create_rule(self, subscription: str, rule: RuleDescription) -> RuleDescription:
        """A new rule as it came to be; an AtomError of status 409 if the name is taken."""
        return await self._put_rule(subscription, rule, {})

    async def update_rule(self, subscription: str, rule: RuleDescription) -> RuleDescription:
        """Replaces a rule."""
        return await self._put_rule(subscription, rule, {"If-Match": "*"})

    async def delete_rule(self, subscription: str, name: str) -> None:
        """Deletes a rule."""
        await self._send("DELETE", f"{subscription}/Rules/{name}")

    async def _put_rule(self, subscription: str, rule: RuleDescription, headers: dict[str, str]) -> RuleDescription:
        body = descriptions.write_rule(rule)
        answer = await self._send("PUT", f"{subscription}/Rules/{rule.name}", body=body.encode(), headers=headers)
        return self._rule_in(self._parsed(answer), subscription, rule.name)

    async def _put(
        self, entity: Description, rule: RuleDescription | None, headers: dict[str, str]
    ) -> Entry[Description]:
        if not isinstance(entity, TopicDescription):
            for destination, header in (
                (entity.forward_to, "ServiceBusSupplementaryAuthorization"),
                (entity.forward_dead_letters_to, "ServiceBusDlqSupplementaryAuthorization"),
            ):
                if destination:  # The service wants to see that we may send there.
                    headers[header] = await self._token(_path_of(destination))
            entity = replace(
                entity,
                forward_to=self._whole(entity.forward_to),
                forward_dead_letters_to=self._whole(entity.forward_dead_letters_to),
            )
        path = path_of(entity)
        answer = await self._send("PUT", path, body=descriptions.write(entity, rule).encode(), headers=headers)
        entry = self._read(partial(descriptions.read_entry, topic=topic_of(path)), self._parsed(answer))
        if entry is None:
            raise self._unreadable(MalformedError(f"no description of '{path}'"))
        return entry

    def _whole(self, destination: str | None) -> str | None:
        """Destinations are known by their whole address."""
        return f"sb://{self._target.host}/{_path_of(destination)}" if destination else None

    # Asking

    async def ask_json(
        self, method: str, path: str, document: Mapping[str, Any] | None = None, query: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """What Twinbus' own JSON API answers; on other namespaces an AtomError, mostly of status 404."""
        body = None if document is None else json.dumps(document).encode()
        asked = "".join(f"&{name}={quote(str(value), safe='')}" for name, value in (query or {}).items())
        answer = await self._send(method, path, asked, body=body, headers={"Content-Type": "application/json"})
        try:
            found = json.loads(answer.body)
        except ValueError as problem:
            raise self._unreadable(MalformedError(str(problem))) from None
        if not isinstance(found, dict):
            raise self._unreadable(MalformedError("not an object"))
        return found

    async def _ask(self, method: str, path: str, query: str = "") -> Element:
        return self._parsed(await self._send(method, path, query))

    async def _send(
        self,
        method: str,
        path: str,
        query: str = "",
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> HttpAnswer:
        url = f"{self._address}/{quote(path, safe='/$')}?api-version={API_VERSION}{query}"
        sent = {"Authorization": await self._token(path), "Content-Type": _CONTENT_TYPE, **(headers or {})}
        try:
            answer = await self._exchange(method, url, sent, body)
        except TimeoutError:
            raise ClientError(TIMED_OUT, f"{self._address} did not answer in time") from None
        except aiohttp.ClientConnectorSSLError as problem:
            text = f"{self._address} does not speak TLS: {problem}"
            raise ClientError(NO_TLS, text) from problem
        except aiohttp.ServerDisconnectedError as problem:
            text = f"{self._address} hung up without an answer"
            raise ClientError(WRONG_DOOR if self._address.startswith("http:") else UNREACHABLE, text) from problem
        except aiohttp.ClientConnectorCertificateError as problem:
            text = f"{self._address} is not trusted: {problem.certificate_error}"
            raise ClientError(UNREACHABLE, text, transient=False) from problem
        except (aiohttp.ClientError, OSError) as problem:
            raise ClientError(UNREACHABLE, f"no answer from {self._address}: {problem}") from problem
        if not 200 <= answer.status < 300:
            raise AtomError(answer.status, *_reason(answer))
        return answer

    async def _token(self, path: str) -> str:
        target = self._target
        if target.credential is not None:
            token = await CredentialTokens(target.credential).token(address_of(self._address, path), 0)
            return f"Bearer {token.text}" if token.type == JWT else token.text
        if target.signature is not None:
            return target.signature
        # For the path alone, so that an entity's own policy will do.
        resource, expires_at_s = address_of(self._address, path), int(self._now_s()) + TOKEN_LIFETIME_S
        return sign(resource, target.policy or "", target.key or "", expires_at_s)

    # Understanding

    def _parsed(self, answer: HttpAnswer) -> Element:
        try:
            return descriptions.parse(answer.body)
        except MalformedError as problem:
            raise self._unreadable(problem) from None

    def _rule_in(self, document: Element, subscription: str, name: str) -> RuleDescription:
        rule = self._read(descriptions.read_rule, document)
        if rule is None:
            raise AtomError(404, f"The rule '{name}' of '{subscription}' could not be found.", _NOT_FOUND)
        return rule

    def _read(self, reading: Callable[[Element], T], document: Element) -> T:
        try:
            return reading(document)
        except MalformedError as problem:
            raise self._unreadable(problem) from None

    def _unreadable(self, problem: MalformedError) -> AtomError:
        return AtomError(200, f"{self._address} answered what is not understood: {problem}", _UNREADABLE)


def address_of(namespace: str, path: str) -> str:
    """What a token for a path is made for; in lower case, as the official clients sign."""
    return f"{namespace}/{quote(path, safe='/$')}".lower()


def sign(resource: str, policy: str, key: str, expires_at_s: int) -> str:
    """A token for a resource."""
    return sas.make_token(resource, policy, key, expires_at_s)


def path_of(entity: Description) -> str:
    """Where an entity is, below its namespace."""
    return entity.path if isinstance(entity, SubscriptionDescription) else entity.name


def topic_of(path: str) -> str:
    """The topic of a subscription's path; empty if it is not one."""
    topic, keyword, name = [*path.rsplit("/", 2), "", ""][:3]
    return topic if keyword.lower() == "subscriptions" and name else ""


def _path_of(destination: str) -> str:
    return destination.partition("://")[2].partition("/")[2] or destination


def _reason(answer: HttpAnswer) -> tuple[str, str | None]:
    """The sentence of a refusal, and its condition where the status does not tell it.

    What is not in the service's own form is quoted as it is, up to a point.
    """
    try:
        error = json.loads(answer.body)["error"]
        # A conflict with the state of the broker; one with an entity that exists has the name of that fault.
        condition = f"twinbus:status-{answer.status}" if error["code"] == "http-409" else None
        return f"{error['message']} TrackingId:{error['tracking_id']}", condition
    except (ValueError, LookupError, TypeError):
        pass  # Not of Twinbus' own API.
    try:
        found = descriptions.parse(answer.body).child("Detail")
        detail = found.text if found is not None else None
    except MalformedError:
        detail = " ".join(answer.body[:300].decode("utf-8", "replace").split())
    return detail or f"refused with status {answer.status}", None
