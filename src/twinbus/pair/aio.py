"""The pair for asyncio: the public names.

The classes live in `twinbus.pair.sdk`.
"""

from twinbus.model.extras import needing

with needing("azure.servicebus"):
    from twinbus.pair.ledger.ledger import AsyncLedger as Ledger
    from twinbus.pair.options import SendAvailabilityOptions
    from twinbus.pair.outbox.client import AsyncOutboxClient as OutboxClient
    from twinbus.pair.sdk.clients.aio import PairedSender, PairedServiceBusClient
    from twinbus.pair.sdk.clients.replicated_aio import ReplicatedClient

__all__ = [
    "Ledger",
    "OutboxClient",
    "PairedSender",
    "PairedServiceBusClient",
    "ReplicatedClient",
    "SendAvailabilityOptions",
]
