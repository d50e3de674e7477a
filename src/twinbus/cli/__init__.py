"""The `twinbus` command. `commands` joins all of them; starting a broker imports `serve` alone, which halves the time.

Commands only read their arguments and show what happens; the work is done in the package each one names.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from twinbus.cli.commands import app

__all__ = ["app", "main"]


def __getattr__(name: str) -> Any:
    """Import all commands when `app` is asked for."""
    if name != "app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from twinbus.cli import commands

    return commands.app


def main() -> None:
    """Entry point of the console script."""
    if sys.argv[1:2] == ["serve"]:
        from twinbus.cli.serve import alone as run
    else:
        from twinbus.cli.commands import app as run
    run()
