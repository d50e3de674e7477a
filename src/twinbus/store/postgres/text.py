"""Texts as PostgreSQL can keep them: it knows no zero character, but message ids and sessions may have one.

A zero travels as a private-use character and a digit, and that character itself likewise, so nothing is lost.
"""

from __future__ import annotations

import json
from typing import Any

from twinbus.store.volatile import Stored

_MARK = "\ue000"
_encode = json.JSONEncoder(separators=(",", ":")).encode


def to_text(value: str) -> str:
    """A text on its way into the database."""
    if "\0" in value or _MARK in value:
        return value.replace(_MARK, f"{_MARK}1").replace("\0", f"{_MARK}0")
    return value


def from_text(value: str) -> str:
    """A text on its way out."""
    if _MARK in value:
        return value.replace(f"{_MARK}0", "\0").replace(f"{_MARK}1", _MARK)
    return value


def to_json(value: Any) -> str:
    """Lists of texts and numbers on their way in."""
    text = _encode(value)
    # Both are looked for in what the encoder wrote, because that is quicker than looking into every text.
    if "\\u0000" in text or "\\ue000" in text:
        return _encode(_marked(value))
    return text


def from_json(text: str) -> str:
    """JSON text on its way out, still JSON."""
    if _MARK in text:
        return _encode(_unmarked(json.loads(text)))
    return text


def stored(row: tuple[Any, ...]) -> Stored:
    """A message from the columns of `dialect.STATE`."""
    message = Stored._make(row)
    _, _, message_id, _, _, _, _, session, _, _, _, reason, description = row
    for text in (message_id, session, reason, description):
        if text is not None and _MARK in text:
            return message._replace(
                message_id=from_text(message_id),
                session=None if session is None else from_text(session),
                reason=None if reason is None else from_text(reason),
                description=None if description is None else from_text(description),
            )
    return message


def _marked(value: Any) -> Any:
    if isinstance(value, str):
        return to_text(value)
    return [_marked(item) for item in value] if isinstance(value, list | tuple) else value


def _unmarked(value: Any) -> Any:
    if isinstance(value, str):
        return from_text(value)
    return [_unmarked(item) for item in value] if isinstance(value, list) else value
