"""Request and response over a pair of links: the shape that `$cbs` and `$management` share.

A request arrives on one link, its answer leaves on another link of the same session; what is asked is up to the node.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from typing import TYPE_CHECKING, Any

from twinbus.amqp.events import Delivery
from twinbus.amqp.link import Link
from twinbus.amqp.performatives import ACCEPTED, Rejected
from twinbus.gateway.node import Node
from twinbus.model.errors import BusError, Fault

if TYPE_CHECKING:
    from twinbus.gateway.connection import ClientConnection

REQUEST_CREDIT = 200
REQUESTS_MAX = 256
REPLIES_MAX = 1000


class ReplyLink(Node):
    """The link on which answers go out; they wait here while the client gives no credit."""

    def __init__(self, connection: ClientConnection, link: Link, path: str) -> None:
        self.connection = connection
        self.link = link
        self.path = path
        self._waiting: deque[bytes] = deque()

    def answers(self, reply_to: str | None) -> bool:
        """Whether a request's reply-to means this link: by its target or by its name."""
        target = getattr(self.link.remote and self.link.remote.target, "address", None)
        return reply_to is not None and reply_to in (target, self.link.name)

    def send(self, payload: bytes) -> None:
        """Send an answer, settled, as soon as there is credit."""
        if len(self._waiting) < REPLIES_MAX:
            self._waiting.append(payload)
        self.flow()
        self.connection.mark_dirty()

    def flow(self) -> None:
        """Credit came: send what waits."""
        while self._waiting and self.link.credit > 0:
            tag = self.connection.context.next_number().to_bytes(8, "big")
            self.link.transfer(tag, self._waiting.popleft(), True)
        if self.link.drain and self.link.credit > 0:
            self.link.drained()


class RequestNode(Node, ABC):
    """The link on which requests come in."""

    def __init__(self, connection: ClientConnection, link: Link, path: str) -> None:
        self.connection = connection
        self.link = link
        self.path = path

    def received(self, items: list[Delivery]) -> None:
        """Accept each request and serve it; what is not a request is rejected."""
        for delivery_id, _, _, settled, payload in items:
            try:
                if len(self.connection.tasks) >= REQUESTS_MAX:
                    raise BusError(Fault.SERVER_BUSY, "Too many requests are under way on this connection.")
                request = self.read(payload)
            except BusError as error:
                self._reject(delivery_id, settled, error)
                continue
            if not settled:
                self.link.session.settle([delivery_id], ACCEPTED, self.link.role)
            self.connection.start(self._answer(request))
        if self.link.credit_left < REQUEST_CREDIT // 2:
            self.link.grant(REQUEST_CREDIT)

    def oversized(self, delivery_id: int, settled: bool, size: int) -> None:
        """A request that nobody needs to read."""
        self._reject(
            delivery_id, settled, BusError(Fault.MESSAGE_TOO_LARGE, f"The request has {size} bytes; that is too many.")
        )

    def _reject(self, delivery_id: int, settled: bool, error: BusError) -> None:
        if not settled:
            state = Rejected(self.connection.context.refusal(error, self.path, "request"))
            self.link.session.settle([delivery_id], state, self.link.role)

    async def _answer(self, request: Any) -> None:
        payload = await self.serve(request)
        reply = self._reply_link(request.reply_to)
        if reply is not None:
            reply.send(payload)

    def _reply_link(self, reply_to: str | None) -> ReplyLink | None:
        """The link that reply-to names, or else the only one for this node on the same session."""
        replies = [
            node
            for link, node in self.connection.nodes.items()
            if isinstance(node, ReplyLink) and link.session is self.link.session
        ]
        named = [node for node in replies if node.answers(reply_to)]
        same = named or [node for node in replies if node.path.lower() == self.path.lower()]
        return same[0] if same else None

    @abstractmethod
    def read(self, payload: bytes) -> Any:
        """The request in a payload: something with a `message_id` and a `reply_to`."""

    @abstractmethod
    async def serve(self, request: Any) -> bytes:
        """The encoded answer to one request."""
