"""A pair in the making: who the primary is, and which backlog queues there are, as far as that can be known now.

A client starts whatever is down. What it needs is learnt from the primary, from the secondary, or from what an earlier
start remembered (`memory`); what is still unknown or not made yet is asked for again until it is there. A message is
refused only when there is nowhere to put it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any
from uuid import uuid4

from twinbus.client.diverting import MeantFor
from twinbus.client.errors import ClientError
from twinbus.pair.backlog import making
from twinbus.pair.backlog import queues as backlog
from twinbus.pair.backlog.diversion import Diversion, Diverted
from twinbus.pair.backlog.making import Paired
from twinbus.pair.backlog.rotation import Rotation
from twinbus.pair.errors import PairingError
from twinbus.pair.memory import Memory
from twinbus.pair.namespace.port import Identity, RemoteNamespace
from twinbus.pair.options import SendAvailabilityOptions
from twinbus.pair.order import queues as ordered_queues
from twinbus.pair.order.ordered_backlog import OrderedBacklog

ASKED_S = 5.0  # For so long a primary that did not answer is not asked again, by a message that needs a backlog queue.


class Pairing:
    """Made by a paired client; used on its loop."""

    def __init__(
        self,
        primary: RemoteNamespace,
        secondary: RemoteNamespace,
        options: SendAvailabilityOptions,
        primary_name: str | None,
        on_diverted: Callable[[Diverted], None],
    ) -> None:
        self._primary = primary
        self._secondary = secondary
        self._options = options
        self._name = primary_name
        self.paired = Paired("")
        self.rotation = Rotation((), options.seconds("queue_rest"), time.monotonic)
        self.diversion = Diversion(
            secondary, self.rotation, options.seconds("divert_timeout"), lambda: uuid4().hex, on_diverted
        )
        self.diversion.find = self._find
        self.ordered = (
            OrderedBacklog(secondary, (), options.seconds("attempt_timeout"), on_diverted) if options.ordered else None
        )
        self._memory = Memory(options.state_directory, primary.reached_at, secondary.reached_at)
        self._remembered = self._memory.load()
        self._is_confirmed = False  # The primary itself has said who it is.
        self._has_queues = False  # They were looked for, and made.
        self._working = asyncio.Lock()
        self._asked_at = float("-inf")
        self.problem: ClientError | None = None  # Why the primary could not be asked who it is, when it last was.
        if self._remembered.name and primary_name in (None, self._remembered.name):
            self._adopt(Identity(self._remembered.name, self._remembered.id))

    @property
    def is_complete(self) -> bool:
        """Whether nothing is left to be learnt or made."""
        return self._is_confirmed and self._has_queues

    async def complete(self, lately_s: float = 0.0) -> str:
        """Learn and make what is possible now; why something is left, in words.

        A primary that was asked so lately, in vain, is not asked again.
        """
        problem = ""
        if not self._is_confirmed and time.monotonic() - self._asked_at >= lately_s:
            problem = await self._learn()
        async with self._working:
            if self._has_queues or self._is_provisional:
                return problem
            return " ".join(filter(None, (problem, await self._have_queues())))

    @property
    def _is_provisional(self) -> bool:
        """Whether the primary's name is not known. Queues of that name are made only when a message needs one."""
        return self.paired.primary == self._primary.provisional_name

    async def _find(self) -> str:
        """A message is to be diverted, and no queue is known: find or make them; why there is none, in words."""
        problem = await self.complete(ASKED_S)
        async with self._working:
            if not self._has_queues:
                problem = await self._have_queues()
        return problem

    @property
    def entities(self) -> dict[str, dict[str, Any]]:
        """What an earlier client knew of the primary's entities."""
        return self._remembered.entities

    def remember_entities(self, found: dict[str, dict[str, Any]]) -> None:
        """For a start while the primary is down."""
        if self._is_confirmed and found and found != self._remembered.entities:
            self._remembered.entities = found
            self._memory.save(self._remembered)

    def doubt(self) -> None:
        """The primary is back, and another one may have its place: it is to be asked again."""
        self._is_confirmed = False

    async def _learn(self) -> str:
        known = Identity(self._remembered.name, self._remembered.id)
        identity, problem = await making.learn(self._primary, self._secondary, self._name, known)
        self._asked_at = time.monotonic()
        self.problem = problem
        if problem is None:
            self._is_confirmed = True
        elif self._is_confirmed:
            return ""  # Another one has learnt it meanwhile.
        self._adopt(identity)
        self._remember()
        return "" if problem is None else f"The primary cannot be asked who it is: {problem.text}."

    def _adopt(self, identity: Identity) -> None:
        """This is who it is, as far as is known."""
        if identity.name != self.paired.primary:
            remembered = self._remembered.queues if identity.name == self._remembered.name else []
            self.paired = Paired(identity.name, identity.id)
            self._has_queues = False
            # Until they can be listed they are taken for granted: one that is not there says so, and another is tried.
            presumed = [] if self._is_provisional else backlog.paths(identity.name, self._options.backlog_queue_count)
            self.rotation.use(remembered or presumed)
            if self.ordered is not None and identity.name == self._remembered.name:
                self.ordered.use(self._remembered.ordered_queues)
        if identity.id != self.paired.id and self._has_queues:
            self._has_queues = False  # They are to say that another primary uses them.
        self.paired.id = identity.id
        self.diversion.meant_for = MeantFor(identity.id, self._primary.reached_at)
        if self.ordered is not None:
            self.ordered.meant_for = self.diversion.meant_for

    async def _have_queues(self) -> str:
        count, identity = self._options.backlog_queue_count, Identity(self.paired.primary, self.paired.id)
        try:
            paired = await making.have(self._secondary, identity, self._primary, count)
            ordered = [] if self.ordered is None else await ordered_queues.have(self._secondary, identity.name, count)
        except ClientError as problem:
            return f"The backlog queues of '{identity.name}' could not be looked for: {problem.text}."
        except PairingError as problem:
            return str(problem)
        if identity != (self.paired.primary, self.paired.id):
            return ""  # The primary has said who it is meanwhile; queues of that name follow.
        self.paired, self._has_queues = paired, True
        self.rotation.use(paired.queues)
        if self.ordered is not None:
            self.ordered.use(ordered)
        self._remember()
        return ""

    def _remember(self) -> None:
        remembered, paired = self._remembered, self.paired
        if self._is_provisional:
            return
        before = (remembered.name, remembered.id, remembered.queues, remembered.ordered_queues)
        remembered.name, remembered.id = paired.primary, paired.id
        if self._has_queues:
            remembered.queues = list(paired.queues)
            remembered.ordered_queues = [] if self.ordered is None else self.ordered.queues
        if before != (remembered.name, remembered.id, remembered.queues, remembered.ordered_queues):
            self._memory.save(remembered)
