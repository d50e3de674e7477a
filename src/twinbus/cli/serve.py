"""`twinbus serve`: one namespace until it is told to stop.

Puts settings together from file, environment and options, and prints what to paste; serving is `broker.process`' work.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from twinbus.broker.process import Broker

CERTIFICATE_FILE, KEY_FILE = "host.pem", "host.key"


def serve(
    config: Annotated[
        Path | None, typer.Argument(help="TOML settings, or the official emulator's Config.json.")
    ] = None,
    namespace: Annotated[str | None, typer.Option(help="Name of the namespace.")] = None,
    data: Annotated[Path | None, typer.Option(help="Where the namespace is kept; per user by default.")] = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on.")] = None,
    amqp_port: Annotated[int | None, typer.Option(help="AMQP port, plain text.", min=0, max=65535)] = None,
    amqps_port: Annotated[int | None, typer.Option(help="AMQP port with TLS.", min=0, max=65535)] = None,
    http_port: Annotated[int | None, typer.Option(help="Administration port, plain text.", min=0, max=65535)] = None,
    https_port: Annotated[int | None, typer.Option(help="Administration port with TLS.", min=0, max=65535)] = None,
    key: Annotated[
        str | None,
        typer.Option(envvar="TWINBUS_KEY", help="Key of RootManageSharedAccessKey; generated once by default."),
    ] = None,
    stores: Annotated[int | None, typer.Option(help="Number of messaging stores (new namespaces: 4).")] = None,
    tls: Annotated[Path | None, typer.Option(help="Directory made by `twinbus certs`.")] = None,
    tls_cert: Annotated[Path | None, typer.Option(help="Certificate chain in PEM.")] = None,
    tls_key: Annotated[Path | None, typer.Option(help="Its private key in PEM.")] = None,
    queue: Annotated[
        list[str] | None, typer.Option(help="A queue to create if it is missing; may be repeated.")
    ] = None,
    allow_plain: Annotated[bool, typer.Option(help="Serve plain text on addresses other than loopback.")] = False,
    log_level: Annotated[str, typer.Option(help="error, warning, info or debug.")] = "info",
) -> None:
    """Serve one namespace: AMQP for applications, HTTP for administration."""
    from twinbus.broker.process import serve as run
    from twinbus.broker.settings import Settings, SettingsError, from_file
    from twinbus.model.entity import QueueDescription
    from twinbus.model.errors import BusError

    given: dict[str, Any] = {
        "namespace": namespace, "data": data, "host": host, "amqp_port": amqp_port, "amqps_port": amqps_port,
        "http_port": http_port, "https_port": https_port, "key": key, "stores": stores,
        "certificate": tls / CERTIFICATE_FILE if tls else tls_cert,
        "certificate_key": tls / KEY_FILE if tls else tls_key,
        "allow_plain": allow_plain or None,
    }  # fmt: skip
    os.umask(0o077)  # Keys and messages are for the owner of the process alone.
    if log_level.lower() not in ("error", "warning", "info", "debug"):
        raise typer.BadParameter(f"'{log_level}' is not a log level: use error, warning, info or debug.")
    logging.basicConfig(
        level=log_level.upper(), stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s %(message)s"
    )
    try:
        settings = from_file(config) if config is not None else Settings()
        for name, value in given.items():
            if value is not None:
                setattr(settings, name, value)
        settings.queues += [QueueDescription(name=name) for name in queue or []]
        # Long-lived objects are few and start-up made them all: the collector need not look at them again.
        gc.freeze()
        gc.set_threshold(50_000, 20, 100)
        asyncio.run(run(settings, _announce))
    except (SettingsError, BusError) as problem:
        typer.echo(f"twinbus: {problem}", err=True)
        raise typer.Exit(1) from None


def _announce(broker: Broker) -> None:
    from twinbus import __version__

    settings = broker.settings
    typer.echo(f"Twinbus {__version__} serves namespace '{settings.namespace}' from {settings.data_directory}")
    for name, scheme in (("amqp", "amqp"), ("amqps", "amqps"), ("http", "http"), ("https", "https")):
        if name in broker.ports:
            typer.echo(f"  {name:<6}{scheme}://{settings.host}:{broker.ports[name]}")
    for policy, text in broker.connection_strings().items():
        typer.echo(f"Connection string of {policy}:")
        typer.echo(f"  {text}")
    typer.echo("ready")
    sys.stdout.flush()
