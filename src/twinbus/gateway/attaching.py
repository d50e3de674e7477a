"""Decides what an attach leads to: which node, with which right, or why not.

A refusal is always an attach with a null terminus and then a detach with the reason: the official clients need both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from twinbus.amqp.carrier import LinkRole
from twinbus.amqp.link import Link
from twinbus.amqp.performatives import Coordinator
from twinbus.amqp.types import Symbol, ULong
from twinbus.entities.entity import AnyEntity
from twinbus.gateway.browsing import Browsing
from twinbus.gateway.cbs import CbsNode
from twinbus.gateway.egress import Egress
from twinbus.gateway.ingress import CREDIT, Ingress
from twinbus.gateway.management import ManagementNode
from twinbus.gateway.node import Node
from twinbus.gateway.requests import REQUEST_CREDIT, ReplyLink
from twinbus.gateway.sessions import SessionAttach
from twinbus.model import limits
from twinbus.model.address import Address, SubQueue
from twinbus.model.errors import BusError, Fault
from twinbus.model.message import ReceiveMode
from twinbus.model.security import Rights
from twinbus.wire import address as wire_address
from twinbus.wire import source as wire_source
from twinbus.wire.sessions import WantedSession

if TYPE_CHECKING:
    from twinbus.gateway.connection import ClientConnection

SND_SETTLED = 1
MAX_BATCH_PROPERTY = Symbol("com.microsoft:max-message-batch-size")


class LookingAgain(Node):
    """Stands for a link to an entity that is not known here, while another gateway's newest changes are looked for."""


def attach(connection: ClientConnection, link: Link, has_looked_again: bool = False) -> None:
    """Answer a client's attach."""
    path = ""
    try:
        text = _address_of(link)
        address = wire_address.parse(text)
        path = wire_address.format_address(address)
        if address.cbs:
            _attach_cbs(connection, link)
        elif address.management:
            _attach_management(connection, link, address, path)
        elif link.role is LinkRole.SENDER:
            _attach_receiver(connection, link, address, path)
        else:
            _attach_sender(connection, link, address, path)
    except BusError as error:
        namespace = connection.context.namespace
        if error.fault is Fault.ENTITY_NOT_FOUND and namespace.is_shared and not has_looked_again:
            connection.enter(link, LookingAgain())
            connection.start(_attach_again(connection, link))
        else:
            link.refuse(connection.context.refusal(error, path, "attach"))


async def _attach_again(connection: ClientConnection, link: Link) -> None:
    await connection.context.namespace.look_again()
    if isinstance(connection.nodes.get(link), LookingAgain):  # The client has not given up meanwhile.
        del connection.nodes[link]
        attach(connection, link, has_looked_again=True)
        connection.mark_dirty()


def _address_of(link: Link) -> str:
    """The node that the client names: the source when it receives, the target when it sends."""
    assert link.remote is not None
    terminus = link.remote.source if link.role is LinkRole.SENDER else link.remote.target
    if isinstance(terminus, Coordinator):
        raise BusError(Fault.NOT_IMPLEMENTED, "Transactions are not offered.")
    address: Any = getattr(terminus, "address", None)
    if not isinstance(address, str) or terminus.dynamic:
        raise BusError(Fault.NOT_IMPLEMENTED, "A link needs the address of an entity; dynamic nodes are not offered.")
    return address


def _attach_cbs(connection: ClientConnection, link: Link) -> None:
    if link.role is LinkRole.SENDER:
        link.accept()
        connection.enter(link, ReplyLink(connection, link, "$cbs"))
    else:
        link.accept(max_message_size=ULong(limits.MESSAGE_BYTES_MAX))
        connection.enter(link, CbsNode(connection, link))
        link.grant(REQUEST_CREDIT)


def _entity(connection: ClientConnection, address: Address, path: str, *rights: Rights) -> AnyEntity:
    """The entity, if the connection may know of it."""
    if not any(connection.allows(path, right) for right in rights):
        needed = " or ".join(str(right.name) for right in rights)
        raise BusError(Fault.UNAUTHORIZED, f"No valid token gives the right {needed} on '{path}'.")
    return connection.context.namespace.entity(address.entity_path)


def _attach_management(connection: ClientConnection, link: Link, address: Address, path: str) -> None:
    entity = _entity(connection, address, path, Rights.LISTEN, Rights.SEND)
    if link.role is LinkRole.SENDER:
        link.accept()
        connection.enter(link, ReplyLink(connection, link, path))
    else:
        link.accept(max_message_size=ULong(limits.MESSAGE_BYTES_MAX * 4))
        connection.enter(link, ManagementNode(connection, link, entity, address.subqueue, path))
        link.grant(REQUEST_CREDIT)


def _attach_sender(connection: ClientConnection, link: Link, address: Address, path: str) -> None:
    entity = _entity(connection, address, path, Rights.SEND)
    if address.subqueue is not SubQueue.MAIN:
        raise BusError(Fault.NOT_ALLOWED, "Nobody can send to a dead-letter queue.")
    entity.check_may_send()
    link.accept(
        max_message_size=ULong(entity.message_bytes_max),
        properties={MAX_BATCH_PROPERTY: limits.MESSAGE_BYTES_MAX},
    )
    connection.enter(link, Ingress(connection, link, entity, path))
    link.grant(CREDIT)


def _attach_receiver(connection: ClientConnection, link: Link, address: Address, path: str) -> None:
    entity = _entity(connection, address, path, Rights.LISTEN)
    assert link.remote is not None
    wanted = wire_source.read(link.remote.source)
    has_sessions = entity.requires_session and address.subqueue is SubQueue.MAIN
    if wanted.session is not None and not has_sessions:
        raise BusError(Fault.NOT_ALLOWED, f"'{path}' has no sessions to accept.")
    if wanted.copies:
        _attach_browser(connection, link, entity, address.subqueue, path, wanted.session)
        return
    entity.check_may_take(address.subqueue)
    if has_sessions and wanted.session is None:
        raise BusError(Fault.NOT_ALLOWED, f"'{path}' requires sessions: accept one.")
    settled = link.remote.snd_settle_mode == SND_SETTLED
    mode = ReceiveMode.RECEIVE_AND_DELETE if settled else ReceiveMode.PEEK_LOCK
    egress = Egress(connection, link, entity, address.subqueue, path, mode, wanted.default)
    if wanted.session is not None:
        SessionAttach(connection, link, egress, wanted.session.session_id).begin()
    else:
        link.accept(wire_source.in_force(link.remote.source), max_message_size=ULong(limits.MESSAGE_BYTES_MAX))
        connection.enter(link, egress)


def _attach_browser(
    connection: ClientConnection, link: Link, entity: AnyEntity, sub_queue: int, path: str, wanted: WantedSession | None
) -> None:
    """Looking takes no session: one that is named is looked at, held or not, and without a name all are."""
    entity.check_may_receive()
    assert link.remote is not None
    if wanted is not None and wanted.session_id is None:
        raise BusError(Fault.ARGUMENT, f"A browser of '{path}' names the session that it wants, or asks for none.")
    session = None if wanted is None else wanted.session_id
    source = wire_source.in_force(link.remote.source, session)
    link.accept(source, max_message_size=ULong(limits.MESSAGE_BYTES_MAX))
    connection.enter(link, Browsing(connection, link, entity, sub_queue, path, session))
