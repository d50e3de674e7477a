"""The console on a broker's HTTP port: finds the page, knows who asks, refuses what comes from other places.

Pages are made in `pages`; here is what holds for all of them: sessions, same-origin checks, headers, live updates.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

import aiohttp
from aiohttp import web
from aiohttp.typedefs import Handler

from twinbus.console import layout
from twinbus.console.asking import OWN_PATIENCE_S, PATIENCE_S, Asker, Door, Memory, RefusedError, SilentError
from twinbus.console.book import Book
from twinbus.console.html import Markup
from twinbus.console.pages import (
    drills,
    entities,
    entity,
    incidents,
    message,
    messages,
    orphan,
    pair,
    policies,
    sign_in,
    system,
    work,
)
from twinbus.console.pair import Pair, PairWatch
from twinbus.console.past import Past
from twinbus.console.sessions import Session, Sessions
from twinbus.console.shapes import ROOT, link
from twinbus.console.signing import UnreadableError, typed
from twinbus.console.visit import Form, Visit

log = logging.getLogger("twinbus.console")

LIVE_S = 2.0
LIVE_MAX = 200
FORM_BYTES_MAX = 600 * 1024
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
# Of a report that another program wrote: its own styles, and nothing else.
SHOWN_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; frame-ancestors 'none'; sandbox"
_STATIC = {"console.css": "text/css", "console.js": "text/javascript", "icon.svg": "image/svg+xml"}

_IS_PAGE = re.compile(r"/\$console/[\x21-\x5b\x5d-\x7e]*")

Page = Callable[[Visit], Awaitable[layout.Content]]
Act = Callable[[Visit, Form], Awaitable[str | layout.Content]]  # Where to go on, or a page that asks for more.

PAGES: dict[str, Page] = {
    "pair": pair.page,
    "entities": entities.page,
    "entity": entity.page,
    "new": entity.new_page,
    "messages": messages.page,
    "message": message.page,
    "job": work.page,
    "incidents": incidents.page,
    "incident": incidents.one,
    "drill": drills.page,
    "policies": policies.page,
    "policy": policies.one,
    "orphan": orphan.page,
    "system": system.page,
}
# The parts of a page that change by themselves, by the ids of their elements.
LIVE: dict[str, Callable[[Visit], Awaitable[Mapping[str, Markup]]]] = {
    "pair": pair.live,
    "entities": entities.live,
    "job": work.live,
    "incidents": incidents.live,
    "incident": incidents.live_one,
    "drill": drills.live,
    "system": system.live,
}
# What is kept or opened by itself.
FILES: dict[str, Callable[[Visit], Awaitable[layout.Saved]]] = {
    "incident.json": incidents.exported,
    "incident.html": incidents.report,
    "drill.html": drills.report,
    "orphan.jsonl": orphan.exported,
}
ACTS: dict[str, Act] = {
    "entity/create": entity.create,
    "entity/change": entity.change,
    "entity/delete": entity.delete,
    "message/resubmit": message.resubmit,
    "messages/plan": work.plan,
    "messages/work": work.begin,
    "job/end": work.end,
    "drill/start": drills.start,
    "drill/abort": drills.abort,
    "policy/add": policies.add,
    "policy/keys": policies.show_keys,
    "policy/rights": policies.change_rights,
    "policy/rotate": policies.rotate,
    "policy/remove": policies.remove,
    "orphan/adopt": orphan.adopt,
    "orphan/move": orphan.move,
    "orphan/drop": orphan.drop,
    "system/fault": system.begin_fault,
    "system/lift": system.lift_fault,
}


class Console:
    """The pages of one broker process."""

    home = ROOT

    def __init__(self, pair: Pair | None = None) -> None:
        self.routes: Mapping[str, Handler] = {ROOT.rstrip("/"): self._answer, ROOT + "{page:.*}": self._answer}
        self._memory = Memory()
        self._pair = None if pair is None else PairWatch(pair, self._memory)
        self._sessions = Sessions(time.monotonic)
        self._http: aiohttp.ClientSession | None = None
        self._impatient = False  # Its own namespace did not answer the last time.
        self._live: set[asyncio.Task[None]] = set()
        self._ended = asyncio.Event()
        folder = Path(__file__).parent / "static"
        self._static = {name: (folder / name).read_bytes() for name in _STATIC}
        layout.set_version(hashlib.sha256(b"".join(self._static.values())).hexdigest()[:12])

    async def begin(self, directory: Path | None) -> None:
        """Watch the pair from now on; its incidents are kept in a directory of the broker's, if there is one."""
        if self._pair is not None:
            self._pair.begin(self._client(), Book(directory), Past(directory))

    async def close(self) -> None:
        """End live updates, and ask nobody any more."""
        self._ended.set()
        if self._pair is not None:
            await self._pair.close()
        if self._http is not None:
            await self._http.close()

    # One request

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        page = request.match_info.get("page", "")
        try:
            response = await self._serve(request, page)
        except web.HTTPException as answer:
            response = answer
        except SilentError as silent:
            response = self._problem(request, 504, f"The namespace does not answer: {silent}.")
        except RefusedError as refused:
            response = self._problem(request, refused.status, refused.message, refused.tracking_id)
        except ConnectionError:
            raise  # The browser is gone, and nobody is left to be told.
        except Exception:
            log.exception("a page of the console failed: %s", ascii(page[:200]))
            response = self._problem(
                request, 500, "The console failed to make this page; the broker's log has the reason."
            )
        if not response.prepared:
            for name, value in HEADERS.items():
                response.headers.setdefault(name, value)
            response.headers.setdefault("Cache-Control", "no-store")
        if isinstance(response, web.HTTPException):
            raise response  # As aiohttp wants it.
        return response

    async def _serve(self, request: web.Request, page: str) -> web.StreamResponse:
        if page.startswith("static/"):
            return self._file(page.removeprefix("static/"))
        if request.method == "POST":
            return await self._post(request, page)
        if request.method not in ("GET", "HEAD"):
            raise web.HTTPMethodNotAllowed(request.method, ["GET", "HEAD", "POST"])
        session = self._session(request)
        if page == "sign-in":
            return _html(sign_in.page(next_page=request.query.get("next", "")))
        if session is None:
            raise web.HTTPSeeOther(link("sign-in", next=_local(request)))
        if page == "":
            raise web.HTTPSeeOther(link("pair" if self._pair is not None else "entities"))
        visit = await self._visit(request, session)
        if page.startswith("live/") and page.removeprefix("live/") in LIVE:
            return await self._stream(request, visit, LIVE[page.removeprefix("live/")])
        if page in FILES:
            return _file(await FILES[page](visit))
        if page not in PAGES:
            return self._problem(request, 404, "There is no such page.")
        content = await PAGES[page](visit)
        return _html(layout.page(visit, page, content), content.status)

    async def _post(self, request: web.Request, page: str) -> web.StreamResponse:
        if not _is_same_origin(request):
            return self._problem(request, 403, "This request comes from another site, and was refused.")
        if (request.content_length or 0) > FORM_BYTES_MAX:
            return self._problem(request, 413, "That is too much for a form.")
        given = await request.post()
        form = Form({name: value for name, value in given.items() if isinstance(value, str)})
        if page == "sign-in":
            return await self._sign_in(request, form)
        session = self._session(request)
        if session is None:
            raise web.HTTPSeeOther(link("sign-in"))
        if not session.is_own(form.text("token")):
            return self._problem(request, 403, "This form is too old, or not of this console. Open the page anew.")
        if page == "sign-out":
            self._sessions.end(request.cookies.get(_cookie_name(request)))
            answer = web.HTTPSeeOther(link("sign-in"))
            answer.del_cookie(_cookie_name(request), path=ROOT)
            return answer
        if page not in ACTS:
            return self._problem(request, 404, "There is no such page.")
        if not session.manages:
            return self._problem(request, 403, "Your policy may look and not change: sign in with one that manages.")
        visit = await self._visit(request, session)
        done = await ACTS[page](visit, form)
        if isinstance(done, str):
            raise web.HTTPSeeOther(done)
        return _html(layout.page(visit, page, done), done.status)

    # Who asks

    def _session(self, request: web.Request) -> Session | None:
        return self._sessions.find(request.cookies.get(_cookie_name(request)))

    async def _sign_in(self, request: web.Request, form: Form) -> web.StreamResponse:
        address = request.remote or ""
        going_on = form.text("next")
        if not self._sessions.may_try(address):
            return _html(sign_in.page("Too many wrong attempts: wait a minute.", next_page=going_on), 429)
        try:
            credential = typed(form.text("policy"), form.text("key"))
            asker = Asker(self._client(), self._door(request), credential, self._memory, patience_s=OWN_PATIENCE_S)
            found = await asker.api("GET", "entities", {"top": "1"}, timeout_s=OWN_PATIENCE_S)
        except UnreadableError as problem:
            return _html(sign_in.page(str(problem), form.text("policy"), going_on), 400)
        except RefusedError as refused:
            self._sessions.was_wrong(address)
            words = (
                "This policy may neither manage nor listen: it cannot look at anything."
                if refused.code == "unauthorized"
                else "The policy's name or its key is not right."
            )
            return _html(sign_in.page(words, form.text("policy"), going_on), 401)
        manages = True
        try:
            await asker.api("GET", "status", timeout_s=OWN_PATIENCE_S)
        except RefusedError:
            manages = False
        cookie, _ = self._sessions.begin(credential, manages, str(found["namespace"]))
        answer = web.HTTPSeeOther(going_on if _IS_PAGE.fullmatch(going_on) else ROOT)
        answer.set_cookie(
            _cookie_name(request), cookie, httponly=True, samesite="Strict", secure=request.secure, path=ROOT
        )
        return answer

    def _client(self) -> aiohttp.ClientSession:
        if self._http is None:
            self._http = aiohttp.ClientSession(trust_env=False, cookie_jar=aiohttp.DummyCookieJar())
        return self._http

    def _door(self, request: web.Request) -> Door:
        """This process itself, where the request has reached it; the host tells which namespace is meant."""
        assert request.transport is not None
        name = request.transport.get_extra_info("sockname")
        host = f"[{name[0]}]" if ":" in name[0] else name[0]
        # It is our own socket: whose certificate it shows is not the question.
        return Door(f"{request.scheme}://{host}:{name[1]}", request.host, False)

    async def _visit(self, request: web.Request, session: Session) -> Visit:
        patience_s = PATIENCE_S if self._impatient else OWN_PATIENCE_S
        own = Asker(self._client(), self._door(request), session.credential, self._memory)
        visit = Visit(session, own, request.query, self._pair, self._client(), self._was_silent, patience_s)
        await visit.begin()
        return visit

    def _was_silent(self, is_silent: bool) -> None:
        self._impatient = is_silent

    # Answers

    def _file(self, name: str) -> web.Response:
        if name not in _STATIC:
            raise web.HTTPNotFound
        headers = {"Cache-Control": "max-age=86400"}
        return web.Response(body=self._static[name], content_type=_STATIC[name], charset="utf-8", headers=headers)

    def _problem(self, request: web.Request, status: int, words: str, tracking_id: str = "") -> web.Response:
        return _html(layout.problem(self._session(request), words, tracking_id), status)

    async def _stream(
        self, request: web.Request, visit: Visit, parts: Callable[[Visit], Awaitable[Mapping[str, Markup]]]
    ) -> web.StreamResponse:
        """Server-sent events: the parts of a page that have changed, until the browser goes or the broker stops."""
        if len(self._live) >= LIVE_MAX:
            raise web.HTTPServiceUnavailable
        response = web.StreamResponse(headers={**HEADERS, "Cache-Control": "no-store"})
        response.content_type = "text/event-stream"
        await response.prepare(request)
        task = asyncio.current_task()
        assert task is not None
        self._live.add(task)
        sent: dict[str, Markup] = {}
        try:
            while not self._ended.is_set():
                if self._session(request) is not visit.session:
                    await response.write(b"event: ended\ndata: 1\n\n")
                    break
                await visit.begin()
                found = {**await parts(visit), layout.PAIR_MARK: layout.pair_mark(visit)}
                changed = {name: part for name, part in found.items() if sent.get(name) != part}
                sent.update(changed)
                await response.write(f"data: {json.dumps(changed)}\n\n".encode())
                try:
                    await asyncio.wait_for(self._ended.wait(), LIVE_S)
                except TimeoutError:
                    continue
        except (ConnectionError, RefusedError, SilentError):
            pass  # The browser has gone, or asks again by itself.
        finally:
            self._live.discard(task)
        return response


def _html(text: str, status: int = 200) -> web.Response:
    return web.Response(status=status, text=text, content_type="text/html", charset="utf-8")


def _file(saved: layout.Saved) -> web.Response:
    """Kept by the browser, or shown without anything that it could load or run."""
    headers = {"Content-Disposition": f'{"inline" if saved.is_shown else "attachment"}; filename="{saved.name}"'}
    if saved.is_shown:
        headers["Content-Security-Policy"] = SHOWN_POLICY
    return web.Response(body=saved.body, content_type=saved.content_type, charset="utf-8", headers=headers)


def _local(request: web.Request) -> str:
    return str(request.rel_url) if request.rel_url.path.rstrip("/") != ROOT.rstrip("/") else ""


def _cookie_name(request: web.Request) -> str:
    """By port: browsers do not tell the consoles of one machine apart."""
    port = request.host.rpartition(":")[2]
    return f"twinbus-console-{port if port.isdigit() and port.isascii() else request.scheme}"


def _is_same_origin(request: web.Request) -> bool:
    """Whether a form was sent by a page of this console: the browser says so, in one way at least."""
    site, origin = request.headers.get("Sec-Fetch-Site"), request.headers.get("Origin")
    if site is not None and site not in ("same-origin", "none"):
        return False
    if origin is not None:
        return origin.partition("://")[2].lower() == request.host.lower()
    return site is not None
