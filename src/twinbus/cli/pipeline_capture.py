"""`twinbus pipeline capture`: messages of entities, or the journals of brokers, into Parquet files by day.

The capturing is done in `twinbus.pipeline.capturing`; here it is started, shown, and ended by a signal.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from twinbus.cli.connection import CaOption, ConnectionOption, HttpPortOption, JsonOption, namespace
from twinbus.cli.output import Output
from twinbus.cli.pipeline_merge import CheckpointOption, StagingOption, WatchOption
from twinbus.cli.pipeline_running import starts, until_told
from twinbus.cli.pipeline_session import MasterOption, SettingOption, session
from twinbus.cli.running import PromptError, command
from twinbus.cli.showing import clean
from twinbus.cli.values import Duration, parse_duration
from twinbus.model.extras import require
from twinbus.pipeline.java import require_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from twinbus.pipeline.capturing.archive import Archive
    from twinbus.pipeline.capturing.captured import Captured

EVERY_S = 60.0

EntitiesArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="ENTITY...", show_default=False, help="Queues, or subscriptions as TOPIC:SUBSCRIPTION."),
]
ToOption = Annotated[
    Path, typer.Option("--to", metavar="DIRECTORY", show_default=False, help="Where the files go, in day=….")
]
ConsumeOption = Annotated[
    bool, typer.Option("--consume/--browse", help="Take the messages out, instead of only looking at them.")
]
JournalOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--journal",
        metavar="DIRECTORY",
        show_default=False,
        help="The journal that a broker exports there, instead of messages; may be given several times.",
    ),
]
SubQueueOption = Annotated[
    str, typer.Option("--sub-queue", metavar="NAME", help="main, deadletter or transferdeadletter.")
]
PayloadOption = Annotated[
    bool, typer.Option("--payload", help="One more column: the whole message, as it can be sent again.")
]
CompactOption = Annotated[bool, typer.Option("--compact/--no-compact", help="Join small files of a day.")]
GapsOption = Annotated[
    bool, typer.Option("--allow-gaps", help="Go on behind what a broker trimmed before it was captured.")
]
EveryOption = Annotated[
    Duration | None,
    typer.Option(
        parser=parse_duration,
        metavar="DURATION",
        show_default=False,
        help="With --watch, how often to look at entities or journals; 1m.",
    ),
]


@command
async def capture(
    to: ToOption,
    entities: EntitiesArgument = None,
    consume: ConsumeOption = False,
    journal: JournalOption = None,
    watch: WatchOption = False,
    every: EveryOption = None,
    sub_queue: SubQueueOption = "main",
    payload: PayloadOption = False,
    compact: CompactOption = True,
    allow_gaps: GapsOption = False,
    checkpoint: CheckpointOption = None,
    staging: StagingOption = None,
    connection_string: ConnectionOption = None,
    ca: CaOption = None,
    http_port: HttpPortOption = None,
    master: MasterOption = None,
    conf: SettingOption = None,
    json: JsonOption = False,
) -> None:
    """Keep messages or journals in Parquet files by day; with neither, join the small files that are there."""
    if entities and journal:
        raise PromptError("Name entities or --journal: messages and operations do not go into the same files.")
    output = Output(json)
    showing = _Showing(output)
    every_s = (EVERY_S if every is None else every / 1000) if watch else None
    if not entities:
        require("pyarrow")
        keep = partial(_journals, journal or [], allow_gaps=allow_gaps, compact=compact, every_s=every_s, told=showing)
        await until_told(lambda told: _opened(to, partial(keep, until=told)), output)
        return
    require_spark(os.environ)
    namespace(connection_string, ca, http_port)  # What is wrong with it is said before Spark starts.
    options = {
        "connectionString": connection_string or "",
        "subscribe": ",".join(entities),
        "subQueue": sub_queue,
        "payload": str(payload).lower(),
        **({"caFile": str(ca)} if ca is not None else {}),
        **({"httpPort": str(http_port)} if http_port is not None else {}),
    }
    starts(output)
    with session("twinbus capture", master, conf) as spark:
        if consume:
            options["stagingLocation"] = str(staging or to / "_staging")
            where = checkpoint or to / "_checkpoint"
            take = partial(_consumed, spark, options, where, compact=compact, watch=watch, told=showing)
        else:
            take = partial(_browsed, spark, options, compact=compact, every_s=every_s, told=showing)
        await until_told(lambda told: _opened(to, partial(take, until=told)), output)


def _journals(directories: list[Path], archive: Archive, **settings: Any) -> Captured:
    from twinbus.pipeline.capturing.journal_capture import capture_often

    return capture_often(archive, directories, **settings)


def _browsed(spark: SparkSession, options: dict[str, str], archive: Archive, **settings: Any) -> Captured:
    from twinbus.pipeline.capturing.capture import browse_often

    return browse_often(spark, archive, options, **settings)


def _consumed(
    spark: SparkSession, options: dict[str, str], checkpoint: Path, archive: Archive, compact: bool, **settings: Any
) -> Captured:
    from twinbus.pipeline.capturing.capture import consume
    from twinbus.pipeline.capturing.captured import COMPACT_EVERY

    return consume(spark, archive, options, checkpoint, compact_every=COMPACT_EVERY if compact else 0, **settings)


def _opened(to: Path, work: Callable[[Archive], Captured]) -> Captured:
    from twinbus.pipeline.capturing.archive import Archive

    with Archive(to).open() as archive:
        return work(archive)


class _Showing:
    """Tells what has changed."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._told: dict[str, object] = {}

    def __call__(self, found: Captured) -> None:
        output = self._output
        now = {"rows": found.rows, "files": found.files, "joined": found.joined, "gaps": list(found.gaps)}
        if now == self._told:
            return
        if found.problem is not None and not self._told:
            output.remark(f"Small files are left as they are: {clean(found.problem)}")
        self._told = now
        if output.as_json:
            output.record(now)
        else:
            gaps = f"; missing: {clean('; '.join(found.gaps))}" if found.gaps else ""
            output.line(f"captured {found.rows:,} rows in {found.files:,} files, joined {found.joined:,}{gaps}")
        output.flush()
