"""A job on Spark that runs in a thread beside the prompt: ended by a signal, its problems told as sentences.

What the job is, and what is shown of it, is the command's own business.
"""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable
from typing import TypeVar

from twinbus.cli.output import Output
from twinbus.cli.running import PromptError
from twinbus.cli.showing import clean
from twinbus.pipeline.errors import PipelineError

T = TypeVar("T")


def starts(output: Output) -> None:
    """Say that it takes a while; until Java is there, Ctrl-C must not wait for the event loop."""
    output.remark("Spark starts, which takes a while.")
    signal.signal(signal.SIGINT, signal.default_int_handler)


async def until_told(work: Callable[[threading.Event], T], output: Output) -> T:
    """Have the work done in a thread; a signal sets its event, and it ends when it has finished what it began."""
    told = threading.Event()

    def end() -> None:
        if not told.is_set():
            output.remark("Ends with this batch, in a few seconds.")
        told.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, end)
    try:
        return await asyncio.to_thread(work, told)
    except PipelineError as problem:
        raise PromptError(clean(str(problem))) from None
