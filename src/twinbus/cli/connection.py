"""Which namespace a command talks to: the options that say it, and the ways in that follow from them.

Connecting and administering are the client's work.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from twinbus.cli.running import PromptError
from twinbus.client import ClientError, Connection, ConnectionString, connect
from twinbus.client.doors import http_address, is_usual

if TYPE_CHECKING:
    from twinbus.client.atom import Administration

PORT_VARIABLE = "TWINBUS_HTTP_PORT"
VARIABLES = ["TWINBUS_CONNECTION_STRING", "AZURE_SERVICEBUS_CONNECTION_STRING"]
ADMINISTRATION_S = 30.0
ASKING_S = 5.0
COMPLETION_S = 2.0


def complete_entity(context: typer.Context, incomplete: str) -> list[str]:
    """Names that begin like what was typed, for the shell; none when the namespace cannot be asked quickly."""
    try:
        place = namespace(
            context.params.get("connection_string") or next(filter(None, map(os.environ.get, VARIABLES)), None),
            context.params.get("ca") or os.environ.get("TWINBUS_CA"),
            context.params.get("http_port"),
        )
        return asyncio.run(_names(place, incomplete))
    except (PromptError, ClientError, ValueError):
        return []


async def _names(place: Namespace, incomplete: str) -> list[str]:
    """Subscriptions by their whole paths: to a shell a colon ends a word."""
    async with place.administer(timeout_s=COMPLETION_S) as administration:
        names = [entry.description.name async for entry in administration.queues()]
        async for topic in administration.topics():
            name = topic.description.name
            names.append(name)
            if incomplete.lower().startswith(f"{name.lower()}/"):
                names += [entry.description.path async for entry in administration.subscriptions(name)]
    return [name for name in names if name.lower().startswith(incomplete.lower())]


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
        envvar=PORT_VARIABLE,
        min=1,
        max=65535,
        help="Administration port: by default the one that the broker tells, else 5300, or 443 with TLS.",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, one object on each line.")]
EntityArgument = Annotated[
    str,
    typer.Argument(
        metavar="ENTITY",
        help="A queue, or a topic's subscription as TOPIC:SUBSCRIPTION.",
        show_default=False,
        autocompletion=complete_entity,
    ),
]


@dataclass(frozen=True, slots=True)
class Namespace:
    """Where a namespace is, for messages and for administration, and whom to trust there."""

    target: ConnectionString
    http_address: str | None = None  # As somebody gave it.
    tls: ssl.SSLContext | None = None

    def connect(self) -> AbstractAsyncContextManager[Connection]:
        """A connection for messages."""
        return connect(self.target, tls=self.tls)

    async def address(self) -> str:
        """Where it is administered. A broker of ours is asked, unless somebody said it."""
        if self.http_address is not None:
            return self.http_address
        port = None
        if not is_usual(self.target):
            try:
                async with connect(self.target, tls=self.tls, timeout_s=ASKING_S) as connection:
                    port = connection.http_port
            except ClientError as error:
                if not error.transient:
                    raise
                # Whoever cannot be asked at present may still answer where the local pair has it, or at the usual port.
                if (known := _in_local_pair(self.target)) is not None:
                    return known
        return http_address(self.target, port)

    @asynccontextmanager
    async def administer(self, timeout_s: float = ADMINISTRATION_S) -> AsyncIterator[Administration]:
        """The administration, over HTTP."""
        from twinbus.client.atom import administer  # aiohttp takes a quarter of a second, and few commands need it.

        async with administer(self.target, await self.address(), tls=self.tls, timeout_s=timeout_s) as administration:
            yield administration

    async def sign(self, path: str, policy: str, key: str, expires_at_s: int) -> tuple[str, str]:
        """The address of an entity for HTTP, and a token for it."""
        from twinbus.client.atom import address_of, sign

        resource = address_of(await self.address(), path)
        return resource, sign(resource, policy, key, expires_at_s)

    def connection_string(self, policy: str, key: str, entity: str | None = None) -> str:
        """What an application is given that uses a policy of the namespace, or an entity's own."""
        parts = [f"Endpoint={self.target.audience()}", f"SharedAccessKeyName={policy}", f"SharedAccessKey={key}"]
        if entity is not None:
            parts.append(f"EntityPath={entity}")
        if not self.target.tls:
            parts.append("UseDevelopmentEmulator=true")
        return ";".join(parts)


def namespace(connection_string: str | None, ca: Path | str | None = None, http_port: int | None = None) -> Namespace:
    """The namespace that the options name; a PromptError that says what is missing."""
    if not connection_string:
        raise PromptError(f"No namespace is named: give --connection-string or set {VARIABLES[0]}.")
    try:
        target = ConnectionString.parse(connection_string)
    except ValueError as problem:
        raise PromptError(f"This will not do: {problem}.") from None
    http_port = http_port or int(os.environ.get(PORT_VARIABLE) or 0) or None
    return Namespace(target, http_address(target, http_port) if http_port else None, trusting(ca))


def _in_local_pair(target: ConnectionString) -> str | None:
    """Where `twinbus up` has put the administration of a namespace, if it is one of that pair."""
    from twinbus.local import LocalPair, StartError

    try:
        pair = LocalPair(Path(os.environ.get("TWINBUS_UP") or Path.home() / ".twinbus"))
    except StartError:
        return None
    for role in ("primary", "secondary"):
        told = pair.connection_string(role)
        if told is not None and (target.port, target.key) == _door(told):
            return pair.http_address(role)
    return None


def _door(connection_string: str) -> tuple[int, str | None]:
    found = ConnectionString.parse(connection_string)
    return found.port, found.key


def trusting(ca: Path | str | None) -> ssl.SSLContext | None:
    """The authorities in a file; None for those of the system."""
    if ca is None:
        return None
    try:
        return ssl.create_default_context(cafile=ca)
    except (OSError, ssl.SSLError) as problem:
        raise PromptError(f"The authorities in '{ca}' cannot be read: {problem}.") from None
