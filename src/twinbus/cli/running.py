"""How a command at the prompt ends: a sentence and an exit code instead of a traceback, and Ctrl-C without a mess.

What the commands do is in their own modules.
"""

from __future__ import annotations

import asyncio
import functools
import os
import signal
import sys
from collections.abc import Callable, Coroutine
from typing import Any, NoReturn, ParamSpec

import typer

from twinbus.cli.showing import clean
from twinbus.client import ClientError
from twinbus.client.wording import explain

FAILED, UNEXPECTED, INTERRUPTED, PIPE_CLOSED = 1, 70, 130, 141
DEBUG = "TWINBUS_DEBUG"

P = ParamSpec("P")


class PromptError(Exception):
    """Something that the person at the prompt can put right. Its text is what they are told."""


def command(work: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Makes a command of a coroutine function."""

    @functools.wraps(work)
    def run(*args: P.args, **options: P.kwargs) -> None:
        try:
            asyncio.run(work(*args, **options))
        except (typer.Exit, typer.Abort):
            raise
        except PromptError as problem:
            fail(str(problem))
        except ClientError as error:
            fail(words(error))
        except KeyboardInterrupt:
            typer.echo("twinbus: interrupted", err=True)
            raise typer.Exit(INTERRUPTED) from None
        except BrokenPipeError:
            # Nobody reads on, as behind `head`; what is still buffered must not fail at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(PIPE_CLOSED) from None
        except Exception as problem:
            if os.environ.get(DEBUG):
                raise
            fail(f"This should not have happened: {problem!r}. {DEBUG}=1 shows where it did.", UNEXPECTED)

    return run


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
    # The event loop would only take note of Ctrl-C, and the prompt would go on waiting.
    loops_own = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        agreed = typer.confirm(question, err=True)
    except typer.Abort:
        agreed = False
        typer.echo(err=True)
    finally:
        signal.signal(signal.SIGINT, loops_own)
    if not agreed:
        fail("Nothing was done; --yes goes on without asking.")
