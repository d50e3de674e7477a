"""Listening for HTTP: binds an application to a port, with or without TLS, within limits of size and time.

What is answered is `app`'s business; certificates are handed in as a context.
"""

from __future__ import annotations

import logging
import ssl

from aiohttp import web

KEEPALIVE_S = 75.0
SHUTDOWN_S = 0.5  # For answers that are on their way; who waits for a message is not kept waiting.
HEADER_LINE_BYTES_MAX = 16_384  # A token may have 8 KiB, and a forwarding queue sends three.

# aiohttp logs what it cannot read with a traceback and the bytes, in which there may be a token. Whoever sent them is
# told, and defects of ours are logged by `app`.
_quiet = logging.getLogger("twinbus.admin.http")
_quiet.setLevel(logging.CRITICAL)


async def start_http(
    app: web.Application, host: str, port: int, ssl_context: ssl.SSLContext | None = None
) -> web.AppRunner:
    """Serve an application; `bound_port` tells which port it got, and the runner's `cleanup` ends it."""
    runner = web.AppRunner(
        app,
        access_log=None,
        logger=_quiet,
        handle_signals=False,
        keepalive_timeout=KEEPALIVE_S,
        shutdown_timeout=SHUTDOWN_S,
        max_field_size=HEADER_LINE_BYTES_MAX,
        # Nobody compresses a description; a body that must be inflated is refused by the door.
        auto_decompress=False,
    )
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port, ssl_context=ssl_context).start()
    except BaseException:
        await runner.cleanup()
        raise
    return runner


def bound_port(runner: web.AppRunner) -> int:
    """The port that a started runner listens on."""
    port: int = runner.addresses[0][1]
    return port
