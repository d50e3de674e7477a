"""Work on many messages: planned with a count first, confirmed with the entity's name, watched while it goes on.

The namespace does the work and goes on without the page; here it is begun, shown and ended.
"""

from __future__ import annotations

from collections.abc import Mapping

from twinbus.console.asking import Document
from twinbus.console.html import Markup, el, join
from twinbus.console.layout import Content
from twinbus.console.shapes import clock, field, link, mark, notice, number
from twinbus.console.visit import Form, Visit

_DONE = {"count": "counted", "redrive": "sent back", "purge": "removed"}
_WILL = {"redrive": "Send back", "purge": "Remove"}
_STATES = {"running": "warn", "done": "good", "failed": "bad", "ended": "plain"}


async def plan(visit: Visit, form: Form) -> str | Content:
    """Count what would be dealt with."""
    job = {key: form.text(key) for key in ("entity", "sub_queue", "filter")}
    begun = await visit.own.api("POST", "jobs", None, {"work": "count", **job})
    return link("job", number=begun["number"], then=form.text("work"))


async def begin(visit: Visit, form: Form) -> str | Content:
    """Begin it, if the entity's name was typed."""
    form.confirmed(form.text("entity"))
    job = {key: form.text(key) for key in ("work", "entity", "sub_queue", "filter")}
    begun = await visit.own.api("POST", "jobs", None, job)
    return link("job", number=begun["number"])


async def end(visit: Visit, form: Form) -> str | Content:
    """Stop a job; what was done stays done."""
    at = form.text("number")
    await visit.own.api("DELETE", f"jobs/{int(at) if at.isdigit() else 0}")
    return link("job", number=at)


async def page(visit: Visit) -> Content:
    """A job, how far it is, and what can follow."""
    if not visit.session.manages:
        return Content("Job", notice("warn", "Jobs are for policies that manage."), status=403)
    at, then = visit.number("number"), visit.text("then")
    answer = await visit.look(f"jobs/{at}")
    if answer.document is None:
        return Content("Job", notice("bad", f"It cannot be shown: {answer.problem}"), status=404)
    job = answer.document
    back = link("messages", entity=job["entity"], sub_queue=job["sub_queue"])
    main = join(
        el("p", el("a", job["entity"], href=back), " / job ", at, class_="crumbs"),
        el("h1", _title(job, then)),
        el("p", "Condition: ", el("code", job["filter"])) if job["filter"] else None,
        el("div", _progress(job, then), id="progress"),
        _confirming(visit, job, then) if then in _WILL else None,
        _ending(visit, job) if job["state"] == "running" else None,
        el("p", el("a", "Back to the messages", href=back, class_="button")),
    )
    return Content("Job", main, f"job?number={at}" + (f"&then={then}" if then in _WILL else ""))


async def live(visit: Visit) -> Mapping[str, Markup]:
    """How far it is."""
    answer = await visit.look(f"jobs/{visit.number('number')}")
    if answer.document is None:
        return {"progress": notice("bad", f"{answer.problem}")}
    return {"progress": _progress(answer.document, visit.text("then"))}


def _title(job: Document, then: str) -> str:
    which = "dead letters" if job["sub_queue"] != "main" else "messages"
    doing = _WILL.get(then) or {"count": "Count", **_WILL}[job["work"]]
    return f"{doing} {which} of {job['entity']}"


def _progress(job: Document, then: str) -> Markup:
    seen = job["done"] + job["kept"]
    total = max(job["total"], seen, 1)
    is_over = job["state"] != "running"
    counted = f"{number(job['done'])} of {number(job['total'])} would be {_DONE.get(then, 'chosen')}"
    words = counted if job["work"] == "count" else f"{number(job['done'])} {_DONE[job['work']]}"
    kept = f", {number(job['kept'])} stay" if job["kept"] else ""
    return join(
        el("p", mark(_STATES[job["state"]], job["state"]), " ", el("strong", words), kept, class_="big"),
        el("progress", max=total, value=total if is_over and job["state"] == "done" else seen, aria_label=words),
        notice("bad", job["problem"]) if job["problem"] else None,
        el("p", "Begun ", clock(job["began_at"]), join(", over ", clock(job["ended_at"])) if is_over else None),
    )


def _confirming(visit: Visit, job: Document, then: str) -> Markup:
    name = job["entity"]
    fate = "They are gone then, and cannot be brought back." if then == "purge" else "They go back to where they died."
    return el(
        "section",
        el("h2", "Send them back" if then == "redrive" else "Remove them"),
        visit.form(
            "messages/work",
            [
                el("input", type="hidden", name=key, value=value)
                for key, value in (
                    ("work", then),
                    ("entity", name),
                    ("sub_queue", job["sub_queue"]),
                    ("filter", job["filter"]),
                )
            ],
            el("p", fate),
            field(f"Type {name} to confirm", el("input", name="confirm", required=True, autocomplete="off")),
            el("button", _WILL[then], class_="danger" if then == "purge" else "main"),
            class_="card",
        ),
    )


def _ending(visit: Visit, job: Document) -> Markup:
    at = el("input", type="hidden", name="number", value=job["number"])
    return visit.form("job/end", at, el("button", "Stop"), class_="row")
