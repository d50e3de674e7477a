"""A job on Spark that runs in a thread beside the prompt: ended by a signal, its problems told as sentences.

What the job is, and what is shown of it, is the command's own business.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import TypeVar

from twinbus.cli import interruption
from twinbus.cli.output import Output
from twinbus.cli.running import PromptError
from twinbus.cli.showing import clean
from twinbus.pipeline.errors import PipelineError

T = TypeVar("T")


PATIENCE_S = 5.0  # For the batch that is under way; one that is cut off is done again by the next run.


def starts(output: Output) -> None:
    """Say that it takes a while."""
    output.remark("Spark starts, which takes a while.")


async def until_told(work: Callable[[threading.Event], T], output: Output) -> T:
    """Have the work done in a thread; a signal sets its event, and it ends when it has finished what it began."""
    told = threading.Event()

    def end() -> None:
        output.remark(f"Ends with this batch, or without it in {PATIENCE_S:g} seconds; once more ends it at once.")
        told.set()

    try:
        with interruption.asking(end, PATIENCE_S):
            return await asyncio.to_thread(work, told)
    except PipelineError as problem:
        raise PromptError(clean(str(problem))) from None
