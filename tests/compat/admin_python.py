"""The official Python administration client in both flavours behind one face, for the modules that judge by it.

Making and closing clients is `conftest_admin`'s part, which has the broker.
"""

from __future__ import annotations

import asyncio
import datetime
from collections.abc import Callable
from typing import Any

import azure.servicebus.aio.management
import azure.servicebus.management

# As the client reads the longest duration: its timedelta rounds.
UNLIMITED = datetime.timedelta(days=10675199, seconds=10085, microseconds=477581)


class Admin:
    """One flavour of the client; every call is a coroutine, and every list a list."""

    def __init__(self, flavour: str, endpoint: Any, connection_string: str, **options: Any) -> None:
        module = azure.servicebus.management if flavour == "sync" else azure.servicebus.aio.management
        self.flavour = flavour
        self.inner = module.ServiceBusAdministrationClient.from_connection_string(
            connection_string, connection_verify=str(endpoint.ca_file), **options
        )

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.inner, name)

        async def call(*args: Any, **kwargs: Any) -> Any:
            if self.flavour == "sync":
                listing = name.startswith("list_")
                return await asyncio.to_thread(
                    lambda: list(method(*args, **kwargs)) if listing else method(*args, **kwargs)
                )
            if name.startswith("list_"):
                return [item async for item in method(*args, **kwargs)]
            return await method(*args, **kwargs)

        return call


Connect = Callable[..., Admin]
