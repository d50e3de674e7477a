"""A fast asyncio client on our own AMQP core: it sends, receives and settles messages without looking into them.

It is for movers, measurements and the commands at the prompt. Applications use the official clients, and retrying is
left to the caller.
"""

from twinbus.client.authorisation import Authentication
from twinbus.client.connection import Connection, connect
from twinbus.client.connection_string import ConnectionString
from twinbus.client.errors import ClientError
from twinbus.client.receiver import ReceivedMessage, Receiver
from twinbus.client.sender import Sender
from twinbus.wire.sessions import WantedSession

__all__ = [
    "Authentication",
    "ClientError",
    "Connection",
    "ConnectionString",
    "ReceivedMessage",
    "Receiver",
    "Sender",
    "WantedSession",
    "connect",
]
