"""What a link leads to, as its connection sees it: something that takes deliveries, decisions, flows and the end.

`Ingress`, `Egress`, `Browsing`, the request nodes and the reply links are nodes; each overrides what concerns it.
"""

from __future__ import annotations

from collections.abc import Sequence

from twinbus.amqp.events import Delivery, Settlement
from twinbus.model.security import Rights


class Node:
    """The default is to take no notice."""

    path = ""
    right: Rights | None = None  # What the connection must hold while the link lives; None for nodes open to all.

    @property
    def frames_under_way(self) -> int:
        """How many frames it may be about to send: they are being fetched for it."""
        return 0

    @property
    def owes_answers(self) -> bool:
        """Whether something was taken whose outcome the client has not been told."""
        return False

    def received(self, items: list[Delivery]) -> None:
        """Whole deliveries arrived."""

    def oversized(self, delivery_id: int, settled: bool, size: int) -> None:
        """A delivery was too large to be kept."""

    def decided(self, items: Sequence[Settlement]) -> None:
        """The client told what became of deliveries."""

    def flow(self) -> None:
        """The link's credit changed."""

    def resume(self) -> None:
        """The connection can be written to again, or there is room in the session's window."""

    def closed(self) -> None:
        """The link is gone."""

    def stopped(self) -> None:
        """The broker itself ends the link, because it stops."""
        self.closed()
