"""Queue descriptions in the Atom entries of the administration API, as a test writes and reads them.

Only texts: what the broker makes of them is for the tests to say.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from xml.etree import ElementTree
from xml.sax.saxutils import escape

ATOM = "http://www.w3.org/2005/Atom"
SERVICE_BUS = "http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"
INSTANCE = "http://www.w3.org/2001/XMLSchema-instance"

# The order in which the service's own clients write the elements.
ORDER = (
    "LockDuration",
    "MaxSizeInMegabytes",
    "RequiresDuplicateDetection",
    "RequiresSession",
    "DefaultMessageTimeToLive",
    "DeadLetteringOnMessageExpiration",
    "DuplicateDetectionHistoryTimeWindow",
    "MaxDeliveryCount",
    "EnableBatchedOperations",
    "AuthorizationRules",
    "Status",
    "AutoDeleteOnIdle",
    "EnablePartitioning",
    "ForwardTo",
    "UserMetadata",
    "ForwardDeadLetteredMessagesTo",
)


@dataclass(frozen=True)
class Rule:
    """A shared access policy of one queue; rights by their names, Listen, Send and Manage."""

    name: str
    rights: tuple[str, ...]
    primary_key: str
    secondary_key: str = "another-key-for-tests-that-opens-nothing"


Setting = str | int | bool | list[Rule]


def entry(settings: Mapping[str, Setting]) -> str:
    """The body of a create or an update."""
    unknown = settings.keys() - set(ORDER)
    assert not unknown, f"no such setting of a queue: {unknown}"
    elements = "".join(f"<{name}>{_text(settings[name])}</{name}>" for name in ORDER if name in settings)
    description = f'<QueueDescription xmlns="{SERVICE_BUS}">{elements}</QueueDescription>'
    return f'<entry xmlns="{ATOM}"><content type="application/xml">{description}</content></entry>'


def leaves(document: str) -> dict[str, str]:
    """The texts of all elements that hold no others, by their names without namespace."""
    return {
        element.tag.rpartition("}")[2]: element.text or ""
        for element in ElementTree.fromstring(document).iter()
        if len(element) == 0
    }


def _text(value: Setting) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return "".join(map(_rule, value))
    return escape(str(value))


def _rule(rule: Rule) -> str:
    rights = "".join(f"<AccessRights>{right}</AccessRights>" for right in rule.rights)
    return (
        f'<AuthorizationRule xmlns:i="{INSTANCE}" i:type="SharedAccessAuthorizationRule">'
        "<ClaimType>SharedAccessKey</ClaimType><ClaimValue>None</ClaimValue>"
        f"<Rights>{rights}</Rights><KeyName>{escape(rule.name)}</KeyName>"
        f"<PrimaryKey>{escape(rule.primary_key)}</PrimaryKey>"
        f"<SecondaryKey>{escape(rule.secondary_key)}</SecondaryKey></AuthorizationRule>"
    )
