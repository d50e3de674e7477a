"""A namespace as the pair sees it: the one interface through which messages are sent, fetched, settled and looked for.

Two adapters implement it: `own_client` over our own client, `sdk.namespace` over the official one. Both take and give
encoded messages and raise `ClientError`, so that the rest of the pair need not know which one it has. One suite holds
them to this (tests/pair/test_namespace_port.py). Where messages go is decided by `route`.

A failure is of one of three kinds; `transient` says for each whether waiting helps, and for several messages `failed`
has an error for each that failed, by position.

    kind      definite  is_local  for example
    not sent  yes       yes       nobody listens, connections are refused
    refused   yes       no        no such entity, too large; disabled, busy (there waiting helps)
    unknown   no        either    the connection broke, or nobody spoke, after the transfer; a store failed
"""

from __future__ import annotations

import re
import socket
import ssl
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from enum import Enum
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from twinbus.client import ConnectionString, upkeep
from twinbus.client.doors import http_address, is_usual
from twinbus.client.errors import ENDED, ClientError
from twinbus.client.hearing import Heard, What
from twinbus.model.message import Outcome
from twinbus.pair.namespace.shared_attempt import SharedAttempt
from twinbus.pair.namespace.soundness import Sign

if TYPE_CHECKING:
    from twinbus.client.atom import Administration

ATTEMPT_TIMEOUT_S = 10.0


class Received(Protocol):
    """A message that was fetched under a lock; only its receiver knows what else is in it."""

    @property
    def payload(self) -> bytes: ...


class Receiver(Protocol):
    """A link that fetches messages of one entity, or of one session of it. It gets what it asks for, nothing more."""

    path: str
    session_id: str | None

    async def receive(self, max_count: int, timeout_s: float | None = None) -> Sequence[Received]: ...

    async def settle(
        self,
        messages: Sequence[Any],
        outcome: Outcome = Outcome.COMPLETE,
        *,
        reason: str | None = None,
        description: str | None = None,
    ) -> None: ...

    async def close(self) -> None: ...


class BrokerFacts(NamedTuple):
    """What a broker says of itself when a connection is opened."""

    is_twinbus: bool  # A broker of ours, which has extensions that the service has not.
    http_port: int | None
    namespace: str = ""  # Its name and its id, where it says them.
    namespace_id: str = ""


class Identity(NamedTuple):
    """Who a namespace is, whatever its address."""

    name: str
    id: str  # Empty where nobody says it.


class ClientState(Enum):
    """Whether one of the two clients of a pair can be used."""

    OPEN = "open"
    CLOSED = "closed"
    FAULTED = "faulted"


class RemoteNamespace(ABC):
    """A namespace that messages are sent to and fetched from; opened when needed, reopened when lost."""

    def __init__(
        self,
        role: str,
        target: ConnectionString,
        *,
        tls: ssl.SSLContext | None = None,
        http_address: str | None = None,
        timeout_s: float = ATTEMPT_TIMEOUT_S,
    ) -> None:
        """`role` is the word that people read: primary, secondary, namespace."""
        self.role = role
        self.target = target
        self.state = ClientState.OPEN
        self.reason: Exception | None = None  # Why it is faulted.
        self.ends_with_partner = False  # Where a syphon runs: nothing is opened here any more when it is not open.
        self.on_doubt: Callable[[RemoteNamespace, What], None] | None = None  # In any thread: its client may be broken.
        self.timeout_s = timeout_s
        self._tls = tls
        self._http_address = http_address
        self._facts: BrokerFacts | None = None
        self._asking = SharedAttempt(self.ask)
        self._taken = Heard(What.TOKEN_TAKEN)  # The last token that it took; without a path none yet.
        self._refused_path = ""

    def __repr__(self) -> str:
        return f"<{self.role} {self.target.host}:{self.target.port} {self.state.value}>"

    @property
    def address(self) -> tuple[str, int]:
        """Host and port."""
        return self.target.host, self.target.port

    # Messages

    @abstractmethod
    async def send(
        self, path: str, payloads: Sequence[bytes], *, timeout_s: float | None = None, together: bool = False
    ) -> None:
        """Have an entity take encoded messages, each by itself or all `together` in one transfer, within the time."""

    @abstractmethod
    async def be_there(self) -> None:
        """A ClientError if it is certain that nobody is: what would be sent now might arrive when it is sent again."""

    @property
    def slow_s(self) -> float:
        """How long a send waits for an answer that is only slow, where nothing else can be done with its messages."""
        return self.timeout_s

    @abstractmethod
    async def message_bytes_max(self, path: str) -> int | None:
        """The largest message that an entity takes; None if the broker does not say."""

    @abstractmethod
    async def receiver(self, path: str) -> Receiver:
        """A receiver under lock from an entity."""

    @abstractmethod
    async def session_receiver(self, path: str, wait_s: float) -> Receiver:
        """A receiver of the next session that is free; a ClientError (`com.microsoft:timeout`) if there is none."""

    @abstractmethod
    async def renew_session(self, receiver: Receiver) -> None:
        """Keep the session of a receiver locked for longer."""

    @abstractmethod
    async def peek(self, path: str, session_id: str) -> bool:
        """Whether a session has a message, one that is locked included."""

    @abstractmethod
    async def ping(self, path: str, payload: bytes) -> None:
        """Send one message over a connection of its own, so that no old one stands for a new one."""

    @abstractmethod
    async def probe(self, path: str, payload: bytes) -> None:
        """Schedule one message over a connection of its own, and cancel it at once."""

    @abstractmethod
    async def ask(self) -> BrokerFacts:
        """Open a connection of its own and close it again; a ClientError if nobody answers."""

    @abstractmethod
    async def show_token(self, path: str) -> tuple[Sign, str]:
        """Put a token for an entity over a connection of its own; what that shows, and the namespace's id where said.

        Raises nothing for what a namespace does.
        """

    @abstractmethod
    async def close(self) -> None:
        """Let go of the connections; they are opened again when they are needed."""

    # Administration

    async def administer(self) -> AbstractAsyncContextManager[Administration]:
        """The administration, at the address that was given, that the broker tells, or that is usual."""
        from twinbus.client.atom import administer  # aiohttp takes a while, and a sender never needs it.

        self.check_open()
        address = await self.http_address()
        return administer(self.target, address, tls=self._tls, timeout_s=self.timeout_s, listener=self.hear)

    async def facts(self) -> BrokerFacts:
        """What the broker says of itself, asked once."""
        return await self.ask_together() if self._facts is None else self._facts

    async def ask_together(self) -> BrokerFacts:
        """What the broker says now; a ClientError if nobody answers. Those who ask at the same time share a connection.

        One that could not be opened counts for all of them.
        """
        self._facts = await self._asking.get()
        return self._facts

    @property
    def has_answered(self) -> bool:
        """Whether it answered when it was last asked what it is."""
        return self._facts is not None

    async def is_twinbus(self) -> bool:
        """Whether the namespace is a broker of ours."""
        return (await self.facts()).is_twinbus

    async def http_address(self) -> str:
        """Where the namespace is administered."""
        if self._http_address is None:
            port = None if is_usual(self.target) else (await self.facts()).http_port
            self._http_address = http_address(self.target, port)
        return self._http_address

    @property
    def name_in_host(self) -> str | None:
        """The namespace's name where the host says it: Azure's hosts do."""
        label, _, rest = self.target.host.partition(".")
        return label if rest.endswith("servicebus.windows.net") and not _is_address(self.target.host) else None

    async def name(self) -> str:
        """The namespace's name."""
        return (await self.identity()).name

    async def identity(self, *, anew: bool = False) -> Identity:
        """Who it is: in the service the host says it, a broker of ours is asked; `anew`, as another may have its place.

        The names of hosts in the service are everybody's, so that one is an id as well.
        """
        if (label := self.name_in_host) is not None:
            return Identity(label, self.target.host.lower())
        if anew:
            self._facts = None
        facts = await self.facts()
        if facts.namespace:
            return Identity(facts.namespace, facts.namespace_id)
        async with await self.administer() as administration:
            name = (await administration.namespace()).name
            if not facts.is_twinbus:
                return Identity(name, "")
            return Identity(name, str((await upkeep.status(administration)).get("id") or ""))

    @property
    def reached_at(self) -> str:
        """Where it is reached, in a form that means the same to others: on one machine, with the machine's name."""
        host = self.target.host.lower()
        if host == "localhost" or (_is_address(host) and ip_address(host).is_loopback):
            host = socket.gethostname().lower()
        return f"{host}:{self.target.port}"

    @property
    def provisional_name(self) -> str:
        """What a namespace is called that nobody could ask for its name yet, by those who reach it at this address."""
        return provisional_name(self.reached_at)

    # Whether its client is sound

    def hear(self, heard: Heard) -> None:
        """What its connections hear, in any thread."""
        if heard.what is What.TOKEN_TAKEN:
            self._taken = heard
            return
        if heard.what is What.TOKEN_REFUSED:
            self._refused_path = heard.path
        if self.on_doubt is not None:
            self.on_doubt(self, heard.what)

    def took_token(self, path: str) -> None:
        """It took a token over a connection that is not ours."""
        self.hear(Heard(What.TOKEN_TAKEN, path, self._facts.namespace_id if self._facts is not None else ""))

    async def examine(self) -> Sign:
        """Show it the credential; what the answer says of the client.

        Where a token was taken before, one is put for that entity: a policy may be good for some entities only.
        """
        path = self._taken.path or self.target.entity_path or self._refused_path
        if not path:
            return Sign.SILENT
        known_id = self._taken.namespace_id
        sign, found_id = await self.show_token(path)
        return Sign.REPLACED if known_id and found_id and known_id != found_id else sign

    # The end

    @property
    def is_ended(self) -> bool:
        """Whether nothing may be opened here any more."""
        return self.ends_with_partner and self.state is not ClientState.OPEN

    def check_open(self) -> None:
        """Raises if nothing may be opened here any more."""
        if self.is_ended:
            raise ClientError(ENDED, f"the {self.role} is {self.state.value}, and is not used any more")

    def fault(self, reason: Exception) -> None:
        """It cannot be used any more."""
        if self.state is ClientState.OPEN:
            self.state, self.reason = ClientState.FAULTED, reason

    def mark_closed(self) -> None:
        """It was closed."""
        if self.state is ClientState.OPEN:
            self.state = ClientState.CLOSED


def provisional_name(reached_at: str) -> str:
    """An address as a part of a queue's name."""
    return re.sub(r"[^a-z0-9.-]", "-", reached_at)


def refuse_same(first: ConnectionString, second: ConnectionString) -> None:
    """A namespace cannot be paired with itself; behind one port a key says which namespace is meant."""
    if (first.host, first.port, first.policy, first.key) == (second.host, second.port, second.policy, second.key):
        raise ValueError("The primary and the secondary are the same namespace.")


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True
