"""Messages looked at without taking them: pages of a queue, one message whole, and dead letters by their reasons.

Locks nothing and counts no delivery. Work on many messages is `jobs`' part, receiving them `messages`'.
"""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from twinbus.admin.asked import Asked, Document
from twinbus.admin.faults import HttpError
from twinbus.entities.entity import AnyEntity
from twinbus.entities.mailbox import Mailbox
from twinbus.entities.namespace import Namespace
from twinbus.entities.topic import Topic
from twinbus.entities.wanted import Wanted
from twinbus.model.address import SubQueue
from twinbus.model.errors import BusError, Fault
from twinbus.model.message import Delivered, Origin
from twinbus.wire import brokered

PAGE, PAGE_MAX = 50, 250
EXAMINED_MAX = 2_000  # So many messages one request looks at; the next goes on behind them.
REASONS_EXAMINED_MAX = 10_000
REASONS_MAX = 50
PREVIEW_BYTES, PREVIEW_BYTES_MAX = 200, 4_096
ORIGIN = Origin("http", "console")
NUMBER_MAX = (1 << 63) - 1

SUB_QUEUES = {
    "main": SubQueue.MAIN,
    "dead-letter": SubQueue.DEAD_LETTER,
    "transfer-dead-letter": SubQueue.TRANSFER_DEAD_LETTER,
}


def mailbox_of(entity: AnyEntity, sub_queue: SubQueue) -> Mailbox:
    """Where the messages are; a topic has only those that are scheduled."""
    if isinstance(entity, Topic) and sub_queue is not SubQueue.MAIN:
        raise BusError(Fault.ARGUMENT, f"'{entity.path}' is a topic: dead letters are in its subscriptions.")
    return entity.mailbox(sub_queue)


async def pages(mailbox: Mailbox, start: int, size: int = PAGE_MAX) -> AsyncIterator[list[Delivered]]:
    """All messages from a number on, some at a time."""
    while page := await mailbox.peek(start, size, None, ORIGIN):
        yield page
        start = page[-1].sequence_number + 1


class MessageRoutes:
    """The routes for looking at messages."""

    def __init__(self, namespace: Namespace, instant: Callable[[int], str]) -> None:
        self._namespace = namespace
        self._instant = instant
        self.routes: dict[tuple[str, str], Callable[[Asked], Awaitable[Document]]] = {
            ("GET", "messages"): self._page,
            ("GET", r"messages/(\d{1,19})"): self._one,
            ("GET", "dead-letters"): self._reasons,
        }

    def _place(self, asked: Asked, default: str) -> tuple[AnyEntity, Mailbox]:
        if not asked.text("entity"):
            raise BusError(Fault.ARGUMENT, "'entity' must be given.")
        entity = self._namespace.entity(asked.text("entity"))
        choices = (default, *(name for name in SUB_QUEUES if name != default))
        return entity, mailbox_of(entity, SUB_QUEUES[asked.one_of("sub_queue", choices)])

    async def _page(self, asked: Asked) -> Document:
        asked.only("entity", "sub_queue", "from", "top", "filter", "preview")
        _, mailbox = self._place(asked, "main")
        top, preview = asked.number("top", PAGE, PAGE_MAX), asked.number("preview", PREVIEW_BYTES, PREVIEW_BYTES_MAX)
        wanted = Wanted(asked.text("filter") or None, self._namespace.reader)
        start = asked.number("from", 0, NUMBER_MAX)
        found: list[Delivered] = []
        examined, goes_on = 0, False
        async for page in pages(mailbox, start, top if wanted.takes_all else PAGE_MAX):
            for message in page:
                if len(found) >= top or examined >= EXAMINED_MAX:
                    goes_on = True
                    break
                examined += 1
                start = message.sequence_number + 1
                if wanted.includes(message):
                    found.append(message)
            if goes_on:
                break
        return {
            "messages": [self._document(message, preview) for message in found],
            "examined": examined,
            "next": start if goes_on else None,
        }

    async def _one(self, asked: Asked) -> Document:
        asked.only("entity", "sub_queue")
        _, mailbox = self._place(asked, "main")
        number = min(int(asked.open[0]), NUMBER_MAX)
        found = await mailbox.peek(number, 1, None, ORIGIN)
        if not found or found[0].sequence_number != number:
            raise HttpError(404, f"There is no message {number} any more.")
        return self._document(found[0], None)

    async def _reasons(self, asked: Asked) -> Document:
        """How many dead letters have which reason, as far as one request can look."""
        asked.only("entity", "sub_queue")
        entity, mailbox = self._place(asked, "dead-letter")
        counted: Counter[tuple[str, str]] = Counter()
        examined, whole = 0, True
        async for page in pages(mailbox, 0):
            counted.update((message.reason or "", _first_line(message.description)) for message in page)
            examined += len(page)
            if examined >= REASONS_EXAMINED_MAX:
                whole = False
                break
        reasons = [
            {"reason": reason, "description": description, "count": count}
            for (reason, description), count in counted.most_common(REASONS_MAX)
        ]
        return {"entity": entity.path, "reasons": reasons, "examined": examined, "whole": whole}

    def _document(self, message: Delivered, preview: int | None) -> Document:
        received = brokered.read(message)
        body = received.body if preview is None else received.body[:preview]
        system: dict[str, Any] = dict(received.system)
        if isinstance(scheduled := system.get("ScheduledEnqueueTimeUtc"), int):
            system["ScheduledEnqueueTimeUtc"] = self._instant(scheduled)
        return {
            "sequence_number": message.sequence_number,
            "message_id": message.message_id,
            "session_id": message.session_id,
            "state": message.state.name.lower(),
            "delivery_count": message.delivery_count,
            "enqueued_at": self._instant(message.enqueued_at_ms),
            "time_to_live_ms": received.ttl_ms,
            "reason": message.reason,
            "description": message.description,
            "properties": system,
            "application_properties": {name: _told(value) for name, value in received.user.items()},
            "size": len(message.record),
            "body_bytes": len(received.body),
            "body": base64.b64encode(body).decode(),
        }


def _told(value: Any) -> Any:
    """As JSON has it: what is no number there is text."""
    return str(value) if isinstance(value, float) and value - value != 0 else value


def _first_line(description: str | None) -> str:
    """Of a long description, what tells one kind from another."""
    return (description or "").split("\n", 1)[0][:200]
