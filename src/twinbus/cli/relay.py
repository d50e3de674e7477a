"""`twinbus relay`: a local HTTP server made reachable through one relay or two, and calls to what others made so.

The clients in `twinbus.relay` do the work; these commands read their options and show what comes of it.
"""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from twinbus.cli.connection import CaOption, ConnectionOption, HttpPortOption, Namespace, namespace
from twinbus.cli.running import PromptError, command

if TYPE_CHECKING:
    from twinbus.relay import RelayEndpoint

relay = typer.Typer(name="relay", help="Services behind a relay.", no_args_is_help=True)

PathOption = Annotated[str, typer.Option(help="The hybrid connection's name.", show_default=False)]
SecondOption = Annotated[
    str | None,
    typer.Option(help="A second namespace, by connection string.", envvar="TWINBUS_SECOND_CONNECTION_STRING"),
]
SecondPathOption = Annotated[str | None, typer.Option(help="The hybrid connection's name in the second namespace.")]
SecondPortOption = Annotated[
    int | None, typer.Option(min=1, max=65535, help="Administration port of the second namespace.")
]
CreateOption = Annotated[bool, typer.Option("--create", help="Create the hybrid connections that are missing.")]
MethodOption = Annotated[str, typer.Option("--method", "-X", help="The request's method.")]
DataOption = Annotated[str | None, typer.Option("--data", "-d", help="The request's body; `-` reads standard input.")]
HeaderOption = Annotated[
    list[str] | None, typer.Option("--header", "-H", help="A header as `NAME: VALUE`; may be repeated.")
]
ReissueOption = Annotated[
    bool, typer.Option("--reissue", help="Issue the request again if the service may have had it already.")
]


async def _places(
    first: Namespace, path: str, second: str | None, second_path: str | None, second_port: int | None
) -> list[tuple[Namespace, RelayEndpoint]]:
    if (second is None) != (second_path is None):
        raise PromptError("A second endpoint needs both: --second-connection-string and --second-path.")
    found = [(first, await _endpoint(first, path))]
    if second is not None and second_path is not None:
        other = namespace(second, None, second_port)
        found.append((other, await _endpoint(other, second_path)))
    return found


async def _endpoint(place: Namespace, path: str) -> RelayEndpoint:
    from twinbus.model.errors import BusError
    from twinbus.relay import RelayEndpoint

    url = f"{await place.address()}/{path.strip('/')}"
    try:
        return RelayEndpoint(url, place.target.policy or "", place.target.key or "")
    except BusError as problem:
        raise PromptError(problem.text) from None


@relay.command("expose")
@command
async def expose(
    url: Annotated[str, typer.Argument(metavar="URL", help="The HTTP server, as http://localhost:8000.")],
    path: PathOption,
    create: CreateOption = False,
    second_connection_string: SecondOption = None,
    second_path: SecondPathOption = None,
    second_http_port: SecondPortOption = None,
    connection_string: ConnectionOption = None,
    ca: CaOption = None,
    http_port: HttpPortOption = None,
) -> None:
    """Make a local HTTP server reachable through a relay, or through two at once, until it is interrupted."""
    from twinbus.model.errors import BusError
    from twinbus.relay import RelayedRequest, RelayedResponse, RelayListener
    from twinbus.relay.serving import http_server

    first = namespace(connection_string, ca, http_port)
    places = await _places(first, path, second_connection_string, second_path, second_http_port)
    if create:
        for place, endpoint in places:
            await _create(place, endpoint.path)
    endpoints = [endpoint for _, endpoint in places]
    async with http_server(url) as pass_on:

        async def handle(request: RelayedRequest) -> RelayedResponse:
            response = await pass_on(request)
            typer.echo(f"{request.method} {request.below} {response.status}", err=True)
            return response

        try:
            listener = RelayListener(endpoints, handle, tls=first.tls)
        except BusError as problem:
            raise PromptError(problem.text) from None
        async with listener:
            await listener.listening(0)
            for endpoint in endpoints:
                typer.echo(f"{url} is reachable at {endpoint.url}")
            await asyncio.Event().wait()


@relay.command("call")
@command
async def call(
    path: PathOption,
    target: Annotated[str, typer.Argument(metavar="[TARGET]", help="What follows the name in the address.")] = "",
    method: MethodOption = "GET",
    data: DataOption = None,
    header: HeaderOption = None,
    reissue: ReissueOption = False,
    second_connection_string: SecondOption = None,
    second_path: SecondPathOption = None,
    second_http_port: SecondPortOption = None,
    connection_string: ConnectionOption = None,
    ca: CaOption = None,
    http_port: HttpPortOption = None,
) -> None:
    """Call a service through a relay, or through the one of two that works; prints the body of its answer."""
    from twinbus.model.errors import BusError
    from twinbus.relay import RelayClient, RelayError

    first = namespace(connection_string, ca, http_port)
    places = await _places(first, path, second_connection_string, second_path, second_http_port)
    body = sys.stdin.buffer.read() if data == "-" else (data or "").encode()
    pairs = [text.partition(":") for text in header or []]
    headers = {name.strip(): value.strip() for name, _, value in pairs}
    try:
        async with RelayClient(*(endpoint for _, endpoint in places), tls=first.tls) as client:
            response = await client.request(method, target, headers=headers, body=body, reissue=reissue or None)
    except BusError as problem:
        raise PromptError(problem.text) from None
    except RelayError as problem:
        raise PromptError(f"No relay brought an answer: {problem}") from None
    sys.stdout.buffer.write(response.body)
    sys.stdout.buffer.flush()
    if response.status >= 400:
        raise PromptError(f"The service answered {response.status} {response.reason}.")


async def _create(place: Namespace, path: str) -> None:
    from twinbus.client.upkeep import create_hybrid_connection

    async with place.administer() as administration:
        await create_hybrid_connection(administration, path)
