"""`twinbus certs`: a local certificate authority and a host certificate, for TLS on a developer's machine.

The certificates themselves are made in `broker.certs`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def certs(
    directory: Annotated[Path, typer.Argument(help="Where to put ca.pem, host.pem and host.key.")],
    host: Annotated[list[str] | None, typer.Option(help="A further host name or address; may be repeated.")] = None,
    force: Annotated[bool, typer.Option(help="Replace a host certificate that is there.")] = False,
) -> None:
    """Make a local CA and a certificate for localhost that `twinbus serve --tls DIRECTORY` can use."""
    from twinbus.broker.certs import CertificatesError, make_certificates

    try:
        made = make_certificates(directory, host or [], force=force)
    except CertificatesError as problem:
        typer.echo(f"twinbus: {problem}", err=True)
        raise typer.Exit(1) from None
    typer.echo(f"Certificate authority  {made.ca}")
    typer.echo(f"Host certificate       {made.certificate}")
    typer.echo(f"Its key                {made.key}")
    typer.echo(
        "Clients must trust the authority: for example connection_verify=ca.pem in Python, NODE_EXTRA_CA_CERTS in Node."
    )
