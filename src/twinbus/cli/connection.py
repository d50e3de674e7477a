"""Which namespace a command talks to: the options that say it, and the ways in that follow from them.

Connecting and administering are the client's work.
"""

from __future__ import annotations

import ssl
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from twinbus.cli.running import PromptError
from twinbus.client import Connection, ConnectionString, connect

if TYPE_CHECKING:
    from twinbus.client.atom import Administration

VARIABLES = ["TWINBUS_CONNECTION_STRING", "AZURE_SERVICEBUS_CONNECTION_STRING"]
DEVELOPMENT_HTTP_PORT = 5300
DEAD_LETTER_QUEUE = "$DeadLetterQueue"

ConnectionOption = Annotated[
    str | None,
    typer.Option(
        "--connection-string", "-c", envvar=VARIABLES, show_default=False, help="The namespace, by connection string."
    ),
]
CaOption = Annotated[
    Path | None, typer.Option("--ca", envvar="TWINBUS_CA", help="Trust the authorities in this PEM file.")
]
HttpPortOption = Annotated[
    int | None,
    typer.Option(
        envvar="TWINBUS_HTTP_PORT",
        min=1,
        max=65535,
        help="Administration port: 5300 at a development broker, else 443.",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, one object on each line.")]
QueueArgument = Annotated[str, typer.Argument(metavar="QUEUE", help="The queue.", show_default=False)]


@dataclass(frozen=True, slots=True)
class Namespace:
    """Where a namespace is, for messages and for administration, and whom to trust there."""

    target: ConnectionString
    address: str
    tls: ssl.SSLContext | None = None

    def connect(self) -> AbstractAsyncContextManager[Connection]:
        """A connection for messages."""
        return connect(self.target, tls=self.tls)

    def administer(self) -> AbstractAsyncContextManager[Administration]:
        """The administration, over HTTP."""
        from twinbus.client.atom import administer  # aiohttp takes a quarter of a second, and few commands need it.

        return administer(self.target, self.address, tls=self.tls)

    def connection_string(self, policy: str, key: str, queue: str) -> str:
        """What an application is given that uses a queue's own policy."""
        parts = [f"Endpoint={self.target.audience()}", f"SharedAccessKeyName={policy}", f"SharedAccessKey={key}"]
        parts += [f"EntityPath={queue}"]
        if not self.target.tls:
            parts.append("UseDevelopmentEmulator=true")
        return ";".join(parts)


def namespace(connection_string: str | None, ca: Path | None = None, http_port: int | None = None) -> Namespace:
    """The namespace that the options name; a PromptError that says what is missing."""
    if not connection_string:
        raise PromptError(f"No namespace is named: give --connection-string or set {VARIABLES[0]}.")
    try:
        target = ConnectionString.parse(connection_string)
    except ValueError as problem:
        raise PromptError(f"This will not do: {problem}.") from None
    host = f"[{target.host}]" if ":" in target.host else target.host
    if target.tls:
        address = f"https://{host}:{http_port}" if http_port else f"https://{host}"
    else:
        address = f"http://{host}:{http_port or DEVELOPMENT_HTTP_PORT}"
    return Namespace(target, address, _trusting(ca) if ca is not None else None)


def _trusting(ca: Path) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=ca)
    except (OSError, ssl.SSLError) as problem:
        raise PromptError(f"The authorities in '{ca}' cannot be read: {problem}.") from None


def path_of(queue: str, dead_letters: bool) -> str:
    """The path of a queue, or of its dead-letter queue."""
    return f"{queue}/{DEAD_LETTER_QUEUE}" if dead_letters else queue
