"""What is set aside, for operators: listed, looked into, taken up again or given up.

What may be done with it is decided by `entities.quarantine`; here it is asked for and told.
"""

from __future__ import annotations

import base64
from collections.abc import Awaitable, Callable
from typing import Any

from twinbus.admin.asked import Asked, Document, nothing_else
from twinbus.admin.browsing import NUMBER_MAX, SUB_QUEUES
from twinbus.entities.namespace import Namespace
from twinbus.entities.quarantine import Orphan
from twinbus.model.errors import BusError, Fault
from twinbus.model.message import Delivered

PAGE, PAGE_MAX = 50, 250


class OrphanRoutes:
    """The routes for what the catalog does not know, or cannot read."""

    def __init__(self, namespace: Namespace, instant: Callable[[int], str]) -> None:
        self._namespace = namespace
        self._instant = instant
        self.routes: dict[tuple[str, str], Callable[[Asked], Awaitable[Document]]] = {
            ("GET", "orphans"): self._all,
            ("GET", r"orphans/(\d{1,19})/messages"): self._messages,
            ("POST", r"orphans/(\d{1,19})/adopt"): self._adopt,
            ("POST", r"orphans/(\d{1,19})/drop"): self._drop,
        }

    async def _all(self, asked: Asked) -> Document:
        asked.only()
        quarantine = self._namespace.quarantine
        return {
            "orphans": [await self._document(orphan) for orphan in await quarantine.look_again()],
            "unreadable": [
                {
                    "name": each.row.name,
                    "kind": each.row.kind,
                    "number": each.row.id,
                    "store": each.row.store,
                    "reason": each.reason,
                    "document": each.row.document,
                }
                for each in quarantine.unreadable.values()
            ],
        }

    async def _orphan(self, asked: Asked) -> Orphan:
        return await self._namespace.quarantine.orphan(int(asked.open[0]))

    async def _document(self, orphan: Orphan) -> Document:
        remembered = {each.entity: each for each in await self._namespace.quarantine.remembered(orphan)}
        parts: list[Document] = []
        for number, store in sorted(orphan.parts.items()):
            part: Document = {"number": number, "store": store}
            if number in remembered:
                part |= remembered[number].counts._asdict()
            parts.append(part)
        return {
            "number": orphan.entity,
            "name": orphan.path or None,
            "kind": orphan.kind or None,
            "described": any(each.document is not None for each in remembered.values()),
            "messages": sum(_messages(each.counts._asdict()) for each in remembered.values()),
            "bytes": sum(each.counts.size_bytes for each in remembered.values()),
            "parts": parts,
        }

    async def _messages(self, asked: Asked) -> Document:
        """A page of what it holds, each message as it would leave: AMQP sections, in base64."""
        asked.only("part", "sub_queue", "from", "top")
        orphan = await self._orphan(asked)
        part = asked.number("part", orphan.entity, NUMBER_MAX)
        sub_queue = SUB_QUEUES[asked.one_of("sub_queue", tuple(SUB_QUEUES))]
        start, top = asked.number("from", 0, NUMBER_MAX), asked.number("top", PAGE, PAGE_MAX)
        found = await self._namespace.quarantine.look(orphan, part, sub_queue, start, top)
        return {
            "messages": [self._message(message) for message in found],
            "next": found[-1].sequence_number + 1 if found else None,
        }

    def _message(self, message: Delivered) -> Document:
        record = self._namespace.reader.with_overlay(message.record, message.overlay)
        return {
            "sequence_number": message.sequence_number,
            "message_id": message.message_id,
            "session_id": message.session_id,
            "state": message.state.name.lower(),
            "delivery_count": message.delivery_count,
            "enqueued_at": self._instant(message.enqueued_at_ms),
            "reason": message.reason,
            "description": message.description,
            "amqp": base64.b64encode(record).decode(),
        }

    async def _adopt(self, asked: Asked) -> Document:
        orphan, body = await self._orphan(asked), asked.body
        name, forward_to = _word(body, "as"), _word(body, "forward_to")
        nothing_else(body)
        return {"name": await self._namespace.quarantine.adopt(orphan, name, forward_to)}

    async def _drop(self, asked: Asked) -> Document:
        orphan = await self._orphan(asked)
        confirmed = _word(asked.body, "confirm") or ""
        nothing_else(asked.body)
        messages = (await self._document(orphan))["messages"]
        await self._namespace.quarantine.drop(orphan, confirmed)
        return {"dropped": orphan.path or str(orphan.entity), "messages": messages}


def _messages(counts: dict[str, Any]) -> int:
    return sum(value for name, value in counts.items() if name != "size_bytes")


def _word(body: Document, key: str) -> str | None:
    found = body.pop(key, None)
    if found is not None and (not isinstance(found, str) or not found):
        raise BusError(Fault.ARGUMENT, f"'{key}' must be text.")
    return found
