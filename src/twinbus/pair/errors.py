"""What a pair raises in addition to the SDK's own errors.

They are Service Bus errors too, so that an application that handles those handles these.
"""

from __future__ import annotations

from twinbus.pair.sdk.errors import ServiceBusError


class PairError(ServiceBusError):
    """What all errors of a pair have in common."""


class PairingError(PairError):
    """The pair could not be made: no name for the primary, or no backlog queue."""


class ReplacementError(PairError):
    """A pair is not moved to another primary: what is in the way. Nothing was changed by then."""


class BacklogError(PairError):
    """A message could not be diverted: no backlog queue took it. Whether it is in one is not always known."""


class RefusedError(PairError):
    """The primary refuses pings for a reason that will not pass, so that sends are not diverted either."""


class NotWhileDivertedError(PairError):
    """What only the primary can do, asked for while sends are diverted."""


class PartnerError(PairError):
    """One of the pair's two namespaces was closed, or failed for good, so that neither is used any more."""


class OutboxError(PairError):
    """The outbox could not be used: its file or database refuses, or it is closed. Nothing was put into it."""


class OutboxFullError(OutboxError):
    """The outbox has no room: it holds as many messages or bytes as it may, its oldest has waited too long, or the
    disk is full. Nothing was put into it."""


class LedgerError(PairError):
    """The ledger could not be asked or written, so that nothing is handed out or settled on its word."""


class AlreadyDoneError(PairError):
    """The work on a message was done by somebody else; raised inside the application's transaction to undo it."""


class NotReplicatedError(PairError):
    """What cannot be done in two namespaces at once."""
