"""Values as people type them: durations, instants, and properties of messages.

Each function is a parser for an option and tells typer what is wrong with a text; what values mean is the command's.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from typing import Any

import typer

from twinbus.model.duration import parse_duration_ms
from twinbus.model.errors import BusError
from twinbus.model.limits import UNLIMITED_MS

_PIECE = re.compile(r"(\d+(?:\.\d+)?)(ms|[smhdw])", re.ASCII)
_UNIT_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}


class Duration(int):
    """Milliseconds. A type of its own, so that typer knows how to read it."""


class Instant(int):
    """Milliseconds since the Unix epoch, or from now on when it is `relative`."""

    relative = False


class RelativeInstant(Instant):
    """An instant that is told by its distance from now."""

    relative = True


def parse_duration(text: str | Duration) -> Duration:
    """`30` and `30s`, `5m`, `2h`, `14d`, `1h30m`, ISO 8601 such as `PT30S`, or `unlimited`."""
    if isinstance(text, Duration):
        return text
    word = text.strip()
    if word.lower() == "unlimited":
        return Duration(UNLIMITED_MS)
    if word.isascii() and word.isdigit():
        word += "s"
    pieces = _PIECE.findall(word.lower())
    if pieces and "".join(number + unit for number, unit in pieces) == word.lower():
        return Duration(min(int(sum(float(number) * _UNIT_MS[unit] for number, unit in pieces)), UNLIMITED_MS))
    try:
        return Duration(parse_duration_ms(word.upper()))
    except BusError:
        raise typer.BadParameter(f"'{text}' is no duration such as 30s, 5m, 14d, PT30S or unlimited.") from None


def parse_instant(text: str | Instant) -> Instant:
    """An ISO 8601 date and time, of this machine's zone if it names none, or a duration from now."""
    if isinstance(text, Instant):
        return text
    try:
        return RelativeInstant(parse_duration(text))
    except typer.BadParameter:
        pass
    try:
        moment = datetime.fromisoformat(text.strip())
        return Instant(int(moment.astimezone(UTC).timestamp() * 1000))
    except (ValueError, OverflowError):
        raise typer.BadParameter(
            f"'{text}' is neither a time such as 2030-01-31T08:00:00Z nor a duration from now such as 10m."
        ) from None


def parse_properties(texts: list[str]) -> dict[str, Any]:
    """`name=text`, or `name:=value` with a number, true, false or null as JSON writes them."""
    properties: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        typed = name.endswith(":")
        name = name.removesuffix(":")
        if not equals or not name:
            raise typer.BadParameter(f"'{text}' is no property: write name=text, or name:=5 for a number.")
        properties[name] = _json_value(text, value) if typed else value
    return properties


def _json_value(text: str, value: str) -> Any:
    try:
        found = json.loads(value)
    except ValueError:
        found = ()
    if isinstance(found, list | dict | tuple) or (isinstance(found, int) and not -(2**63) <= found < 2**63):
        raise typer.BadParameter(f"'{text}': after ':=' stands a number, true, false, null or a quoted text.")
    return found
