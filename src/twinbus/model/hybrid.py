"""The description of a hybrid connection: a name at which listeners and senders meet, and who may be either.

Pure values with their rules; storing them is the catalog's business, and what happens at the name is `relay`'s.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from twinbus.model import limits
from twinbus.model.entity import check_entity_name, check_rules
from twinbus.model.errors import BusError, Fault
from twinbus.model.security import AuthorizationRule

# At these paths the HTTP port answers probes, and a hybrid connection would take the answers away from them.
PROBES = frozenset({"livez", "readyz", "health", "healthz", "metrics"})


@dataclass(frozen=True, slots=True, kw_only=True)
class HybridConnectionDescription:
    """Everything that is set about a hybrid connection."""

    name: str
    requires_client_authorization: bool = True  # Whether a sender needs a token; a listener always does.
    user_metadata: str | None = None
    authorization_rules: tuple[AuthorizationRule, ...] = ()
    created_at_ms: int = 0
    updated_at_ms: int = 0


def check_hybrid(description: HybridConnectionDescription) -> None:
    """Refuse a description that no hybrid connection can have."""
    check_entity_name(description.name)
    if description.name.partition("/")[0].lower() in PROBES:
        raise BusError(Fault.ARGUMENT, f"'{description.name}' is where the broker answers probes.")
    if description.user_metadata is not None and len(description.user_metadata) > limits.USER_METADATA_CHARS_MAX:
        raise BusError(Fault.ARGUMENT, f"UserMetadata has at most {limits.USER_METADATA_CHARS_MAX} characters.")
    check_rules(description.authorization_rules)


def hybrid_to_document(description: HybridConnectionDescription) -> dict[str, Any]:
    """The description as plain JSON values, for the catalog."""
    document: dict[str, Any] = {field.name: getattr(description, field.name) for field in fields(description)}
    document["authorization_rules"] = [rule.to_document() for rule in description.authorization_rules]
    return document


def hybrid_from_document(document: dict[str, Any]) -> HybridConnectionDescription:
    """The inverse of `hybrid_to_document`."""
    rules = tuple(AuthorizationRule.from_document(rule) for rule in document["authorization_rules"])
    return HybridConnectionDescription(**{**document, "authorization_rules": rules})
