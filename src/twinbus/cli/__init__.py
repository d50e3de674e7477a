"""The `twinbus` command: one module for each subcommand, joined here.

Commands only read their arguments and show what happens; the work is done in the package each one names.
"""

from __future__ import annotations

import typer

from twinbus import __version__
from twinbus.cli.bench import bench
from twinbus.cli.certs import certs
from twinbus.cli.dlq import dlq
from twinbus.cli.entity import entity
from twinbus.cli.keys import keys
from twinbus.cli.peek import peek
from twinbus.cli.receive import receive
from twinbus.cli.send import send
from twinbus.cli.serve import serve

app = typer.Typer(
    name="twinbus",
    help="A Service Bus that survives the loss of its datacenter.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.command("serve")(serve)
app.command("send")(send)
app.command("receive")(receive)
app.command("peek")(peek)
app.add_typer(dlq, name="dlq")
app.add_typer(entity, name="entity")
app.command("keys")(keys)
app.command("certs")(certs)
app.command("bench")(bench)


@app.command("version")
def version() -> None:
    """Print the version."""
    typer.echo(__version__)


def main() -> None:
    """Entry point of the console script."""
    app()
