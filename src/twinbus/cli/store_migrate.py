"""`twinbus store migrate`: a stopped namespace moves from its directory into PostgreSQL databases.

The work is done in `broker.migrating`; here are its options, its progress, and what to do afterwards.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from twinbus.cli.connection import JsonOption
from twinbus.cli.output import Output, Table, progress_bar
from twinbus.cli.running import blocking_command, fail
from twinbus.cli.showing import counted
from twinbus.model.errors import BusError
from twinbus.model.extras import require

if TYPE_CHECKING:
    from twinbus.broker.addresses import DatabaseAddress
    from twinbus.broker.migrating import MovedNamespace, Step


@blocking_command
def migrate(
    directory: Annotated[Path, typer.Argument(help="The namespace's data directory; nobody may be serving it.")],
    database: Annotated[list[str], typer.Argument(help="postgresql://… of a database; stores lie on several in turn.")],
    namespace: Annotated[str, typer.Option(help="Name of the namespace, as it is served.")] = "twinbus",
    json: JsonOption = False,
) -> None:
    """Move a stopped namespace from SQLite files into PostgreSQL, with everything, and compare both afterwards."""
    require("psycopg")
    from twinbus.broker.addresses import DatabaseAddress
    from twinbus.broker.migrating import Migration
    from twinbus.broker.settings import SettingsError

    try:
        addresses = [DatabaseAddress(uri) for uri in database]
        with Migration(directory, addresses, namespace) as migration, progress_bar("reading", migration.rows) as bar:
            (task,) = bar.task_ids

            def watch(step: Step, store: int, rows: int) -> None:
                bar.update(task, advance=rows, description=f"store {store}: {step.value}")

            moved = migration.run(watch)
    except (SettingsError, BusError) as problem:
        fail(str(problem))
    _show(Output(json), moved, directory, addresses)


def _show(output: Output, moved: MovedNamespace, directory: Path, addresses: list[DatabaseAddress]) -> None:
    serve = _serve_line(moved, addresses)
    if output.as_json:
        stores = [{**store._asdict(), "damage": store.damage._asdict()} for store in moved.stores]
        output.record({"namespace": moved.name, "entities": moved.entities, "stores": stores, "serve": serve})
        return
    heads = ["STORE", "MESSAGES", "BYTES", "JOURNAL", "LOCKS DROPPED", "DIGEST", "SCHEMA"]
    table = Table(output, heads, numbers=heads[:5])
    table.rows(
        [
            [
                str(store.number),
                *(f"{number:,}" for number in (store.messages, store.bytes, store.journal_rows, store.locks)),
                store.digest,
                f"{store.schema} at {store.database}",
            ]
            for store in moved.stores
        ]
    )
    output.line()
    messages = sum(store.messages for store in moved.stores)
    output.line(
        f"Moved and compared, row by row: {counted(messages)}; entities: {moved.entities:,}. Serve the namespace with"
    )
    output.line(f"  {serve}")
    if moved.has_exported:
        output.line(
            f"and with --journal {shlex.quote(str(directory / 'journal'))}, or where else its journal's files are."
        )
    _warn(output, moved)
    output.line(f"{directory} was only read: it can be kept as a backup, and must not be served beside the databases.")


def _warn(output: Output, moved: MovedNamespace) -> None:
    bodies = sum(store.damage.bodies for store in moved.stores)
    without = sum(store.damage.messages for store in moved.stores)
    if bodies or without:
        output.remark(
            f"It was damaged before: messages without a body: {without:,}; bodies that do not match their checksum:"
            f" {bodies:,}. They moved as they are, and the store sets them aside when they are read."
        )


def _serve_line(moved: MovedNamespace, addresses: list[DatabaseAddress]) -> str:
    words = ["twinbus", "serve", "--namespace", moved.name]
    for address in addresses:
        words += ["--store", address.without_password]
    if len(moved.stores) != len(addresses):
        words += ["--stores", str(len(moved.stores))]
    return shlex.join(words)
