"""Messages and queues on their way to the prompt: as cells of a table, as facts, and as JSON.

Whatever a sender put into a message, nothing that a terminal would obey gets through; printing is `output`'s work.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from twinbus.cli.output import Output, Table
from twinbus.client.messages import Message, instant
from twinbus.model.duration import format_duration
from twinbus.model.limits import UNLIMITED_MS

_KEPT = "\t\n\r"


class MessageView:
    """Shows messages as they come, in the way that the person chose."""

    def __init__(self, output: Output, *, raw: bool = False, dead: bool = False) -> None:
        """`raw` shows bodies and nothing else; `dead` shows why messages are dead."""
        self._output = output
        self._raw = raw
        self._dead = dead
        headings = ["NUMBER", "ENQUEUED", "ID", *(["REASON", "DESCRIPTION"] if dead else ["STATE", "TRIES", "SESSION"])]
        self._table = Table(output, [*headings, "SUBJECT", "BODY"], numbers=("NUMBER", "TRIES"))

    def show(self, messages: Sequence[Message]) -> None:
        """Prints messages."""
        if self._raw:
            for message in messages:
                self._output.bytes(raw_body(message))
        elif self._output.as_json:
            for message in messages:
                self._output.record(document(message))
        else:
            self._table.rows([self._row(message) for message in messages])

    def _row(self, message: Message) -> list[str]:
        number, at = str(message.sequence_number), moment(message.enqueued_at_ms)
        row = [number, at, message.message_id or ""]
        if self._dead:
            row += [message.dead_letter_reason or "", message.dead_letter_description or ""]
        else:
            row += [message.state.name.lower(), str(message.delivery_count), message.session_id or ""]
        return [clean(cell) for cell in [*row, message.subject or "", body_text(message)]]


def facts(message: Message) -> dict[str, str]:
    """All that a message says, for people."""
    told = {key: value for key, value in document(message).items() if not key.startswith(("body", "properties"))}
    shown = {key.replace("_", " "): clean(str(value)) for key, value in told.items() if value is not None}
    for name, value in message.properties.items():
        shown[f"property {clean(name)}"] = clean(value if isinstance(value, str) else json.dumps(as_json(value)))
    return shown


def document(message: Message) -> dict[str, Any]:
    """All that a message says, for scripts. The body is `body` if it is text, else `body_base64` or `body_value`."""
    told: dict[str, Any] = {
        "sequence_number": message.sequence_number,
        "message_id": message.message_id,
        "enqueued_at": iso(message.enqueued_at_ms),
        "state": message.state.name.lower(),
        "delivery_count": message.delivery_count,
        "session_id": message.session_id,
        "subject": message.subject,
        "content_type": message.content_type,
        "correlation_id": message.correlation_id,
        "to": message.to,
        "reply_to": message.reply_to,
        "reply_to_session_id": message.reply_to_session_id,
        "partition_key": message.partition_key,
        "time_to_live": None if message.ttl_ms is None else format_duration(message.ttl_ms),
        "scheduled_at": iso(message.scheduled_at_ms),
        "locked_until": iso(message.locked_until_ms),
        "dead_letter_reason": message.dead_letter_reason,
        "dead_letter_description": message.dead_letter_description,
        "dead_letter_source": message.dead_letter_source,
        "properties": as_json(message.properties),
        "body": _text_of(message.body),
    }
    if told["body"] is None:
        if isinstance(message.body, bytes):
            told["body_base64"] = base64.b64encode(message.body).decode()
        else:
            told["body_value"] = as_json(message.body)
    return told


def body_text(message: Message) -> str:
    """A body as text if it is one, else in hexadecimal digits or as JSON."""
    text = _text_of(message.body)
    if text is not None:
        return text
    if isinstance(message.body, bytes):
        return f"0x{message.body.hex()}"
    return json.dumps(as_json(message.body), ensure_ascii=False)


def raw_body(message: Message) -> bytes:
    """A body byte for byte; a value that is not bytes as its text."""
    return message.body if isinstance(message.body, bytes) else body_text(message).encode()


def _text_of(body: Any) -> str | None:
    if isinstance(body, str):
        return body
    if not isinstance(body, bytes):
        return None
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return None
    return text if all(letter.isprintable() or letter in _KEPT for letter in text) else None


def clean(text: str) -> str:
    """Text on one line, in which control characters are spelt out."""
    return "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in text)


def clean_lines(text: str) -> str:
    """Text on as many lines as it has, otherwise as `clean` would have it."""
    return "\n".join(clean(line) for line in text.splitlines())


def as_json(value: Any) -> Any:
    """A plain value in JSON's own types."""
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else str(value)
        case datetime():
            return _format(value)
        case UUID():
            return str(value)
        case bytes():
            return {"base64": base64.b64encode(value).decode()}
        case dict():
            return {str(key): as_json(entry) for key, entry in value.items()}
        case _:
            return [as_json(entry) for entry in value]


def moment(at_ms: int | None) -> str:
    """An instant for people, in UTC; a dash for none."""
    return f"{instant(at_ms):%Y-%m-%d %H:%M:%SZ}" if at_ms else "-"


def duration(milliseconds: int) -> str:
    """A duration for people."""
    if milliseconds >= UNLIMITED_MS:
        return "unlimited"
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000)):
        if milliseconds % size == 0 and milliseconds >= size:
            return f"{milliseconds // size}{unit}"
    return f"{milliseconds / 1000:g}s"


def iso(at_ms: int | None) -> str | None:
    """An instant for scripts; None for none, which is 0 in what is told about entities."""
    return _format(instant(at_ms)) if at_ms else None


def _format(at: datetime) -> str:
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def counted(count: int, what: str = "message") -> str:
    """A number and its noun."""
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"
