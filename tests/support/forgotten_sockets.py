"""The official client forgets the socket of a connection that broke off. Here it is closed when its owner is gone.

Python would warn of it whenever it comes to collect it: in a later test, or after the last one, where a warning ends
the whole run. A socket that we forget ourselves is still warned of.
"""

from __future__ import annotations

import socket
import weakref
from asyncio import StreamWriter
from typing import Any

from aiohttp import ClientSession
from azure.servicebus._pyamqp._transport import _AbstractTransport
from azure.servicebus._pyamqp.aio._transport_async import AsyncTransport, WebSocketTransportAsync


class Held:
    """An attribute whose value outlives its object by one call, which closes it.

    Both are mostly part of one cycle, of which Python collects what it likes first; so the value must not be in it.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else instance.__dict__[self.name].get("value")

    def __set__(self, instance: Any, value: object) -> None:
        if self.name not in instance.__dict__:
            instance.__dict__[self.name] = {}
            weakref.finalize(instance, _close, instance.__dict__[self.name]).atexit = False
        instance.__dict__[self.name]["value"] = value


def _close(held: dict[str, object]) -> None:
    value = held.get("value")
    if isinstance(value, socket.socket):
        value.close()
    elif isinstance(value, StreamWriter):
        transport: Any = value.transport
        try:
            transport.abort()
        except RuntimeError:  # Its loop is closed, so that nobody would call it back.
            transport = transport._ssl_protocol._transport if hasattr(transport, "_ssl_protocol") else transport
            transport._sock.close()
            transport._sock = None
    elif isinstance(value, ClientSession) and not value.closed:
        value.detach()  # It was for one connection, which could not be made.


def close_when_forgotten() -> None:
    """For all transports of the client from now on."""
    _AbstractTransport.sock = Held("sock")
    AsyncTransport.writer = Held("writer")
    WebSocketTransportAsync.session = Held("session")
