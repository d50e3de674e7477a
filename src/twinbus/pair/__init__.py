"""Two namespaces as one: a client with the official SDK's methods that goes on sending when the primary is down.

`PairedServiceBusClient` here is synchronous; the one for asyncio is in `twinbus.pair.aio`.
"""

from twinbus.pair.board import Change, Scope
from twinbus.pair.core import PairStatus
from twinbus.pair.description import DescriptionError, PairDescription
from twinbus.pair.errors import (
    BacklogError,
    NotWhileDivertedError,
    PairError,
    PairingError,
    PartnerError,
    RefusedError,
)
from twinbus.pair.health import State
from twinbus.pair.options import SendAvailabilityOptions
from twinbus.pair.sync import PairedSender, PairedServiceBusClient

__all__ = [
    "BacklogError",
    "Change",
    "DescriptionError",
    "NotWhileDivertedError",
    "PairDescription",
    "PairError",
    "PairStatus",
    "PairedSender",
    "PairedServiceBusClient",
    "PairingError",
    "PartnerError",
    "RefusedError",
    "Scope",
    "SendAvailabilityOptions",
    "State",
]
