"""Two namespaces as one: a client with the official SDK's methods that goes on sending when the primary is down.

`PairedServiceBusClient` here is synchronous; the one for asyncio is in `twinbus.pair.aio`.
"""

from twinbus.model.extras import needing

with needing("azure.servicebus"):
    from twinbus.pair.core import PairStatus
    from twinbus.pair.description import DescriptionError, PairDescription
    from twinbus.pair.errors import (
        AlreadyDoneError,
        BacklogError,
        LedgerError,
        NotReplicatedError,
        NotWhileDivertedError,
        OutboxError,
        OutboxFullError,
        PairError,
        PairingError,
        PartnerError,
        RefusedError,
    )
    from twinbus.pair.ledger.ledger import Ledger
    from twinbus.pair.options import SendAvailabilityOptions
    from twinbus.pair.outbox.client import OutboxClient
    from twinbus.pair.outbox.outbox import Outbox
    from twinbus.pair.outbox.rows import Queued
    from twinbus.pair.route.health import State
    from twinbus.pair.route.health_board import Change, Scope
    from twinbus.pair.sdk.clients.replicated_sync import ReplicatedClient
    from twinbus.pair.sdk.clients.sync import PairedSender, PairedServiceBusClient

__all__ = [
    "AlreadyDoneError",
    "BacklogError",
    "Change",
    "DescriptionError",
    "Ledger",
    "LedgerError",
    "NotReplicatedError",
    "NotWhileDivertedError",
    "Outbox",
    "OutboxClient",
    "OutboxError",
    "OutboxFullError",
    "PairDescription",
    "PairError",
    "PairStatus",
    "PairedSender",
    "PairedServiceBusClient",
    "PairingError",
    "PartnerError",
    "Queued",
    "RefusedError",
    "ReplicatedClient",
    "Scope",
    "SendAvailabilityOptions",
    "State",
]
