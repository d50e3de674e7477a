"""The authorization rules of a queue or a topic as XML, both ways.

Makes the keys that a client leaves out; what a rule may grant is `model.security`'s business.
"""

from __future__ import annotations

import base64
from collections.abc import Callable

from twinbus.model.entity import QueueDescription
from twinbus.model.errors import BusError, Fault
from twinbus.model.security import AuthorizationRule, Rights
from twinbus.model.topic import TopicDescription
from twinbus.wire.descriptions import local_name, timestamp, type_of
from twinbus.wire.markup import Element, tag

KEY_BYTES = 32
RULE_TYPE = "SharedAccessAuthorizationRule"
CLAIM_TYPE = "SharedAccessKey"

RandomBytes = Callable[[int], bytes]

# In the order in which the official clients' own tests expect them back.
_RIGHTS = {"Manage": Rights.MANAGE, "Send": Rights.SEND, "Listen": Rights.LISTEN}


def write(entity: QueueDescription | TopicDescription) -> str:
    """The AuthorizationRules element."""
    # Rules have no dates of their own here; they are told those of the entity, if it has been made already.
    dates = ""
    if entity.created_at_ms:
        dates = tag("CreatedTime", timestamp(entity.created_at_ms))
        dates += tag("ModifiedTime", timestamp(entity.updated_at_ms))
    rules = "".join(
        f'<AuthorizationRule i:type="{RULE_TYPE}">{tag("ClaimType", CLAIM_TYPE)}{tag("ClaimValue", "None")}'
        f"<Rights>{_write_rights(rule.rights)}</Rights>"
        f"{dates}{tag('KeyName', rule.name)}"
        f"{tag('PrimaryKey', rule.primary_key)}{tag('SecondaryKey', rule.secondary_key)}</AuthorizationRule>"
        for rule in entity.authorization_rules
    )
    return f"<AuthorizationRules>{rules}</AuthorizationRules>"


def _write_rights(rights: Rights) -> str:
    return "".join(tag("AccessRights", name) for name in rights_named(rights))


def read(
    element: Element | None, existing: QueueDescription | TopicDescription | None, random_bytes: RandomBytes
) -> tuple[AuthorizationRule, ...]:
    """The rules that a client asks for: none, if it is silent about them."""
    keys = {rule.name: rule.keys for rule in existing.authorization_rules} if existing is not None else {}
    return tuple(_read_rule(child, keys, random_bytes) for child in (element.children if element is not None else ()))


def _read_rule(
    element: Element, known_keys: dict[str, tuple[str, str]], random_bytes: RandomBytes
) -> AuthorizationRule:
    """One rule. A key that the client leaves out stays what it was, or is made for a new rule."""
    kind = type_of(element) or RULE_TYPE
    fields = {local_name(child): child for child in element.children}
    texts = {name: child.text.strip() for name, child in fields.items()}
    claim = texts.get("ClaimType", CLAIM_TYPE)
    if local_name(element) != "AuthorizationRule" or kind != RULE_TYPE or claim != CLAIM_TYPE:
        raise BusError(Fault.ARGUMENT, f"An authorization rule must be a {RULE_TYPE}.")
    rights = Rights(0)
    for right in fields["Rights"].children if "Rights" in fields else []:
        if right.text.strip() not in _RIGHTS:
            raise BusError(Fault.ARGUMENT, f"A right must be one of {', '.join(_RIGHTS)}.")
        rights |= _RIGHTS[right.text.strip()]
    name = texts.get("KeyName", "")
    primary, secondary = known_keys.get(name, ("", ""))
    return AuthorizationRule(
        name=name,
        primary_key=texts.get("PrimaryKey") or primary or new_key(random_bytes),
        secondary_key=texts.get("SecondaryKey") or secondary or new_key(random_bytes),
        rights=rights,
    )


def rights_named(rights: Rights) -> list[str]:
    """The names of rights, as the service spells them."""
    return [name for name, right in _RIGHTS.items() if right in rights]


def new_key(random_bytes: RandomBytes) -> str:
    """A key of 256 bits, as text."""
    return base64.b64encode(random_bytes(KEY_BYTES)).decode()
