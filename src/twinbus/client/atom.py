"""Administration over HTTP: a namespace's queues listed, read, created, changed and deleted, here and on Azure alike.

What entries look like is known by `descriptions`. Retrying is left to the caller.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import NamedTuple, TypeVar
from urllib.parse import quote
from xml.etree.ElementTree import Element

import aiohttp
from yarl import URL

from twinbus.client import descriptions
from twinbus.client.connection_string import ConnectionString
from twinbus.client.descriptions import MalformedError, NamespaceInfo, QueueEntry
from twinbus.client.errors import TIMED_OUT, UNREACHABLE, ClientError
from twinbus.client.requests import CONDITIONS
from twinbus.model.entity import QueueDescription
from twinbus.wire import sas

API_VERSION = "2021-05"
PAGE = 100
TIMEOUT_S = 30.0
TOKEN_LIFETIME_S = 300
ANSWER_BYTES_MAX = 32 * 1024 * 1024

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
    target: ConnectionString, address: str, *, tls: ssl.SSLContext | None = None, timeout_s: float = TIMEOUT_S
) -> AsyncIterator[Administration]:
    """The administration of the namespace at an address such as `https://host` or `http://host:5300`."""
    connector = aiohttp.TCPConnector(ssl=tls if tls is not None else True)
    timeout = aiohttp.ClientTimeout(total=timeout_s)
    # What is plain is near, and no proxy's business.
    proxied = address.startswith("https:")
    async with aiohttp.ClientSession(connector=connector, timeout=timeout, trust_env=proxied) as session:

        async def exchange(method: str, url: str, headers: Mapping[str, str], body: bytes | None) -> HttpAnswer:
            asked = session.request(method, URL(url, encoded=True), headers=headers, data=body, allow_redirects=False)
            async with asked as answer:
                found = bytearray()
                async for chunk in answer.content.iter_any():
                    found += chunk
                    if len(found) > ANSWER_BYTES_MAX:
                        raise aiohttp.ClientPayloadError(f"the answer is larger than {ANSWER_BYTES_MAX} bytes")
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

    async def queues(self) -> AsyncIterator[QueueEntry]:
        """All queues, a page at a time."""
        skip: int | None = 0
        while skip is not None:
            feed = await self._ask("GET", "$Resources/queues", f"&$skip={skip}&$top={PAGE}")
            page = self._read(descriptions.read_page, feed)
            for entry in page.entries:
                yield entry
            # A list that does not get on would never end.
            skip = page.next_skip if page.next_skip is not None and page.next_skip > skip else None

    async def queue(self, name: str) -> QueueEntry:
        """One queue; an AtomError of status 404 if there is none of that name."""
        return self._queue_in(await self._ask("GET", name), name)

    async def create_queue(self, queue: QueueDescription) -> QueueEntry:
        """A new queue as it came to be; an AtomError of status 409 if the name is taken."""
        return await self._put(queue, {})

    async def update_queue(self, queue: QueueDescription) -> QueueEntry:
        """Replaces all that can be set about a queue."""
        return await self._put(queue, {"If-Match": "*"})

    async def delete_queue(self, name: str) -> None:
        """Deletes a queue and all that is in it."""
        await self._send("DELETE", name)

    async def _put(self, queue: QueueDescription, headers: dict[str, str]) -> QueueEntry:
        for destination, header in (
            (queue.forward_to, "ServiceBusSupplementaryAuthorization"),
            (queue.forward_dead_letters_to, "ServiceBusDlqSupplementaryAuthorization"),
        ):
            if destination:  # The service wants to see that we may send there.
                headers[header] = self._token(_path_of(destination))
        queue = replace(
            queue,
            forward_to=self._whole(queue.forward_to),
            forward_dead_letters_to=self._whole(queue.forward_dead_letters_to),
        )
        body = descriptions.write_queue(queue)
        answer = await self._send("PUT", queue.name, body=body.encode(), headers=headers)
        return self._queue_in(self._parsed(answer), queue.name)

    def _whole(self, destination: str | None) -> str | None:
        """Destinations are known by their whole address."""
        return f"sb://{self._target.host}/{_path_of(destination)}" if destination else None

    # Asking

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
        sent = {"Authorization": self._token(path), "Content-Type": _CONTENT_TYPE, **(headers or {})}
        try:
            answer = await self._exchange(method, url, sent, body)
        except TimeoutError:
            raise ClientError(TIMED_OUT, f"{self._address} did not answer in time") from None
        except aiohttp.ClientConnectorCertificateError as problem:
            text = f"{self._address} is not trusted: {problem.certificate_error}"
            raise ClientError(UNREACHABLE, text, transient=False) from problem
        except (aiohttp.ClientError, OSError) as problem:
            raise ClientError(UNREACHABLE, f"no answer from {self._address}: {problem}") from problem
        if not 200 <= answer.status < 300:
            raise AtomError(answer.status, _reason(answer))
        return answer

    def _token(self, path: str) -> str:
        target = self._target
        if target.signature is not None:
            return target.signature
        # For the path alone, so that an entity's own policy will do; in lower case, as the official clients sign.
        resource = f"{self._address}/{quote(path, safe='/$')}".lower()
        return sas.make_token(resource, target.policy or "", target.key or "", int(self._now_s()) + TOKEN_LIFETIME_S)

    # Reading

    def _parsed(self, answer: HttpAnswer) -> Element:
        try:
            return descriptions.parse(answer.body)
        except MalformedError as problem:
            raise self._unreadable(problem) from None

    def _queue_in(self, document: Element, name: str) -> QueueEntry:
        entry = self._read(descriptions.read_queue, document)
        if entry is not None:
            return entry
        kind = descriptions.kind_of(document)
        text = f"'{name}' is no queue but a {kind}." if kind else f"The queue '{name}' could not be found."
        raise AtomError(404, text, _NOT_FOUND)

    def _read(self, reading: Callable[[Element], T], document: Element) -> T:
        try:
            return reading(document)
        except MalformedError as problem:
            raise self._unreadable(problem) from None

    def _unreadable(self, problem: MalformedError) -> AtomError:
        return AtomError(200, f"{self._address} answered what is not understood: {problem}", _UNREADABLE)


def _path_of(destination: str) -> str:
    return destination.partition("://")[2].partition("/")[2] or destination


def _reason(answer: HttpAnswer) -> str:
    """The sentence of a refusal; what is not in the service's own form is quoted as it is, up to a point."""
    try:
        detail = descriptions.parse(answer.body).findtext("Detail")
    except MalformedError:
        detail = " ".join(answer.body[:300].decode("utf-8", "replace").split())
    return detail or f"refused with status {answer.status}"
