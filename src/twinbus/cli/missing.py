"""All commands together: who needs a package that is not installed is told which extra brings it, and how to get it.

Which package that is, is found in `twinbus.model.extras`; how commands end otherwise is told in `running`.
"""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperGroup

from twinbus.model.extras import MissingExtraError


class Commands(TyperGroup):
    """The group that every command belongs to, whether it ends by `running.command` or in its own way."""

    def invoke(self, ctx: Any) -> Any:
        """Run a command; a missing extra is one sentence, and exit code 1."""
        try:
            return super().invoke(ctx)
        except MissingExtraError as missing:
            typer.echo(f"twinbus: {missing}", err=True)
            raise typer.Exit(1) from None
