"""Ctrl-C and SIGTERM: how a command is ended before its work is done, at every moment from its first line on.

The first signal ends it in the way that fits what it is doing: at once while nothing has been begun, by cancelling what
waits, or by an exception in what blocks. Further signals change nothing; a thread sees to it that the end comes in time
and, where a command says so, that the processes below it go with it. What the command cleans up is its own affair.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

TYPE_CHECKING = False  # As in `typing`: this is imported before anything can be interrupted, so it imports little.
if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

INTERRUPTED, TERMINATED = 128 + signal.SIGINT, 128 + signal.SIGTERM
SIGNALS = (signal.SIGINT, signal.SIGTERM)
GRACE_S = 3.0  # For saying goodbye to brokers; then the process ends as it is.
AGAIN_S = 0.05  # So often the processes below are looked for: one may have been on its way.
REMOVE_TIMES = 10

How = Callable[[], None]


class _State:
    """What is known of the end of this process."""

    begun = False  # Whether signals come here at all; not in tests that call commands.
    ask: How | None = None  # What the first signal does where it only asks.
    asked: int | None = None  # Which that was.
    number: int | None = None  # The signal that ends it.
    how: How  # What it does.
    grace_s = GRACE_S
    kills_children = False
    clean_up: list[How] = []  # noqa: RUF012 - There is one process.


def _exit_now() -> None:
    os.write(2, b"twinbus: interrupted\n")
    os._exit(128 + (_State.number or signal.SIGINT))


def _interrupt() -> None:
    raise KeyboardInterrupt


_State.how = staticmethod(_interrupt)


def _heard(number: int, frame: object) -> None:
    if _State.number is not None:
        return
    if _State.ask is not None:
        ask, _State.ask, _State.asked = _State.ask, None, number
        ask()
        return
    _State.number = number
    if _State.how is not _exit_now:
        _hush()
        if _State.kills_children:
            kill_children()  # Before anybody waits for what they do.
        threading.Thread(target=_see_to_it, daemon=True).start()
    _State.how()


class _OfMainThread:
    """Standard error without what other threads write to it."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def write(self, text: str) -> int:
        """As ever in the main thread, else nothing."""
        if threading.current_thread() is threading.main_thread():
            self._inner.write(text)
        return len(text)


def _hush() -> None:
    """What breaks from now on was cut off, and is no news; libraries would log it, or print it by themselves."""
    sys.stderr = _OfMainThread(sys.stderr)
    sys.unraisablehook = lambda _: None
    if (logging := sys.modules.get("logging")) is not None:
        logging.disable(logging.CRITICAL)


def begin() -> None:
    """Hear signals from now on, and end at once where nothing else is said: nothing but imports is going on."""
    _State.begun, _State.how = True, _exit_now
    for number in SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:  # As for a command in the background of a script.
            signal.signal(number, _heard)


def over() -> None:
    """Nothing is left but the interpreter's own end, which a signal would fill with tracebacks."""
    _State.how = _exit_now
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN if was_told() else _heard)


def was_told() -> bool:
    """Whether a signal has come, even if it only asked."""
    return _State.number is not None or _State.asked is not None


def check() -> None:
    """Raise KeyboardInterrupt if a signal has come that ends the command."""
    if _State.number is not None:
        raise KeyboardInterrupt


def exit_code(code: int) -> int:
    """The exit code, which tells SIGTERM from Ctrl-C."""
    heard = _State.number or _State.asked
    return TERMINATED if code == INTERRUPTED and heard == signal.SIGTERM else code


@contextmanager
def _ends_by(how: How) -> Iterator[None]:
    if _State.number is not None:
        raise KeyboardInterrupt  # It came while nobody could be cancelled.
    before, _State.how = _State.how, how
    try:
        yield
    finally:
        _State.how = before


@contextmanager
def at_once() -> Iterator[None]:
    """For a block that begins nothing, such as imports: an exception in the midst of one may be lost, or be printed."""
    with _ends_by(_exit_now if _State.begun else _interrupt):
        yield


@contextmanager
def cancelling(cancel: How) -> Iterator[None]:
    """For a block that waits in an event loop."""
    with _ends_by(cancel):
        yield


@contextmanager
def raising() -> Iterator[None]:
    """For a block that waits where the event loop cannot see it: a signal is a KeyboardInterrupt.

    An exception may be lost if it is raised in the midst of Python's own work, such as a callback of an import. So a
    block that goes on for long asks `check` now and then, and the end of the block asks it too.
    """
    if _State.begun or threading.current_thread() is not threading.main_thread():
        with _ends_by(_interrupt):
            yield
            check()
        return
    loops_own = signal.signal(signal.SIGINT, signal.default_int_handler)  # Which would only take note of Ctrl-C.
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, loops_own)


@contextmanager
def asking(ask: How, patience_s: float, grace_s: float | None = None) -> Iterator[None]:
    """For a block that can finish what it has begun: the first signal calls `ask`, the second ends it as elsewhere.

    So does the end of patience; then there are so many more seconds.
    """
    _State.grace_s = _State.grace_s if grace_s is None else grace_s
    late = threading.Timer(patience_s, lambda: os.kill(os.getpid(), _State.asked or signal.SIGINT))
    late.daemon = True

    def first() -> None:
        late.start()
        ask()

    _State.ask = first
    try:
        yield
    finally:
        _State.ask = None
        late.cancel()


# The processes below


def children_too(grace_s: float = GRACE_S) -> None:
    """From now on all processes below this one are killed when it is told to end, theirs too; only for throw-aways."""
    _State.kills_children, _State.grace_s = True, grace_s


@contextmanager
def cleaned_up(clean: How) -> Iterator[None]:
    """`clean` is called even if there is no time for the rest of the block."""
    _State.clean_up.append(clean)
    try:
        yield
    finally:
        _State.clean_up.remove(clean)


@contextmanager
def temporary_directory(prefix: str, where: Path | None = None) -> Iterator[Path]:
    """A directory that is removed even if there is no time for anything else."""
    import tempfile
    from pathlib import Path

    directory = Path(tempfile.mkdtemp(prefix=prefix, dir=where))
    try:
        with cleaned_up(lambda: _remove(directory)):
            yield directory
    finally:
        _remove(directory)


def _remove(directory: Path) -> None:
    """Several times, if somebody who is just being killed still writes there."""
    import shutil

    for _ in range(REMOVE_TIMES):
        shutil.rmtree(directory, ignore_errors=True)
        if not directory.exists():
            return
        time.sleep(AGAIN_S)


def _see_to_it() -> None:
    deadline = time.monotonic() + _State.grace_s
    while time.monotonic() < deadline:
        if _State.kills_children:
            kill_children()
        time.sleep(AGAIN_S)
    for clean in _State.clean_up:
        clean()
    _exit_now()


def kill_children() -> None:
    """Kill all processes below this one.

    All of them are stopped before the first is killed: one that sees another die would complain, or start it again.
    """
    found: set[int] = set()
    while fresh := _descendants(os.getpid()) - found:
        found |= fresh
        for pid in fresh:
            _send(pid, signal.SIGSTOP)
    for pid in found:
        _send(pid, signal.SIGKILL)


def _send(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except OSError:
        return  # It is gone.


def _descendants(pid: int) -> set[int]:
    """The processes below one, however deep; not those that are dead and only waited for."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:
                    # The name in parentheses may contain anything, and the fields follow it: proc(5).
                    state, parent = file.read().rpartition(b")")[2].split()[:2]
            except OSError:
                continue
            if state != b"Z":
                children.setdefault(int(parent), []).append(int(name))
    found: set[int] = set()
    below = children.get(pid, [])
    while below:
        found.update(below)
        below = [grandchild for child in below for grandchild in children.get(child, [])]
    return found
