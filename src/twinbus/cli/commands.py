"""All commands of `twinbus`, one module for each, joined here.

Commands only read their arguments and show what happens; the work is done in the package each one names.
"""

from __future__ import annotations

import typer

from twinbus import __version__
from twinbus.cli.backup import backup, restore
from twinbus.cli.bench import bench
from twinbus.cli.bench_filters import bench_filters
from twinbus.cli.bench_ledger import bench_ledger
from twinbus.cli.bench_outbox import bench_outbox
from twinbus.cli.bench_source import bench_source
from twinbus.cli.bench_syphon import bench_syphon
from twinbus.cli.catalog import catalog
from twinbus.cli.certs import certs
from twinbus.cli.config import check_config
from twinbus.cli.dlq import dlq
from twinbus.cli.drill import drill
from twinbus.cli.entity import entity
from twinbus.cli.everywhere import program
from twinbus.cli.explain import explain
from twinbus.cli.fault import fault
from twinbus.cli.keys import keys
from twinbus.cli.ledger import ledger
from twinbus.cli.outbox import outbox
from twinbus.cli.pair import pair
from twinbus.cli.peek import peek
from twinbus.cli.pipeline import pipeline
from twinbus.cli.policy import policy
from twinbus.cli.receive import receive
from twinbus.cli.relay import relay
from twinbus.cli.send import send
from twinbus.cli.serve import serve
from twinbus.cli.store import store
from twinbus.cli.syphon import syphon
from twinbus.cli.up import down, logs, up
from twinbus.cli.upkeep import clock, purge, reset, status
from twinbus.cli.verify import verify

app = program(no_args_is_help=True)
app.command("serve")(serve)
app.command("up")(up)
app.command("down")(down)
app.command("logs")(logs)
app.command("send")(send)
app.command("receive")(receive)
app.command("peek")(peek)
app.add_typer(dlq, name="dlq")
app.add_typer(entity, name="entity")
app.add_typer(keys, name="keys")
app.add_typer(policy, name="policy")
app.command("status")(status)
app.add_typer(store, name="store")
app.add_typer(catalog, name="catalog")
app.command("verify")(verify)
app.command("backup")(backup)
app.command("restore")(restore)
app.command("purge")(purge)
app.command("reset")(reset)
app.add_typer(clock, name="clock")
app.add_typer(fault, name="fault")
app.add_typer(pair, name="pair")
app.command("syphon")(syphon)
app.add_typer(outbox, name="outbox")
app.add_typer(ledger, name="ledger")
app.add_typer(pipeline, name="pipeline")
app.add_typer(relay, name="relay")
app.command("explain")(explain)
app.command("certs")(certs)
app.command("check-config")(check_config)
app.command("bench")(bench)
app.command("bench-filters")(bench_filters)
app.command("bench-ledger")(bench_ledger)
app.command("bench-outbox")(bench_outbox)
app.command("bench-syphon")(bench_syphon)
app.command("bench-source")(bench_source)
app.command("drill")(drill)


@app.command("version")
def version() -> None:
    """Print the version."""
    typer.echo(__version__)
