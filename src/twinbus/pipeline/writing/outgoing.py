"""Rows as messages on their way out: where each goes, under which id, and which of them are sent together.

Pure, and without Spark. How a row becomes a message is told in `rows`; sending is left to `delivery`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple

from twinbus.client.diverting import with_id
from twinbus.client.errors import ClientError
from twinbus.client.messages import read
from twinbus.pipeline.errors import PipelineError
from twinbus.pipeline.rows import PAYLOAD, payload_of
from twinbus.pipeline.writing.sink_options import Columns

ROUND_BYTES = 8 * 1024 * 1024  # Encoded messages in memory at a time, twice.
ID_BYTES = 16


class Outgoing(NamedTuple):
    """A message on its way out, and the row that it comes from."""

    row: int  # Its place in the task's rows, from 0.
    path: str
    message_id: str
    payload: bytes


# What is sent together: the messages for each destination, in the order of their rows.
Round = dict[str, list[Outgoing]]


class Encoder:
    """Makes messages of the rows of one task.

    A row without a MessageId gets one that is made of `origin`, which is the same when Spark runs the task again,
    and of the message itself. So a second attempt sends the same messages under the same ids, in whatever order its
    rows come.
    """

    def __init__(self, columns: Columns, destination: str | None, origin: str) -> None:
        self._columns = columns
        self._destination = destination
        self._origin = origin.encode()
        self._alike: Counter[bytes] = Counter()  # How often a message without an id was seen.

    def encode(self, row: int, values: Sequence[Any]) -> Outgoing:
        """The message of a row; a PipelineError that names the row if there can be none."""
        named = dict(zip(self._columns.names, values, strict=True))
        path = (named.get(self._columns.destination) if self._columns.destination else None) or self._destination
        if not path:
            raise PipelineError(f"Row {row} does not say where it goes{self._hint()}")
        try:
            if named.get("body") is None and named.get(PAYLOAD) is None:
                raise PipelineError("it has no body")
            payload = payload_of(named)
            message_id = named.get("messageId") or self._given(named)
            if message_id is None:
                message_id = self._made(path, payload)
                payload = with_id(payload, message_id)
        except (PipelineError, ClientError, TypeError, ValueError, OverflowError) as problem:
            raise PipelineError(f"Row {row} for '{path}' is no message: {problem}") from problem
        return Outgoing(row, path, message_id, payload)

    def _given(self, named: dict[str, Any]) -> str | None:
        whole = named.get(PAYLOAD)
        return None if whole is None else read(bytes(whole)).message_id

    def _made(self, path: str, payload: bytes) -> str:
        content = blake2b(path.encode() + b"\0" + payload, digest_size=ID_BYTES).digest()
        nth = self._alike[content]
        self._alike[content] += 1
        return blake2b(b"%b\0%d\0%b" % (self._origin, nth, content), digest_size=ID_BYTES).hexdigest()

    def _hint(self) -> str:
        if self._columns.destination:
            return f": its column '{self._columns.destination}' is empty, and neither queue nor topic is given."
        return "; give the option queue or topic, or name a column with destinationColumn."


def rounds(messages: Iterable[Outgoing], count: int, bytes_max: int = ROUND_BYTES) -> Iterator[Round]:
    """Messages in the order in which they come, so many at a time, by destination."""
    found: Round = {}
    size = taken = 0
    for message in messages:
        if taken and (taken == count or size + len(message.payload) > bytes_max):
            yield found
            found, size, taken = {}, 0, 0
        found.setdefault(message.path, []).append(message)
        size += len(message.payload)
        taken += 1
    if taken:
        yield found
