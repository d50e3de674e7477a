"""Which failures make sends go to the backlog, and how soon: the documents, the client of 2013 and we disagree.

Each is a preset. An option that is given goes before what its preset says (`options`).
"""

from __future__ import annotations

from typing import NamedTuple

from twinbus.pair.route.failures import Failure


class Preset(NamedTuple):
    """The options' values, in seconds, and what has no option of its own."""

    counting: frozenset[Failure]  # What fails an entity over.
    failover_interval: float
    ping_primary_interval: float
    attempt_timeout: float
    primary_timeout: float
    # A ping that is refused for good: sends raise the reason, or go on to the backlog.
    refused_ping_ends_diverting: bool = True


DEFAULT = "default"

PRESETS: dict[str, Preset] = {
    # A dead or unreachable primary, and nothing that another namespace would not cure; the first such failure counts,
    # and the send that met it is saved.
    DEFAULT: Preset(
        frozenset({Failure.TIMEOUT, Failure.TRANSIENT}),
        failover_interval=0.0,
        ping_primary_interval=5.0,
        attempt_timeout=3.5,
        primary_timeout=3.5,
    ),
    # What the documents say literally: time-outs, and messaging errors that are not transient.
    "documents": Preset(
        frozenset({Failure.TIMEOUT, Failure.PERMANENT, Failure.FULL}),
        failover_interval=60.0,
        ping_primary_interval=60.0,
        attempt_timeout=20.0,
        primary_timeout=60.0,
        refused_ping_ends_diverting=False,
    ),
    # What the shipped client did: time-outs, and every messaging error that is transient, busy servers included.
    "client-2013": Preset(
        frozenset({Failure.TIMEOUT, Failure.TRANSIENT, Failure.BUSY}),
        failover_interval=60.0,
        ping_primary_interval=60.0,
        attempt_timeout=20.0,
        primary_timeout=60.0,
    ),
}
