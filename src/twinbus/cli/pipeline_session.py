"""Which Spark a command of `twinbus pipeline` runs on: its options, and the session that is opened by them.

Profiles and Java are `twinbus.pipeline.session`'s business; here what is missing becomes a sentence at the prompt.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from twinbus.cli.running import PromptError
from twinbus.cli.showing import clean

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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
    if importlib.util.find_spec("pyspark") is None:
        raise PromptError("Spark is not installed here: pip install 'twinbus[spark]'.")
    from twinbus.pipeline.errors import PipelineError
    from twinbus.pipeline.session import open_session

    try:
        spark = open_session(name, master, chosen)
    except PipelineError as problem:
        raise PromptError(clean(str(problem))) from None
    try:
        yield spark
    finally:
        spark.stop()


def _settings(given: list[str] | None) -> dict[str, str]:
    chosen = {}
    for text in given or []:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise PromptError(f"--conf takes KEY=VALUE, not '{clean(text)}'.")
        chosen[key.strip()] = value.strip()
    return chosen
