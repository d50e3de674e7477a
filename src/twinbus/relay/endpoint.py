"""Where a relay is, what a service is called there, and the key that opens it: what both clients are told.

Pure: tokens are made for an instant that is handed in.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import ceil
from urllib.parse import quote, urlsplit

from twinbus.model.errors import BusError, Fault
from twinbus.model.logged import EventLog
from twinbus.wire import sas

TOKEN_LIFETIME_S = 3600
DATACENTER = "X-Twinbus-Datacenter"  # In a relay's answer to one who may listen.
_SCHEMES = {"http": "ws", "https": "wss"}


@dataclass(frozen=True, slots=True)
class RelayEndpoint:
    """One hybrid connection at one relay; without a policy its clients are anonymous."""

    url: str  # As in https://contosoprimary.example/myPrimaryService
    policy: str = ""
    key: str = field(default="", repr=False)
    token_lifetime_s: int = TOKEN_LIFETIME_S  # A listener renews its token after half of it.
    datacenter: str = ""  # Where the relay is, if that is known; a listener asks the relay, too.

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        if parts.scheme not in _SCHEMES or not parts.netloc or not parts.path.strip("/") or parts.query:
            raise BusError(
                Fault.ARGUMENT, f"'{self.url}' is not http:// or https://, a host, and the path of a hybrid connection."
            )

    @property
    def host(self) -> str:
        """The relay's host, with its port."""
        return urlsplit(self.url).netloc.lower()

    @property
    def path(self) -> str:
        """The hybrid connection's name."""
        return urlsplit(self.url).path.strip("/")

    def socket_url(self, action: str, suffix: str = "") -> str:
        """Where a WebSocket is opened."""
        parts = urlsplit(self.url)
        below = f"/{suffix.lstrip('/')}" if suffix else ""
        return f"{_SCHEMES[parts.scheme]}://{parts.netloc}/$hc/{quote(self.path)}{below}?sb-hc-action={action}"

    def request_url(self, target: str) -> str:
        """Where a request goes; `target` is what follows the hybrid connection's own path, with its query."""
        below = target if not target or target.startswith("?") else f"/{target.lstrip('/')}"
        return f"{self.url.rstrip('/')}{below}"

    def headers(self, now_s: float) -> dict[str, str]:
        """What proves a right, if there is something."""
        return {"ServiceBusAuthorization": self.token(now_s)} if self.policy else {}

    def token(self, now_s: float) -> str:
        """A token for this endpoint, good for its whole lifetime: tokens end at full seconds."""
        resource = f"http://{self.host}/{self.path}"
        return sas.make_token(resource, self.policy, self.key, ceil(now_s) + self.token_lifetime_s)


def check_pair(one: RelayEndpoint, other: RelayEndpoint) -> None:
    """Two endpoints of one service lie in different namespaces and have different names, or one failure takes both."""
    if one.host == other.host:
        raise BusError(Fault.ARGUMENT, f"Both endpoints are at '{one.host}': they must lie in different namespaces.")
    if one.path.lower() == other.path.lower():
        raise BusError(Fault.ARGUMENT, f"Both endpoints are called '{one.path}': they must have different names.")


def warn_of_one_datacenter(log: EventLog, one: str, other: str) -> bool:
    """Say so if both relays are in one datacenter, and would be lost together; where they are may not be known."""
    if not one or one.lower() != other.lower():
        return False
    log.warning(
        "relay.one_datacenter",
        "both relays are in the datacenter '{datacenter}', and would be lost together",
        datacenter=one,
    )
    return True
