"""The page of incidents and drills, and a page for each incident, which can be printed, saved and exported.

What an incident is, `console.incidents` decides; drills are shown and begun in `drills`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from twinbus.console import layout
from twinbus.console.html import Markup, document, el, join
from twinbus.console.incidents import Incident
from twinbus.console.layout import Content, Saved
from twinbus.console.pages import drills
from twinbus.console.pages.picture import timeline
from twinbus.console.pair import KINDS, PairWatch
from twinbus.console.shapes import NONE, clock, lasting, link, mark, notice, num, number, table, tile
from twinbus.console.visit import Visit

SHOWN = 50
NO_PAIR = "This console knows of no pair: start the broker with --console-pair, or use `twinbus up`."


async def page(visit: Visit) -> Content:
    """Everything that happened to the pair, by itself or on purpose."""
    if visit.pair is None:
        return Content("Incidents and drills", join(el("h1", "Incidents"), notice("plain", NO_PAIR)), status=404)
    answer = await visit.look("drills") if visit.session.manages else None
    main = join(
        el("h1", "Incidents and drills"),
        el("div", _all(visit.pair), id="incidents"),
        drills.section(visit, answer),
    )
    return Content("Incidents and drills", main, "incidents")


async def live(visit: Visit) -> Mapping[str, Markup]:
    """What changes by itself."""
    if visit.pair is None:
        return {}
    parts = {"incidents": _all(visit.pair)}
    if visit.session.manages:
        parts["drills"] = drills.listed(await visit.look("drills"))
    return parts


def _all(watch: PairWatch) -> Markup:
    kept = list(reversed(watch.incidents.kept))
    words = "From when the pair leaves normal until it is normal again, as this console saw it."
    return el(
        "section",
        el("h2", "Incidents ", el("small", words)),
        rows_of(kept[:SHOWN])
        if kept
        else el("p", "None so far. Watching goes on, whether anybody looks or not.", class_="empty"),
        el("p", f"And {number(len(kept) - SHOWN)} earlier ones.", class_="faint") if len(kept) > SHOWN else None,
    )


def rows_of(incidents: Iterable[Incident]) -> Markup:
    """Incidents, one in a row."""
    rows = []
    now_s = time.time()
    for incident in incidents:
        goes_on = incident.ended_at_s is None
        rows.append(
            (
                el("a", clock(incident.began_at_s), href=link("incident", id=incident.id)),
                mark(KINDS.get(incident.worst, "bad"), incident.worst),
                join(lasting(incident.lasted_s(now_s)), join(" ", mark("bad", "goes on")) if goes_on else None),
                el("td", incident.why, class_="words"),
                num(number(incident.diverted)),
                num(number(incident.brought_home)),
                num(number(incident.greatest_backlog)),
                num(lasting(incident.oldest_s) if incident.oldest_s else NONE),
            )
        )
    words = ("Diverted", "Brought home", "Greatest backlog", "Oldest")
    heads = ("Began", "Worst", "Lasted", "Why", *(el("th", word, scope="col", class_="num") for word in words))
    return table(heads, rows, caption="Incidents")


# One incident


async def one(visit: Visit) -> Content:
    """An incident's own page."""
    incident = _found(visit)
    if incident is None:
        return Content("Incident", notice("bad", "There is no such incident any more."), status=404)
    parts = await live_one(visit)
    actions = el(
        "p",
        el("a", "Save as a page", href=link("incident.html", id=incident.id), class_="button"),
        " ",
        el("a", "Export as JSON", href=link("incident.json", id=incident.id), class_="button"),
        class_="unprinted",
    )
    crumbs = el("p", el("a", "Incidents and drills", href=link("incidents")), " / incident", class_="crumbs unprinted")
    main = join(crumbs, el("h1", _title(visit, incident)), el("div", parts["incident"], id="incident"), actions)
    return Content("Incident", main, f"incident?id={incident.id}" if incident.ended_at_s is None else None)


async def live_one(visit: Visit) -> Mapping[str, Markup]:
    """What is told of one that goes on."""
    incident = _found(visit)
    return {} if incident is None else {"incident": _told(incident)}


async def exported(visit: Visit) -> Saved:
    """As JSON."""
    incident = _found(visit)
    if incident is None:
        return Saved("none.json", "application/json", b"{}")
    told = {"pair": _names(visit), **incident.document()}
    return Saved(f"incident-{incident.id}.json", "application/json", json.dumps(told, indent=2).encode())


async def report(visit: Visit) -> Saved:
    """As one file that needs nothing else."""
    incident = _found(visit)
    if incident is None:
        return Saved("none.html", "text/html", b"There is no such incident any more.")
    head = join(
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        Markup(f"<style>{layout.stylesheet()}</style>"),
    )
    written = el("p", "Written ", clock(time.time()), " by the console of Twinbus.", class_="faint")
    body = el("main", el("h1", _title(visit, incident)), _told(incident), written)
    return Saved(f"incident-{incident.id}.html", "text/html", document("Incident", head, body).encode())


def _found(visit: Visit) -> Incident | None:
    return None if visit.pair is None else visit.pair.incidents.find(visit.text("id"))


def _names(visit: Visit) -> list[str]:
    assert visit.pair is not None
    return [visit.pair.primary.name, visit.pair.secondary.name]


def _title(visit: Visit, incident: Incident) -> str:
    began = time.strftime("%Y-%m-%d %H:%M", time.gmtime(incident.began_at_s))
    return f"{' and '.join(_names(visit))}: {incident.worst}, {began} UTC"


def _told(incident: Incident) -> Markup:
    now_s, ended = time.time(), incident.ended_at_s
    until = join("until ", clock(ended, exact=True)) if ended is not None else mark("bad", "goes on")
    return join(
        el("p", "From ", clock(incident.began_at_s, exact=True), " ", until, ". ", incident.why, class_="big"),
        el(
            "div",
            tile("Lasted", lasting(incident.lasted_s(now_s))),
            tile("Diverted", number(incident.diverted), "as clients said"),
            tile("Brought home", number(incident.brought_home), "as syphons said"),
            tile("Greatest backlog", number(incident.greatest_backlog)),
            tile("Oldest message", lasting(incident.oldest_s) if incident.oldest_s else NONE, "in the backlog"),
            class_="tiles",
        ),
        el("section", el("h2", "Timeline"), timeline(incident.points, "In")),
        el("section", el("h2", "States"), _stages(incident, now_s)),
    )


def _stages(incident: Incident, now_s: float) -> Markup:
    stages = incident.stages
    ends: Sequence[float] = [after.at_s for _, after in pairwise(stages)] + [now_s]
    rows = []
    for stage, until_s in zip(stages, ends, strict=True):
        is_over = stage is stages[-1] and incident.ended_at_s is not None
        rows.append(
            (
                clock(stage.at_s, exact=True),
                mark(KINDS.get(stage.state, "bad"), stage.state),
                num(NONE if is_over else lasting(until_s - stage.at_s)),
                el("td", stage.why, class_="words"),
            )
        )
    heads = ("From", "State", el("th", "For", scope="col", class_="num"), "Why")
    return table(heads, rows, caption="States of the pair")
