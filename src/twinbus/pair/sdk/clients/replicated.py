"""How a replicated client is made, in both flavours alike, and how the SDK's classes have their work done elsewhere.

What is done is in `pair/replication`. The flavours (`replicated_sync`, `replicated_aio`) name the SDK's classes that
they stand on, and add how to wait.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar

from twinbus.client.connection_string import ConnectionString
from twinbus.pair.description import PairDescription, second_string
from twinbus.pair.ledger.tags import Tag
from twinbus.pair.namespace.port import refuse_same
from twinbus.pair.sdk import messages as sdk

ATTEMPTS = 2
ATTEMPT_TIMEOUT_S = 20.0
K = TypeVar("K")


class FromTwo:
    """The ways to make a client of two namespaces; each ends with two clients of the SDK and the settings."""

    sdk_client: ClassVar[Any]  # The SDK's own client, of the flavour's kind.

    @classmethod
    def _of(cls, *clients: Any, **settings: Any) -> Self:
        kind: Any = cls
        made: Self = kind(*clients, **settings)
        return made

    @classmethod
    def from_connection_strings(
        cls,
        primary: str,
        secondary: str,
        *,
        attempts: int = ATTEMPTS,
        attempt_timeout: float = ATTEMPT_TIMEOUT_S,
        client_settings: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> Self:
        """A client from two connection strings; `client_settings` are the SDK clients' own."""
        refuse_same(ConnectionString.parse(primary), ConnectionString.parse(secondary))
        settings = sdk.bounded(attempts, attempt_timeout) | dict(client_settings or {})
        clients = (sdk.new_client(cls.sdk_client, each, settings) for each in (primary, secondary))
        return cls._of(*clients, **kwargs)

    @classmethod
    def from_description(
        cls,
        description: PairDescription | Path | str | None = None,
        *,
        client_settings: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> Self:
        """A client of two namespaces as a TOML file describes them, or without one the environment.

        Of the options it takes `attempts`, `attempt_timeout` and `preset`; see docs/pairing.md.
        """
        pair = PairDescription.read(description)
        namespaces = (pair.primary, pair.secondary)
        refuse_same(*(ConnectionString.parse(namespace.connection_string) for namespace in namespaces))
        settings = sdk.bounded(pair.options.attempts, pair.options.seconds("attempt_timeout"))
        settings |= dict(client_settings or {})
        clients = (sdk.new_client(cls.sdk_client, each.connection_string, settings, each.ca) for each in namespaces)
        given: dict[str, Any] = {"entities": pair.entities, "preset": pair.options.preset}
        given |= {} if pair.tag == Tag() else {"tag": pair.tag}
        if pair.primary.name and pair.secondary.name:
            given["names"] = (pair.primary.name, pair.secondary.name)
        return cls._of(*clients, **{**given, **kwargs})

    @classmethod
    def from_connection_string(cls, conn_str: str, *, secondary: str | None = None, **kwargs: Any) -> Self:
        """A client from one connection string; without `secondary` the other is in TWINBUS_SECONDARY."""
        return cls.from_connection_strings(conn_str, second_string(secondary, cls.__name__), **kwargs)


def done_by(
    worker: type, attribute: str, names: tuple[str, ...], wait: Callable[[Any, Any], Any] = lambda self, work: work
) -> Callable[[type[K]], type[K]]:
    """For a class of the SDK's: these of its methods are done by the `worker` that each object has as an attribute.

    `wait` says how an object waits for what its worker does. To type checkers the methods remain the SDK's own.
    """

    def decorate(kind: type[K]) -> type[K]:
        for name in names:
            setattr(kind, name, _done_by(getattr(worker, name), attribute, wait))
        return kind

    return decorate


def _done_by(method: Callable[..., Any], attribute: str, wait: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        return wait(self, method(getattr(self, attribute), *args, **kwargs))

    return call
