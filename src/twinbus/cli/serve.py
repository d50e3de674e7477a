"""`twinbus serve`: one namespace or several until it is told to stop.

Puts settings together from file, environment and options, and prints what to paste; serving is `broker.process`' work.
"""

from __future__ import annotations

import asyncio
import gc
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from twinbus.cli import interruption, log_lines

if TYPE_CHECKING:
    from twinbus.broker.process import Broker
    from twinbus.console import Console

CERTIFICATE_FILE, KEY_FILE, AUTHORITY_FILE = "host.pem", "host.key", "ca.pem"
AMQPS_PORT = 5671  # The only one that the official Python client takes from a connection string.
# What a connection string for each door is for; the official administration clients speak HTTPS alone.
_PURPOSES = {
    "amqp": "",
    "amqps": " with TLS, for ServiceBusClient",
    "https": " with TLS, for ServiceBusAdministrationClient",
}

_Journal = Annotated[
    str | None, typer.Option(help="Export the journal to Parquet files in this directory; `default`: DATA/journal.")
]
_NamespaceId = Annotated[
    str | None, typer.Option(help="The id that the namespace must have; anything else is not served.")
]
_ConsolePair = Annotated[Path | None, typer.Option(help="The pair that the console shows, by its TOML description.")]
_StopWithStdin = Annotated[
    bool, typer.Option(help="Stop when standard input ends: for a parent that may die without a word.")
]
_EntityMetrics = Annotated[bool, typer.Option(help="Tell in /metrics of every entity by name, too.")]
_JournalSeconds = Annotated[
    float | None, typer.Option(help="Write a file of the journal when so much time has passed (300).", min=0.01)
]


def serve(
    config: Annotated[
        Path | None, typer.Argument(help="TOML settings, or the official emulator's Config.json.")
    ] = None,
    namespace: Annotated[list[str] | None, typer.Option(help="Name of the namespace; may be repeated.")] = None,
    data: Annotated[
        Path | None, typer.Option(help="Where the namespace is kept, or several below it; per user by default.")
    ] = None,
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
    store: Annotated[
        list[str] | None,
        typer.Option(envvar="TWINBUS_STORE", help="postgresql://… of a messaging store; may be repeated."),
    ] = None,
    tls: Annotated[Path | None, typer.Option(help="Directory made by `twinbus certs`.")] = None,
    tls_cert: Annotated[Path | None, typer.Option(help="Certificate chain in PEM.")] = None,
    tls_key: Annotated[Path | None, typer.Option(help="Its private key in PEM.")] = None,
    queue: Annotated[
        list[str] | None, typer.Option(help="A queue to create if it is missing; may be repeated.")
    ] = None,
    datacenter: Annotated[str | None, typer.Option(help="Name of the datacenter that this is in.")] = None,
    namespace_id: _NamespaceId = None,
    journal: _Journal = None,
    journal_seconds: _JournalSeconds = None,
    test_clock: Annotated[bool, typer.Option(help="Let tests move the clock of each namespace.")] = False,
    faults: Annotated[bool, typer.Option(help="Let faults be caused on purpose.")] = False,
    console: Annotated[bool, typer.Option(help="Serve the console, web pages for people, on the HTTP port.")] = True,
    console_pair: _ConsolePair = None,
    entity_metrics: _EntityMetrics = False,
    allow_plain: Annotated[bool, typer.Option(help="Serve plain text on addresses other than loopback.")] = False,
    stop_with_stdin: _StopWithStdin = False,
    log_level: Annotated[str, typer.Option(help="error, warning, info or debug.")] = "info",
    log_format: Annotated[str, typer.Option(help="text, or json: an object a line.")] = "text",
) -> None:
    """Serve a namespace or several: AMQP for applications, HTTP for administration."""
    given: dict[str, Any] = {
        "host": host, "amqp_port": amqp_port, "amqps_port": amqps_port,
        "http_port": http_port, "https_port": https_port,
        "certificate": tls / CERTIFICATE_FILE if tls else tls_cert,
        "certificate_key": tls / KEY_FILE if tls else tls_key,
        "allow_plain": allow_plain or None, "test_clock": test_clock or None, "faults": faults or None,
        "entity_metrics": entity_metrics or None,
    }  # fmt: skip
    for_each: dict[str, Any] = {
        "data": data, "key": key, "stores": stores, "store": store or [], "datacenter": datacenter,
        "namespace_id": namespace_id,
        "queues": queue or [], "journal": journal, "journal_seconds": journal_seconds,
    }  # fmt: skip
    os.umask(0o077)  # Keys and messages are for the owner of the process alone.
    _log_as(log_level, log_format)
    site = _console(console_pair) if console or console_pair else None
    _run(config, given, namespace or [], for_each, stop_with_stdin, site, console_pair)


def _log_as(level: str, line_format: str) -> None:
    if level.lower() not in ("error", "warning", "info", "debug"):
        raise typer.BadParameter(f"'{level}' is not a log level: use error, warning, info or debug.")
    if line_format not in log_lines.FORMATS:
        raise typer.BadParameter(f"'{line_format}' is not a format of log lines: use text or json.")
    log_lines.configure(level, line_format)


def _console(pair: Path | None) -> Console:
    with interruption.at_once():
        from twinbus.cli.console import console_for

    try:
        return console_for(pair)
    except ValueError as problem:
        typer.echo(f"twinbus: the pair cannot be shown: {problem}", err=True)
        raise typer.Exit(1) from None


def _run(
    config: Path | None,
    given: dict[str, Any],
    names: list[str],
    for_each: dict[str, Any],
    stop_with_stdin: bool,
    site: Console | None,
    pair: Path | None,
) -> None:
    """Serve with what the file says and what was given besides."""
    with interruption.at_once():
        from twinbus.broker.config import ConfigError, from_file
        from twinbus.broker.process import EndedEarlyError
        from twinbus.broker.process import serve as run
        from twinbus.broker.settings import Settings, SettingsError
        from twinbus.model.errors import BusError

    try:
        settings = from_file(config) if config is not None else Settings()
        for name, value in given.items():
            if value is not None:
                setattr(settings, name, value)
        settings.choose(names)
        settings.apply(**for_each)
        # Long-lived objects are few and start-up made them all: the collector need not look at them again.
        gc.freeze()
        gc.set_threshold(50_000, 20, 100)
        asyncio.run(run(settings, _announce, stop_with_stdin=stop_with_stdin, site=site, pair=pair))
    except ConfigError as problems:
        typer.echo(f"twinbus: the configuration file cannot be used:\n{problems}", err=True)
        raise typer.Exit(1) from None
    except (SettingsError, BusError) as problem:
        typer.echo(f"twinbus: {problem}", err=True)
        raise typer.Exit(1) from None
    except EndedEarlyError as early:
        raise typer.Exit(128 + early.number) from None


def _announce(broker: Broker) -> None:
    from twinbus import __version__
    from twinbus.broker.reaching import in_url

    settings = broker.settings
    typer.echo(f"Twinbus {__version__}")
    for name in ("amqp", "amqps", "http", "https"):
        if name in broker.ports:
            typer.echo(f"  {name:<9}{name}://{in_url(settings.host)}:{broker.ports[name]}")
    if broker.has_site:
        door = "http" if "http" in broker.ports else "https"
        typer.echo(f"  {'console':<9}{door}://{broker.address(door)}/")
    for hosted in broker.hosted:
        place = f" in datacenter '{hosted.settings.datacenter}'" if hosted.settings.datacenter else ""
        clock = ", with a clock for tests" if settings.test_clock else ""
        typer.echo(f"Namespace '{hosted.settings.name}'{place} from {hosted.data.label}{clock}")
        for door, purpose in _PURPOSES.items():
            strings = broker.connection_strings(hosted, door) if door in broker.ports else {}
            for policy, text in strings.items():
                typer.echo(f"Connection string of {policy}{purpose}:")
                typer.echo(f"  {text}")
    if any(broker.address(door).startswith("[") for door in broker.ports):
        typer.echo("The official clients do not find their way to a bare IPv6 address: give it a name in /etc/hosts.")
    if "amqps" in broker.ports:
        _say_how_to_trust(broker)
    for policy in broker.shared_keys():
        typer.echo(
            f"The key of {policy} is good in several namespaces: only their host names tell them apart.", err=True
        )
    typer.echo("ready")
    sys.stdout.flush()


def _say_how_to_trust(broker: Broker) -> None:
    """What a client needs beside a connection string for TLS, as it is written there."""
    from twinbus.broker.reaching import is_only_for_loopback

    certificate = broker.settings.certificate
    assert certificate is not None
    authority = (certificate.parent / AUTHORITY_FILE).absolute()
    python = []
    if authority.is_file():
        python.append(f'connection_verify="{authority}"')
        typer.echo(f"With TLS, clients must trust {authority}:")
        typer.echo(f"  Python      {python[0]}")
        typer.echo(f"  JavaScript  NODE_EXTRA_CA_CERTS={authority}")
    if broker.ports["amqps"] != AMQPS_PORT:
        python += ["transport_type=TransportType.Amqp", f'custom_endpoint_address="sb://{broker.address("amqps")}"']
        typer.echo(f"With TLS, Python's ServiceBusClient takes no port but {AMQPS_PORT} from a string. For another:")
        typer.echo(f"  {', '.join(python)}")
    certified = broker.certified_hosts()
    if certified and not broker.settings.is_loopback and is_only_for_loopback(certified):
        typer.echo(
            f"The certificate is for {', '.join(certified)} only, so that other machines refuse it: "
            f"`twinbus certs {certificate.parent} --host NAME --force` makes one for NAME.",
            err=True,
        )
