"""The JSON API under `/$api/`: the namespace's state, its messaging stores, and what goes beyond the official protocol.

Requests need the Manage right on the namespace; to say that one is alive, Send will do. What is asked of entities is
done by `entities`, what is asked of the process by `Upkeep`; errors are JSON with the tracking id that the log has.
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Protocol

from aiohttp import web

from twinbus.admin.asked import Asked, Document
from twinbus.admin.asked import nothing_else as _done
from twinbus.admin.asked import text_in as _text
from twinbus.admin.browsing import SUB_QUEUES, MessageRoutes
from twinbus.admin.clients import ClientRecords
from twinbus.admin.disturbing import Disturber, DisturbingRoutes
from twinbus.admin.drills import DrillRoutes, Drills
from twinbus.admin.examining import ExaminationRoutes, Examinations
from twinbus.admin.faults import Answer, HttpError
from twinbus.admin.hybrids import HybridRoutes, Relay
from twinbus.admin.inside import Balance, InsideRoutes
from twinbus.admin.jobs import JobRoutes
from twinbus.admin.looking import EntityRoutes
from twinbus.admin.orphans import OrphanRoutes
from twinbus.admin.policies import PolicyRoutes
from twinbus.entities import purging, redriving
from twinbus.entities.namespace import Namespace
from twinbus.entities.subscription import Subscription
from twinbus.model.address import SubQueue
from twinbus.model.clock import Clock
from twinbus.model.duration import format_duration, parse_duration_ms
from twinbus.model.errors import BusError, Fault
from twinbus.model.message import Origin
from twinbus.model.security import Rights

PREFIX = "/$api/"
ORIGIN = Origin("http", "api")
REASON_CHARS_MAX = 200
ADVANCE_MS_MAX = 100 * 365 * 24 * 3600 * 1000

LOOKING = r"entities|messages|messages/\d{1,19}|dead-letters"
_RECORD = r"clients/([A-Za-z0-9._-]{1,100})"


class StoreControl(Protocol):
    """A messaging store as an operator sees it."""

    @property
    def number(self) -> int: ...

    @property
    def state_name(self) -> str:
        """`up`, `full`, `down`, `failed`, `hanging` or `set-aside`."""
        ...

    @property
    def reason(self) -> str:
        """Why it is not up."""
        ...

    @property
    def since_ms(self) -> int:
        """Since when its state is what it is."""
        ...

    @property
    def pending_bytes(self) -> int:
        """Bytes that wait for a commit."""
        ...

    async def take_down(self, reason: str) -> None:
        """Finish what was submitted and release the file."""
        ...

    async def bring_up(self) -> None:
        """Open it anew; raises why it cannot be had."""
        ...


class ClockControl(Protocol):
    """The clock of a namespace whose time can be moved."""

    @property
    def offset_ms(self) -> int:
        """How far it is ahead."""
        ...

    def advance_ms(self, by_ms: int) -> None:
        """Set it forward; what is due then happens at once."""
        ...


class Upkeep(Protocol):
    """What the process offers for a namespace beyond its entities."""

    @property
    def controls(self) -> Sequence[StoreControl]:
        """The messaging stores."""
        ...

    @property
    def test_clock(self) -> ClockControl | None:
        """The clock, if it can be moved."""
        ...

    @property
    def disturber(self) -> Disturber | None:
        """Who can disturb the namespace on purpose, if it may be."""
        ...

    @property
    def drills(self) -> Drills | None:
        """Who runs drills, if a pair was described."""
        ...

    @property
    def examinations(self) -> Examinations:
        """Who verifies the namespace, and backs it up."""
        ...

    def describe(self) -> Mapping[str, Any]:
        """What is known of the process: version, datacenter and the like."""
        ...

    async def accept_store(self, number: int) -> None:
        """Serve what lies in a store's place, as an operator wants."""
        ...

    async def replace_store(self, number: int) -> str:
        """Serve an empty store in the place of one that is given up; where the old one went, if there was one."""
        ...

    def connections(self) -> Sequence[Mapping[str, Any]]:
        """Who is connected."""
        ...

    def usage(self) -> Mapping[str, Any]:
        """What the process uses: of each store the time of its commits, and the disk."""
        ...

    async def balance(self) -> Sequence[Balance] | None:
        """What came into each store and what left it; None where this process does not know it."""
        ...

    async def reset(self) -> None:
        """Delete all entities, and make again what the settings declare."""
        ...

    async def catch_up(self) -> None:
        """Do what has become due because the clock was moved."""
        ...

    async def export_journal(self) -> Mapping[str, Any]:
        """Write everything committed so far to the journal's files; what `describe_journal` tells then."""
        ...

    async def describe_journal(self) -> Mapping[str, Any]:
        """How far the journal is in files, and where these are."""
        ...


class Api:
    """The JSON API of one namespace."""

    def __init__(self, namespace: Namespace, upkeep: Upkeep, clock: Clock, relay: Relay | None = None) -> None:
        """`clock` is the machine's; the namespace's own may have been moved."""
        self._namespace = namespace
        self._clients = ClientRecords(clock.now_ms, _instant)
        self._upkeep = upkeep
        self._resetting = False
        self._routes: dict[tuple[str, str], Callable[[Asked], Awaitable[Document | web.Response]]] = {
            ("GET", "status"): self._status,
            ("GET", "stores"): self._stores,
            ("POST", r"stores/(\d{1,4})/down"): self._take_down,
            ("POST", r"stores/(\d{1,4})/up"): self._bring_up,
            ("POST", r"stores/(\d{1,4})/accept"): self._accept_store,
            ("POST", r"stores/(\d{1,4})/replace"): self._replace_store,
            ("POST", "purge"): self._purge,
            ("POST", "redrive"): self._redrive,
            ("POST", "reset"): self._reset,
            ("GET", "journal"): self._journal,
            ("POST", "journal/export"): self._export_journal,
            ("GET", "clock"): self._clock,
            ("POST", "clock"): self._advance,
            ("GET", "clients"): self._all_clients,
            ("PUT", _RECORD): self._put_client,
            ("DELETE", _RECORD): self._remove_client,
            **OrphanRoutes(namespace, _instant).routes,
            **HybridRoutes(namespace, relay).routes,
            **DisturbingRoutes(upkeep.disturber, _instant).routes,
            **EntityRoutes(namespace, clock.now_ms, _instant).routes,
            **MessageRoutes(namespace, _instant).routes,
            **JobRoutes(namespace, clock.now_ms, _instant).routes,
            **InsideRoutes(namespace, upkeep, _instant).routes,
            **DrillRoutes(upkeep.drills).routes,
            **PolicyRoutes(namespace).routes,
            **ExaminationRoutes(upkeep.examinations, _instant).routes,
        }

    @staticmethod
    def right_for(method: str, path: str) -> Rights:
        """What a request needs: a client that can only send may still say that it is there."""
        if method in ("PUT", "DELETE") and re.fullmatch(_RECORD, path.strip("/")):
            return Rights.SEND
        # Whoever may receive may look at what there is to receive.
        if method == "GET" and re.fullmatch(LOOKING, path.strip("/")):
            return Rights.LISTEN
        return Rights.MANAGE

    async def serve(
        self, method: str, path: str, body: bytes, query: Mapping[str, str] | None = None
    ) -> Document | web.Response:
        """Do what is asked; `path` is what follows the prefix, `query` what stands behind the question mark."""
        path = path.strip("/")
        allowed = []
        for (known, pattern), serve in self._routes.items():
            found = re.fullmatch(pattern, path)
            if found is not None and known == method:
                read = _read(body) if method in ("POST", "PUT") else {}
                return await serve(Asked(found.groups(), read, query or {}))
            if found is not None:
                allowed.append(known)
        if allowed:
            raise HttpError(405, f"{PREFIX}{path} is asked with {' or '.join(allowed)}, not with {method[:10]}.")
        raise HttpError(404, f"There is no {PREFIX}{path[:100]}.")

    # The state

    async def _status(self, asked: Asked) -> Document:
        namespace = self._namespace
        entities = namespace.entities()
        queues, topics = len(namespace.queues()), len(namespace.topics())
        return {
            "namespace": namespace.name,
            **self._upkeep.describe(),
            "created_at": _instant(namespace.created_at_ms),
            "started_at": _instant(namespace.started_at_ms),
            "now": _instant(namespace.clock.now_ms()),
            "test_clock": self._upkeep.test_clock is not None,
            "entities": {
                "queues": queues,
                "topics": topics,
                "subscriptions": sum(isinstance(entity, Subscription) for entity in entities),
                "hybrid_connections": len(namespace.hybrids.all()),
            },
            "stores": self._store_documents(),
        }

    async def _stores(self, asked: Asked) -> Document:
        return {"stores": self._store_documents()}

    # The journal

    async def _journal(self, asked: Asked) -> Document:
        return dict(await self._upkeep.describe_journal())

    async def _export_journal(self, asked: Asked) -> Document:
        return dict(await self._upkeep.export_journal())

    def _store_documents(self) -> list[Document]:
        held = self._namespace.entities_by_store()
        return [_store_document(control, held[control.number]) for control in self._upkeep.controls]

    # Stores

    def _control(self, asked: Asked) -> StoreControl:
        number = int(asked.open[0])
        for control in self._upkeep.controls:
            if control.number == number:
                return control
        raise HttpError(404, f"There is no messaging store {number}: they are numbered from 0.")

    def _one_store(self, control: StoreControl) -> Document:
        return _store_document(control, self._namespace.entities_by_store()[control.number])

    async def _take_down(self, asked: Asked) -> Document:
        control = self._control(asked)
        reason = _text(asked.body, "reason", "An operator took it down.")[:REASON_CHARS_MAX]
        _done(asked.body)
        await control.take_down(reason)
        return self._one_store(control)

    async def _bring_up(self, asked: Asked) -> Document:
        control = self._control(asked)
        _done(asked.body)
        await control.bring_up()
        return self._one_store(control)

    async def _accept_store(self, asked: Asked) -> Document:
        control = self._control(asked)
        _done(asked.body)
        await self._upkeep.accept_store(control.number)
        return self._one_store(control)

    async def _replace_store(self, asked: Asked) -> Document:
        control = self._control(asked)
        confirmed = asked.body.pop("confirm", None)
        _done(asked.body)
        if confirmed != control.number:
            raise BusError(
                Fault.ARGUMENT,
                f"Replacing a messaging store gives up what is in it: confirm it with its number, {control.number}.",
            )
        moved = await self._upkeep.replace_store(control.number)
        return {**self._one_store(control), "moved_to": moved or None}

    # Messages

    async def _purge(self, asked: Asked) -> Document:
        entity = self._namespace.entity(_text(asked.body, "entity"))
        sub_queue = _sub_queue(asked.body, "main")
        _done(asked.body)
        return {"removed": await purging.purge(entity, sub_queue, self._namespace.clock.now_ms(), ORIGIN)}

    async def _redrive(self, asked: Asked) -> Document:
        body = asked.body
        entity = self._namespace.entity(_text(body, "entity"))
        sub_queue = _sub_queue(body, "dead-letter")
        wanted = _text(body, "filter", "")
        limit = body.pop("limit", None)
        if limit is not None and (type(limit) is not int or limit < 1):
            raise BusError(Fault.ARGUMENT, "'limit' must be a positive number of messages.")
        _done(body)
        done = await redriving.redrive(self._namespace, entity, sub_queue, wanted or None, limit, ORIGIN)
        return {"moved": done.moved, "kept": done.kept}

    # Paired clients and syphons

    async def _all_clients(self, asked: Asked) -> Document:
        return {"clients": self._clients.all()}

    async def _put_client(self, asked: Asked) -> Document:
        return self._clients.put(asked.open[0], asked.body)

    async def _remove_client(self, asked: Asked) -> Document:
        return self._clients.remove(asked.open[0])

    # The namespace

    async def _reset(self, asked: Asked) -> Document:
        name = _text(asked.body, "confirm")
        _done(asked.body)
        if name.lower() != self._namespace.name.lower():
            raise BusError(
                Fault.ARGUMENT,
                f"A reset deletes every entity with all messages: confirm it with the name of the namespace,"
                f" '{self._namespace.name}'.",
            )
        if self._resetting:
            raise BusError(Fault.ENTITY_EXISTS, "A reset is under way already.")
        self._resetting = True
        try:
            deleted = len(self._namespace.entities())
            await self._upkeep.reset()
            return {"deleted": deleted, "created": len(self._namespace.entities())}
        finally:
            self._resetting = False

    async def _clock(self, asked: Asked) -> Document:
        clock = self._upkeep.test_clock
        ahead_ms = 0 if clock is None else clock.offset_ms
        now = _instant(self._namespace.clock.now_ms())
        return {"now": now, "ahead": format_duration(ahead_ms), "movable": clock is not None}

    async def _advance(self, asked: Asked) -> Document:
        clock = self._upkeep.test_clock
        if clock is None:
            raise HttpError(409, "The clock of this namespace cannot be moved: start the broker with --test-clock.")
        by_ms = parse_duration_ms(_text(asked.body, "advance"))
        _done(asked.body)
        if by_ms > ADVANCE_MS_MAX:
            raise BusError(Fault.ARGUMENT, "A clock can be moved by a hundred years at a time.")
        clock.advance_ms(by_ms)
        await self._upkeep.catch_up()
        return await self._clock(asked)


def error_document(code: str, text: str, tracking_id: str) -> Document:
    """A refusal as clients of this API read it."""
    return {"error": {"code": code, "message": text[:1_000], "tracking_id": tracking_id}}


def code_of(answer: Answer) -> str:
    """The code of a fault of HTTP itself."""
    return f"http-{answer.status}"


def _store_document(control: StoreControl, entities: int) -> Document:
    return {
        "number": control.number,
        "state": control.state_name,
        "reason": control.reason,
        "since": _instant(control.since_ms),
        "pending_bytes": control.pending_bytes,
        "entities": entities,
    }


def _instant(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _read(body: bytes) -> Document:
    """The object in a body; no body is an empty one."""
    try:
        found = json.loads(body or b"{}")
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise BusError(Fault.ARGUMENT, "The body is not a JSON object.")
    return found


def _sub_queue(body: Document, default: str) -> SubQueue:
    name = _text(body, "sub_queue", default)
    if name not in SUB_QUEUES:
        raise BusError(Fault.ARGUMENT, f"'sub_queue' must be one of {', '.join(SUB_QUEUES)}.")
    return SUB_QUEUES[name]
