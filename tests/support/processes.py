"""Which processes a process has started, as the system lists them."""

from __future__ import annotations

from pathlib import Path


def children_of(pid: int) -> list[int]:
    """Those that it started itself."""
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        found += map(int, (task / "children").read_text().split())
    return found
