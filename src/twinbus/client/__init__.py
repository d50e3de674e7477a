"""A fast asyncio client on our own AMQP core: it sends, receives and settles messages without looking into them.

It is for movers and measurements; applications use the official clients, and retrying is left to the caller.
"""

from twinbus.client.authorisation import Authentication
from twinbus.client.connection import Connection, connect
from twinbus.client.connection_string import ConnectionString
from twinbus.client.errors import ClientError
from twinbus.client.receiver import ReceivedMessage, Receiver
from twinbus.client.sender import Sender

__all__ = [
    "Authentication",
    "ClientError",
    "Connection",
    "ConnectionString",
    "ReceivedMessage",
    "Receiver",
    "Sender",
    "connect",
]
