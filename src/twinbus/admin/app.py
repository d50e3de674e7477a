"""The HTTP door: tells probes from administration, checks tokens, and answers with entries, feeds or errors.

Decides nothing about entities: `paths` reads which one is meant, `resources` does what is asked, `atom` words it.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from urllib.parse import quote, unquote, urlencode
from uuid import UUID

from aiohttp import web
from aiohttp.typedefs import Handler

from twinbus.admin import api, atom, paths
from twinbus.admin.api import Upkeep
from twinbus.admin.choosing import namespace_of
from twinbus.admin.disturbing import PLACE as FAULTS
from twinbus.admin.faults import ANSWERS, Answer, HttpError, error_document
from twinbus.admin.hybrids import Relay
from twinbus.admin.messages import Messages
from twinbus.admin.paths import LISTS, Target, What
from twinbus.admin.probes import Check, Probes, Read
from twinbus.admin.resources import Asked, Resources
from twinbus.admin.site import Site, is_for_people
from twinbus.entities.hosting import Hosting
from twinbus.entities.namespace import Namespace
from twinbus.model.clock import Clock
from twinbus.model.disturbance import Suffering
from twinbus.model.errors import BusError, Fault
from twinbus.model.logged import EventLog
from twinbus.model.security import Rights
from twinbus.wire import access, sas
from twinbus.wire.descriptions import timestamp
from twinbus.wire.markup import parse

BODY_BYTES_MAX = 1024 * 1024
BODY_S = 10.0
SILENT_S = 0.1
PAGE_MAX = 100
METHODS = ("GET", "PUT", "DELETE")

log = EventLog("twinbus.admin")


def make_app(
    hosting: Hosting,
    *,
    clock: Clock,
    metrics: Read,
    ready: Callable[[], bool],
    serves: Callable[[], bool] = lambda: True,
    doubts: Callable[[], list[str]] = list,
    checks: Mapping[str, Check] | None = None,
    random_bytes: Callable[[int], bytes] = secrets.token_bytes,
    routes: Mapping[str, Handler] | None = None,
    upkeep: Mapping[Namespace, Upkeep] | None = None,
    counters: Callable[[Namespace], Counter[str]] = lambda _: Counter(),
    relay: Relay | None = None,
    site: Site | None = None,
) -> web.Application:
    """The application for one port: probes, metrics, the Atom API of each namespace, and others' `routes`.

    `serves` tells whether anything could be served, `doubts` what is set aside, and `checks` what is wrong, one by one,
    for probes.
    `clock` is the one that tokens are made by; `counters` are where the messages of a namespace are counted.
    `relay` answers the requests that are for a hybrid connection and not for an entity, `site` serves pages to people.
    """
    app = web.Application(client_max_size=BODY_BYTES_MAX)
    probes = Probes(metrics, ready, serves, checks or {}, doubts)
    doors = {
        namespace: _Door(
            namespace, probes, ready, random_bytes, clock, counters(namespace), (upkeep or {}).get(namespace), relay
        )
        for namespace in (*hosting.namespaces, hosting.nobody)
    }

    async def answer(request: web.Request) -> web.StreamResponse:
        if site is not None and is_for_people(request):
            raise web.HTTPSeeOther(site.home)
        await _suffer(request, namespace_of(request, hosting, clock).suffering)
        relayed = None if relay is None else relay.answering(request)
        if relayed is not None:
            return await relayed
        return await doors[namespace_of(request, hosting, clock)].answer(request)

    for door in doors.values():
        app.on_shutdown.append(door.messages.stop)
    if site is not None:
        routes = {**(routes or {}), **site.routes}
        app.on_shutdown.append(lambda _: site.close())
    for path, handler in (routes or {}).items():
        app.router.add_route("*", path, handler)
    app.router.add_route("*", r"/{path:[\s\S]*}", answer)  # A line break in a name is ours to refuse.
    return app


async def _suffer(request: web.Request, suffering: Suffering) -> None:
    """Keep silent, or cut the connection, where the namespace is made to; what can end that is always answered."""
    if request.path.startswith(f"{api.PREFIX}{FAULTS}") or request.path == "/livez":
        return
    while suffering.is_blackholed:
        await asyncio.sleep(SILENT_S)
    if suffering.is_down:
        if request.transport is not None:
            request.transport.abort()
        raise ConnectionResetError("The namespace is down on purpose.")


class _Door:
    """Answers every request that is about its namespace. One request is one tracking id."""

    def __init__(
        self,
        namespace: Namespace,
        probes: Probes,
        ready: Callable[[], bool],
        random_bytes: Callable[[int], bytes],
        clock: Clock,
        counters: Counter[str],
        upkeep: Upkeep | None = None,
        relay: Relay | None = None,
    ) -> None:
        self._namespace = namespace
        self._api = None if upkeep is None else api.Api(namespace, upkeep, clock, relay)
        self._clock = clock  # Of those who make tokens; the namespace's own may have been moved.
        self._probes = probes
        self._ready = ready
        self._random_bytes = random_bytes
        self._resources = Resources(namespace, random_bytes)
        self._counters = counters
        self.messages = Messages(namespace, self._authorize, lambda: random_bytes(16).hex(), counters)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """The one handler."""
        probe = self._probes.answering(request)
        if probe is not None:
            return await probe
        tracking_id = str(UUID(bytes=self._random_bytes(16), version=4))
        if self._api is not None and request.path.startswith(api.PREFIX):
            return await self._answer_api(self._api, request, tracking_id)
        message = None
        try:
            message = self.messages.target(request)
            if message is None:
                return await self._administer(request, tracking_id)
            self._check_ready()
            return await self.messages.answer(request, message)
        except BusError as error:
            answer = self._refused(error) if message is None else self.messages.refused(error)
            return self._refusal(request, answer, error.text, tracking_id)
        except HttpError as fault:
            return self._refusal(request, fault.answer, fault.text, tracking_id, fault.allow or METHODS)
        except ConnectionError:
            raise  # The client is gone, and nobody is left to be told.
        except Exception:
            log.exception(
                "request.failed",
                "a request failed (TrackingId:{tracking_id})",
                namespace=self._namespace.name,
                tracking_id=tracking_id,
            )
            text = "The broker failed to answer; its log has the reason."
            return self._refusal(request, ANSWERS[Fault.INTERNAL], text, tracking_id)

    def _refused(self, error: BusError) -> Answer:
        """Count a refusal; the status that it has in administration."""
        self._counters[f"refused_{error.fault.value}"] += 1
        return ANSWERS[error.fault]

    def _refusal(
        self, request: web.Request, answer: Answer, text: str, tracking_id: str, allow: tuple[str, ...] = METHODS
    ) -> web.Response:
        self._log_refusal(request, answer, text, tracking_id)
        path = request.rel_url.path.strip("/")
        now = timestamp(self._namespace.clock.now_ms())
        body = error_document(answer, text, tracking_id, f"{self._namespace.name}:{path}", now)
        response = web.Response(status=answer.status, text=body, content_type="application/xml", charset="utf-8")
        if answer.status == 401:
            response.headers["WWW-Authenticate"] = "SharedAccessSignature"
        elif answer.status == 405:
            response.headers["Allow"] = ", ".join(allow)
        return response

    def _log_refusal(self, request: web.Request, answer: Answer, text: str, tracking_id: str) -> None:
        path = request.rel_url.path.strip("/")
        self._namespace.remember_refusal(f"http-{answer.status}", f"{request.method}: {text}", path, tracking_id)
        log.info(
            "auth.refused" if answer.status in (401, 403) else "request.refused",
            "{method} of {entity!a} refused with {status}: {reason!a} (TrackingId:{tracking_id})",
            namespace=self._namespace.name,
            entity=path[:300],
            method=request.method,
            status=answer.status,
            reason=text[:1000],
            tracking_id=tracking_id,
        )

    # The JSON API

    async def _answer_api(self, asked: api.Api, request: web.Request, tracking_id: str) -> web.Response:
        try:
            if not self._ready():
                raise BusError(Fault.SERVER_BUSY, "The broker is starting or stopping.")
            await self._namespace.look_again()
            path = _path_in(request)[len(api.PREFIX) - 1 :]
            self._authorize(request, asked.right_for(request.method, path))
            found = await asked.serve(request.method, path, await _body(request), request.query)
            return found if isinstance(found, web.Response) else web.json_response(found)
        except BusError as error:
            return self._api_refusal(request, self._refused(error), error.fault.value, error.text, tracking_id)
        except HttpError as fault:
            return self._api_refusal(request, fault.answer, api.code_of(fault.answer), fault.text, tracking_id)
        except Exception:
            log.exception(
                "request.failed",
                "a request failed (TrackingId:{tracking_id})",
                namespace=self._namespace.name,
                tracking_id=tracking_id,
            )
            text = "The broker failed to answer; its log has the reason."
            return self._api_refusal(request, ANSWERS[Fault.INTERNAL], Fault.INTERNAL.value, text, tracking_id)

    def _api_refusal(
        self, request: web.Request, answer: Answer, code: str, text: str, tracking_id: str
    ) -> web.Response:
        self._log_refusal(request, answer, text, tracking_id)
        response = web.json_response(api.error_document(code, text, tracking_id), status=answer.status)
        if answer.status == 401:
            response.headers["WWW-Authenticate"] = "SharedAccessSignature"
        return response

    # Administration

    async def _administer(self, request: web.Request, tracking_id: str) -> web.Response:
        if request.method not in METHODS:
            raise HttpError(405, f"{request.method} is not a method of the administration API.")
        self._check_ready()
        await self._namespace.look_again()  # Another gateway may have changed what the request is about.
        path = _path_in(request)
        self._authorize(request)
        target = paths.read(path)
        manages = partial(self._check_manages, request)
        asked = Asked(_origin_of(request), request.query.get("api-version", ""), tracking_id, manages)
        if request.method == "PUT":
            return await self._put(request, target, asked)
        if request.method == "DELETE":
            await self._resources.delete(target, asked)
            return web.Response()
        if target.what is What.NAMESPACE:
            return self._namespace_info(request)
        if target.what in LISTS:
            return await self._list(request, target, asked)
        return self._entry_response(await self._resources.get(target, asked), 200)

    def _check_ready(self) -> None:
        if not self._ready():
            raise BusError(Fault.SERVER_BUSY, "The broker is starting or stopping.")

    def _authorize(self, request: web.Request, right: Rights = Rights.MANAGE) -> access.Grant:
        """What the request's token grants; administration, reading included, needs Manage on what it is about."""
        # The Python client signs the namespace, the JavaScript client the whole address in lower case.
        return self._granted(request, "Authorization", request.rel_url.raw_path, right)

    def _check_manages(self, request: web.Request, path: str, header: str) -> None:
        """Refuse one who may not manage another entity too, by the same token or by one in a header for the purpose."""
        try:
            self._granted(request, "Authorization", f"/{quote(path)}", Rights.MANAGE)
        except BusError as error:
            if header not in request.headers:
                raise BusError(Fault.UNAUTHORIZED, f"The Manage right is required on '{path[:100]}' too.") from error
            self._granted(request, header, f"/{quote(path)}", Rights.MANAGE)

    def _granted(self, request: web.Request, header: str, raw_path: str, right: Rights) -> access.Grant:
        """What a header's token grants on a path."""
        token = request.headers.get(header)
        if token is None:
            raise BusError(Fault.AUTHENTICATION_FAILED, f"The request has no {header} header.")
        # The Python client, given a ready-made signature, sends it as if it were a bearer token.
        token = token.removeprefix("Bearer ")
        if not token.startswith(sas.PREFIX):
            raise BusError(
                Fault.AUTHENTICATION_FAILED,
                "Only shared access signatures are accepted here: sign with a policy's name and key.",
            )
        audience = f"{request.scheme}://{request.host}{raw_path}"
        now = self._clock.now_ms()
        grant = access.by_token(token, audience, self._namespace.rules_for, now)
        if not grant.allows(sas.path_of(audience), right):
            needed = str(right.name).capitalize()
            raise BusError(Fault.UNAUTHORIZED, f"The {needed} right is required for this operation.")
        return grant

    async def _put(self, request: web.Request, target: Target, asked: Asked) -> web.Response:
        """Create, or with `If-Match: *` replace."""
        match = request.headers.get("If-Match")
        if match not in (None, "*"):
            raise HttpError(412, "If-Match must be '*': entities have no versions here.")
        element = atom.description_in(parse(await _body(request)))
        entry = await self._resources.put(target, element, match is not None, asked)
        return self._entry_response(entry, 201 if match is None else 200)

    async def _list(self, request: web.Request, target: Target, asked: Asked) -> web.Response:
        page = atom.Page(_number(request, "$skip", 0), min(_number(request, "$top", PAGE_MAX), PAGE_MAX))
        if page.top == 0:
            raise BusError(Fault.ARGUMENT, "$top must be at least 1.")
        listing = await self._resources.page(target, page, asked)
        next_url = None
        if page.skip + page.top < listing.total:
            query = dict(request.query) | {"$skip": str(page.skip + page.top), "$top": str(page.top)}
            next_url = f"{asked.origin}{request.rel_url.raw_path}?{urlencode(query, safe='$')}"
        now = self._namespace.clock.now_ms()
        url = f"{asked.origin}{request.rel_url.raw_path_qs}"
        body = atom.feed(listing.title, url, next_url, listing.entries, self._namespace.name, now)
        return _atom_response(body, atom.FEED_TYPE, 200)

    def _entry_response(self, entry: atom.Entry, status: int) -> web.Response:
        return _atom_response(atom.entry(entry, self._namespace.name), atom.ENTRY_TYPE, status)

    def _namespace_info(self, request: web.Request) -> web.Response:
        # The catalog does not keep when the namespace was made; since when it is served is the best that is known.
        name, created_at_ms = self._namespace.name, self._namespace.created_at_ms
        content = atom.namespace_info(name, created_at_ms)
        url = f"{_origin_of(request)}{request.rel_url.raw_path}"
        entry = atom.Entry(url, name, created_at_ms, created_at_ms, content)
        return self._entry_response(entry, 200)


def _path_in(request: web.Request) -> str:
    """The path without outer slashes: Python escapes the slashes in it, JavaScript does not and may end with one."""
    try:
        return unquote(request.rel_url.raw_path, errors="strict").strip("/")
    except UnicodeDecodeError:
        raise BusError(Fault.ARGUMENT, "The address is not percent-encoded UTF-8.") from None


def _origin_of(request: web.Request) -> str:
    return f"{request.scheme}://{request.host}"


def _number(request: web.Request, parameter: str, default: int) -> int:
    text = request.query.get(parameter, str(default))
    if not (text.isascii() and text.isdigit() and len(text) <= 9):
        raise BusError(Fault.ARGUMENT, f"{parameter} must be a non-negative integer.")
    return int(text)


async def _body(request: web.Request) -> bytes:
    """The whole body, within a size and a time."""
    if request.headers.get("Content-Encoding", "identity").lower() != "identity":
        raise HttpError(415, "A compressed body is not accepted.")
    too_large = HttpError(413, f"The body is larger than {BODY_BYTES_MAX} bytes.")
    if (request.content_length or 0) > BODY_BYTES_MAX:
        raise too_large
    try:
        async with asyncio.timeout(BODY_S):
            return await request.read()
    except TimeoutError:
        raise HttpError(408, f"The body did not arrive within {BODY_S:.0f} seconds.") from None
    except web.HTTPRequestEntityTooLarge:
        raise too_large from None
    except ConnectionError:
        raise HttpError(400, "The client went away before its body had arrived.") from None
    except web.RequestPayloadError:
        raise HttpError(400, "The body is not what its headers say.") from None


def _atom_response(body: str, content_type: str, status: int) -> web.Response:
    return web.Response(status=status, body=body.encode(), headers={"Content-Type": content_type})
