"""The `twinbus` command: one module for each subcommand, joined here.

Commands only read their arguments and show what happens; the work is done in the package each one names.
"""

from __future__ import annotations

import typer

from twinbus import __version__
from twinbus.cli.bench import bench
from twinbus.cli.certs import certs
from twinbus.cli.serve import serve

app = typer.Typer(
    name="twinbus",
    help="A Service Bus that survives the loss of its datacenter.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command("serve")(serve)
app.command("certs")(certs)
app.command("bench")(bench)


@app.command("version")
def version() -> None:
    """Print the version."""
    typer.echo(__version__)


def main() -> None:
    """Entry point of the console script."""
    app()
