"""Ports that no other test gets: each process of the tests has a block of them to itself.

Between finding a port and using it, and while a broker is down, a port is free for everyone. So a process keeps a block
by listening on its first port for as long as it lives, and takes every port from there.
"""

from __future__ import annotations

import atexit
import os
import random
import socket
from contextlib import ExitStack, suppress

# Below the ports that the system gives to those who connect, and beside those that a drill takes for its brokers.
FIRST, LAST = 10_000, 20_000
BLOCK = 200

_held: dict[int, tuple[socket.socket, list[int]]] = {}  # By process, because a fork must not share.


def _ports_of_this_process() -> list[int]:
    """The ports of its block; those at the front were used longest ago."""
    if os.getpid() not in _held:
        starts = list(range(FIRST, LAST, BLOCK))
        random.shuffle(starts)
        for start in starts:
            with suppress(OSError):
                keeper = socket.create_server(("127.0.0.1", start))
                atexit.register(keeper.close)
                _held[os.getpid()] = keeper, list(range(start + 1, start + BLOCK))
                break
        else:
            raise RuntimeError(f"all blocks of ports between {FIRST} and {LAST} are taken")
    return _held[os.getpid()][1]


def free_ports(count: int) -> list[int]:
    """Ports of this machine that nobody listens on; they differ, and come again only after all others."""
    ports = _ports_of_this_process()
    with ExitStack() as sockets:
        found: list[int] = []
        for port in list(ports):
            if len(found) == count:
                break
            with suppress(OSError):
                sockets.enter_context(socket.create_server(("127.0.0.1", port)))
                found.append(port)
                ports.remove(port)
                ports.append(port)
        assert len(found) == count, "too few ports are free"
        return found
