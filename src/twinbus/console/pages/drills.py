"""Drills: those that were run, one of them while it runs, and how to begin and abort one.

The namespace runs them; what stands in a record was written by the drill itself, so nothing of its shape is relied on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from twinbus.console import layout
from twinbus.console.asking import Answer, Document
from twinbus.console.html import Attribute, Child, Markup, el, join
from twinbus.console.layout import Content, Saved
from twinbus.console.shapes import (
    NONE,
    choice,
    clock,
    field,
    lasting,
    link,
    mark,
    notice,
    num,
    number,
    seconds_of,
    table,
    tile,
)
from twinbus.console.visit import Form, Visit

# Those that can be run on a pair that is up.
SCENARIOS = (
    ("outage", "outage: the primary goes and comes back"),
    ("flap", "flap: it goes and comes back several times"),
    ("blackhole", "blackhole: it stays connected, and nothing answers"),
    ("slow", "slow: it answers too late"),
)
STATES = {"running": "warn", "held": "good", "failed": "bad"}
_SHOWN = {"ended": "ended without a verdict"}
COUNTS = ("attempted", "acknowledged", "received", "diverted", "recovered", "lost", "duplicated")
TIMES = {"divert": "To divert", "heal": "To heal", "drain": "To drain"}
_BAD = ("lost", "duplicated")
WIDTH, HEIGHT = 960, 140


def section(visit: Visit, answer: Answer | None) -> Markup:
    """Drills on the page of incidents."""
    if answer is None:
        words = "Drills are for policies that manage."
        return el("section", el("h2", "Drills"), el("p", words, class_="faint"))
    head = el("h2", "Drills ", el("small", "outages on purpose, on entities of their own, judged at the end"))
    allowed = bool(answer.document and answer.document.get("allowed"))
    starting = _starting(visit) if allowed else None
    return el("section", head, el("div", listed(answer), id="drills"), starting)


def listed(answer: Answer) -> Markup:
    """The drills that there were."""
    stale = layout.staleness(answer, "The broker")
    found = [_tidied(record) for record in (answer.document or {}).get("drills", [])]
    if answer.document is not None and not answer.document.get("allowed"):
        return join(stale, el("p", "This broker was told of no pair, so it runs no drills.", class_="faint"))
    if not found:
        return join(stale, el("p", "None so far.", class_="empty"))
    rows = []
    for record in found:
        counts = record["counts"]
        rows.append(
            (
                el("a", clock(record["began_at"]), href=link("drill", id=record["id"])),
                join(record["scenario"], mark("plain", "dry run") if record["dry_run"] else None),
                _state(record),
                *(num(number(counts[name]), class_=_kind(name, counts[name])) for name in COUNTS),
            )
        )
    heads = ("Began", "Drill", "State", *(el("th", name.capitalize(), scope="col", class_="num") for name in COUNTS))
    return join(stale, table(heads, rows, caption="Drills"))


def _starting(visit: Visit) -> Markup:
    assert visit.pair is not None
    name = visit.pair.primary.name
    short: dict[str, Attribute] = {"inputmode": "numeric", "size": 6, "required": True}
    return visit.form(
        "drill/start",
        el("h3", "Start a drill"),
        el(
            "div",
            field("Scenario", choice("scenario", SCENARIOS, "outage")),
            field("For seconds", el("input", name="for", value="10", **short)),
            field("Messages a second", el("input", name="rate", value="20", **short)),
            field(f"Type {name} to confirm", el("input", name="confirm", size=20, autocomplete="off")),
            el("label", el("input", type="checkbox", name="dry_run"), "dry run", class_="check"),
            el("button", "Start", class_="danger"),
            class_="controls",
        ),
        el(
            "small",
            "On entities and connections of its own. A dry run only tells what would be done, and what is in the way.",
        ),
        class_="card unprinted",
    )


async def start(visit: Visit, form: Form) -> str | Content:
    """Begin one, if the pair's name was typed or nothing will happen."""
    if visit.pair is None:
        return link("incidents")
    if not form.flag("dry_run"):
        form.confirmed(visit.pair.primary.name)
    wanted: dict[str, Any] = {"scenario": form.text("scenario"), "dry_run": form.flag("dry_run")}
    for name in ("for", "rate"):
        wanted[name] = _typed(form.text(name))
    begun = await visit.own.api("POST", "drills", None, wanted)
    return link("drill", id=begun["id"])


def _typed(text: str) -> float | str:
    """A number, or what was typed in its place, for the namespace to refuse."""
    try:
        return float(text)
    except ValueError:
        return text


async def abort(visit: Visit, form: Form) -> str | Content:
    """Ask a running one to end."""
    drill = form.text("id")
    await visit.own.api("DELETE", f"drills/{drill}")
    return link("drill", id=drill)


# One drill


async def page(visit: Visit) -> Content:
    """A drill's own page, alive while it runs."""
    if not visit.session.manages:
        return Content("Drill", notice("warn", "Drills are for policies that manage."), status=403)
    answer = await visit.look(f"drills/{visit.text('id')}")
    if answer.document is None:
        return Content("Drill", notice("bad", f"It cannot be shown: {answer.problem}"), status=404)
    record = _tidied(answer.document)
    crumbs = el("p", el("a", "Incidents and drills", href=link("incidents")), " / drill", class_="crumbs unprinted")
    main = join(
        crumbs,
        el("h1", f"Drill: {record['scenario']}", " (dry run)" if record["dry_run"] else None),
        el("div", _told(visit, record), id="drill"),
    )
    return Content("Drill", main, f"drill?id={record['id']}" if record["state"] == "running" else None)


async def live(visit: Visit) -> Mapping[str, Markup]:
    """How far it is."""
    answer = await visit.look(f"drills/{visit.text('id')}")
    if answer.document is None:
        return {"drill": notice("bad", f"{answer.problem}")}
    return {"drill": _told(visit, _tidied(answer.document))}


async def report(visit: Visit) -> Saved:
    """The report that the drill wrote."""
    drill = visit.text("id")
    if not drill.replace("-", "").isalnum() or not drill.isascii():
        return Saved("none.html", "text/html", b"There is no such drill.", is_shown=True)
    found = await visit.own.send("GET", f"/$api/drills/{drill}/report", None, {})
    return Saved(f"drill-{drill}.html", "text/html", found, is_shown=True)


def _told(visit: Visit, record: Document) -> Markup:
    if record["dry_run"]:
        return _rehearsed(record)
    counts, times = record["counts"], record["times"]
    verdict = record["verdict"] and notice(
        "good" if record["state"] == "held" else "bad", record["verdict"].removeprefix("verdict: ")
    )
    why = record["why"] and notice("plain" if record["state"] in ("held", "running") else "warn", record["why"])
    told = join(
        el("p", _state(record), " ", _when(record), class_="big"),
        verdict,
        why,
        el("div", [tile(name.capitalize(), number(counts[name]), class_=_kind(name, counts[name])) for name in COUNTS],
           class_="tiles"),
        el("div", [tile(TIMES[name], _seconds(times[name])) for name in TIMES], class_="tiles"),
        el("section", el("h2", "Messages"), _chart(record["points"])),
        el("section", el("h2", "What happened"), _moments(record["moments"])),
    )  # fmt: skip
    actions = []
    if record["report"]:
        actions.append(el("a", "Open the report", href=link("drill.html", id=record["id"]), class_="button"))
    if record["state"] == "running":
        given = el("input", type="hidden", name="id", value=record["id"])
        actions.append(visit.form("drill/abort", given, el("button", "Abort", class_="danger")))
    return join(told, el("div", actions, class_="row unprinted") if actions else None)


def _rehearsed(record: Document) -> Markup:
    """What a dry run found: it did nothing, so there is nothing to count."""
    why = record["why"] and notice("warn", record["why"])
    rows = [[each["what"]] for each in record["moments"]]
    listed = table(("What would be done",), rows) if rows else el("p", "Nothing yet.", class_="faint")
    return join(el("p", _state(record), " ", _when(record), class_="big"), why, listed)


def _when(record: Document) -> Markup:
    began_s, ended_s = seconds_of(record["began_at"]), seconds_of(record["ended_at"])
    lasted = f", {lasting(ended_s - began_s)}" if began_s is not None and ended_s is not None else ""
    return join("from ", clock(record["began_at"]), lasted)


def _state(record: Document) -> Markup:
    state = str(record["state"])
    if record["dry_run"] and state == "held":
        return mark("good", "ready")
    return mark(STATES.get(state, "plain"), _SHOWN.get(state, state))


def _kind(name: str, value: object) -> str:
    return "dead" if name in _BAD and value else ""


def _seconds(value: float | None) -> str:
    return NONE if value is None else f"{value:.1f} s"


def _moments(moments: Sequence[Document]) -> Markup:
    if not moments:
        return el("p", "Nothing yet.", class_="faint")
    rows = [(num(f"{moment['at_s']:.1f} s"), el("td", moment["what"], class_="words")) for moment in moments]
    heads = (el("th", "After", scope="col", class_="num"), "What")
    return table(heads, rows, class_="moments", caption="Moments of the drill")


def _chart(points: Sequence[Document]) -> Markup:
    """How many messages were acknowledged, diverted and received, over time."""
    if len(points) < 2:
        return el("p", "The picture begins with the second point.", class_="faint")
    last_s = max(1.0, points[-1]["at_s"])
    most = max(max(point["acknowledged"], point["received"], point["diverted"]) for point in points) or 1
    drawn: list[Child] = []
    for name in ("received", "acknowledged", "diverted"):
        line = [
            f"{WIDTH * point['at_s'] / last_s:.1f},{HEIGHT - 4 - (HEIGHT - 12) * point[name] / most:.1f}"
            for point in points
        ]
        if name == "received":
            drawn.append(
                el("polygon", points=" ".join([f"0,{HEIGHT}", *line, f"{WIDTH},{HEIGHT}"]), class_="spark-area")
            )
        drawn.append(el("polyline", points=" ".join(line), class_=f"line-{name}", fill="none"))
    words = f"{lasting(last_s)}: {number(most)} messages at most"
    picture = el(
        "svg", drawn, viewBox=f"0 0 {WIDTH} {HEIGHT}", class_="timeline tall", role="img", aria_label=words,
        preserveAspectRatio="none",
    )  # fmt: skip
    legend = [el("span", name, class_=f"key key-{name}") for name in ("acknowledged", "received", "diverted")]
    told = f"{lasting(last_s)}, up to {number(most)} messages."
    return join(picture, el("p", legend, " ", told, class_="faint"))


# What a record says


def _tidied(record: object) -> Document:
    """A record of the expected shape, whatever was in it."""
    given: Document = record if isinstance(record, dict) else {}
    counts, times = _object(given.get("counts")), _object(given.get("times"))
    return {
        **{name: str(given.get(name) or "")[:300] for name in ("id", "scenario", "state")},
        **{name: str(given[name])[:2_000] if given.get(name) else None for name in ("verdict", "why")},
        **{name: given.get(name) for name in ("began_at", "ended_at")},
        "dry_run": given.get("dry_run") is True,
        "report": given.get("report") is True,
        "counts": {name: _number(counts.get(name)) for name in COUNTS},
        "times": {name: _number(times.get(name)) for name in TIMES},
        "moments": [
            {"at_s": _number(each.get("at_s")) or 0.0, "what": str(each.get("what"))[:500]}
            for each in _objects(given.get("moments"))
        ],
        "points": [
            {name: _number(each.get(name)) or 0.0 for name in ("at_s", "acknowledged", "diverted", "received")}
            for each in _objects(given.get("points"))
        ],
    }


def _object(found: object) -> Document:
    return found if isinstance(found, dict) else {}


def _objects(found: object) -> list[Document]:
    return [each for each in found if isinstance(each, dict)][:5_000] if isinstance(found, list) else []


def _number(value: object) -> float | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1 << 53
    return value if is_number else None  # type: ignore[return-value]
