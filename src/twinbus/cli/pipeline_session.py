"""Which Spark a command of `twinbus pipeline` runs on: its options, and the session that is opened by them.

Profiles and Java are `twinbus.pipeline.session`'s business; here what is missing becomes a sentence at the prompt.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from twinbus.cli import interruption
from twinbus.cli.running import PromptError
from twinbus.cli.showing import clean
from twinbus.pipeline.java import require_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

END_S = 1.5

MasterOption = Annotated[
    str | None,
    typer.Option(
        "--master",
        metavar="MASTER",
        show_default=False,
        help="The Spark master, such as spark://host:7077; without one, this machine.",
    ),
]
SettingOption = Annotated[
    list[str] | None,
    typer.Option(
        "--conf", metavar="KEY=VALUE", show_default=False, help="A setting of Spark; may be given several times."
    ),
]


@contextmanager
def session(name: str, master: str | None, settings: list[str] | None) -> Iterator[SparkSession]:
    """A session for the time of a block; a PromptError that says what is missing, if there can be none."""
    chosen = _settings(settings)
    require_spark(os.environ)
    interruption.children_too(END_S)  # Java and its workers; what they have not committed is done again.
    with interruption.at_once():
        from twinbus.pipeline.errors import PipelineError
        from twinbus.pipeline.session import open_session

    with interruption.temporary_directory("twinbus-spark-") as scratch:
        try:
            spark = _in_a_thread(lambda: open_session(name, master, chosen, scratch=scratch))
        except PipelineError as problem:
            raise PromptError(clean(str(problem))) from None
        try:
            yield spark
        finally:
            if interruption.was_told():
                interruption.kill_children()  # Which is quicker; whoever ended the whole group has ended Java, too.
            else:
                spark.stop()


def _in_a_thread(opens: Callable[[], SparkSession]) -> SparkSession:
    """In the main thread Spark would put a handler for Ctrl-C in the place of ours."""
    opened: Future[SparkSession] = Future()

    def run() -> None:
        try:
            opened.set_result(opens())
        except BaseException as problem:
            opened.set_exception(problem)

    thread = threading.Thread(target=run, name="spark-opening", daemon=True)
    thread.start()
    try:
        with interruption.raising():
            return opened.result()
    finally:
        thread.join(END_S)  # When Java was killed, it ends.


def _settings(given: list[str] | None) -> dict[str, str]:
    chosen = {}
    for text in given or []:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise PromptError(f"--conf takes KEY=VALUE, not '{clean(text)}'.")
        chosen[key.strip()] = value.strip()
    return chosen
