"""A broker process whose messaging stores can be lost: taken down, or by a disk that fails, fills up or hangs."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from support.broker import BrokerProcess

STALL_S = 4.0  # A disk that is only slow, as on a busy machine, must not look as if it hung.


class FaultyBroker(BrokerProcess):
    """Started by `disk.py`, which gives it disks that do what this says."""

    def __init__(self, directory: Path, **options: Any) -> None:
        super().__init__(directory, **options)
        self.control = directory / "faults"
        self.control.mkdir(exist_ok=True)

    @property
    def command(self) -> list[str]:
        serve = super().command[3:]
        return [sys.executable, str(Path(__file__).with_name("disk.py")), str(self.control), str(STALL_S), *serve]

    def api(self, method: str, path: str, document: dict[str, Any] | None = None) -> dict[str, Any]:
        """Ask the JSON API; an AssertionError if it refuses."""
        status, text = self.request(method, f"/$api/{path}", None if document is None else json.dumps(document))
        assert status == 200, f"{status}: {text}"
        answer: dict[str, Any] = json.loads(text)
        return answer

    def store_of(self, entity: str) -> int:
        """The store that an entity lies on, found by taking stores down in turn while nobody uses them."""
        for store in self.api("GET", "stores")["stores"]:
            self.down(store["number"])
            limited = self.queue(entity)["EntityAvailabilityStatus"] == "Limited"
            self.up(store["number"])
            if limited:
                return int(store["number"])
        raise AssertionError(f"no store holds {entity}")

    def down(self, store: int) -> None:
        assert self.api("POST", f"stores/{store}/down", {"reason": "test"})["state"] == "down"

    def up(self, store: int) -> None:
        assert self.api("POST", f"stores/{store}/up", {})["state"] == "up"

    def state(self, store: int) -> str:
        return str(self.api("GET", "stores")["stores"][store]["state"])

    def until(self, store: int, state: str, timeout_s: float = 30.0) -> None:
        """Wait until a store is in a state."""
        deadline = time.monotonic() + timeout_s
        while (found := self.state(store)) != state:
            assert time.monotonic() < deadline, f"store {store} is {found}, not {state}:\n{self.log[-4000:]}"
            time.sleep(0.01)

    @contextmanager
    def fault(self, store: int, kind: str) -> Iterator[None]:
        """Make a store's disk fail."""
        place = self.control / f"store-{store}.db"
        new = place.with_suffix(".new")
        new.write_text(kind)
        new.rename(place)
        try:
            yield
        finally:
            place.unlink()
