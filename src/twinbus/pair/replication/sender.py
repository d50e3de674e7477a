"""Sending to two namespaces: both copies at once (active), or the second one only in need (passive).

Which failures suggest that a datacenter is down is decided by `failures`, which
namespace is the active one by `policy`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, NoReturn
from uuid import uuid4

from twinbus.model.logged import EventLog
from twinbus.pair import listeners
from twinbus.pair.errors import NotReplicatedError
from twinbus.pair.ledger.tags import Kind, Tag
from twinbus.pair.replication.policy import Mode, Roles
from twinbus.pair.route.failures import Failure
from twinbus.pair.sdk import messages as sdk
from twinbus.pair.sdk.messages import ServiceBusMessageBatch

_log = EventLog(__name__)


class Sent(NamedTuple):
    """Where the copies of some messages are, for those who write a log of it."""

    path: str
    tags: tuple[str, ...]
    namespaces: tuple[str, ...]


class Copied(NamedTuple):
    """What all senders of a replicated client share."""

    mode: Mode
    names: tuple[str, str]
    roles: Roles
    tag: Tag
    counting: frozenset[Failure]
    on_sent: Callable[[Sent], None] | None
    on_swap: Callable[[str, str], None] | None


class ReplicatedSending:
    """What a sender of the SDK does, for an entity that is in two namespaces."""

    def __init__(self, copied: Copied, path: str, makers: Sequence[Callable[[], Any]]) -> None:
        """`makers` make the SDK's sender for each namespace, when it is first needed."""
        self.path = path
        self._copied = copied
        self._makers = makers
        self._senders: dict[int, Any] = {}
        self._closed = False
        # A MessageId is always there; other tags must be.
        self._needs_tags = copied.on_sent is not None or copied.tag.kind is not Kind.MESSAGE_ID

    async def send_messages(self, message: Any, *, timeout: float | None = None, **kwargs: Any) -> None:
        """Send, and return when one namespace (passive) or all that answer (active) have the messages."""
        messages, tags = self.prepared(message)
        if sdk.is_empty(messages):
            return
        settings = {"timeout": timeout, **kwargs}
        if self.is_passive:
            active = self.active
            try:
                await self._sender(active).send_messages(messages, **settings)
            except Exception as error:
                self.sent(tags, await self.send_to_backup(messages, active, error, settings))
            else:
                self.sent(tags, active)
        else:
            self.sent(tags, *await self._send_to_both(messages, settings))

    # What both flavours do around a send

    @property
    def is_passive(self) -> bool:
        """Whether a message is sent to one namespace, and to the other only in need."""
        return self._copied.mode is Mode.PASSIVE

    @property
    def active(self) -> int:
        """The namespace that is tried first."""
        return self._copied.roles.active(self.path)

    def prepared(self, message: Any) -> tuple[sdk.Sendable, tuple[str, ...]]:
        """The messages as they are sent, each with an id, and the tags of their copies."""
        self.check_open()
        messages = sdk.with_ids(sdk.repeatable(message), lambda: uuid4().hex)
        return messages, self._tags(messages) if self._needs_tags else ()

    def sent(self, tags: tuple[str, ...], *namespaces: int) -> None:
        """Say where the copies are, to those who want to know."""
        if self._copied.on_sent is not None:
            names = self._copied.names
            said = Sent(self.path, tags, tuple(names[namespace] for namespace in namespaces))
            listeners.call(self._copied.on_sent, said)

    # Namespaces

    async def _send_to_both(self, messages: sdk.Sendable, settings: dict[str, Any]) -> tuple[int, ...]:
        """Both copies at the same time; an error only if neither is accepted."""
        both = (self._sender(namespace).send_messages(messages, **settings) for namespace in (0, 1))
        answers = await asyncio.gather(*both, return_exceptions=True)
        failed = [answer for answer in answers if isinstance(answer, BaseException)]
        if len(failed) == len(answers):
            self._fail(failed[0], failed[1])
        for namespace, answer in enumerate(answers):
            if isinstance(answer, BaseException):
                if isinstance(answer, asyncio.CancelledError):
                    raise answer
                name = self._copied.names[namespace]
                _log.warning(
                    "replication.copy.failed",
                    "{entity}: {namespace} did not take its copy: {error}",
                    entity=self.path,
                    namespace=name,
                    error=answer,
                )
        return tuple(number for number, answer in enumerate(answers) if not isinstance(answer, BaseException))

    async def send_to_backup(
        self, messages: sdk.Sendable, active: int, first: Exception, settings: dict[str, Any]
    ) -> int:
        """After a failure of the active one: if its datacenter seems to be down, to the other, which is active then."""
        if sdk.failure_of(first) not in self._copied.counting:
            raise first
        roles, backup = self._copied.roles, 1 - active
        try:
            await self._sender(backup).send_messages(messages, **settings)
        except Exception as error:
            self._fail(first, error)
        if roles.sent_to_backup(self.path, backup):
            name = self._copied.names[backup]
            _log.warning(
                "replication.active.changed",
                "{entity}: {namespace} is the active namespace now: {error}",
                entity=self.path,
                namespace=name,
                error=first,
            )
            listeners.call(self._copied.on_swap, self.path, name)
        return backup

    def _fail(self, first: BaseException, second: BaseException) -> NoReturn:
        """Both failed; the error is the first one's, as the SDK would have raised it."""
        first.add_note(f"The other namespace did not take it either: {type(second).__name__}: {second}")
        raise first

    def _tags(self, messages: sdk.Sendable) -> tuple[str, ...]:
        found = []
        for message in sdk.each(messages):
            tag = self._copied.tag.of(*sdk.fields_of(message))
            if tag is None and self._copied.tag.kind is not Kind.MESSAGE_ID:
                raise ValueError(f"The message has no {self._copied.tag}, by which its copies are told from others.")
            found.append(tag or "")
        return tuple(found)

    async def create_message_batch(self, max_size_in_bytes: int | None = None) -> ServiceBusMessageBatch:
        """A batch of the size that the active namespace takes, or the other one if it does not answer."""
        self.check_open()
        active = self._copied.roles.active(self.path)
        try:
            batch: ServiceBusMessageBatch = await self._sender(active).create_message_batch(max_size_in_bytes)
        except Exception as error:
            if sdk.failure_of(error) not in self._copied.counting:
                raise
            batch = await self._sender(1 - active).create_message_batch(max_size_in_bytes)
        return batch

    async def schedule_messages(self, messages: Any, schedule_time_utc: Any, **kwargs: Any) -> NoReturn:
        """Refused: there would be two numbers for each message."""
        raise NotReplicatedError(
            "schedule_messages gives one number for each message, and there are two copies. A message that carries its"
            " scheduled_enqueue_time_utc can be sent with send_messages."
        )

    async def cancel_scheduled_messages(self, sequence_numbers: Any, **kwargs: Any) -> NoReturn:
        """Refused, as scheduling is."""
        raise NotReplicatedError("Nothing can be scheduled by number in two namespaces, so nothing can be cancelled.")

    @property
    def is_closed(self) -> bool:
        """Whether it was closed."""
        return self._closed

    async def close(self) -> None:
        """Close both."""
        self._closed = True
        senders, self._senders = self._senders, {}
        await asyncio.gather(*(sender.close() for sender in senders.values()), return_exceptions=True)

    def check_open(self) -> None:
        """Raise what the SDK raises if it was closed."""
        if self._closed:
            raise ValueError("The sender has been closed. Please use the client to create a new one.")

    def _sender(self, namespace: int) -> Any:
        if namespace not in self._senders:
            self._senders[namespace] = self._makers[namespace]()
        return self._senders[namespace]
