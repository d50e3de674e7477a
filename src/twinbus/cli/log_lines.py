"""How a process logs: lines for people, or JSON for machines; control characters escaped, secrets masked, floods cut.

What is logged, and under which names, is told in `model.logged`; libraries' own lines come out in the same way. An
application that uses the paired client sets up logging as it likes.
"""

from __future__ import annotations

import json
import logging
import re
import sys
from datetime import UTC, datetime
from typing import Any, NamedTuple, TextIO

FORMATS = ("text", "json")
# Of one event so many lines within so many seconds are written; the others are counted.
LINES, WITHIN_S = 100, 10.0

_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_SECRETS = (
    re.compile(r"(SharedAccessKey=)[^;\s'\"]+", re.IGNORECASE),
    re.compile(r"(\bsig=)[^&;\s'\"]+", re.IGNORECASE),
    re.compile(r"(://[^:/@\s]+:)[^@\s]+(?=@)"),
)


def configure(level: str, line_format: str, stream: TextIO | None = None) -> None:
    """Log everything of the process to a stream, standard error by default."""
    handler = LimitedHandler(stream or sys.stderr)
    handler.setFormatter(JsonLines() if line_format == "json" else TextLines())
    logging.basicConfig(level=level.upper(), handlers=[handler])


def safe(text: str) -> str:
    """A text without secrets and control characters."""
    for pattern in _SECRETS:
        text = pattern.sub(r"\1…", text)
    return _CONTROLS.sub(lambda found: ascii(found.group())[1:-1], text)


def _told(record: logging.LogRecord) -> dict[str, Any]:
    return getattr(record, "twinbus", None) or {}


def _instant(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _message(record: logging.LogRecord) -> str:
    left_out = getattr(record, "left_out", 0)
    return safe(record.getMessage()) + (f" (and {left_out} more such lines that were left out)" if left_out else "")


class TextLines(logging.Formatter):
    """For people: time, level, event (or logger), sentence; a traceback below it."""

    def format(self, record: logging.LogRecord) -> str:
        """One line, or with a traceback several."""
        name = _told(record).get("event", record.name)
        line = f"{_instant(record)} {record.levelname} {name} {_message(record)}"
        if record.exc_info:
            line += "\n" + "\n".join(safe(row) for row in self.formatException(record.exc_info).splitlines())
        return line


class JsonLines(logging.Formatter):
    """For machines: an object a line, with the event's own fields beside the common ones."""

    def format(self, record: logging.LogRecord) -> str:
        """One line, whatever is in it."""
        told = _told(record)
        line: dict[str, Any] = {
            "time": _instant(record),
            "level": record.levelname.lower(),
            "event": told.get("event", ""),
            "logger": record.name,
            "message": _message(record),
        }
        for name, value in told.items():
            line.setdefault(name, _plain(value))
        if left_out := getattr(record, "left_out", 0):
            line["left_out"] = left_out
        if record.exc_info:
            line["traceback"] = [safe(row) for row in self.formatException(record.exc_info).splitlines()]
        return json.dumps(line)


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return safe(str(value))


class _Seen(NamedTuple):
    """How often an event was logged lately."""

    since_s: float
    lines: int
    left_out: logging.LogRecord | None = None  # The last of those that were left out.


class LimitedHandler(logging.StreamHandler[TextIO]):
    """Writes so many lines of one event in a while; how many were left out is told when the while is over."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self._seen: dict[str, _Seen] = {}

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record, unless there were too many like it; what is critical is always written."""
        for name in [name for name, seen in self._seen.items() if record.created - seen.since_s >= WITHIN_S]:
            self._sum_up(self._seen.pop(name))
        name = str(_told(record).get("event") or (record.name, record.msg))
        seen = self._seen.get(name, _Seen(record.created, 0))
        is_written = seen.lines < LINES or record.levelno >= logging.CRITICAL
        self._seen[name] = seen._replace(lines=seen.lines + 1, left_out=seen.left_out if is_written else record)
        if is_written:
            super().emit(record)

    def close(self) -> None:
        """At the end, tell what was left out."""
        while self._seen:
            self._sum_up(self._seen.popitem()[1])
        super().close()

    def _sum_up(self, seen: _Seen) -> None:
        """Write the last of the lines that were left out, with how many there were before it."""
        if seen.left_out is not None:
            if seen.lines > LINES + 1:
                seen.left_out.left_out = seen.lines - LINES - 1
            super().emit(seen.left_out)
