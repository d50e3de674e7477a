"""How a command at the prompt ends: a sentence and an exit code instead of a traceback, and Ctrl-C without a mess.

What the commands do is in their own modules.
"""

from __future__ import annotations

import asyncio
import functools
import os
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn, ParamSpec, TypeVar

import typer

from twinbus.cli import interruption
from twinbus.cli.output import discard
from twinbus.cli.showing import clean
from twinbus.client import ClientError
from twinbus.client.wording import explain
from twinbus.model.extras import MissingExtraError

FAILED, UNEXPECTED, INTERRUPTED, PIPE_CLOSED = 1, 70, interruption.INTERRUPTED, 141
DEBUG = "TWINBUS_DEBUG"
GOODBYE_S, CUT_OFF_S = 1.5, 1.0  # What does not answer is given up after the first, and not waited for after both.

P = ParamSpec("P")
T = TypeVar("T")


class PromptError(Exception):
    """Something that the person at the prompt can put right. Its text is what they are told."""


def command(work: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Makes a command of a coroutine function."""

    @functools.wraps(work)
    def run(*args: P.args, **options: P.kwargs) -> None:
        try:
            run_to_end(work(*args, **options))
        except (typer.Exit, typer.Abort, MissingExtraError):
            raise
        except Exception as problem:
            _tell(problem)
        except KeyboardInterrupt:
            interrupted()

    return run


def blocking_command(work: Callable[P, None]) -> Callable[P, None]:
    """Makes a command of a function that waits where no event loop sees it, and whose processes end with it."""

    @functools.wraps(work)
    def run(*args: P.args, **options: P.kwargs) -> None:
        interruption.children_too()
        try:
            with interruption.raising():
                work(*args, **options)
        except KeyboardInterrupt:
            interrupted()

    return run


def run_to_end(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in an event loop of its own; a signal cancels it, and is a KeyboardInterrupt in the end."""

    async def cancelled_when_told() -> T:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None

        def cancel() -> None:
            loop.call_soon_threadsafe(task.cancel)  # Which wakes the loop, too.

        loop.set_exception_handler(_unless_told)
        with interruption.cancelling(cancel):
            return await work

    try:
        return asyncio.run(cancelled_when_told())
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None


@contextmanager
def ended_by_signal() -> Iterator[asyncio.Event]:
    """For a block that only a signal ends: it sets the event, and there is a little time for goodbyes."""
    loop, told = asyncio.get_running_loop(), asyncio.Event()

    def tell() -> None:
        loop.call_soon_threadsafe(told.set)

    with interruption.asking(tell, GOODBYE_S, CUT_OFF_S):
        yield told


def _unless_told(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """What breaks in the background while everything is cut off is no news."""
    if not interruption.was_told():
        loop.default_exception_handler(context)


def interrupted() -> NoReturn:
    """Ends a command whose work was cut off."""
    typer.echo("twinbus: interrupted", err=True)
    raise typer.Exit(INTERRUPTED) from None


def _tell(problem: Exception) -> NoReturn:
    """Ends a command with what went wrong."""
    if interruption.was_told():
        interrupted()
    if isinstance(problem, PromptError):
        fail(str(problem))
    if isinstance(problem, ClientError):
        fail(words(problem))
    if isinstance(problem, BrokenPipeError):
        discard(sys.stdout)
        raise typer.Exit(PIPE_CLOSED) from None
    if os.environ.get(DEBUG):
        raise problem
    fail(f"This should not have happened: {problem!r}. {DEBUG}=1 shows where it did.", UNEXPECTED)


def words(error: ClientError) -> str:
    """An error as it is told: the sentence, what to do, and where to look it up."""
    told, advice, tracking_id = explain(error)
    sentence = clean(told)  # Whoever answered may not be who we think.
    text = sentence if error.condition.startswith("twinbus:") else f"{sentence} [{error.condition}]"
    if advice and advice not in sentence:
        text += f"\n  {advice}"
    if tracking_id:
        text += f"\n  TrackingId: {clean(tracking_id)}"
    return text


def fail(text: str, code: int = FAILED) -> NoReturn:
    """Ends the command."""
    typer.echo(f"twinbus: {text}", err=True)
    raise typer.Exit(code)


def confirm(question: str, yes: bool) -> None:
    """Goes on only if the person agrees, now or in advance with `--yes`."""
    if yes:
        return
    try:
        with interruption.raising():
            agreed = typer.confirm(question, err=True)
    except typer.Abort:
        agreed = False
        typer.echo(err=True)
    if not agreed:
        fail("Nothing was done; --yes goes on without asking.")
