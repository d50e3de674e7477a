"""What all pages have around them: the head, the bar with the names of the pages, and sentences about trouble.

The pages themselves are in `pages`.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from twinbus.console.asking import Answer
from twinbus.console.html import Child, Markup, document, el, join
from twinbus.console.pair import KINDS
from twinbus.console.sessions import Session
from twinbus.console.shapes import ROOT, lasting, link, mark, notice
from twinbus.console.visit import Visit

PAIR_MARK = "pair-mark"  # The id of the element in which the pair's state stands.
_version = ["0"]
_PAGES = {
    "pair": "Pair",
    "entities": "Entities",
    "messages": "Messages",
    "incidents": "Incidents and drills",
    "policies": "Policies",
    "system": "System",
}
_OF_PAIRS = ("pair", "incidents")
_BELONGS = {
    "entity": "entities",
    "new": "entities",
    "message": "messages",
    "job": "messages",
    "incident": "incidents",
    "drill": "incidents",
    "policy": "policies",
    "orphan": "system",
}


@dataclass(slots=True)
class Content:
    """A page's own part. `live` is the address of its updates, without the beginning that all have."""

    title: str
    main: Markup
    live: str | None = None
    status: int = 200


@dataclass(slots=True)
class Saved:
    """A file that somebody keeps or opens by itself; it is never part of a page."""

    name: str
    content_type: str
    body: bytes
    is_shown: bool = False  # In the browser, without any script, rather than kept.


def set_version(version: str) -> None:
    """By which browsers tell new style and script from old."""
    _version[0] = version


def stylesheet() -> str:
    """The style of all pages, for a file that stands alone."""
    return (Path(__file__).parent / "static" / "console.css").read_text()


def _head() -> Markup:
    version = _version[0]
    return join(
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el("meta", name="color-scheme", content="light dark"),
        el("link", rel="icon", href=f"{ROOT}static/icon.svg?v={version}", type="image/svg+xml"),
        el("link", rel="stylesheet", href=f"{ROOT}static/console.css?v={version}"),
        el("script", src=f"{ROOT}static/console.js?v={version}", defer=True),
    )


def page(visit: Visit, name: str, content: Content) -> str:
    """A whole page for somebody who is signed in."""
    chosen = _BELONGS.get(name.partition("/")[0], name.partition("/")[0])
    session = visit.session
    pages = [
        el("a", shown, href=link(key), aria_current="page" if key == chosen else None)
        for key, shown in _PAGES.items()
        if key not in _OF_PAIRS or visit.pair is not None
    ]
    header = el(
        "header",
        el("a", "Twinbus", href=ROOT, class_="brand"),
        el("span", session.namespace, class_="namespace", title="The namespace that this console belongs to"),
        el("span", pair_mark(visit), id=PAIR_MARK),
        el("nav", pages, aria_label="Pages"),
        el("span", class_="room"),
        None if session.manages else mark("plain", "read-only"),
        el("span", session.credential.policy, class_="who", title="The policy that you are signed in with"),
        visit.form("sign-out", el("button", "Sign out", class_="quiet")),
    )
    main = el("main", content.main, id="main", data_live=content.live and f"{ROOT}live/{content.live}")
    skip = el("a", "Skip to the content", href="#main", class_="skip")
    return document(f"{content.title} · {session.namespace} · Twinbus", _head(), join(skip, header, main))


def pair_mark(visit: Visit) -> Markup:
    """The pair's state in a word, on every page."""
    if visit.pair is None:
        return join()
    state = visit.pair.standing.state
    return el("a", mark(KINDS.get(state, "bad"), state), href=link("pair"), class_="pair-mark")


def bare(title: str, *main: Child) -> str:
    """A page for nobody in particular."""
    return document(f"{title} · Twinbus", _head(), el("main", *main, id="main", class_="bare"))


def problem(session: Session | None, words: str, tracking_id: str = "") -> str:
    """A page that says what went wrong, and how to go on."""
    back = link("entities") if session is not None else link("sign-in")
    tracked = el("p", "Tracking id ", el("code", tracking_id)) if tracking_id else None
    return bare("A problem", el("h1", "That did not work"), notice("bad", words), tracked, el("a", "Go on", href=back))


def staleness(answer: Answer, who: str) -> Markup | None:
    """A sentence about an answer that is not of now."""
    if answer.is_fresh:
        return None
    if answer.document is None:
        return notice("bad", f"{who} tells nothing: {answer.problem}.")
    return notice("warn", f"{who} does not answer ({answer.problem}). Shown is what it said ", _ago(answer), ".")


def _ago(answer: Answer) -> Markup:
    return el("strong", f"{lasting(time.time() - answer.at_s)} ago")
