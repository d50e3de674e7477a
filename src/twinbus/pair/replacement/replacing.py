"""A pair moved to another primary: looked at, made, drained. What is needed is decided by `plan`.

Every step may be done again: what is there stays, and a message leaves the backlog when the new primary has it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from twinbus.client import ConnectionString
from twinbus.client.atom import Administration
from twinbus.client.errors import ClientError, is_local
from twinbus.client.messages import read
from twinbus.model.rule import DEFAULT_RULE_NAME
from twinbus.model.topic import SubscriptionDescription
from twinbus.pair import replaced
from twinbus.pair.backlog import making
from twinbus.pair.description import NamespaceDescription, PairDescription
from twinbus.pair.errors import PairingError, ReplacementError
from twinbus.pair.memory import Memory
from twinbus.pair.namespace.own_client import OwnClientNamespace
from twinbus.pair.namespace.port import Identity
from twinbus.pair.order import queues as ordered_queues
from twinbus.pair.order.table import TRANSFER_ORDERED
from twinbus.pair.replaced import Replaced
from twinbus.pair.replacement.plan import Described, Plan, Seen, There, path_of, plan
from twinbus.pair.route.failures import Failure, kind_of
from twinbus.pair.syphon.home import Progress
from twinbus.pair.syphon.syphon import Syphon

EXISTS = "com.microsoft:entity-already-exists"
LOOK_S = 0.1
LATE_S = 5.0  # Clients that have not heard of the move go on diverting: they do not hold it up for longer.
MISSING_WAIT_S = 300.0  # An entity that was first heard of meanwhile is made by the next run.


@dataclass(slots=True)
class Found:
    """What a look at the pair showed, and what follows from it."""

    primary: Identity  # The new one.
    replaced: tuple[Replaced, ...]
    seen: Seen
    plan: Plan
    for_others: dict[str, int]  # Messages that stay, since they are meant for these namespaces.


class Replacement:
    """One move of a pair. Use it with `async with`; `look`, then `make`, then `drain`."""

    def __init__(
        self, description: PairDescription, new: NamespaceDescription | None = None, *, swap: bool = False
    ) -> None:
        """`new` takes the place of the lost primary; with `swap` that of the secondary, which becomes the primary.

        Without it, or with one that the pair has already, an earlier move goes on.
        """
        self.options = description.options
        self._syphons: list[Syphon] = []
        self._name = description.primary.name
        timeout_s = self.options.seconds("attempt_timeout")

        def namespace(role: str, described: NamespaceDescription) -> OwnClientNamespace:
            made = described.namespace(role, timeout_s)
            self._opened.append(made)
            return made

        self._opened: list[OwnClientNamespace] = []
        self.first = namespace("primary", description.primary)
        self.second = namespace("secondary", description.secondary)
        is_known = new is not None and _is_one_of(new, description)
        self.goes_on = bool(self.options.replaces) and (new is None or is_known)
        if self.goes_on:
            # After a swap, what comes late is in the backlog queues of the namespace that is the primary now.
            self.home, self.backlog = self.first, self.second
            self.sources = [self.second, namespace("primary", description.primary)]
            return
        if new is None:
            raise ReplacementError("Say what takes the place of the lost primary: --with CONNECTION_STRING.")
        if is_known:
            raise ReplacementError("The replacement is one of the two namespaces of the pair. Give a third.")
        self.sources = [self.second]
        if swap:
            self.home = namespace("new primary", description.secondary)
            self.backlog = namespace("new secondary", new)
        else:
            self.home, self.backlog = namespace("new primary", new), self.second

    async def __aenter__(self) -> Replacement:
        return self

    async def __aexit__(self, *args: object) -> None:
        await asyncio.gather(*(each.close() for each in self._opened), return_exceptions=True)

    # Looking

    async def look(
        self, described: Sequence[Described] = (), *, force: bool = False, on_page: Callable[[int], None] | None = None
    ) -> Found:
        """Changes nothing. A ReplacementError if the pair cannot be moved so."""
        await self._check(force)
        primary = await self.home.identity()
        lost = replaced.parse(self.options.replaces)
        identity = await self._lost_identity()
        names = {name for each in (*lost, *identity) for name in each.names}
        seen = Seen()
        for source in self.sources:
            await self._look_into(source, names, seen, on_page)
        for each in identity:
            lost += tuple(new for new in seen.replaced(each) if new not in lost)
        there = await self._there()
        made = plan(seen, described, there)
        if made.problems:
            raise ReplacementError(" ".join(made.problems))
        return Found(primary, lost, seen, made, seen.for_others(lost, primary.id))

    async def _check(self, force: bool) -> None:
        """All that is needed is there, and the lost primary is not."""
        if not self.goes_on and not force and await _answers(self.first):
            raise ReplacementError(
                "The primary answers, so that it is not lost: with a second one its clients and receivers would be"
                " split between the two. If it is to be left all the same, stop its clients first, and say --force."
            )
        for namespace in dict.fromkeys((*self.sources, self.home, self.backlog)):
            try:
                async with await namespace.administer() as administration:
                    async for _ in administration.queues():
                        break
            except ClientError as error:
                host, port = namespace.address
                why = (
                    "its key lacks the Manage right, which is needed to make queues"
                    if kind_of(error) is Failure.UNAUTHORIZED
                    else f"it does not answer ({error.text})"
                )
                raise ReplacementError(f"The {namespace.role} at {host}:{port} cannot be used: {why}.") from error
        if not self.goes_on and (await self.home.identity()).id == (await self.backlog.identity()).id != "":
            raise ReplacementError("The replacement is the secondary under another address. Give a third namespace.")

    async def _lost_identity(self) -> list[Replaced]:
        """The primary that the description names, unless it is the new one already."""
        if self.goes_on:
            return []
        memory = Memory(self.options.state_directory, self.first.reached_at, self.second.reached_at).load()
        known = Identity(memory.name, memory.id)
        identity, _ = await making.learn(self.first, self.second, self._name, known)
        return [Replaced(identity.name, identity.id, self.first.reached_at)]

    async def _look_into(
        self, source: OwnClientNamespace, names: set[str], seen: Seen, on_page: Callable[[int], None] | None
    ) -> None:
        queues = await making.found(source, sorted(names))
        queues += await making.found(source, sorted(names), TRANSFER_ORDERED)
        seen.queues += len(queues)
        for queue in queues:
            management = await (await source.connection()).management(queue)
            async for page in management.peek_all():
                for payload in page:
                    seen.add(read(payload))
                if on_page is not None:
                    on_page(len(page))
            with suppress(ClientError):
                await management.close()

    async def _there(self) -> dict[str, There]:
        there: dict[str, There] = {}
        async with await self.home.administer() as administration:
            async for queue in administration.queues():
                there[queue.description.name.lower()] = There(queue.description)
            async for topic in administration.topics():
                there[topic.description.name.lower()] = There(topic.description, topic.subscriptions)
                async for entry in administration.subscriptions(topic.description.name):
                    there[entry.description.path.lower()] = There(entry.description)
        return there

    # Making

    async def make(self, found: Found) -> None:
        """The entities of the new primary, and its backlog queues; what is there already stays as it is."""
        async with await self.home.administer() as administration:
            for each in [*found.plan.create, *map(Described, found.plan.guess)]:
                await _create(administration, each)
        count = self.options.backlog_queue_count
        try:
            await making.have(self.backlog, found.primary, self.home, count)
            if self.options.ordered:
                await ordered_queues.have(self.backlog, found.primary.name, count)
        except (ClientError, PairingError) as problem:
            raise ReplacementError(f"The backlog queues of the new primary could not be made: {problem}") from problem

    # Draining

    async def drain(self, found: Found) -> Progress:
        """Bring home what was there when it was looked at, and what comes soon after; the rest is `remaining`."""
        options = replace(self.options, replaces=replaced.to_text(found.replaced), missing_entity_wait=MISSING_WAIT_S)
        self._syphons = [Syphon(self.home, source, found.primary.name, (), options) for source in self.sources]
        draining = [asyncio.create_task(syphon.drain()) for syphon in self._syphons]
        expected = found.seen.count - sum(found.for_others.values())
        late_s = 0.0
        try:
            while not all(task.done() for task in draining) and late_s < LATE_S:
                await asyncio.wait(draining, timeout=LOOK_S, return_when=asyncio.ALL_COMPLETED)
                late_s += LOOK_S if self.progress.ended >= expected else 0.0
        finally:
            for task in draining:
                task.cancel()
            await asyncio.gather(*draining, return_exceptions=True)
        return self.progress

    @property
    def progress(self) -> Progress:
        """What has been brought home so far."""
        whole = Progress()
        for syphon in self._syphons:
            whole.join(syphon.progress)
        return whole

    async def remaining(self, found: Found) -> dict[str, int]:
        """How many messages each backlog queue of the lost primary still has."""
        names = sorted({name for each in found.replaced for name in each.names})
        counts: dict[str, int] = {}
        for source in self.sources:
            queues = [*await making.found(source, names), *await making.found(source, names, TRANSFER_ORDERED)]
            async with await source.administer() as administration:
                for queue in queues:
                    held = (await administration.entity(queue)).counts
                    counts[queue] = held.active + held.deferred + held.scheduled
        return {queue: count for queue, count in counts.items() if count}


async def _create(administration: Administration, wanted: Described) -> None:
    """An entity with exactly the rules that are wanted; one that somebody made meanwhile stays."""
    description, rules = wanted
    try:
        await administration.create(description, rules[0] if rules else None)
    except ClientError as error:
        if error.condition != EXISTS:
            raise ReplacementError(f"'{path_of(description)}' could not be made: {error.text}") from error
        return
    if rules is not None and isinstance(description, SubscriptionDescription):
        for rule in rules[1:]:
            await administration.create_rule(description.path, rule)
        if not rules:
            await administration.delete_rule(description.path, DEFAULT_RULE_NAME)


async def _answers(namespace: OwnClientNamespace) -> bool:
    """Whether anybody is there, willing or not."""
    try:
        await namespace.ask()
    except ClientError as error:
        return not is_local(error) and kind_of(error) is not Failure.TIMEOUT
    return True


def _is_one_of(new: NamespaceDescription, pair: PairDescription) -> bool:
    """Whether a namespace is one of the pair's; behind one port a key says which namespace is meant."""

    def who(described: NamespaceDescription) -> tuple[object, ...]:
        target = ConnectionString.parse(described.connection_string)
        return target.host, target.port, target.policy, target.key

    return who(new) in (who(pair.primary), who(pair.secondary))
