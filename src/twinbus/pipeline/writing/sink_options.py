"""The options of the sink `servicebus`, and which columns a frame may have that is written to it.

What an option does is known by `sink` and `delivery`. Knows no Spark: columns are told by name and type.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING

from twinbus.pipeline.errors import PipelineError
from twinbus.pipeline.options import Given, Target
from twinbus.pipeline.rows import COLUMNS, PAYLOAD, SENT

if TYPE_CHECKING:
    from twinbus.pair.description import PairDescription

DESTINATION = "path"  # The column that says where a message goes, if no option does; the source has it, too.
FAIL, DEAD_LETTER = "fail", "deadletter"
WARN, IGNORE = "warn", "ignore"
SEND_TIMEOUT_S = 60.0
BATCH = 1000

_WHOLE = ("bigint", "int", "smallint", "tinyint")
_VALUES = ("string", "boolean", "float", "double", "binary", *_WHOLE)
# What a column may be, by Spark's names of types; all others of those that are sent are texts.
_TYPES: dict[str, tuple[str, ...]] = {
    "body": ("binary", "string"),
    PAYLOAD: ("binary",),
    "timeToLive": _WHOLE,
    "scheduledEnqueueTime": ("timestamp",),
    "properties": tuple(f"map<string,{kind}>" for kind in _VALUES),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    """All that a sink is told, batch or streaming."""

    target: Target | None = None  # None where a pair is named instead.
    pair: PairDescription | None = None
    destination: str | None = None  # One for all rows that do not name their own.
    destination_column: str | None = None
    batch: int = BATCH
    send_timeout_s: float = SEND_TIMEOUT_S
    on_unroutable: str = FAIL
    dead_letter_queue: str | None = None
    duplicate_detection: str = WARN

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> SinkOptions:
        """Read everything; a PipelineError with a sentence about the first thing that will not do."""
        given = Given(options)
        queue, topic, file = given.text("queue"), given.text("topic"), given.text("pair")
        if queue and topic:
            raise PipelineError("Only one of queue and topic may be given.")
        pair = None if file is None else _described(file)
        timeout_s = SEND_TIMEOUT_S if pair is None else _through_failover_s(pair)
        found = cls(
            target=_target(given, pair),
            pair=pair,
            destination=queue or topic,
            destination_column=given.text("destinationColumn"),
            batch=given.count("batchSize", BATCH),
            send_timeout_s=given.seconds("sendTimeout", timeout_s) or 0.0,
            on_unroutable=given.choice("onUnroutable", (FAIL, DEAD_LETTER), FAIL),
            dead_letter_queue=given.text("deadLetterQueue"),
            duplicate_detection=given.choice("requireDuplicateDetection", (WARN, FAIL, IGNORE), WARN),
        )
        given.refuse_others(("path", "checkpointLocation", "queryName"))  # What Spark itself gives.
        if given.text("path"):
            raise PipelineError(
                "save() takes no path here; name a queue or a topic, or a column with destinationColumn."
            )
        if (found.on_unroutable == DEAD_LETTER) != (found.dead_letter_queue is not None):
            raise PipelineError(
                "onUnroutable=deadletter and deadLetterQueue belong together: a queue that takes what others refuse."
            )
        return found


def _target(given: Given, pair: PairDescription | None) -> Target | None:
    named = ("connectionString", "connectionStringEnv", "connectionStringFile", "caFile", "httpPort")
    if pair is None:
        return Target.read(given)
    told = [name for name in named if given.text(name)]  # Each is asked for, so that each is known.
    if told:
        raise PipelineError("The option pair names both namespaces; no other connection may be given beside it.")
    return None


def _described(file: str) -> PairDescription:
    from twinbus.pair.description import DescriptionError, PairDescription  # The SDK takes half a second.

    try:
        found = PairDescription.read(file)
    except DescriptionError as problem:
        raise PipelineError(str(problem)) from None
    if found.options.ordered:
        raise PipelineError(
            "This pair keeps order (ordered = true), and tasks that run beside each other cannot: describe one without."
        )
    return found


def _through_failover_s(pair: PairDescription) -> float:
    """Long enough for a task to fail over instead of failing."""
    options = pair.options
    attempts_s = options.attempts * options.seconds("attempt_timeout")
    return options.seconds("failover_interval") + attempts_s + options.seconds("divert_timeout")


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns of a frame that is written, in order, and the one that says where a message goes."""

    names: tuple[str, ...]
    destination: str | None

    @classmethod
    def check(cls, columns: Sequence[tuple[str, str]], options: SinkOptions) -> Columns:
        """A PipelineError says what cannot be sent: a column that is unknown, missing or of another type."""
        names = tuple(name for name, _ in columns)
        where = options.destination_column
        if where is None and options.destination is None and DESTINATION in names:
            where = DESTINATION
        if where is not None and where not in names:
            raise PipelineError(f"There is no column '{where}', which destinationColumn names{_near(where, names)}")
        if "body" not in names and PAYLOAD not in names:
            raise PipelineError(f"There is no column 'body', so there is nothing to send{_near('body', names)}")
        for name, kind in columns:
            if name == where:
                allowed: tuple[str, ...] = ("string",)
            elif name not in SENT:
                if name not in COLUMNS:
                    raise PipelineError(f"The sink does not know the column '{name}'{_near(name, tuple(COLUMNS))}")
                continue  # The source's own, about what a broker said of the message: not to be sent.
            else:
                allowed = _TYPES.get(name, ("string",))
            if kind not in (*allowed, "void"):
                raise PipelineError(f"The column '{name}' is {kind}, and should be {_listed(allowed)}.")
        return cls(names, where)


def _near(name: str, known: Sequence[str]) -> str:
    near = get_close_matches(name, known, 1)
    return f"; did you mean '{near[0]}'?" if near else "."


def _listed(kinds: Sequence[str]) -> str:
    return kinds[0] if len(kinds) == 1 else f"{', '.join(kinds[:-1])} or {kinds[-1]}"
