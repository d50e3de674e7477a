"""Link addresses as text, read into a model address.

The official Python client wraps entity paths in a URI and the JavaScript one does not; both end here.
Echoing an address byte for byte is left to the gateway, and finding the entity to the entities.
"""

from __future__ import annotations

from urllib.parse import unquote

from twinbus.amqp.types import Symbol
from twinbus.model.address import Address, SubQueue
from twinbus.model.errors import BusError, Fault

MAX_ADDRESS_CHARS = 1024
_SCHEMES = frozenset({"amqp", "amqps", "sb", "http", "https"})
_CBS = Address("", cbs=True)


# The properties of a connection by which our broker says which namespace it serves, if it serves one only.
NAMESPACE_KEY = Symbol("twinbus:namespace")
NAMESPACE_ID_KEY = Symbol("twinbus:namespace-id")


def http_port_key(scheme: str) -> Symbol:
    """The property of a connection by which our broker tells where it serves HTTP or HTTPS."""
    return Symbol(f"twinbus:{scheme}-port")


def parse(text: str) -> Address:
    """The address that a terminus names; a BusError of kind ARGUMENT when it names nothing."""
    if len(text) > MAX_ADDRESS_CHARS:
        raise BusError(Fault.ARGUMENT, f"The address is longer than {MAX_ADDRESS_CHARS} characters.")
    segments = _path(text).split("/")
    if any(not segment or not segment.isprintable() or segment.isspace() for segment in segments):
        raise _malformed(text)
    lowered = [segment.lower() for segment in segments]
    if lowered == ["$cbs"]:
        return _CBS
    management = lowered[-1] == "$management"
    if management:
        del segments[-1], lowered[-1]
    subqueue = SubQueue.MAIN
    if lowered[-2:] == ["$transfer", "$deadletterqueue"]:
        subqueue = SubQueue.TRANSFER_DEAD_LETTER
        del segments[-2:], lowered[-2:]
    elif lowered[-1:] == ["$deadletterqueue"]:
        subqueue = SubQueue.DEAD_LETTER
        del segments[-1], lowered[-1]
    if not segments or any(segment.startswith("$") for segment in segments):
        raise _malformed(text)
    if len(segments) > 2 and lowered[-2] == "subscriptions":
        segments[-2] = "Subscriptions"
    return Address("/".join(segments), subqueue, management)


def format_address(address: Address) -> str:
    """The bare path of an address, as the documents write it."""
    if address.cbs:
        return "$cbs"
    path = address.entity_path
    if address.subqueue is SubQueue.DEAD_LETTER:
        path += "/$DeadLetterQueue"
    elif address.subqueue is SubQueue.TRANSFER_DEAD_LETTER:
        path += "/$Transfer/$DeadLetterQueue"
    return path + "/$management" if address.management else path


def _path(text: str) -> str:
    """The path without slashes around it; only a URI is percent-decoded, a bare path is a name as it is."""
    scheme, separator, rest = text.partition("://")
    if not separator:
        return text.strip("/")
    if scheme.lower() not in _SCHEMES:
        raise _malformed(text)
    host, _, path = rest.partition("/")
    if not host:
        raise _malformed(text)
    try:
        return unquote(path, errors="strict").strip("/")
    except UnicodeDecodeError:
        raise _malformed(text) from None


def _malformed(text: str) -> BusError:
    shown = "".join(letter if letter.isprintable() else "?" for letter in text[:100])
    return BusError(Fault.ARGUMENT, f"'{shown}' is not the address of an entity.")
