"""What commits did, in numbers that only grow: messages that came, went and ended, and operations as they are billed.

Counts the groups of a journal's page when its commit is durable, so that a message costs nothing; what the numbers are
called outside is `model.metrics`' business, and money the pipeline's.
"""

from __future__ import annotations

from collections import Counter

from twinbus.store.journal import JournalPage

UNIT_BYTES = 65_536
_OWN_CLIENTS = frozenset({"broker", "forward", "topic"})

# What clients did, by what the journal calls it.
_BY_CLIENTS = {
    "send": "stored",
    "schedule": "stored",
    "receive": "delivered",
    "receive_delete": "delivered",
    "complete": "completed",
    "abandon": "abandoned",
    "release": "abandoned",
    "defer": "deferred",
}
# What happens to messages whoever caused it.
_BY_ANYBODY = {
    "deadletter": "deadlettered",
    "transfer_deadletter": "deadlettered",
    "ttl_expire": "expired",
    "expire_lock": "lock_expired",
}
EVENTS = tuple(dict.fromkeys([*_BY_CLIENTS.values(), *_BY_ANYBODY.values(), "duplicate_dropped"]))

# The kinds that `pipeline.costs.metering` counts afterwards from the journal's files; a test holds both together.
_KINDS = {
    **dict.fromkeys(("relay_connect", "relay_request", "relay_response"), "relayed"),
    "relay_listen": "listener",
    "send": "send",
    "schedule": "schedule",
    "cancel": "cancel",
    "receive": "receive",
    "receive_delete": "receive",
    **dict.fromkeys(("complete", "abandon", "release", "defer", "deadletter", "forward"), "settle"),
    **dict.fromkeys(("renew", "renew_session"), "renew"),
    **dict.fromkeys(("get_session_state", "set_session_state", "list_sessions"), "session"),
    "peek": "peek",
    "delete": "delete",
    "connect": "connect",
    "manage": "manage",
}
_NEVER_OWN = frozenset({"relayed", "listener"})
_SIZED = frozenset({"relayed", "forward", "ping", "send", "schedule", "receive"})
KINDS = tuple(dict.fromkeys([*_KINDS.values(), "forward", "ping", "refused", "empty_receive"]))


class Sums:
    """The sums of one store. Written by its thread, read by anybody."""

    __slots__ = ("billable", "events")

    def __init__(self) -> None:
        self.events: Counter[str] = Counter()
        self.billable: Counter[str] = Counter()

    def add(self, page: JournalPage) -> None:
        """A commit is durable that journaled this page."""
        for group in page.groups:
            operation, queue, connection, client, outcome, ids = group[:6]
            times = len(ids)
            if type(queue) is list:
                continue  # Copies of what was published: nobody sent them.
            tracking_id, more = group[9:] if len(group) == 11 else ("", 1)
            times *= more
            own = not connection and client in _OWN_CLIENTS
            if (name := _BY_ANYBODY.get(operation)) is not None:
                self.events[name] += times
                if name == "expired" and outcome == "deadletter":
                    self.events["deadlettered"] += times
            elif not own and (name := _BY_CLIENTS.get(operation)) is not None:
                self._count(name, outcome, tracking_id, times)
            kind = kind_of(operation, connection, client, outcome, tracking_id)
            if kind is not None:
                self.billable[kind] += _units(group[8], len(ids)) * more if kind in _SIZED else times

    def _count(self, name: str, outcome: str, tracking_id: str, times: int) -> None:
        if (name == "stored" and tracking_id) or outcome in ("empty", "published"):
            return
        self.events[name] += times
        if name == "stored" and outcome == "duplicate":
            self.events["duplicate_dropped"] += times


def kind_of(operation: str, connection: str, client: str, outcome: str, tracking_id: str) -> str | None:
    """The kind of a billable operation; None for what the broker did by itself."""
    kind = _KINDS.get(operation)
    if kind in _NEVER_OWN:
        return kind
    if not connection and client in _OWN_CLIENTS:
        return "forward" if client == "forward" and operation == "send" else None
    if outcome in ("MaxDeliveryCountExceeded", "published"):
        return None
    if operation == "send":
        return "ping" if outcome == "ping" else "refused" if tracking_id else "send"
    return "empty_receive" if operation == "receive" and outcome == "empty" else kind


def _units(sizes: int | list[int], count: int) -> int:
    """How many operations carry so many messages: one for each 64 KB that one has."""
    if isinstance(sizes, int):
        return max(1, -(-sizes // UNIT_BYTES)) * count
    return count if max(sizes) <= UNIT_BYTES else sum(max(1, -(-size // UNIT_BYTES)) for size in sizes)
