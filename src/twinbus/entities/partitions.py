"""Which fragment of a partitioned entity a message belongs to, and how numbers and lock tokens name their fragment.

Pure arithmetic, the same in every process and for ever: what is stored under these rules must be found by them again.
"""

from __future__ import annotations

from twinbus.model.errors import BusError, Fault
from twinbus.model.message import Incoming
from twinbus.model.partition import FRAGMENTS, NUMBER_BITS, fragment_of

__all__ = ["FRAGMENTS", "NUMBER_BITS", "fragment_of"]
NUMBER_MASK = (1 << NUMBER_BITS) - 1
# The byte of a lock token that a store leaves zero; outside it says the fragment, counted from one.
TOKEN_BYTE = 8


def key_of(message: Incoming, by_id: bool) -> str | None:
    """What pins a message to its fragment: its session, else its partition key, else (`by_id`) its own id."""
    session, key = message.session_id, message.partition_key
    if session is not None:
        if key is not None and key != session:
            raise BusError(
                Fault.NOT_ALLOWED,
                "A message to a partitioned entity has the same SessionId and PartitionKey, or only one of them.",
            )
        return session
    if key is None and by_id:
        return message.message_id
    return key


def key_of_unit(messages: list[Incoming], by_id: bool) -> str | None:
    """The key that all messages of a batch share, since a batch is stored whole in one fragment."""
    key = key_of(messages[0], by_id)
    for message in messages[1:]:
        if key_of(message, by_id) != key:
            raise BusError(
                Fault.NOT_ALLOWED,
                "All messages of a batch to a partitioned entity must have the same SessionId or PartitionKey (with"
                " duplicate detection, a MessageId counts as key): send them one by one, or give all one PartitionKey.",
            )
    return key


def outer_number(fragment: int, number: int) -> int:
    """A store's sequence number as clients see it; 0, which stands for a dropped duplicate, stays 0."""
    return fragment << NUMBER_BITS | number if number else 0


def fragment_of_number(number: int) -> int | None:
    """The fragment that a client's sequence number names; None for a number that no message has."""
    fragment = number >> NUMBER_BITS
    return fragment if 0 <= fragment < FRAGMENTS else None


def outer_token(mark: bytes, token: bytes) -> bytes:
    """A store's lock token with the fragment's mark in it."""
    return token[:TOKEN_BYTE] + mark + token[TOKEN_BYTE + 1 :]


def inner_token(token: bytes) -> bytes:
    """A lock token as its store knows it."""
    return token[:TOKEN_BYTE] + b"\0" + token[TOKEN_BYTE + 1 :]


def mark_of(fragment: int) -> bytes:
    """What a fragment's tokens have in their ninth byte."""
    return bytes((fragment + 1,))


def fragment_of_token(token: bytes) -> int | None:
    """The fragment that a lock token names; None for one that no partitioned entity gave out."""
    if len(token) != 16:
        return None
    fragment = token[TOKEN_BYTE] - 1
    return fragment if 0 <= fragment < FRAGMENTS else None
