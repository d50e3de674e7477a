"""Hybrid Connections: the relay on the broker's HTTP port, and clients that listen at or call through two relays.

Entities and rights are kept by `entities` and checked by `wire`; no store is known here.
"""

from twinbus.relay.calling import RelayClient, RelayError
from twinbus.relay.endpoint import RelayEndpoint
from twinbus.relay.listening import RelayListener
from twinbus.relay.messages import RelayedRequest, RelayedResponse

__all__ = ["RelayClient", "RelayEndpoint", "RelayError", "RelayListener", "RelayedRequest", "RelayedResponse"]
