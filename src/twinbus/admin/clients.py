"""Status records of paired clients and syphons: who is alive, as each of them says of itself, for a while.

Kept in memory only and bounded in number and size; a record that is not renewed is gone after its time. What stands in
a record is the client's word: nothing is decided by it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

from twinbus.model.errors import BusError, Fault

KINDS = ("paired-client", "syphon")
RECORDS_MAX = 1_000
STATE_BYTES_MAX = 8 * 1024
TEXT_CHARS_MAX = 260
TTL_S_DEFAULT = 90
TTL_S_MAX = 600

Document = dict[str, Any]


class _Kept(NamedTuple):
    document: Document
    seen_at_ms: int
    until_ms: int


class ClientRecords:
    """The records of one namespace; `now_ms` is the machine's time, which a test's clock does not move."""

    def __init__(self, now_ms: Callable[[], int], instant: Callable[[int], str]) -> None:
        self._now_ms = now_ms
        self._instant = instant
        self._kept: dict[str, _Kept] = {}

    def put(self, record: str, body: Document) -> Document:
        """Write or replace a record."""
        kind = body.pop("kind", None)
        if kind not in KINDS:
            raise BusError(Fault.ARGUMENT, f"'kind' must be one of {', '.join(KINDS)}.")
        ttl_s = body.pop("ttl", TTL_S_DEFAULT)
        if type(ttl_s) is not int or not 1 <= ttl_s <= TTL_S_MAX:
            raise BusError(Fault.ARGUMENT, f"'ttl' must be a number of seconds from 1 to {TTL_S_MAX}.")
        process = body.pop("process", None)
        if type(process) is not int or not 0 <= process < 1 << 32:
            raise BusError(Fault.ARGUMENT, "'process' must be the number of a process.")
        document = {"id": record, "kind": kind, "process": process}
        for key in ("pair", "host"):
            document[key] = _text(body, key)
        state = body.pop("state", {})
        if not isinstance(state, dict) or _size(state) > STATE_BYTES_MAX:
            raise BusError(Fault.ARGUMENT, f"'state' must be an object of at most {STATE_BYTES_MAX} bytes.")
        document["state"] = state
        if body:
            raise BusError(Fault.ARGUMENT, f"'{next(iter(body))[:40]}' is not known here.")
        now = self._now_ms()
        self._forget(now)
        if record not in self._kept and len(self._kept) >= RECORDS_MAX:
            raise BusError(Fault.QUOTA_EXCEEDED, f"There are {RECORDS_MAX} status records already.")
        self._kept[record] = _Kept(document, now, now + ttl_s * 1000)
        return self._shown(self._kept[record])

    def remove(self, record: str) -> Document:
        """Remove a record; there need not be one."""
        return {"removed": self._kept.pop(record, None) is not None}

    def all(self) -> list[Document]:
        """The records whose time is not over, the latest last."""
        self._forget(self._now_ms())
        return [self._shown(kept) for kept in sorted(self._kept.values(), key=lambda kept: kept.seen_at_ms)]

    def _forget(self, now: int) -> None:
        self._kept = {record: kept for record, kept in self._kept.items() if kept.until_ms > now}

    def _shown(self, kept: _Kept) -> Document:
        seen_at, expires_at = self._instant(kept.seen_at_ms), self._instant(kept.until_ms)
        return {**kept.document, "seen_at": seen_at, "expires_at": expires_at}


def _size(state: Document) -> int:
    """Bytes as JSON; what cannot be told as JSON, like a number that is none, is as good as too large."""
    try:
        return len(json.dumps(state, allow_nan=False))
    except (ValueError, RecursionError):
        return STATE_BYTES_MAX + 1


def _text(body: Document, key: str) -> str:
    found = body.pop(key, None)
    if not isinstance(found, str) or not 1 <= len(found) <= TEXT_CHARS_MAX or not found.isprintable():
        raise BusError(Fault.ARGUMENT, f"'{key}' must be a text of at most {TEXT_CHARS_MAX} printable characters.")
    return found
