"""One entity that is set aside: what it holds, and what an operator can do with it.

It is taken up again, moved, kept as a file, or given up for good, which needs its name typed. What may be done is
decided by the namespace; see docs/store.md.
"""

from __future__ import annotations

import json

from twinbus.console import layout
from twinbus.console.asking import Document, RefusedError
from twinbus.console.html import Markup, el, join
from twinbus.console.layout import Content, Saved
from twinbus.console.shapes import field, link, notice, num, number, size, table
from twinbus.console.visit import Form, Visit

EXPORT_BYTES_MAX = 32 * 1024 * 1024  # A browser's file is made in memory; a larger one is the command's.
PAGE = 250
_SUB_QUEUES = ("main", "dead-letter", "transfer-dead-letter")
_COUNTS = ("active", "deferred", "scheduled", "dead_letter", "transfer_dead_letter")


async def page(visit: Visit) -> Content:
    """The whole page."""
    return await _one(visit, visit.number("number"))


async def _one(visit: Visit, wanted: int, problem: str | None = None) -> Content:
    if not visit.session.manages:
        words = "What is set aside is for policies that manage."
        return Content("Set aside", join(el("h1", "Set aside"), notice("plain", words)), status=403)
    answer = await visit.look("orphans")
    found = [] if answer.document is None else answer.document["orphans"]
    orphan = next((each for each in found if each["number"] == wanted), None)
    crumbs = el("p", el("a", "System", href=link("system")), class_="crumbs")
    stale = layout.staleness(answer, f"'{visit.session.namespace}'")
    if orphan is None:
        missing = None if answer.document is None else notice("bad", problem or "Nothing of this number is set aside.")
        return Content("Set aside", join(crumbs, el("h1", "Set aside"), stale, missing), status=404)
    main = join(
        crumbs,
        el("h1", title(orphan)),
        stale,
        notice("bad", problem) if problem else None,
        el("p", "The catalog does not know it. It is kept with all messages, and not served.", class_="faint"),
        _held(orphan),
        _adopting(visit, orphan),
        _moving(visit, orphan),
        _keeping(orphan),
        _dropping(visit, orphan),
    )
    return Content(title(orphan), main, status=200 if problem is None else 400)


def title(orphan: Document) -> str:
    """How people speak of it."""
    return str(orphan["name"] or f"number {orphan['number']}")


def _confirmation(orphan: Document) -> str:
    return str(orphan["name"] or orphan["number"])


def _held(orphan: Document) -> Markup:
    """Its parts, each with what it holds."""
    rows = [
        (part["number"], part["store"], *(num(number(part.get(count))) for count in _COUNTS))
        for part in orphan["parts"]
    ]
    heads = (
        "Number",
        "Store",
        *(el("th", count.replace("_", " ").capitalize(), scope="col", class_="num") for count in _COUNTS),
    )
    words = f"{orphan['kind'] or 'of unknown kind'}, {number(orphan['messages'])} messages, {size(orphan['bytes'])}"
    return el("section", el("h2", "What it holds ", el("small", words)), table(heads, rows))


def _numbered(orphan: Document) -> Markup:
    return el("input", type="hidden", name="number", value=orphan["number"])


def _adopting(visit: Visit, orphan: Document) -> Markup:
    words = "As it was described, with all its messages. Under another name it is a queue."
    if not orphan["described"]:
        words = "How it was described is not known: it will be a queue with the settings that its store has."
    return el(
        "section",
        el("h2", "Serve it again"),
        visit.form(
            "orphan/adopt",
            _numbered(orphan),
            el("p", words),
            field("Another name", el("input", name="as", maxlength=260, spellcheck="false", autocomplete="off")),
            el("button", "Adopt", class_="main"),
            class_="card",
        ),
    )


def _moving(visit: Visit, orphan: Document) -> Markup:
    words = "Its messages and dead letters are forwarded to another queue or topic."
    return el(
        "section",
        el("h2", "Move its messages"),
        visit.form(
            "orphan/move",
            _numbered(orphan),
            el("p", words),
            field("To", el("input", name="to", required=True, maxlength=260, spellcheck="false", autocomplete="off")),
            el("button", "Move"),
            class_="card",
        ),
    )


def _keeping(orphan: Document) -> Markup:
    if orphan["bytes"] > EXPORT_BYTES_MAX:
        offered: Markup = el("code", f"twinbus store export {orphan['number']} FILE")
    else:
        offered = el("a", "Export", href=link("orphan.jsonl", number=orphan["number"]), class_="button")
    words = "All messages, a JSON object on each line with its AMQP sections in base64. Nothing is taken away."
    return el("section", el("h2", "Keep its messages as a file"), el("p", words, class_="faint"), el("p", offered))


def _dropping(visit: Visit, orphan: Document) -> Markup:
    return el(
        "section",
        el("h2", "Give it up"),
        visit.form(
            "orphan/drop",
            _numbered(orphan),
            el("p", f"Its {number(orphan['messages'])} messages are deleted for good."),
            field(
                f"Type {_confirmation(orphan)} to confirm",
                el("input", name="confirm", required=True, autocomplete="off", spellcheck="false"),
            ),
            el("button", "Drop", class_="danger"),
            class_="card",
        ),
    )


# Acts


def _number(form: Form) -> int:
    text = form.text("number")
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 19 else 0


async def adopt(visit: Visit, form: Form) -> str | Content:
    """Make it an entity again."""
    wanted, name = _number(form), form.text("as").strip()
    try:
        made = await visit.own.api("POST", f"orphans/{wanted}/adopt", None, {"as": name} if name else {})
    except RefusedError as refused:
        return await _one(visit, wanted, refused.message)
    return link("entity", name=made["name"])


async def move(visit: Visit, form: Form) -> str | Content:
    """Have its messages forwarded; what it is now can be watched."""
    wanted, target = _number(form), form.text("to").strip()
    try:
        orphan = await _found(visit, wanted)
        name = f"set-aside/{(orphan['name'] or 'entity').replace('/', '.')}-{wanted}"
        made = await visit.own.api("POST", f"orphans/{wanted}/adopt", None, {"as": name, "forward_to": target})
    except RefusedError as refused:
        return await _one(visit, wanted, refused.message)
    return link("entity", name=made["name"])


async def drop(visit: Visit, form: Form) -> str | Content:
    """Delete it, if its name was typed."""
    wanted = _number(form)
    try:
        name = _confirmation(await _found(visit, wanted))
        form.confirmed(name)
        await visit.own.api("POST", f"orphans/{wanted}/drop", None, {"confirm": name})
    except RefusedError as refused:
        return await _one(visit, wanted, refused.message)
    return link("system")


async def _found(visit: Visit, wanted: int) -> Document:
    for orphan in (await visit.own.api("GET", "orphans"))["orphans"]:
        if orphan["number"] == wanted:
            return dict(orphan)
    raise RefusedError(404, "not-found", "Nothing of this number is set aside any more.")


async def exported(visit: Visit) -> Saved:
    """All its messages, as `twinbus store export` writes them."""
    orphan = await _found(visit, visit.number("number"))
    if orphan["bytes"] > EXPORT_BYTES_MAX:
        words = f"It is too large for a browser: use `twinbus store export {orphan['number']} FILE`."
        raise RefusedError(413, "too-large", words)
    lines = []
    for part in orphan["parts"]:
        for sub_queue in _SUB_QUEUES:
            start: int | None = 0
            while start is not None:
                asked = {"part": str(part["number"]), "sub_queue": sub_queue, "from": str(start), "top": str(PAGE)}
                found = await visit.own.api("GET", f"orphans/{orphan['number']}/messages", asked)
                lines += [
                    json.dumps({"part": part["number"], "sub_queue": sub_queue, **message}) + "\n"
                    for message in found["messages"]
                ]
                start = found["next"]
    return Saved(f"set-aside-{orphan['number']}.jsonl", "application/jsonl", "".join(lines).encode())
