"""`twinbus pipeline merge`: two namespaces' copies of the same messages become one stream.

The merging is done in `twinbus.pipeline.merging.merge`; here it is described, started, shown, and ended by a signal.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from twinbus.cli.connection import JsonOption
from twinbus.cli.output import Output
from twinbus.cli.pairing import PairOption, PrimaryOption, SecondaryOption, described, parsed_tag
from twinbus.cli.pipeline_running import starts, until_told
from twinbus.cli.pipeline_session import MasterOption, SettingOption, session
from twinbus.cli.running import FAILED, PromptError, command
from twinbus.cli.showing import clean
from twinbus.cli.values import Duration, parse_duration
from twinbus.pipeline.java import require_spark

if TYPE_CHECKING:
    from twinbus.pair.description import PairDescription
    from twinbus.pipeline.merging.merge import Merge, Progress

ALARMS_SHOWN = 10

EntitiesArgument = Annotated[
    list[str],
    typer.Argument(
        metavar="ENTITY...",
        show_default=False,
        help="Queues, or subscriptions as TOPIC:SUBSCRIPTION; A=B where the secondary's name differs.",
    ),
]
FilesOption = Annotated[
    Path | None,
    typer.Option("--to-files", metavar="DIRECTORY", show_default=False, help="Into Parquet files by day."),
]
QueueOption = Annotated[str | None, typer.Option("--to-queue", metavar="QUEUE", show_default=False, help="To a queue.")]
TopicOption = Annotated[str | None, typer.Option("--to-topic", metavar="TOPIC", show_default=False, help="To a topic.")]
TargetOption = Annotated[
    str | None,
    typer.Option(
        "--to-connection-string",
        envvar="TWINBUS_MERGED",
        show_default=False,
        help="The namespace of that queue or topic; without one, the primary.",
    ),
]
WatchOption = Annotated[
    bool, typer.Option("--watch/--available-now", help="Go on for ever, instead of ending with what is there now.")
]
CheckpointOption = Annotated[
    Path | None,
    typer.Option(
        metavar="DIRECTORY",
        show_default=False,
        help="Where Spark keeps how far it is; with files, _checkpoint beside them.",
    ),
]
StagingOption = Annotated[
    Path | None,
    typer.Option(
        metavar="DIRECTORY",
        show_default=False,
        help="Where received messages are kept until they are merged; with files, _staging beside them.",
    ),
]
WindowOption = Annotated[
    Duration | None,
    typer.Option(
        parser=parse_duration,
        metavar="DURATION",
        show_default=False,
        help="How long a second copy is waited for; the longest duplicate detection window, at least 10m.",
    ),
]
TagOption = Annotated[
    str | None,
    typer.Option(
        "--tag",
        metavar="TAG",
        show_default=False,
        help="What copies share: message_id, subject or property:NAME; as the pair has it.",
    ),
]


@command
async def merge(
    entities: EntitiesArgument,
    to_files: FilesOption = None,
    to_queue: QueueOption = None,
    to_topic: TopicOption = None,
    to_connection_string: TargetOption = None,
    watch: WatchOption = False,
    checkpoint: CheckpointOption = None,
    staging: StagingOption = None,
    window: WindowOption = None,
    tag: TagOption = None,
    pair: PairOption = None,
    primary: PrimaryOption = None,
    secondary: SecondaryOption = None,
    master: MasterOption = None,
    conf: SettingOption = None,
    json: JsonOption = False,
) -> None:
    """Merge the copies of both namespaces into one stream: the first of each message goes on."""
    require_spark(os.environ)
    description = described(pair, primary, secondary)
    output = Output(json)
    parsed = parsed_tag(tag, description)
    if to_files is not None:
        checkpoint, staging = checkpoint or to_files / "_checkpoint", staging or to_files / "_staging"
    if checkpoint is None or staging is None:
        raise PromptError("Give --checkpoint and --staging, two directories that survive a crash.")
    starts(output)
    with session("twinbus merge", master, conf) as spark:
        from twinbus.pipeline.merging import merge as job

        def work(told: threading.Event) -> Progress:
            chosen = job.named(entities)
            window_s = job.asked_window_s(description, chosen) if window is None else window / 1000
            asked: Merge = job.Merge(
                pair=description,
                entities=chosen,
                checkpoint=checkpoint,
                staging=staging,
                files=to_files,
                sink=_target(description, to_queue, to_topic, to_connection_string),
                tag=parsed,
                window_s=window_s,
            )
            showing = _Showing(output)
            found = job.merge(spark, asked, watch=watch, told=showing.look, until=told)
            showing.last(found)
            return found

        found = await until_told(work, output)
    if found.is_alarming and not watch:
        raise typer.Exit(FAILED)


def _target(pair: PairDescription, queue: str | None, topic: str | None, target: str | None) -> dict[str, str]:
    """The options of the sink; none, if nothing is to be sent."""
    if queue is None and topic is None:
        return {}
    told = {name: text for name, text in (("queue", queue), ("topic", topic)) if text is not None}
    if target is not None:
        return {**told, "connectionString": target}
    from twinbus.pipeline.merging.queries import connection_options

    return {**told, **connection_options(pair.primary)}


class _Showing:
    """Tells what has changed, and alarms at once."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._told: dict[str, Any] = {}
        self._alarms = 0
        self._away: set[str] = set()

    def look(self, found: Progress) -> None:
        """A line when something has changed."""
        self._alarm(found)
        now = _record(found)
        if now != self._told and (found.delivered or found.away):
            self._told = now
            self._line(now)

    def last(self, found: Progress) -> None:
        """How it was in the end."""
        self._alarm(found)
        if _record(found) != self._told:
            self._line(_record(found))

    def _line(self, now: dict[str, Any]) -> None:
        output = self._output
        if output.as_json:
            output.record(now)
        else:
            first, alone = now["first"], now["alone"]
            output.line(
                f"merged {now['merged']:,}; first: primary {first['primary']:,}, secondary {first['secondary']:,};"
                f" alone: primary {alone['primary']:,}, secondary {alone['secondary']:,}; open {now['open']:,}"
                + (f"; late {now['late']:,}" if now["late"] else "")
                + (f"; without a tag {now['untagged']:,}" if now["untagged"] else "")
                + (f"; dropped {now['dropped']:,}" if now["dropped"] else "")
                + (f"; away: {', '.join(now['away'])}" if now["away"] else "")
            )
        output.flush()

    def _alarm(self, found: Progress) -> None:
        for side, why in found.away.items():
            if side not in self._away:
                self._output.remark(f"ALARM: the {side} cannot be read: {clean(why)} Its copies will be merged later.")
        for side in sorted(self._away - set(found.away)):
            self._output.remark(f"The {side} can be read again.")
        self._away = set(found.away)
        new = found.alone[self._alarms :]
        self._alarms = len(found.alone)
        for each in new[:ALARMS_SHOWN]:
            missing = "secondary" if each.side == "primary" else "primary"
            self._output.remark(
                f"ALARM: the {missing}'s copy of '{clean(each.tag)}' ({clean(each.consumer)}) never came."
            )
        if len(new) > ALARMS_SHOWN:
            self._output.remark(f"ALARM: so it is with {len(new) - ALARMS_SHOWN:,} more.")


def _record(found: Progress) -> dict[str, Any]:
    totals = found.totals
    return {
        "merged": found.delivered.total(),
        "copies": dict(totals.copies),
        "first": dict(totals.first),
        "alone": dict(totals.alone),
        "late": totals.late,
        "untagged": totals.untagged,
        "dropped": totals.dropped,
        "open": totals.open,
        "away": sorted(found.away),
    }
