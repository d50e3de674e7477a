"""Errors for people: the sentence without what only machines read, what to do about it, and where to look it up.

What a fault means is `model.errors`' business; showing it is the caller's.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from twinbus.client.errors import CONNECTION_LOST, NO_TLS, TIMED_OUT, UNREACHABLE, WRONG_DOOR, ClientError
from twinbus.model.errors import FACTS
from twinbus.wire.conditions import CONDITIONS

_SUBCODE = re.compile(r"\A\s*(?:\d{5}: |SubCode=\d+\.\s*)+")
_TRAIL = re.compile(r"[\s.,]*\b(?:TrackingId:(?P<id>[^\s,]+)|Reference:)", re.DOTALL)
_ADVICE = {condition.symbol: FACTS[fault].advice for fault, condition in reversed(CONDITIONS.items())} | {
    # Two faults share this condition, and the sentence does not always tell them apart.
    "amqp:unauthorized-access": "Check the policy's name and key, and that it has the right this needs.",
    UNREACHABLE: "Is it running, and is the address in the connection string right?",
    NO_TLS: "Is this a port for plain text? A development broker's connection string has UseDevelopmentEmulator=true.",
    WRONG_DOOR: "Is this a port for TLS, or for something else? UseDevelopmentEmulator=true means plain text.",
    CONNECTION_LOST: "Try again; what was on its way may have arrived.",
    TIMED_OUT: "Try again; what was asked for may have happened.",
}


class Explanation(NamedTuple):
    """What to tell a person about an error."""

    sentence: str
    advice: str
    tracking_id: str | None


def explain(error: ClientError) -> Explanation:
    """An error in words."""
    text = _SUBCODE.sub("", error.text)
    trail = _TRAIL.search(text)
    sentence = " ".join((text[: trail.start()] if trail else text).split()) or error.condition
    sentence = sentence[0].upper() + sentence[1:]
    if sentence[-1] not in ".!?":
        sentence += "."
    return Explanation(sentence, _ADVICE.get(error.condition, ""), trail["id"] if trail else None)
