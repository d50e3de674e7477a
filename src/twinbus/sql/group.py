"""Group commit: a thread that commits what arrived during one commit as the next, and hands it back.

It knows commands only as things with an error; what they do is the store's business, who waits for them the caller's.
"""

from __future__ import annotations

import functools
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

from twinbus.model.clock import Clock
from twinbus.model.errors import BusError, Fault
from twinbus.model.logged import EventLog

_log = EventLog(__name__)

GROUP_MESSAGES = 4_000
GROUP_BYTES = 16 * 1024 * 1024
HOLD_S = 2.0


class Failable(Protocol):
    """A command as this module sees it."""

    error: BusError | None


C = TypeVar("C", bound=Failable)
H = TypeVar("H")
H_co = TypeVar("H_co", covariant=True)


class Committer(Protocol[C, H_co]):
    """A store as this module sees it. A database that moves its log by itself inherits what is said of that."""

    def commit(self, group: list[C], now_ms: int) -> H_co:
        """Execute the commands; durable when this returns."""
        ...

    def checkpoint_due(self) -> bool:
        """Whether the log should be moved into the database."""
        return False

    def checkpoint(self) -> bool:
        """Move what can be moved; True when nothing is left. Safe beside commits."""
        return True

    def close(self) -> None:
        """Release the database."""
        ...


class Hold:
    """A pause between two commits, until it is released; nobody is held for longer than HOLD_S."""

    def __init__(self, reached: Callable[[], None]) -> None:
        self._reached = reached
        self._released = threading.Event()
        self.is_over = False  # It took too long: commits went on by themselves.

    def release(self) -> None:
        """Let commits go on; may be called at any time."""
        self._released.set()

    def wait(self, tell: Callable[[Callable[[], None]], object]) -> None:
        """What the thread does."""
        tell(self._reached)
        self.is_over = not self._released.wait(HOLD_S)


class GroupCommit(Generic[C, H]):
    """Runs one store on a thread of its own.

    `submit` is called by the event loop, `on_commit(commands, hints)` is called through `post` once per commit, in the
    order of commits. The loop reads `pending_count` and `pending_bytes` to say "busy" in time, and `commit_under_way`
    to notice a disk that does not answer; whoever gives up waiting for it calls `abandon`. `on_closed` is called, also
    through `post`, when the store has been closed and the thread ends.
    """

    def __init__(
        self,
        store: Committer[C, H],
        clock: Clock,
        post: Callable[[Callable[[], Any]], Any],
        on_commit: Callable[[list[C], H], None],
        empty_hints: Callable[[], H],
        name: str = "store",
        on_closed: Callable[[], None] | None = None,
    ) -> None:
        self._name = name
        self._store = store
        self._clock = clock
        self._post = post
        self._on_commit = on_commit
        self._empty_hints = empty_hints
        self._on_closed = on_closed
        self._inbox: deque[tuple[C, int, int]] = deque()
        self._taken: deque[list[C]] = deque()  # Groups that were not handed back yet, in the order of their commits.
        self._submitting = threading.Lock()
        self._submitted_count = self._submitted_bytes = 0  # Written by submit alone.
        self._finished_count = self._finished_bytes = 0  # Written by the thread alone.
        self.delay_s = 0.0  # Each commit waits for so long, if somebody wants it to.
        self._ending = threading.Event()
        self._wake = threading.Event()
        self._idle = False
        self._hold: Hold | None = None
        self._closing = False
        self._abandoned = False  # Set and read by the loop alone.
        self._commits = 0
        self._committing = False
        self._checkpointing: threading.Thread | None = None
        # A daemon, so that a disk that never answers does not keep the process; `close` waits for it all the same.
        self._thread = threading.Thread(target=self._run, name=f"{name}-commit", daemon=True)
        self._thread.start()

    @property
    def pending_count(self) -> int:
        """How many messages wait for their commit."""
        return self._submitted_count - self._finished_count

    @property
    def pending_bytes(self) -> int:
        """How many bytes of messages wait for their commit."""
        return self._submitted_bytes - self._finished_bytes

    @property
    def commit_under_way(self) -> int:
        """The number of the commit (or of the end, once closing) that the thread is at; 0 when it waits for work."""
        return self._commits if self._committing else 0

    def submit(self, command: C, messages: int = 1, size: int = 0) -> None:
        """Have a command executed with the next group; `messages` and `size` are what it adds to that group."""
        with self._submitting:
            if self._closing:
                raise BusError(Fault.STORE_UNAVAILABLE, "The messaging store is closing.")
            self._submitted_count += messages
            self._submitted_bytes += size
            self._inbox.append((command, messages, size))
        if self._idle:
            self._wake.set()

    def hold(self, reached: Callable[[], None]) -> Hold:
        """Have the thread pause before its next commit; `reached` is called through `post` when it does."""
        self._hold = hold = Hold(reached)
        self._wake.set()
        return hold

    def end(self) -> None:
        """Finish everything that was submitted, then close the store; does not wait for it."""
        with self._submitting:
            self._closing = True
        self._ending.set()
        self._wake.set()

    def close(self) -> None:
        """Finish everything that was submitted, then close the store, and wait until that is done."""
        self.end()
        if self._thread is not threading.current_thread():
            self._thread.join()

    def abandon(self) -> tuple[list[C], list[C]]:
        """End without waiting: what was not handed back yet, which nobody will hear of again from here.

        First what was taken into a commit, which may still succeed and writes into its commands; then what was not.
        """
        with self._submitting:
            self._closing = self._abandoned = True
            begun = [command for group in self._taken for command in group]
            waiting = [command for command, _, _ in self._inbox]
            self._inbox.clear()
        self._wake.set()
        return begun, waiting

    def _run(self) -> None:
        try:
            while True:
                hold, self._hold = self._hold, None
                if hold is not None:
                    hold.wait(self._tell)
                if self.delay_s and self._inbox:
                    self._ending.wait(self.delay_s)
                group, messages, size = self._take()
                if group:
                    self._commits += 1
                    self._committing = True
                    self._commit(group)
                    self._finished_count += messages
                    self._finished_bytes += size
                    self._checkpoint()
                elif not self._wait():
                    break
        finally:
            self._commits += 1
            self._committing = True
            if self._checkpointing is not None:
                self._checkpointing.join()
            self._store.close()
            self._committing = False
            if self._on_closed is not None:
                self._tell(self._on_closed)

    def _wait(self) -> bool:
        """Sleep until there is something to do; False when there never will be."""
        self._committing = False
        self._wake.clear()
        self._idle = True
        # The order matters: whoever submits looks at `idle` after appending, so one of the two sees the other.
        if not self._inbox and self._hold is None:
            if self._closing:
                return False
            self._wake.wait()
        self._idle = False
        return True

    def _take(self) -> tuple[list[C], int, int]:
        inbox = self._inbox
        group: list[C] = []
        messages = size = 0
        with self._submitting:
            while inbox and messages < GROUP_MESSAGES and size < GROUP_BYTES:
                command, more_messages, more_size = inbox.popleft()
                group.append(command)
                messages += more_messages
                size += more_size
            if group:
                self._taken.append(group)
        return group, messages, size

    def _commit(self, group: list[C]) -> None:
        try:
            hints = self._store.commit(group, self._clock.now_ms())
        except Exception as error:
            # A store answers in its commands; what comes out here is a defect, for which nobody shall wait for ever.
            _log.exception("commit.failed", "a commit of {commands} commands failed", commands=len(group))
            for command in group:
                command.error = BusError(Fault.INTERNAL, f"The commit failed: {error}")
            hints = self._empty_hints()
        self._tell(functools.partial(self._hand_back, group, hints))

    def _hand_back(self, group: list[C], hints: H) -> None:
        """Runs in the loop, so that after `abandon` nothing comes any more."""
        if not self._abandoned:
            self._taken.popleft()
            self._on_commit(group, hints)

    def _tell(self, callback: Callable[[], None]) -> None:
        try:
            self._post(callback)
        except RuntimeError:
            _log.debug("commit.unheard", "{thread}: nobody is left to hear of it", thread=self._name)

    def _checkpoint(self) -> None:
        """Start moving the log beside the commits; when most is moved, move the rest between two of them."""
        helper = self._checkpointing
        if helper is None:
            if self._store.checkpoint_due():
                helper = threading.Thread(target=self._store.checkpoint, name=f"{self._name}-checkpoint", daemon=True)
                self._checkpointing = helper
                helper.start()
        elif not helper.is_alive():
            helper.join()
            self._checkpointing = None
            self._store.checkpoint()
