"""The `$cbs` node: clients put tokens here, and each token that holds becomes a grant of the connection.

Whether a token is good is decided in `wire.access`, and which namespace it is for in `choosing`; an entity that does
not exist is told here, as the service does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from twinbus.amqp.link import Link
from twinbus.gateway.requests import RequestNode
from twinbus.model.errors import BusError, Fault
from twinbus.wire import address, sas
from twinbus.wire import management as wire
from twinbus.wire.access import Grant

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
        connection = self.connection
        try:
            if not request.token.startswith(sas.PREFIX):
                raise BusError(Fault.AUTHENTICATION_FAILED, "Only shared access signatures are accepted here.")
            try:
                grant = self._checked(request)
            except BusError as error:
                is_unknown = error.fault in (Fault.ENTITY_NOT_FOUND, Fault.AUTHENTICATION_FAILED)
                if not is_unknown or not await connection.context.namespace.look_again():
                    raise
                grant = self._checked(request)
        except BusError as error:
            refusal = connection.context.refusal(error, "$cbs", "put-token")
            return wire.cbs_response(request.message_id, _STATUS.get(error.fault, 401), refusal.description or "")
        connection.put_grant(request.audience, grant)
        return wire.cbs_response(request.message_id, 202, "Accepted")

    def _checked(self, request: wire.TokenRequest) -> Grant:
        connection = self.connection
        context, grant = connection.gateway.choice.by_token(
            connection.context, request.token, request.audience, connection.clock.now_ms()
        )
        connection.settle(context)
        self._check_entity(sas.path_of(request.audience))
        return grant

    def _check_entity(self, path: str) -> None:
        """A token for an entity that is not there is refused; one for the whole namespace is not about any."""
        if path:
            self.connection.context.namespace.entity(address.parse(path).entity_path)
