"""ISO 8601 durations as Service Bus writes them, to and from milliseconds.

Days, hours, minutes and seconds only: Service Bus uses no years or months. The unlimited duration has one spelling.
"""

from __future__ import annotations

import re

from twinbus.model.errors import BusError, Fault
from twinbus.model.limits import UNLIMITED_MS

UNLIMITED_TEXT = "P10675199DT2H48M5.4775807S"
_DURATION = re.compile(
    r"P(?:(?P<d>\d{1,8})D)?(?:T(?:(?P<h>\d{1,9})H)?(?:(?P<m>\d{1,9})M)?(?:(?P<s>\d{1,12})(?:[.,](?P<f>\d{1,9}))?S)?)?\Z",
    re.ASCII,
)


def parse_duration_ms(text: str) -> int:
    """Milliseconds of a duration; anything at or beyond the longest one counts as unlimited."""
    found = _DURATION.match(text.strip()) if isinstance(text, str) else None
    if found is None or text.strip() in ("P", "PT") or text.strip().endswith("T"):
        raise BusError(Fault.ARGUMENT, f"'{str(text)[:40]}' is not a duration such as PT30S or P1DT2H.")
    seconds = (
        int(found["d"] or 0) * 86_400 + int(found["h"] or 0) * 3_600 + int(found["m"] or 0) * 60 + int(found["s"] or 0)
    )
    fraction_ms = int((found["f"] or "0").ljust(3, "0")[:3])
    return min(seconds * 1000 + fraction_ms, UNLIMITED_MS)


def format_duration(milliseconds: int) -> str:
    """The shortest spelling of a duration."""
    if milliseconds >= UNLIMITED_MS:
        return UNLIMITED_TEXT
    seconds, fraction = divmod(milliseconds, 1000)
    days, seconds = divmod(seconds, 86_400)
    hours, seconds = divmod(seconds, 3_600)
    minutes, seconds = divmod(seconds, 60)
    text = "P" + (f"{days}D" if days else "")
    time = (f"{hours}H" if hours else "") + (f"{minutes}M" if minutes else "")
    if fraction:
        time += f"{seconds}.{fraction:03d}".rstrip("0") + "S"
    elif seconds or not (days or time):
        time += f"{seconds}S"
    return text + ("T" + time if time else "")
