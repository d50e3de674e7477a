"""What a pair remembers from one start to the next: who the primary is, and what was found, in a small file.

A client that starts while the primary is down needs the primary's name, because the backlog queues are called after it.
The file holds no key and no message, and nothing is lost with it: what is not remembered is learnt again. One that
cannot be written is done without.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from twinbus.model.logged import EventLog

_log = EventLog(__name__)

VARIABLE = "TWINBUS_STATE_DIRECTORY"
NOWHERE = ""


@dataclass(slots=True)
class Remembered:
    """What is worth remembering of a pair."""

    name: str = ""  # Of the primary.
    id: str = ""
    queues: list[str] = field(default_factory=list)  # The backlog queues that there were.
    ordered_queues: list[str] = field(default_factory=list)
    entities: dict[str, dict[str, Any]] = field(default_factory=dict)  # What is known of each, by path.


class Memory:
    """The file of one pair: of two addresses, as a client has them."""

    def __init__(self, directory: str | os.PathLike[str] | None, primary: str, secondary: str) -> None:
        """In the directory, or the one that the environment names, or in the home directory; empty: nowhere."""
        place = os.environ.get(VARIABLE, _default()) if directory is None else os.fspath(directory)
        name = hashlib.sha256(f"{primary} {secondary}".encode()).hexdigest()[:32]
        self._path = None if place == NOWHERE else Path(place).expanduser() / f"{name}.json"
        self._pair = {"primary": primary, "secondary": secondary}

    def load(self) -> Remembered:
        """What the last client of this pair wrote; nothing, if there was none or it cannot be read."""
        if self._path is None:
            return Remembered()
        try:
            document = json.loads(self._path.read_text(encoding="utf-8"))
            found = Remembered(**document["remembered"])
        except FileNotFoundError:
            return Remembered()
        except (OSError, ValueError, KeyError, TypeError) as problem:
            _log.debug("pair.forgotten", "what was remembered cannot be read: {error}", error=problem)
            return Remembered()
        return found if _is_sound(found) else Remembered()

    def save(self, remembered: Remembered) -> None:
        """For the next start, all or nothing."""
        if self._path is None:
            return
        text = json.dumps({"pair": self._pair, "remembered": asdict(remembered)}, indent=1)
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            handle, made = tempfile.mkstemp(dir=self._path.parent, prefix=".pair-")
            try:
                with os.fdopen(handle, "w", encoding="utf-8") as file:
                    file.write(text)
                os.replace(made, self._path)
            except BaseException:
                with suppress(OSError):
                    os.unlink(made)
                raise
        except OSError as problem:
            _log.debug("pair.not_remembered", "nothing can be remembered: {error}", error=problem)


def _default() -> str:
    return str(Path("~/.twinbus/pairs"))


def _is_sound(found: Remembered) -> bool:
    """Whether somebody else wrote into the file."""
    texts = [found.name, found.id, *found.queues, *found.ordered_queues]
    return all(isinstance(text, str) for text in texts) and isinstance(found.entities, dict)
