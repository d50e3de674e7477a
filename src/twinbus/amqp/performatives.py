"""The composite types of AMQP 1.0 as Python classes: performatives, SASL, termini, outcomes, errors.

Each class is its own table: a line is a field's name, its AMQP type and its default; without one it is mandatory.
`composite` encodes, decodes and validates by these lines; what a performative does is left to `connection`,
`session` and `link`.
"""

from __future__ import annotations

from typing import Any

from twinbus.amqp.composite import composite, field
from twinbus.amqp.types import Symbol

MAX_UINT = 0xFFFFFFFF


@composite(0x1D)
class Error:
    """Why something was refused or ended (2.8.14); all fields are always written: some clients index them."""

    condition: str = field("symbol")
    description: str | None = field("string", default=None)
    info: dict[Any, Any] | None = field("map", default=None)


@composite(0x10)
class Open:
    """Negotiates the connection (2.7.1)."""

    container_id: str = field("string")
    hostname: str | None = field("string", default=None)
    max_frame_size: int = field("uint", default=MAX_UINT)
    channel_max: int = field("ushort", default=65535)
    idle_time_out: int | None = field("uint", default=None)
    outgoing_locales: list[Symbol] | None = field("symbols", default=None)
    incoming_locales: list[Symbol] | None = field("symbols", default=None)
    offered_capabilities: list[Symbol] | None = field("symbols", default=None)
    desired_capabilities: list[Symbol] | None = field("symbols", default=None)
    properties: dict[Any, Any] | None = field("map", default=None)


@composite(0x11, kw_only=True)
class Begin:
    """Begins a session on a channel (2.7.2)."""

    remote_channel: int | None = field("ushort", default=None)
    next_outgoing_id: int = field("uint")
    incoming_window: int = field("uint")
    outgoing_window: int = field("uint")
    handle_max: int = field("uint", default=MAX_UINT)
    offered_capabilities: list[Symbol] | None = field("symbols", default=None)
    desired_capabilities: list[Symbol] | None = field("symbols", default=None)
    properties: dict[Any, Any] | None = field("map", default=None)


@composite(0x12)
class Attach:
    """Attaches a link to a session (2.7.3)."""

    name: str = field("string")
    handle: int = field("uint")
    role: bool = field("boolean")
    snd_settle_mode: int = field("ubyte", default=2)
    rcv_settle_mode: int = field("ubyte", default=0)
    source: Any = field("source", default=None)
    target: Any = field("target", default=None)
    unsettled: dict[Any, Any] | None = field("map", default=None)
    incomplete_unsettled: bool = field("boolean", default=False)
    initial_delivery_count: int | None = field("uint", default=None)
    max_message_size: int | None = field("ulong", default=None)
    offered_capabilities: list[Symbol] | None = field("symbols", default=None)
    desired_capabilities: list[Symbol] | None = field("symbols", default=None)
    properties: dict[Any, Any] | None = field("map", default=None)


@composite(0x13, kw_only=True)
class Flow:
    """Updates windows and credit (2.7.4)."""

    next_incoming_id: int | None = field("uint", default=None)
    incoming_window: int = field("uint")
    next_outgoing_id: int = field("uint")
    outgoing_window: int = field("uint")
    handle: int | None = field("uint", default=None)
    delivery_count: int | None = field("uint", default=None)
    link_credit: int | None = field("uint", default=None)
    available: int | None = field("uint", default=None)
    drain: bool = field("boolean", default=False)
    echo: bool = field("boolean", default=False)
    properties: dict[Any, Any] | None = field("map", default=None)


@composite(0x14)
class Transfer:
    """Carries a message or a part of one (2.7.5); the payload follows it in the frame."""

    handle: int = field("uint")
    delivery_id: int | None = field("uint", default=None)
    delivery_tag: bytes | None = field("binary", default=None)
    message_format: int | None = field("uint", default=None)
    settled: bool | None = field("boolean", default=None)
    more: bool = field("boolean", default=False)
    rcv_settle_mode: int | None = field("ubyte", default=None)
    state: Any = field("any", default=None)
    resume: bool = field("boolean", default=False)
    aborted: bool = field("boolean", default=False)
    batchable: bool = field("boolean", default=False)


@composite(0x15)
class Disposition:
    """Tells the state of a range of deliveries (2.7.6)."""

    role: bool = field("boolean")
    first: int = field("uint")
    last: int | None = field("uint", default=None)
    settled: bool = field("boolean", default=False)
    state: Any = field("composite", default=None)
    batchable: bool = field("boolean", default=False)


@composite(0x16)
class Detach:
    """Detaches a link, for good when closed (2.7.7)."""

    handle: int = field("uint")
    closed: bool = field("boolean", default=False)
    error: Error | None = field("error", default=None)


@composite(0x17)
class End:
    """Ends a session (2.7.8)."""

    error: Error | None = field("error", default=None)


@composite(0x18)
class Close:
    """Closes the connection (2.7.9)."""

    error: Error | None = field("error", default=None)


@composite(0x23)
class Received:
    """Delivery state: how much of a delivery has arrived (3.4.1)."""

    section_number: int = field("uint")
    section_offset: int = field("ulong")


@composite(0x24)
class Accepted:
    """Outcome: the message was processed (3.4.2)."""


@composite(0x25)
class Rejected:
    """Outcome: the message is invalid (3.4.3)."""

    error: Error | None = field("error", default=None)


@composite(0x26)
class Released:
    """Outcome: the message was not processed (3.4.4)."""


@composite(0x27)
class Modified:
    """Outcome: the message was not processed and is to be changed (3.4.5)."""

    delivery_failed: bool | None = field("boolean", default=None)
    undeliverable_here: bool | None = field("boolean", default=None)
    message_annotations: dict[Any, Any] | None = field("map", default=None)


@composite(0x28)
class Source:
    """The terminus that messages come from (3.5.3)."""

    address: Any = field("any", default=None)
    durable: int = field("uint", default=0)
    expiry_policy: str = field("symbol", default=Symbol("session-end"))
    timeout: int = field("uint", default=0)
    dynamic: bool = field("boolean", default=False)
    dynamic_node_properties: dict[Any, Any] | None = field("map", default=None)
    distribution_mode: str | None = field("symbol", default=None)
    filter: dict[Any, Any] | None = field("map", default=None)
    default_outcome: Any = field("composite", default=None)
    outcomes: list[Symbol] | None = field("symbols", default=None)
    capabilities: list[Symbol] | None = field("symbols", default=None)


@composite(0x29)
class Target:
    """The terminus that messages go to (3.5.4)."""

    address: Any = field("any", default=None)
    durable: int = field("uint", default=0)
    expiry_policy: str = field("symbol", default=Symbol("session-end"))
    timeout: int = field("uint", default=0)
    dynamic: bool = field("boolean", default=False)
    dynamic_node_properties: dict[Any, Any] | None = field("map", default=None)
    capabilities: list[Symbol] | None = field("symbols", default=None)


@composite(0x30)
class Coordinator:
    """The terminus of a link that controls transactions (4.5.1)."""

    capabilities: list[Symbol] | None = field("symbols", default=None)


@composite(0x40)
class SaslMechanisms:
    """What the server accepts (5.3.3.1)."""

    sasl_server_mechanisms: list[Symbol] = field("symbols")


@composite(0x41)
class SaslInit:
    """What the client chose (5.3.3.2)."""

    mechanism: str = field("symbol")
    initial_response: bytes | None = field("binary", default=None)
    hostname: str | None = field("string", default=None)


@composite(0x42)
class SaslChallenge:
    """A question of the server (5.3.3.3)."""

    challenge: bytes = field("binary")


@composite(0x43)
class SaslResponse:
    """The client's answer to a challenge (5.3.3.4)."""

    response: bytes = field("binary")


@composite(0x44)
class SaslOutcome:
    """How the authentication ended: code 0 is success (5.3.3.6)."""

    code: int = field("ubyte")
    additional_data: bytes | None = field("binary", default=None)


ACCEPTED = Accepted()
RELEASED = Released()

Performative = Open | Begin | Attach | Flow | Transfer | Disposition | Detach | End | Close
SaslFrame = SaslMechanisms | SaslInit | SaslChallenge | SaslResponse | SaslOutcome
Outcome = Accepted | Rejected | Released | Modified
