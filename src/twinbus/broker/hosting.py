"""One namespace of the process from opening to closing: what the settings declare in it, and what it does by itself.

Where it is kept is `opening`'s business, doors and signals are `process`', and what the entities do is theirs.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import os
import shutil
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from twinbus import __version__
from twinbus.broker.clock import MovableClock, SystemClock
from twinbus.broker.declared import destinations_first
from twinbus.broker.disturbing import NamespaceDisturber
from twinbus.broker.examining import Examinations
from twinbus.broker.opened import StoreState
from twinbus.broker.opening import data_of
from twinbus.broker.settings import NamespaceSettings
from twinbus.broker.stores import StoreShell
from twinbus.entities.namespace import Namespace
from twinbus.model.clock import Clock
from twinbus.model.errors import BusError, Fault
from twinbus.model.logged import EventLog
from twinbus.model.policies import CameFrom, Decision, Happened, Origins, Rules, at_start
from twinbus.store.commands import Hints, Sweep, Weigh
from twinbus.store.quarantine import Held

if TYPE_CHECKING:
    from twinbus.broker.drilling import Drilling
    from twinbus.broker.exporting import Exporter
    from twinbus.store.balance import Balance

NOTES_INTERVAL_S = 0.5
IDLE_CHECK_S = 5.0
DECLARE_S = 1.0  # So often what could not be made at the start is tried again.
POLICY_TRIES = 5

# What a start does to a policy; somebody should know of all but the first two.
_POLICY_CHANGES = {
    Happened.ADDED: (logging.INFO, "was made, as the settings say"),
    Happened.CHANGED: (logging.INFO, "was changed, as the settings say"),
    Happened.REMOVED: (logging.WARNING, "is no longer in the configuration file, and is gone"),
    Happened.TAKEN_OVER: (logging.WARNING, "was made through the API; the settings name it now, and it follows them"),
    Happened.KEPT: (
        logging.WARNING,
        "came from nobody knows where, and is kept like those of the API",
    ),
}

log = EventLog("twinbus.broker")


def new_key() -> str:
    """A 256-bit key as text."""
    return base64.b64encode(os.urandom(32)).decode()


class Hosted:
    """A namespace of this process."""

    def __init__(
        self, settings: NamespaceSettings, clock: SystemClock | MovableClock, flush: Callable[[], None]
    ) -> None:
        """`flush` is called after each commit, when everything that it changed has been told."""
        self.settings = settings
        self.flush = flush
        self.data = data_of(settings, clock, self)
        self.namespace: Namespace
        self.examinations: Examinations
        self._opened = AsyncExitStack()  # What must be closed again, also when opening fails halfway.
        self._opened.push_async_callback(self.data.close)
        self._timer: asyncio.TimerHandle | None = None
        self._idle_checks: asyncio.Task[None] | None = None
        self.exporter: Exporter | None = None
        self.drills: Drilling | None = None  # Only where a pair was described.
        self.disturber: NamespaceDisturber | None = None  # Only where somebody wants faults on purpose.
        self.tell_connections: Callable[[], list[dict[str, Any]]] = list  # Set by whoever has the connections.
        self._undeclared = ""  # Why something that the settings declare is not there yet.
        self._is_open = False  # Before, nobody is there who could wait for a store.

    @property
    def clock(self) -> Clock:
        """The namespace's clock."""
        return self.data.clock

    @property
    def stores(self) -> Sequence[StoreShell]:
        """The namespace's messaging stores."""
        return self.data.stores

    async def open(self) -> None:
        """Open the data and make what the settings declare; after a failure, `close` releases what was opened."""
        self.namespace = await self.data.open()
        self._is_open = True
        for store in self.stores:
            self.namespace.introduce(store.number)
        if self.settings.journal.export:
            self.exporter = self._make_exporter()
            self._opened.push_async_callback(self.exporter.close)
        self._opened.callback(self.namespace.flush_notes)
        self.examinations = Examinations(self.namespace, self.data, self.clock.now_ms)
        self._opened.push_async_callback(self.examinations.close)
        await self._declare()
        with suppress(BusError):  # On a full disk it is noted later.
            await self.data.note_stores()
        await self.data.started()

    def _make_exporter(self) -> Exporter:
        from twinbus.broker.exporting import Exporter  # Few namespaces export, and all would wait for it at start.

        settings, stores = (
            self.settings,
            [(store, partial(self.data.open_journal, store.number)) for store in self.stores],
        )
        return Exporter(settings.name, settings.journal, settings.journal_directory, stores, self.clock)

    def allow_faults(self, clock: Clock) -> None:
        """The namespace may be disturbed on purpose; `clock` is the machine's."""
        self.disturber = NamespaceDisturber(self.namespace, self.stores, clock)
        self._opened.callback(self.disturber.close)

    def begin(self) -> None:
        """Do by itself what has to be done from time to time."""
        if self.exporter is not None:
            self.exporter.begin()
        self._flush_notes()
        self._idle_checks = asyncio.create_task(self._delete_idle())

    def end(self) -> None:
        """Do nothing by itself any more."""
        if self._idle_checks is not None:
            self._idle_checks.cancel()
        if self._timer is not None:
            self._timer.cancel()

    async def close(self) -> None:
        """Finish commits and release the files."""
        self.end()
        await self._opened.aclose()

    # What the stores tell

    def hinted(self, hints: Hints) -> None:
        """A commit may have made something possible."""
        if self._is_open:
            self.namespace.hinted(hints)

    def store_lost(self, number: int, error: BusError) -> None:
        """A store takes no more commands, and all its locks are gone: everyone who waits there learns it."""
        if self._is_open:
            self.namespace.store_lost(number, error)

    def store_returned(self, number: int, held: list[Held]) -> None:
        """A store takes commands again, and its messages are delivered."""
        if self._is_open:
            self.namespace.store_returned(number, held)

    async def _declare(self) -> None:
        """Make what the settings declare. What a full disk does not take is made later, if there are keys."""
        try:
            await self._ensure_policies()
            await self._ensure_entities()
        except BusError as error:
            if error.fault is not Fault.STORE_UNAVAILABLE or not self.namespace.rules:
                raise
            if error.text != self._undeclared:
                text = "what the settings declare of '{namespace}' cannot be made yet: {error}"
                log.error("namespace.undeclared", text, namespace=self.settings.name, error=error.text)
            self._undeclared = error.text
            return
        if self._undeclared:
            self._undeclared = ""
            text = "what the settings declare of '{namespace}' is there"
            log.warning("namespace.declared", text, namespace=self.settings.name)

    async def _ensure_policies(self) -> None:
        """Policies as the settings have them; what they leave open, above all a key, is made once and kept."""
        settings = self.settings

        def decide(rules: Rules, origins: Origins | None) -> Decision:
            return at_start(rules, origins, settings.policies, settings.key, new_key)

        for is_last in (False,) * POLICY_TRIES + (True,):
            try:
                decision = await self.namespace.follow_settings(decide)
                break
            except BusError as error:
                # Through another gateway somebody changes them just now.
                if error.fault is not Fault.SERVER_BUSY or is_last:
                    raise
                await self.namespace.look_again()
        for happened, name in decision.happened:
            if happened is Happened.ADDED and decision.origins[name.lower()].came_from is CameFrom.FIRST_START:
                continue  # Every namespace begins with it.
            level, what = _POLICY_CHANGES[happened]
            log.log(
                level,
                "policy.changed",
                "the policy {policy!a} of '{namespace}' {what}",
                namespace=settings.name,
                policy=name,
                what=what,
            )

    async def _ensure_entities(self) -> None:
        """What the settings declare and the namespace lacks; what is there is left as it is."""
        namespace = self.namespace
        for topic in self.settings.topics:
            if not namespace.knows(topic.description.name):
                await namespace.create_topic(topic.description)
        for description in destinations_first(self.settings.queues):
            if not namespace.knows(description.name):
                await namespace.create_queue(description)
        for hybrid in self.settings.hybrid_connections:
            if namespace.hybrids.find(hybrid.name) is None:
                await namespace.hybrids.create(hybrid)
        for topic in self.settings.topics:
            for subscription in topic.subscriptions:
                if not namespace.knows(subscription.description.path):
                    await namespace.create_subscription(subscription.description, subscription.rules)

    def _flush_notes(self) -> None:
        self.namespace.flush_notes()
        self.namespace.forwarding.retry()
        self._timer = asyncio.get_running_loop().call_later(NOTES_INTERVAL_S, self._flush_notes)

    async def _delete_idle(self) -> None:
        while True:
            await asyncio.sleep(DECLARE_S if self._undeclared else IDLE_CHECK_S)
            try:
                if self._undeclared:
                    await self._declare()
                await self.namespace.delete_idle()
                with suppress(BusError):  # The catalog's disk is full, or gone.
                    await self.data.note_stores()
            except Exception:
                # A store that is down must not end the checks for good.
                log.exception(
                    "entity.idle.failed",
                    "idle entities of '{namespace}' could not be deleted",
                    namespace=self.settings.name,
                )

    # What an operator can ask

    async def accept_store(self, number: int) -> None:
        """Serve what lies in a store's place, whatever the catalog knew of it."""
        self._demand_down(number)
        await self.data.accept(number)
        await self._serve_again(number)

    async def replace_store(self, number: int) -> str:
        """Serve an empty store in the place of one that is given up; where the old one went, if there was one."""
        self._demand_down(number)
        moved = await self.data.replace(number)
        await self._serve_again(number)
        return moved

    def _demand_down(self, number: int) -> None:
        if self.stores[number].state is StoreState.UP:
            raise BusError(
                Fault.NOT_ALLOWED, f"Messaging store {number} is up. Take it down first: `twinbus store down {number}`."
            )

    async def _serve_again(self, number: int) -> None:
        await self.stores[number].bring_up()
        await self.data.note_stores()

    @property
    def controls(self) -> list[StoreShell]:
        """The messaging stores."""
        return list(self.stores)

    @property
    def test_clock(self) -> MovableClock | None:
        """The clock, if it can be moved."""
        return self.clock if isinstance(self.clock, MovableClock) else None

    def connections(self) -> list[dict[str, Any]]:
        """Who is connected."""
        return self.tell_connections()

    def usage(self) -> dict[str, Any]:
        """Of each store how many commits were synced and how long they took, and the disk."""
        stores = [
            {"number": store.number, "synced_commits": store.synced_commits, **store.commit_times.document()}
            for store in self.stores
        ]
        told: dict[str, Any] = {"commits": stores, "disk": None}
        if not self.settings.store:
            disk = shutil.disk_usage(self.settings.data_directory)
            told["disk"] = {"bytes": disk.total, "free_bytes": disk.free}
        return told

    async def balance(self) -> list[Balance] | None:
        """What each store that is up created, ended and holds; None where several gateways share them."""
        if self.settings.store:
            return None
        asked = [store.call(Weigh(queue=0)) for store in self.stores if store.is_available]
        answers = await asyncio.gather(*asked, return_exceptions=True)
        return [answer.result for answer in answers if isinstance(answer, Weigh)]

    def describe(self) -> dict[str, Any]:
        """What is known of the namespace beside its entities."""
        return {"datacenter": self.settings.datacenter, "version": __version__, **self.data.describe()}

    async def reset(self) -> None:
        """Delete all entities, and make again what the settings declare; a clock that was moved is right again."""
        await self.namespace.delete_all()
        if self.test_clock is not None:
            await self.catch_up()  # What the stores still have to free is due by the time that was.
            self.test_clock.return_to_real()
        await self._ensure_entities()

    async def catch_up(self) -> None:
        """Do what has become due because the clock was moved, rather than with the next tick."""
        for store in self.stores:
            while store.is_available and (await store.call(Sweep(queue=0))).result:
                pass
        await self.namespace.delete_idle()

    async def export_journal(self) -> dict[str, Any]:
        """Write everything committed so far to the journal's files."""
        if self.exporter is None:
            raise BusError(Fault.NOT_ALLOWED, "The journal is not exported: serve with --journal, or set it to be.")
        self.namespace.flush_notes()
        return {"export": True, **await self.exporter.export_now()}

    async def describe_journal(self) -> dict[str, Any]:
        """How far the journal is in files."""
        if self.exporter is None:
            return {"export": False}
        return {"export": True, **await self.exporter.describe()}

    # What is told about it

    def counters(self) -> dict[str, int]:
        """Plain numbers for the metrics page."""
        return {
            "synced_commits_total": sum(store.synced_commits for store in self.stores),
            "pending_bytes": sum(store.pending_bytes for store in self.stores),
            "queues": len(self.namespace.queues()),
            "topics": len(self.namespace.topics()),
            "hybrid_connections": len(self.namespace.hybrids.all()),
        }

    def connection_strings(self, address: str, *, plain: bool) -> dict[str, str]:
        """What applications need, ready to paste, by policy; it is the emulator's mark that makes them use no TLS."""
        mark = ";UseDevelopmentEmulator=true" if plain else ""
        return {
            rule.name: f"Endpoint=sb://{address};SharedAccessKeyName={rule.name};SharedAccessKey={rule.primary_key}{mark}"
            for rule in self.namespace.rules
        }
