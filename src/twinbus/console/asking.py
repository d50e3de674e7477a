"""Asking a namespace over HTTP: signed, within a time, with an answer that is a document, a refusal or silence.

What was last answered is remembered with its age, so that a page about a namespace that is gone has something to show.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

import aiohttp
from yarl import URL

from twinbus.console.signing import Credential

PATIENCE_S = 0.3  # A page waits for a namespace that may be gone no longer than this.
OWN_PATIENCE_S = 10.0  # Its own broker is there, and may be busy.
ACT_S = 20.0
ANSWER_BYTES_MAX = 8 * 1024 * 1024
REMEMBERED_MAX = 200

Document = dict[str, Any]


class RefusedError(Exception):
    """The namespace answered, and said no."""

    def __init__(self, status: int, code: str, message: str, tracking_id: str = "") -> None:
        super().__init__(message)
        self.status, self.code, self.message, self.tracking_id = status, code, message, tracking_id


class SilentError(Exception):
    """The namespace did not answer in time, or cannot be reached."""


class Answer(NamedTuple):
    """What a namespace said, now or earlier: `problem` tells why it is not of now."""

    document: Document | None
    at_s: float = 0.0
    problem: str | None = None

    @property
    def is_fresh(self) -> bool:
        """Whether it was answered just now."""
        return self.document is not None and self.problem is None


class Door(NamedTuple):
    """Where a namespace is asked: the address to connect to, and the host that is meant there."""

    address: str
    host: str
    tls: ssl.SSLContext | bool = True


class Memory:
    """The last answers, by who was asked what."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[str, ...], tuple[Document, float]] = OrderedDict()

    def keep(self, key: tuple[str, ...], document: Document, at_s: float) -> None:
        """Remember an answer in place of an earlier one."""
        self._kept[key] = (document, at_s)
        self._kept.move_to_end(key)
        while len(self._kept) > REMEMBERED_MAX:
            self._kept.popitem(last=False)

    def find(self, key: tuple[str, ...]) -> tuple[Document, float] | None:
        """What was answered before, and when."""
        return self._kept.get(key)


class Asker:
    """One namespace as one policy sees it."""

    def __init__(
        self,
        http: aiohttp.ClientSession,
        door: Door,
        credential: Credential,
        memory: Memory,
        *,
        patience_s: float = PATIENCE_S,
        now_s: Callable[[], float] = time.time,
    ) -> None:
        self.door = door
        self.patience_s = patience_s
        self._http = http
        self._credential = credential
        self._memory = memory
        self._now_s = now_s

    async def look(self, path: str, **parameters: object) -> Answer:
        """Ask the JSON API for something to show; never raises: silence and refusals are told with what was known."""
        given = {name: str(value) for name, value in parameters.items() if value not in (None, "")}
        key = (self.door.address, self._credential.policy, path, urlencode(sorted(given.items())))
        try:
            document = await self.api("GET", path, given, timeout_s=self.patience_s)
        except RefusedError as refused:
            return Answer(None, 0.0, refused.message)
        except SilentError as silent:
            known = self._memory.find(key)
            return Answer(None, 0.0, str(silent)) if known is None else Answer(known[0], known[1], str(silent))
        at_s = self._now_s()
        self._memory.keep(key, document, at_s)
        return Answer(document, at_s)

    async def api(
        self,
        method: str,
        path: str,
        parameters: Mapping[str, str] | None = None,
        body: Document | None = None,
        *,
        timeout_s: float = ACT_S,
    ) -> Document:
        """A request to the JSON API."""
        target = f"/$api/{quote(path)}" + (f"?{urlencode(parameters)}" if parameters else "")
        content = None if body is None else json.dumps(body).encode()
        found = await self.send(method, target, content, {}, timeout_s=timeout_s)
        try:
            document = json.loads(found)
        except ValueError:
            document = None
        if not isinstance(document, dict):
            raise SilentError("it answers, but not as a Twinbus namespace does")
        return document

    async def send(
        self, method: str, target: str, body: bytes | None, headers: Mapping[str, str], *, timeout_s: float = ACT_S
    ) -> bytes:
        """Any request, signed; its body, or a RefusedError with what the namespace says."""
        scheme = self.door.address.partition(":")[0]
        token = self._credential.token(f"{scheme}://{self.door.host}/", self._now_s())
        sent = {**headers, "Host": self.door.host, "Authorization": token}
        url = URL(f"{self.door.address}{target}", encoded=True)
        try:
            async with (
                asyncio.timeout(timeout_s),
                self._http.request(
                    method, url, data=body, headers=sent, allow_redirects=False, ssl=self.door.tls
                ) as answer,
            ):
                found = await answer.content.read(ANSWER_BYTES_MAX)
                while not answer.content.at_eof() and len(found) < ANSWER_BYTES_MAX:
                    found += await answer.content.read(ANSWER_BYTES_MAX - len(found))
                status = answer.status
        except TimeoutError:
            raise SilentError(f"no answer within {timeout_s * 1000:.0f} ms") from None
        except (aiohttp.ClientError, OSError) as problem:
            raise SilentError(_words(problem)) from None
        if status >= 300:
            raise _refusal(status, found)
        return found


def _words(problem: Exception) -> str:
    if isinstance(problem, aiohttp.ClientConnectorError):
        return "it cannot be reached"
    return "the connection was cut" if isinstance(problem, aiohttp.ClientConnectionError) else "it cannot be asked"


def _refusal(status: int, body: bytes) -> RefusedError:
    """What a refusal says, from JSON or from the XML of the official interface."""
    shown = body[:4_000].decode(errors="replace")
    try:
        error = json.loads(body)["error"]
        return RefusedError(status, str(error["code"]), str(error["message"]), str(error["tracking_id"]))
    except (ValueError, KeyError, TypeError):
        detail = shown.partition("<Detail>")[2].partition("</Detail>")[0]
        sentence, _, tracking = detail.partition(" TrackingId:")
        sentence = sentence.partition(". ")[2] or sentence
        for entity, letter in (("&lt;", "<"), ("&gt;", ">"), ("&quot;", '"'), ("&apos;", "'"), ("&amp;", "&")):
            sentence = sentence.replace(entity, letter)
        tracking_id = tracking.partition(",")[0]
        return RefusedError(status, f"http-{status}", sentence or f"It answers with status {status}.", tracking_id)
