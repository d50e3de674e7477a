"""Destinations of forwarding, as the administration takes and tells them: addresses, and the right to use them.

Whether a destination exists, and that no chain is a loop, is the namespace's business.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from twinbus.model.entity import QueueDescription, target_path
from twinbus.model.topic import SubscriptionDescription

D = TypeVar("D", QueueDescription, SubscriptionDescription)

# Headers with a token for the destination, where the caller's own does not reach it.
SUPPLEMENTARY = "ServiceBusSupplementaryAuthorization"
DEAD_LETTER_SUPPLEMENTARY = "ServiceBusDlqSupplementaryAuthorization"

# Refuses one who may not manage the entity of a path; the second is the header that may have a token for it.
CheckManages = Callable[[str, str], None]


def check_destinations(description: QueueDescription | SubscriptionDescription, check_manages: CheckManages) -> None:
    """Whoever has messages forwarded must be allowed to manage the destination as well."""
    for text, header in (
        (description.forward_to, SUPPLEMENTARY),
        (description.forward_dead_letters_to, DEAD_LETTER_SUPPLEMENTARY),
    ):
        path = target_path(text)
        if path is not None:
            check_manages(path, header)


def with_addresses(description: D, origin: str) -> D:
    """The description with destinations as clients write them: as addresses at the host that the client knows."""
    if description.forward_to is None and description.forward_dead_letters_to is None:
        return description
    host = origin.partition("://")[2]
    forward_to, dead_letters_to = (
        None if path is None else f"sb://{host}/{path}"
        for path in (description.forward_to, description.forward_dead_letters_to)
    )
    return replace(description, forward_to=forward_to, forward_dead_letters_to=dead_letters_to)
