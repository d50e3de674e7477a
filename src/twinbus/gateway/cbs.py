"""The `$cbs` node: clients put tokens here, and each token that holds becomes a grant of the connection.

Whether a token is good is decided in `wire.access`; an entity that does not exist is told here, as the service does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from twinbus.amqp.link import Link
from twinbus.gateway.requests import RequestNode
from twinbus.model.errors import BusError, Fault
from twinbus.wire import access, address, sas
from twinbus.wire import management as wire

if TYPE_CHECKING:
    from twinbus.gateway.connection import ClientConnection

_STATUS = {Fault.ENTITY_NOT_FOUND: 404, Fault.ARGUMENT: 400, Fault.NOT_IMPLEMENTED: 501}


class CbsNode(RequestNode):
    """Takes put-token requests."""

    def __init__(self, connection: ClientConnection, link: Link) -> None:
        super().__init__(connection, link, "$cbs")

    def read(self, payload: bytes) -> wire.TokenRequest:
        """A put-token request."""
        return wire.read_token_request(payload)

    async def serve(self, request: wire.TokenRequest) -> bytes:
        """Check a token and remember what it grants."""
        context = self.connection.context
        try:
            audience = request.audience
            if not request.token.startswith(sas.PREFIX):
                raise BusError(Fault.AUTHENTICATION_FAILED, "Only shared access signatures are accepted here.")
            now_ms = context.clock.now_ms()
            grant = access.by_token(request.token, audience, context.namespace.rules_for, now_ms)
            self._check_entity(sas.path_of(audience))
        except BusError as error:
            refusal = context.refusal(error, "$cbs", "put-token")
            return wire.cbs_response(request.message_id, _STATUS.get(error.fault, 401), refusal.description or "")
        self.connection.put_grant(audience, grant)
        return wire.cbs_response(request.message_id, 202, "Accepted")

    def _check_entity(self, path: str) -> None:
        """A token for an entity that is not there is refused; one for the whole namespace is not about any."""
        if path:
            self.connection.context.namespace.entity(address.parse(path).entity_path)
