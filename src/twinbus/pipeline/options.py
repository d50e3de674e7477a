"""The options of the data source `servicebus`, read and checked before anything else happens.

What an option does is known by whoever is handed it. Secrets are asked for where they are needed, and not before: an
environment variable or a file is named in a plan, its content is not.
"""

from __future__ import annotations

import os
import re
import ssl
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path

from twinbus.client import ConnectionString
from twinbus.pipeline.errors import PipelineError

_TRUE, _FALSE = ("true", "1", "yes"), ("false", "0", "no")
_UNITS_S = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
_UNITS_BYTES = {"": 1, "b": 1, "k": 1024, "kb": 1024, "m": 1024**2, "mb": 1024**2, "g": 1024**3, "gb": 1024**3}
_QUANTITY = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]*)")


class Given:
    """Options as they were given, by name in any case; whoever has asked for all it knows asks `refuse_others`."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._values = {name.lower(): str(value) for name, value in options.items() if value is not None}
        self._spelling = {name.lower(): name for name in options}
        self._known: dict[str, str] = {}

    def text(self, name: str, default: str | None = None) -> str | None:
        """What was given, without the space around it; nothing at all is as good as not given."""
        self._known[name.lower()] = name
        return self._values.get(name.lower(), "").strip() or default

    def several(self, name: str) -> tuple[str, ...]:
        """A list with commas."""
        return tuple(part.strip() for part in (self.text(name) or "").split(",") if part.strip())

    def number(self, name: str, default: int | None = None, least: int = 0) -> int | None:
        """A whole number that is not less than `least`."""
        told = self.text(name)
        if told is None:
            return default
        try:
            value = int(told.replace("_", ""))
        except ValueError:
            raise PipelineError(f"The option {name} is '{told}', and should be a whole number.") from None
        if value < least:
            raise PipelineError(f"The option {name} is {value}, and should be {least} or more.")
        return value

    def count(self, name: str, default: int, least: int = 1) -> int:
        """A whole number that is always there."""
        found = self.number(name, default, least)
        return default if found is None else found

    def seconds(self, name: str, default: float | None = None) -> float | None:
        """A length of time: `30`, `30s`, `500ms`, `5m`, `1h`."""
        return self._quantity(name, default, _UNITS_S, "a length of time such as 30s, 500ms or 5m")

    def bytes(self, name: str) -> int | None:
        """A size: `1000000`, `64k`, `10m`, `1g`."""
        found = self._quantity(name, None, _UNITS_BYTES, "a size such as 64k, 10m or 1g")
        return None if found is None else int(found)

    def flag(self, name: str, default: bool) -> bool:
        """True or false."""
        told = self.text(name)
        if told is None:
            return default
        if told.lower() in _TRUE:
            return True
        if told.lower() in _FALSE:
            return False
        raise PipelineError(f"The option {name} is '{told}', and should be true or false.")

    def choice(self, name: str, allowed: Collection[str], default: str) -> str:
        """One of a few words, in any case."""
        told = self.text(name, default) or default
        for word in allowed:
            if word.lower() == told.lower():
                return word
        raise PipelineError(f"The option {name} is '{told}', and should be {_listed(allowed)}.")

    def refuse_others(self, ignored: Iterable[str] = ()) -> None:
        """A sentence about the first option that nobody asked for, with the name that was perhaps meant."""
        ignored = {name.lower() for name in ignored}
        for name in sorted(self._values.keys() - self._known.keys() - ignored):
            near = get_close_matches(name, self._known, n=1, cutoff=0.6)
            meant = f" Did you mean {self._known[near[0]]}?" if near else ""
            raise PipelineError(f"The source 'servicebus' has no option '{self._spelling[name]}'.{meant}")

    def _quantity(self, name: str, default: float | None, units: Mapping[str, float], wanted: str) -> float | None:
        told = self.text(name)
        if told is None:
            return default
        found = _QUANTITY.fullmatch(told.lower())
        if found is None or found[2] not in units:
            raise PipelineError(f"The option {name} is '{told}', and should be {wanted}.")
        return float(found[1]) * units[found[2]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A namespace, and where its secret is to be found: in one of three places, the first of them the worst."""

    connection_string: str | None = field(default=None, repr=False)
    variable: str | None = None
    file: str | None = None
    ca: str | None = None  # Trust the authorities in this PEM file.
    http_port: int | None = None  # Administration, where a broker does not tell its port.

    @classmethod
    def read(cls, given: Given) -> Target:
        """The options connectionString, connectionStringEnv and connectionStringFile; exactly one of them."""
        target = cls(
            connection_string=given.text("connectionString"),
            variable=given.text("connectionStringEnv"),
            file=given.text("connectionStringFile"),
            ca=given.text("caFile"),
            http_port=given.number("httpPort", least=1),
        )
        named = [value for value in (target.connection_string, target.variable, target.file) if value]
        if len(named) != 1:
            how = "Only one of" if named else "No namespace is named: give"
            raise PipelineError(
                f"{how} connectionStringEnv, connectionStringFile {'and' if named else 'or'}"
                f" connectionString{' may be given' if named else ''}."
            )
        return target

    def resolve(self) -> ConnectionString:
        """The connection string itself, wherever it is; a PipelineError that shows no secret."""
        text = self.connection_string
        where = "The option connectionString"
        if self.variable:
            where = f"The environment variable {self.variable}"
            text = os.environ.get(self.variable)
            if not text:
                raise PipelineError(
                    f"{where} is not set; it should hold the connection string, here and on each worker."
                )
        elif self.file:
            where = f"The file {self.file}"
            try:
                text = Path(self.file).read_text().strip()
            except OSError as problem:
                raise PipelineError(f"{where} cannot be read: {problem.strerror}.") from None
        try:
            return ConnectionString.parse(text or "")
        except ValueError as problem:
            raise PipelineError(f"{where} will not do: {problem}.") from None

    def tls(self) -> ssl.SSLContext | None:
        """Whom to trust; None for the authorities of the system."""
        if self.ca is None:
            return None
        try:
            return ssl.create_default_context(cafile=self.ca)
        except (OSError, ssl.SSLError) as problem:
            raise PipelineError(f"The authorities in '{self.ca}' cannot be read: {problem}.") from None


MAIN, DEAD_LETTER, TRANSFER_DEAD_LETTER = "main", "deadletter", "transferdeadletter"
_SUB_QUEUES = {
    MAIN: "",
    DEAD_LETTER: "/$DeadLetterQueue",
    TRANSFER_DEAD_LETTER: "/$Transfer/$DeadLetterQueue",
}
STAGE, DEFER = "stage", "defer"
COMMIT = "commit"


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscribed:
    """Which entities are read: by name, or by a pattern that names of queues and of subscriptions match whole."""

    names: tuple[str, ...] = ()
    pattern: str | None = None
    sub_queue: str = MAIN

    @classmethod
    def read(cls, given: Given) -> Subscribed:
        """Exactly one of subscribe, subscribePattern, queue, and topic with subscription; none is the connection's."""
        names, pattern = given.several("subscribe"), given.text("subscribePattern")
        queue, topic, subscription = given.text("queue"), given.text("topic"), given.text("subscription")
        if (topic is None) != (subscription is None):
            raise PipelineError("The options topic and subscription belong together: a topic itself cannot be read.")
        if sum(map(bool, (names, pattern, queue, topic))) > 1:
            raise PipelineError(
                "Only one of subscribe, subscribePattern, queue, and topic with subscription may be given."
            )
        if queue:
            names = (queue,)
        elif topic:
            names = (f"{topic}/Subscriptions/{subscription}",)
        if pattern is not None:
            try:
                re.compile(pattern)
            except re.error as problem:
                raise PipelineError(f"The option subscribePattern is no regular expression: {problem}.") from None
        return cls(
            names=tuple(dict.fromkeys(map(entity_path, names))),
            pattern=pattern,
            sub_queue=given.choice("subQueue", _SUB_QUEUES, MAIN),
        )

    def address(self, entity: str) -> str:
        """Where a link to an entity leads, its subqueue regarded."""
        return entity + _SUB_QUEUES[self.sub_queue]


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """All that a source is told, batch or streaming."""

    target: Target
    subscribed: Subscribed
    payload: bool = False  # One more column, with the whole encoded message.
    min_partitions: int | None = None
    fail_on_data_loss: bool = True
    fail_on_unreachable: bool = True  # Of a stream, at its start; and of one that is to end.
    # Batch
    starting_sequence_number: int | None = None
    ending_sequence_number: int | None = None
    session_id: str | None = None
    # Streaming
    claim_mode: str = STAGE
    settle_on: str = COMMIT
    staging_location: str | None = None
    claim_name: str | None = None
    max_messages: int | None = None
    max_bytes: int | None = None
    min_messages: int | None = None
    max_trigger_delay_s: float = 60.0
    receive_timeout_s: float = 1.0
    max_lock_renewal_s: float | None = None

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> SourceOptions:
        """Read everything; a PipelineError with a sentence about the first thing that will not do."""
        given = Given(options)
        found = cls(
            target=Target.read(given),
            subscribed=Subscribed.read(given),
            payload=given.flag("payload", False),
            min_partitions=given.number("minPartitions", least=1),
            fail_on_data_loss=given.flag("failOnDataLoss", True),
            fail_on_unreachable=given.flag("failOnUnreachable", True),
            starting_sequence_number=given.number("startingSequenceNumber"),
            ending_sequence_number=given.number("endingSequenceNumber"),
            session_id=given.text("sessionId"),
            claim_mode=given.choice("claimMode", (STAGE, DEFER), STAGE),
            settle_on=given.choice("settleOn", (COMMIT, STAGE), COMMIT),
            staging_location=_directory("stagingLocation", given.text("stagingLocation")),
            claim_name=given.text("claimName"),
            max_messages=given.number("maxMessagesPerTrigger", least=1),
            max_bytes=given.bytes("maxBytesPerTrigger"),
            min_messages=given.number("minMessagesPerTrigger", least=1),
            max_trigger_delay_s=given.seconds("maxTriggerDelay", 60.0) or 0.0,
            receive_timeout_s=given.seconds("receiveTimeout", 1.0) or 0.0,
            max_lock_renewal_s=given.seconds("maxLockRenewalDuration"),
        )
        given.refuse_others()
        first, last = found.starting_sequence_number, found.ending_sequence_number
        if first is not None and last is not None and last < first:
            raise PipelineError(f"endingSequenceNumber is {last}, which is before startingSequenceNumber, {first}.")
        if found.min_messages and found.max_messages and found.min_messages > found.max_messages:
            raise PipelineError("minMessagesPerTrigger is more than maxMessagesPerTrigger.")
        return found

    def check_streaming(self) -> None:
        """What only a stream needs; a PipelineError says what is missing."""
        for name, value in (
            ("startingSequenceNumber", self.starting_sequence_number),
            ("endingSequenceNumber", self.ending_sequence_number),
            ("sessionId", self.session_id),
        ):
            if value is not None:
                raise PipelineError(f"The option {name} is for batch reads; a stream takes what the queue hands out.")
        if self.claim_mode == DEFER:
            if self.settle_on == STAGE:
                raise PipelineError("settleOn=stage needs claimMode=stage: with claimMode=defer nothing is staged.")
            if self.min_messages is not None:
                raise PipelineError("minMessagesPerTrigger needs claimMode=stage: what is deferred does not wait.")
            if not self.claim_name:
                raise PipelineError(
                    "claimMode=defer needs claimName, a name that no other query uses: by it the messages that this"
                    " query has set aside are found again."
                )
        elif not self.staging_location:
            raise PipelineError(
                "A stream needs stagingLocation, a directory of its own on a disk that survives a crash and that all"
                " workers see: received messages are kept there until Spark has committed them."
            )


def entity_path(name: str) -> str:
    """A queue, or a subscription that may be written TOPIC:SUBSCRIPTION, as the path of its links."""
    topic, colon, subscription = name.partition(":")
    return f"{topic}/Subscriptions/{subscription}" if colon and subscription else name.strip("/")


def _directory(name: str, told: str | None) -> str | None:
    """A path for all workers, which have working directories of their own; Spark's users write `file:` before it."""
    if told is None:
        return None
    scheme, colon, rest = told.partition(":")
    if colon and scheme.lower() == "file":
        told = "/" + rest.lstrip("/")
    elif colon and "/" not in scheme and rest.startswith("/"):
        raise PipelineError(f"The option {name} is '{told}', and should be a directory in a file system that all see.")
    return os.path.abspath(told)


def _listed(words: Collection[str]) -> str:
    *others, last = words
    return f"{', '.join(others)} or {last}" if others else last
