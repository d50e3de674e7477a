"""Hybrid Connections on the HTTP port: `/$hc/…` for sockets, and requests to a hybrid connection's own path.

Decides who is let in and what is told to whom; requests are carried by `requests`, and sockets by `meeting`.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from functools import partial

from aiohttp import hdrs, web

from twinbus.entities.hosting import Hosting
from twinbus.entities.hybrid import HybridConnection
from twinbus.entities.namespace import Namespace
from twinbus.model.clock import Clock
from twinbus.model.logged import EventLog
from twinbus.model.message import Origin
from twinbus.model.security import Rights
from twinbus.relay import commands, headers
from twinbus.relay.channel import Channel, RequestRendezvous
from twinbus.relay.endpoint import DATACENTER
from twinbus.relay.exchange import Exchange
from twinbus.relay.framing import Close
from twinbus.relay.limits import Limits
from twinbus.relay.listeners import Listeners
from twinbus.relay.meeting import Accepted, Meeting, Pipe, Rejected
from twinbus.relay.requests import Carrier
from twinbus.relay.rights import Gatekeeper, RefusedError, Target, asks_relay
from twinbus.relay.socket import Socket, upgrade_problem
from twinbus.wire.access import Grant, renewed

PATH = r"/$hc/{path:[\s\S]*}"
ORIGIN = Origin("http", "relay")

log = EventLog("twinbus.relay")


class RelayDoor:
    """The relay of one process."""

    def __init__(
        self,
        hosting: Hosting,
        clock: Clock,
        *,
        limits: Limits | None = None,
        datacenters: Mapping[Namespace, str] | None = None,
        new_id: Callable[[], str] = lambda: secrets.token_hex(16),
        choose: Callable[[int], int] = secrets.randbelow,
    ) -> None:
        self._limits = limits or Limits()
        self._datacenters = datacenters or {}
        self._new_id = new_id
        self._gate = Gatekeeper(hosting, clock)
        self.listeners = Listeners(self._limits.listeners_max, choose)
        self._exchanges: dict[str, Exchange] = {}
        self._meetings: dict[str, Meeting] = {}
        self._pipes: dict[Pipe, tuple[Target, Grant | None, str]] = {}
        self._connections: Counter[Namespace] = Counter()
        self._pings: asyncio.Task[None] | None = None
        self._is_closing = False
        self._counted: dict[Namespace, Counter[str]] = {}
        self._actions: dict[str, Callable[[web.Request], Awaitable[web.StreamResponse]]] = {
            "listen": self._listen,
            "connect": self._connect,
            "accept": self._accept,
            "request": self._request,
        }
        for namespace in hosting.namespaces:
            namespace.hybrids.on_deleted.append(self._deleted)
            namespace.on_rules_changed.append(partial(self._check_grants, namespace))

    # Requests

    def answering(self, request: web.Request) -> Awaitable[web.StreamResponse] | None:
        """The answer to a plain request, if it is for a hybrid connection."""
        target = self._gate.find(request)
        if target is not None:
            return self._answer(request, target)
        return self._answer_nobody(request) if asks_relay(request) else None

    async def _answer_nobody(self, request: web.Request) -> web.StreamResponse:
        refused = RefusedError(404, "There is no hybrid connection at this path.")
        return self._refusal(request, refused, self._new_id())

    async def _answer(self, request: web.Request, target: Target) -> web.StreamResponse:
        """Relay a plain request to a listener."""
        number = self._new_id()
        try:
            self._gate.admit(request, target, Rights.SEND)
            self._check_room(target)
            channel = self.listeners.pick(target.hybrid)
            carrier = Carrier(request, target, channel, Exchange(number, self._limits.buffer_bytes), self._limits)
        except RefusedError as refused:
            return self._refusal(request, refused, number)
        self._exchanges[number] = carrier.exchange
        self._connections[target.namespace] += 1
        status = 0
        try:
            response = await carrier.carry()
            status = response.status
            return response
        except RefusedError as refused:
            status = refused.status
            return self._refusal(request, refused, number)
        finally:
            del self._exchanges[number]
            self._connections[target.namespace] -= 1
            carrier.exchange.close()
            self._count(target.namespace, "relay_requests_total")
            self._note(target, "relay_request", "", carrier.request_bytes, number)
            self._note(target, "relay_response", str(status or "aborted"), carrier.response_bytes, number)

    def listener_count(self, hybrid: HybridConnection) -> int:
        """How many listen at a hybrid connection."""
        return len(self.listeners.of(hybrid))

    # Sockets

    async def answer_socket(self, request: web.Request) -> web.StreamResponse:
        """What is asked of `/$hc/…`."""
        action = request.query.get("sb-hc-action", "")
        number = self._new_id()
        try:
            serve = self._actions.get(action)
            if serve is None:
                raise RefusedError(400, "sb-hc-action must be listen, connect, accept or request.")
            problem = upgrade_problem(request)
            if problem is not None:
                raise RefusedError(426 if hdrs.UPGRADE not in request.headers else 400, problem)
            if self._is_closing:
                raise RefusedError(503, "The relay is stopping.")
            return await serve(request)
        except RefusedError as refused:
            return self._refusal(request, refused, number)

    def _target(self, request: web.Request) -> Target:
        target = self._gate.find(request)
        if target is None:
            raise RefusedError(404, "There is no hybrid connection at this path.")
        return target

    def _check_room(self, target: Target) -> None:
        if self._connections[target.namespace] >= self._limits.connections_max:
            raise RefusedError(503, f"There are {self._limits.connections_max} connections, and no more can be.")

    async def _listen(self, request: web.Request) -> web.StreamResponse:
        target = self._target(request)
        if target.path.lower() != target.hybrid.path.lower():
            raise RefusedError(404, "There is no hybrid connection at this path.")
        grant = self._gate.admit(request, target, Rights.LISTEN)
        assert grant is not None
        self.listeners.check_room(target.hybrid)
        audience = self._gate.audience(target, request)
        socket = Socket(self._limits.goodbye_s)
        base = f"{'wss' if request.secure else 'ws'}://{request.host}"
        renew = partial(self._gate.granted, target, audience, right=Rights.LISTEN)
        channel = Channel(socket, base, grant, self._limits, renew)
        expiry = Expiry(lambda: self._gate.seconds_left(channel.grant), socket.close)
        channel.on_renewed = expiry.start
        channel.on_ended = partial(self.listeners.remove, target.hybrid, channel)
        self.listeners.add(target.hybrid, channel)
        try:
            place = self._datacenters.get(target.namespace)
            response = await socket.accept(request, told={DATACENTER: place} if place else None)
            self._note(target, "relay_listen", "", 0, self._new_id())
            socket.begin()
            expiry.start()
            self._keep_pinging()
            await socket.is_gone
            return response
        finally:
            expiry.stop()
            self.listeners.remove(target.hybrid, channel)

    async def _connect(self, request: web.Request) -> web.StreamResponse:
        target = self._target(request)
        grant = self._gate.admit(request, target, Rights.SEND)
        self._check_room(target)
        if headers.size_of(request.headers.items()) > self._limits.header_bytes_max:
            raise RefusedError(431, f"The headers have more than {self._limits.header_bytes_max} bytes.")
        channel = self.listeners.pick(target.hybrid)
        number = self._new_id()
        meeting = self._meetings[number] = Meeting()
        self._connections[target.namespace] += 1
        try:
            address = headers.address_of(channel.base, target.path, "accept", number, request.rel_url.raw_query_string)
            await channel.tell(commands.accept(address, number, headers.of_connect(request.headers.items())))
            decision = await self._decided(meeting)
            if isinstance(decision, Rejected):
                raise RefusedError(decision.status, decision.text, is_listeners=True)
            socket = Socket(self._limits.goodbye_s)
            response = await socket.accept(request, decision.protocol)
            meeting.sender.set_result(socket)
            await self._pipe(target, grant, request, socket, meeting, number)
            return response
        finally:
            self._connections[target.namespace] -= 1
            self._meetings.pop(number, None)
            meeting.cancel()

    async def _decided(self, meeting: Meeting) -> Accepted | Rejected:
        try:
            async with asyncio.timeout(self._limits.accept_s):
                return await meeting.decision
        except TimeoutError:
            raise RefusedError(504, f"The listener did not come within {self._limits.accept_s:g} seconds.") from None

    async def _pipe(
        self,
        target: Target,
        grant: Grant | None,
        request: web.Request,
        sender: Socket,
        meeting: Meeting,
        number: str,
    ) -> None:
        try:
            async with asyncio.timeout(self._limits.accept_s):
                listener = await meeting.listener
        except TimeoutError:
            sender.close(Close.INTERNAL, "The listener did not come.")
            return
        ended = asyncio.Event()
        pipe = Pipe(sender, listener, ended.set)
        self._pipes[pipe] = (target, grant, self._gate.audience(target, request))
        self._count(target.namespace, "relay_sockets_total")
        left = self._gate.seconds_left
        expiry = None if grant is None else Expiry(partial(left, grant), pipe.close)
        try:
            if expiry is not None:
                expiry.start()
            await ended.wait()
            await sender.is_gone
        finally:
            if expiry is not None:
                expiry.stop()
            del self._pipes[pipe]
            self._note(target, "relay_connect", "", pipe.passed_bytes, number)

    async def _accept(self, request: web.Request) -> web.StreamResponse:
        """A listener comes for a sender's socket, or says that it does not want it; the address is good once."""
        meeting = self._meetings.pop(request.query.get("sb-hc-id", ""), None)
        if meeting is None or meeting.decision.done():
            raise RefusedError(404, "No sender waits at this address: it is good once, for a time, at this gateway.")
        status = request.query.get("sb-hc-statusCode")
        if status is not None:
            text = request.query.get("sb-hc-statusDescription", "The listener rejected the connection.")
            code = int(status) if status.isascii() and status.isdigit() and 400 <= int(status[:4]) <= 599 else 400
            meeting.decision.set_result(Rejected(code, text))
            raise RefusedError(410, "The sender was told that it is rejected.")
        offered = request.headers.get(hdrs.SEC_WEBSOCKET_PROTOCOL, "").split(",")[0].strip() or None
        meeting.decision.set_result(Accepted(offered))
        try:
            await meeting.sender
        except asyncio.CancelledError:
            if meeting.sender.cancelled():
                raise RefusedError(410, "The sender is gone.") from None
            raise
        socket = Socket(self._limits.goodbye_s)
        response = await socket.accept(request, offered)
        if meeting.listener.cancelled():
            socket.begin()
            socket.close(Close.GOING_AWAY, "The sender is gone.")
        else:
            meeting.listener.set_result(socket)
        await socket.is_gone
        return response

    async def _request(self, request: web.Request) -> web.StreamResponse:
        """A listener comes for a request, or with a response too large for the control channel."""
        exchange = self._exchanges.get(request.query.get("sb-hc-id", ""))
        if exchange is None or exchange.rendezvous.done():
            raise RefusedError(404, "No request waits at this address: it is good once, for a time, at this gateway.")
        socket = Socket(self._limits.goodbye_s)
        response = await socket.accept(request)
        if exchange.rendezvous.done():
            socket.begin()
            socket.close(Close.GOING_AWAY, "The sender is gone.")
        else:
            RequestRendezvous(socket, exchange, self._limits)
            exchange.rendezvous.set_result(socket)
            socket.begin()
        await socket.is_gone
        return response

    # What happens meanwhile

    def _keep_pinging(self) -> None:
        if self._pings is None:
            self._pings = asyncio.create_task(self._ping_on())

    async def _ping_on(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(self._limits.ping_s)
            for channel in self.listeners.all():
                if loop.time() - channel.socket.heard_at > 3 * self._limits.ping_s:
                    channel.socket.abort()
                else:
                    channel.socket.ping()

    def _deleted(self, hybrid: HybridConnection) -> None:
        for channel in self.listeners.of(hybrid):
            channel.socket.close(Close.GOING_AWAY, "The hybrid connection was deleted.")
        for pipe, (target, _, _) in list(self._pipes.items()):
            if target.hybrid is hybrid:
                pipe.close(Close.GOING_AWAY, "The hybrid connection was deleted.")

    def _check_grants(self, namespace: Namespace) -> None:
        """Whoever used a key that is gone is gone too."""
        for hybrid in namespace.hybrids.all():
            for channel in self.listeners.of(hybrid):
                channel.renew(channel.grant.credential)
        now_ms = self._gate.now_ms()
        for pipe, (target, grant, audience) in list(self._pipes.items()):
            if target.namespace is not namespace or grant is None:
                continue
            if renewed(grant, audience, namespace.rules_for, now_ms) is None:
                pipe.close(Close.POLICY, "The token is no longer valid.")

    async def close(self, app: web.Application | None = None) -> None:
        """Let everybody go."""
        self._is_closing = True
        if self._pings is not None:
            self._pings.cancel()
        for channel in self.listeners.all():
            channel.socket.close(Close.GOING_AWAY, "The relay is stopping.")
        for pipe in list(self._pipes):
            pipe.close(Close.GOING_AWAY, "The relay is stopping.")

    # What is told about it

    def _count(self, namespace: Namespace, name: str) -> None:
        self._counted.setdefault(namespace, Counter())[name] += 1

    def numbers(self, namespace: Namespace) -> dict[str, int]:
        """Plain numbers for the metrics page."""
        counted = self._counted.get(namespace, Counter())
        return {
            "relay_listeners": sum(map(self.listener_count, namespace.hybrids.all())),
            "relay_connections": self._connections[namespace],
            "relay_requests_total": counted["relay_requests_total"],
            "relay_sockets_total": counted["relay_sockets_total"],
        }

    def _note(self, target: Target, operation: str, outcome: str, size: int, number: str) -> None:
        target.namespace.note_relayed(target.hybrid, operation, outcome, ORIGIN, size=size, tracking_id=number)

    def _refusal(self, request: web.Request, refused: RefusedError, number: str) -> web.Response:
        path = ascii(request.rel_url.path[:300])
        log.info(
            "auth.refused" if refused.status in (401, 403) else "relay.refused",
            "{method} of {entity} refused: {status}: {reason} (TrackingId:{tracking_id})",
            entity=path,
            method=request.method,
            status=refused.status,
            reason=refused.text,
            tracking_id=number,
        )
        reason = " ".join(refused.text.split())[:200]
        reason = reason if reason.isascii() and reason.isprintable() else ""
        response = web.Response(
            status=refused.status, reason=reason or None, text=f"{refused.text} TrackingId:{number}\n"
        )
        if refused.is_listeners:
            response.headers[hdrs.VIA] = headers.via_of(request.host)
        elif refused.status == 401:
            response.headers[hdrs.WWW_AUTHENTICATE] = "SharedAccessSignature"
        if request.body_exists and not request.content.is_eof():
            response.force_close()  # What is left of the body interests nobody.
        return response


class Expiry:
    """Closes a socket when its token's time is over."""

    def __init__(self, seconds_left: Callable[[], float], close: Callable[[Close, str], None]) -> None:
        self._seconds_left = seconds_left
        self._close = close
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Look at the clock, now and when the token should be over."""
        self.stop()
        left = self._seconds_left()
        if left <= 0:
            self._close(Close.POLICY, "The token has expired.")
            return
        # Far instants are looked at again: a loop's timers may not take them.
        self._timer = asyncio.get_running_loop().call_later(min(left, 3600.0), self.start)

    def stop(self) -> None:
        """The socket is gone."""
        if self._timer is not None:
            self._timer.cancel()
