"""Which messages of a drill arrived after younger ones, by the numbers at the end of their ids.

Pure; whether that is allowed is the scenario's business.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping


def overtaken(arrived: Iterable[str], lane_of: Mapping[str, str] | None = None) -> set[str]:
    """Ids that came after a higher number of their lane: that of the mapping, which leaves out others, or their prefix.

    `arrived` has each id once, in the order of arrival.
    """
    highest: dict[str, int] = {}
    late = set()
    for message_id in arrived:
        lane, _, number = message_id.rpartition("-")
        if lane_of is not None:
            if message_id not in lane_of:
                continue
            lane = lane_of[message_id]
        if int(number) < highest.get(lane, -1):
            late.add(message_id)
        highest[lane] = max(int(number), highest.get(lane, -1))
    return late
