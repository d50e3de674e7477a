"""What goes on inside a namespace, for its operators: connections, what was refused lately, limits against use.

Names of policies are told, and never a key. What the process itself uses is asked of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol

from twinbus.admin.asked import Asked, Document
from twinbus.entities.namespace import Namespace
from twinbus.entities.subscription import Subscription
from twinbus.model import limits
from twinbus.model.security import Rights
from twinbus.model.topic import SUBSCRIPTIONS_MAX

_SHARED = (
    "The stores are databases that several gateways can share, and each gateway knows only what it did itself:"
    " reconcile proves the whole from the journals."
)


class Balance(Protocol):
    """The line of one messaging store since it was opened, in copies by how they came and went."""

    @property
    def since_ms(self) -> int: ...

    @property
    def held_at_start(self) -> int: ...

    @property
    def created(self) -> Mapping[str, int]: ...

    @property
    def ended(self) -> Mapping[str, int]: ...

    @property
    def held(self) -> Mapping[str, int]: ...

    @property
    def delta(self) -> int:
        """What the right side has too much."""
        ...


class Process(Protocol):
    """The process as an operator asks it."""

    def connections(self) -> Sequence[Mapping[str, Any]]:
        """Who is connected."""
        ...

    def usage(self) -> Mapping[str, Any]:
        """What the process uses."""
        ...

    async def balance(self) -> Sequence[Balance] | None:
        """The line of each store; None where this process does not know all that happens to them."""
        ...


class InsideRoutes:
    """The routes about the inside of a namespace."""

    def __init__(self, namespace: Namespace, process: Process, instant: Callable[[int], str]) -> None:
        self._namespace = namespace
        self._process = process
        self._instant = instant
        self.routes: dict[tuple[str, str], Callable[[Asked], Awaitable[Document]]] = {
            ("GET", "connections"): self._connections,
            ("GET", "errors"): self._errors,
            ("GET", "usage"): self._usage,
            ("GET", "balance"): self._balance,
        }

    async def _connections(self, asked: Asked) -> Document:
        told = []
        for connection in self._process.connections():
            since_ms = connection["since_ms"]
            shown = {key: value for key, value in connection.items() if key != "since_ms"}
            told.append({**shown, "since": None if since_ms is None else self._instant(since_ms)})
        return {"connections": told}

    async def _errors(self, asked: Asked) -> Document:
        """The latest first; of one tracking id, or those in which a text occurs."""
        asked.only("filter")
        part = asked.text("filter").lower()
        found = [
            {
                "at": self._instant(refusal.at_ms),
                "code": refusal.code,
                "message": refusal.text,
                "entity": refusal.entity,
                "tracking_id": refusal.tracking_id,
            }
            for refusal in reversed(self._namespace.refusals)
            if not part or any(part in text.lower() for text in refusal[1:])
        ]
        return {"errors": found}

    async def _usage(self, asked: Asked) -> Document:
        namespace = self._namespace
        policies = [
            {"name": rule.name, "rights": [str(right.name).capitalize() for right in Rights if right in rule.rights]}
            for rule in namespace.rules
        ]
        return {"policies": policies, "limits": self._limits(), **self._process.usage()}

    async def _balance(self, asked: Asked) -> Document:
        """The conservation line: held at the start and created is ended and held now, and `delta` is 0."""
        lines = await self._process.balance()
        if lines is None:
            return {"told": False, "why": _SHARED}
        if not lines:
            return {"told": False, "why": "No messaging store answers."}
        return {
            "told": True,
            "since": self._instant(min(line.since_ms for line in lines)),
            "stores": len(lines),
            "held_at_start": sum(line.held_at_start for line in lines),
            "created": _summed([line.created for line in lines]),
            "ended": _summed([line.ended for line in lines]),
            "held": _summed([line.held for line in lines]),
            "delta": sum(line.delta for line in lines),
        }

    def _limits(self) -> list[Document]:
        namespace = self._namespace
        entities = namespace.entities()
        subscribed = [len(topic.subscriptions()) for topic in namespace.topics()]
        own = [entity for entity in entities if not isinstance(entity, Subscription)]
        used = {
            "queues and topics": (len(own), limits.ENTITIES_MAX),
            "partitioned entities": (
                sum(entity.is_partitioned for entity in own),
                limits.PARTITIONED_ENTITIES_MAX,
            ),
            "subscriptions of one topic": (max(subscribed, default=0), SUBSCRIPTIONS_MAX),
            "policies of the namespace": (len(namespace.rules), limits.AUTHORIZATION_RULES_MAX),
            "connections": (len(self._process.connections()), limits.CONNECTIONS_MAX),
        }
        return [{"name": name, "used": count, "most": most} for name, (count, most) in used.items()]


def _summed(sides: Sequence[Mapping[str, int]]) -> dict[str, int]:
    summed: Counter[str] = Counter()
    for side in sides:
        summed.update(side)
    return dict(summed)
