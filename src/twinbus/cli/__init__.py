"""The `twinbus` command. `commands` knows all of them; who names one imports that one alone, which halves the time.

Commands only read their arguments and show what happens; the work is done in the package each one names.
"""

from __future__ import annotations

import sys

from twinbus.cli import interruption

TYPE_CHECKING = False  # As in `typing`, which takes a while: until `main` runs, Ctrl-C is a traceback.
if TYPE_CHECKING:
    from typing import Any

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
    interruption.begin()
    from twinbus.cli.commands import program_for

    run = program_for(sys.argv[1:])
    try:
        run()
    except SystemExit as ended:
        raise SystemExit(interruption.exit_code(ended.code) if isinstance(ended.code, int) else ended.code) from None
    except KeyboardInterrupt:  # Between the command and its frame.
        raise SystemExit(interruption.exit_code(interruption.INTERRUPTED)) from None
    finally:
        interruption.over()
