"""Numbers of messages that a batch has claimed, by entity, as ranges short enough for Spark's offset log.

Pure values. Who claims, and what becomes of a claim, is decided in `deferred`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from twinbus.pipeline.errors import PipelineError
from twinbus.pipeline.reading.staging import Key

_RANGE = re.compile(r"(\d+)(?:-(\d+))?")


def told(keys: Iterable[Key]) -> dict[str, str]:
    """Keys as ranges: `{"orders": "1-500,503"}`."""
    by_entity: dict[str, list[int]] = {}
    for key in sorted(set(keys)):
        by_entity.setdefault(key.entity, []).append(key.number)
    return {entity: ",".join(_ranges(numbers)) for entity, numbers in by_entity.items()}


def read(ranges: Mapping[str, str]) -> list[Key]:
    """The same as keys, in order."""
    keys = []
    for entity, text in sorted(ranges.items()):
        for part in filter(None, text.split(",")):
            found = _RANGE.fullmatch(part)
            if found is None:
                raise PipelineError(f"The checkpoint holds the range '{part}' of '{entity}', which is none.")
            first = int(found[1])
            keys += [Key(entity, number) for number in range(first, int(found[2] or first) + 1)]
    return keys


def shares(keys: Sequence[Key], parts: int) -> list[dict[str, str]]:
    """Keys cut into about so many lots of like size, each as ranges."""
    size = -(-len(keys) // max(parts, 1)) or 1
    return [told(keys[first : first + size]) for first in range(0, len(keys), size)]


def _ranges(numbers: list[int]) -> Iterable[str]:
    first = last = numbers[0]
    for number in numbers[1:]:
        if number != last + 1:
            yield f"{first}-{last}" if last > first else str(first)
            first = number
        last = number
    yield f"{first}-{last}" if last > first else str(first)
