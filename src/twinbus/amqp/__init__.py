"""AMQP 1.0 without I/O: bytes in, events out; intents in, bytes out.

Sockets, clocks and the meaning of messages are left to the caller; there is no Service Bus in this package.
"""

from twinbus.amqp.carrier import LinkRole
from twinbus.amqp.conditions import NotAttachedError
from twinbus.amqp.connection import Connection
from twinbus.amqp.handshake import Role
from twinbus.amqp.link import Link
from twinbus.amqp.session import Session
from twinbus.amqp.settings import Settings

__all__ = ["Connection", "Link", "LinkRole", "NotAttachedError", "Role", "Session", "Settings"]
