"""The Entities page: what queues, topics and subscriptions hold, a page at a time, here or in both namespaces.

Filtering, sorting and counting is the namespaces' work; with both side by side, their pages are merged by name.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

from twinbus.console import layout
from twinbus.console.asking import Answer, Document
from twinbus.console.html import Child, Markup, el, join
from twinbus.console.layout import Content
from twinbus.console.pair import PAGE, PairWatch, Watched
from twinbus.console.shapes import (
    NONE,
    bar,
    choice,
    count,
    field,
    link,
    mark,
    num,
    number,
    rate,
    size,
    spark,
    table,
    tile,
)
from twinbus.console.visit import Visit

_KINDS = (("", "all kinds"), ("queue", "queues"), ("topic", "topics"), ("subscription", "subscriptions"))
_SORTS = (
    ("name", "by name"),
    ("active", "most messages"),
    ("dead", "most dead letters"),
    ("rate", "busiest"),
    ("bytes", "largest"),
)
_ONLY = (("", "everything"), ("messages", "with messages"), ("dead", "with dead letters"), ("trouble", "in trouble"))
_KEPT = ("filter", "kind", "sort", "only", "skip", "after", "side")


async def page(visit: Visit) -> Content:
    """The whole page."""
    parts = await live(visit)
    kept = urlencode({name: visit.text(name) for name in _KEPT if visit.text(name)})
    create = el("a", "New queue or topic", href=link("new"), class_="button") if visit.session.manages else None
    top = el("div", el("h1", "Entities"), el("span", class_="room"), create, class_="row")
    main = join(top, _controls(visit), el("div", parts["list"], id="list"))
    return Content("Entities", main, f"entities?{kept}")


async def live(visit: Visit) -> Mapping[str, Markup]:
    """What changes by itself."""
    if visit.text("side") == "both" and visit.partner is not None:
        return {"list": await _both(visit)}
    return {"list": await _single(visit)}


def _controls(visit: Visit) -> Markup:
    sides = (("", f"only {visit.session.namespace}"), ("both", "both namespaces"))
    return el(
        "form",
        field("Name contains", el("input", name="filter", type="search", value=visit.text("filter"), maxlength=260)),
        field("Kind", choice("kind", _KINDS, visit.text("kind"))),
        field("Show", choice("only", _ONLY, visit.text("only"))),
        field("Order", choice("sort", _SORTS, visit.text("sort", "name"))),
        field("Namespaces", choice("side", sides, visit.text("side"))) if visit.partner is not None else None,
        el("button", "Show"),
        method="get",
        action=link("entities"),
        class_="controls",
        data_auto=True,
    )


def _asked(visit: Visit) -> dict[str, str]:
    return {name: visit.text(name) for name in ("filter", "kind", "only")}


# One namespace


async def _single(visit: Visit) -> Markup:
    skip = visit.number("skip")
    answer = await visit.look("entities", **_asked(visit), sort=visit.text("sort"), skip=skip or None, top=PAGE)
    stale = layout.staleness(answer, f"'{visit.session.namespace}'")
    if answer.document is None:
        return join(stale)
    found = answer.document
    return join(stale, _sums(found["sums"]), _list(found["entities"]), _turning(visit, found, skip))


def _sums(sums: Document) -> Markup:
    held = sums["active"] + sums["deferred"] + sums["scheduled"]
    dead = sums["dead_letter"] + sums["transfer_dead_letter"]
    return el(
        "div",
        tile("Messages", number(held), f"{number(sums['locked'])} locked, {number(sums['scheduled'])} scheduled"),
        tile("Dead letters", number(dead), class_="dead" if dead else ""),
        tile("Arriving", f"{rate(sums['arriving'])}/s"),
        tile("Leaving", f"{rate(sums['leaving'])}/s"),
        tile("Stored", size(sums["bytes"])),
        class_="tiles",
    )


def _list(entities: Sequence[Document]) -> Markup:
    if not entities:
        return el("p", "Nothing is like that.", class_="empty")
    heads = [
        "Name",
        *(el("th", word, scope="col", class_="num") for word in ("Active", "Locked", "Scheduled", "Deferred", "Dead")),
        "Share",
        el("th", "Size", scope="col", class_="num"),
        el("th", "In/s", scope="col", class_="num"),
        el("th", "Out/s", scope="col", class_="num"),
        el("th", "Rate", scope="col", title="Arriving filled, leaving as a line"),
    ]
    return table(heads, [_row(entity) for entity in entities], class_="list", caption="Entities of the namespace")


def _row(entity: Document) -> list[Child]:
    name, dead = entity["name"], entity["dead_letter"] + entity["transfer_dead_letter"]
    is_topic = entity["kind"] == "topic"
    dead_link = link("messages", entity=name, sub_queue="dead-letter")
    shown_dead: Child = el("a", number(dead), href=dead_link) if dead else number(0)
    free = max(0, entity["active"] - entity["locked"])
    parts = (
        ("active", free),
        ("locked", entity["locked"]),
        ("scheduled", entity["scheduled"]),
        ("deferred", entity["deferred"]),
        ("dead", dead),
    )
    return [
        el("td", _name(entity)),
        num("" if is_topic else el("a", number(entity["active"]), href=link("messages", entity=name)))
        if entity["active"]
        else count(0),
        count(entity["locked"]),
        count(entity["scheduled"]),
        count(entity["deferred"]),
        num(shown_dead, class_="dead" if dead else "none"),
        bar(parts, label=", ".join(f"{value} {kind}" for kind, value in parts if value) or "empty"),
        num(size(entity["bytes"]), class_="" if entity["bytes"] else "none"),
        *_rates(entity),
    ]


def _name(entity: Document) -> Markup:
    topic, _, subscription = entity["name"].partition("/Subscriptions/")
    shown: Child = entity["name"]
    if entity["kind"] == "subscription":
        shown = join(el("span", f"{topic} / ", class_="faint"), subscription)
    marks: list[Markup] = []
    if entity["kind"] != "queue":
        marks.append(mark("plain", entity["kind"]))
    if entity["requires_session"]:
        marks.append(mark("plain", "sessions"))
    if entity["partitioned"]:
        marks.append(mark("plain", "partitioned"))
    if entity["status"] != "Active":
        marks.append(mark("warn", entity["status"]))
    if entity["forward_to"]:
        marks.append(mark("plain", f"→ {entity['forward_to']}"))
    if entity.get("problem"):
        marks.append(el("span", "store away", class_="mark bad", title=entity["problem"]))
    return join(el("a", shown, href=link("entity", name=entity["name"]), class_="name"), marks)


def _last(values: Sequence[float]) -> float | None:
    return values[-1] if values else None


def _rates(entity: Document) -> list[Markup]:
    arriving, leaving = entity["arriving"], entity["leaving"]
    words = f"{rate(_last(arriving))} arriving and {rate(_last(leaving))} leaving in a second"
    return [
        num(rate(_last(arriving)), class_="" if _last(arriving) else "none"),
        num(rate(_last(leaving)), class_="" if _last(leaving) else "none"),
        el("td", spark(arriving, leaving, label=words)),
    ]


def _turning(visit: Visit, found: Document, skip: int) -> Markup:
    total, last = found["total"], skip + len(found["entities"])
    kept = {**_asked(visit), "sort": visit.text("sort")}
    return el(
        "nav",
        el("span", f"{number(min(skip + 1, total))} to {number(last)} of {number(total)}"),
        el("a", "Back", href=link("entities", **kept, skip=max(0, skip - PAGE) or None), rel="prev") if skip else None,
        el("a", "More", href=link("entities", **kept, skip=last), rel="next") if last < total else None,
        class_="turning",
        aria_label="Pages of the list",
    )


# Both namespaces


async def _both(visit: Visit) -> Markup:
    partner, pair = visit.partner, visit.pair
    assert partner is not None
    assert pair is not None
    asked: dict[str, Any] = {**_asked(visit), "after": visit.text("after"), "top": PAGE}
    own, other = await asyncio.gather(visit.look("entities", **asked), _other(visit, pair, partner, asked))
    mine = visit.session.namespace
    is_primary = pair.half(mine) is pair.primary
    sides = [(mine, own), (partner.name, other)] if is_primary else [(partner.name, other), (mine, own)]
    notices = [layout.staleness(answer, f"'{name}'") for name, answer in sides]
    rows, goes_on = merged([answer.document for _, answer in sides])
    names = [name for name, _ in sides]
    more = el("a", "More", href=link("entities", **_asked(visit), side="both", after=rows[-1][0])) if goes_on else None
    return join(
        notices,
        _side_by_side(names, rows, mine),
        el("nav", more, class_="turning", aria_label="Pages of the list"),
    )


async def _other(visit: Visit, pair: PairWatch, partner: Watched, asked: Mapping[str, Any]) -> Answer:
    asker = pair.asker(visit.http, partner, visit.patience_s)
    if asker is None:
        return Answer(None, 0.0, partner.problem or "it was not found yet")
    return await asker.look("entities", **asked)


Row = tuple[str, Document | None, Document | None]


def merged(pages: Sequence[Document | None], top: int = PAGE) -> tuple[list[Row], bool]:
    """The first so many names of two pages that begin behind the same name, and whether there are more."""
    found = [{entity["name"].lower(): entity for entity in (page or {}).get("entities", [])} for page in pages]
    names = sorted({*found[0], *found[1]})
    rows: list[Row] = []
    for name in names[:top]:
        first, second = found[0].get(name), found[1].get(name)
        rows.append(((first or second or {})["name"], first, second))
    pages_go_on = any(page is not None and page["total"] > len(page["entities"]) for page in pages)
    return rows, len(names) > top or (pages_go_on and bool(rows))


def _side_by_side(names: Sequence[str], rows: Sequence[Row], mine: str) -> Markup:
    if not rows:
        return el("p", "Nothing is like that.", class_="empty")
    columns = ("Active", "Waiting", "Dead", "In/s", "Rate")
    groups = el(
        "tr",
        el("th", "Name", scope="col", rowspan=2),
        [
            el("th", word, " ", el("small", role), scope="colgroup", colspan=len(columns), class_="group")
            for word, role in zip(names, ("primary", "secondary"), strict=True)
        ],
    )
    heads = el(
        "tr",
        [
            el("th", word, scope="col", class_="num group-start" if word == "Active" else "num")
            for _ in names
            for word in columns
        ],
    )
    body = [el("tr", el("td", _both_name(row, names, mine)), _half(row[1]), _half(row[2])) for row in rows]
    caption = el("caption", "Entities of both namespaces", class_="unseen")
    return el(
        "div",
        el("table", caption, el("thead", groups, heads), el("tbody", body), class_="list both"),
        class_="scroll",
    )


def _both_name(row: Row, names: Sequence[str], mine: str) -> Markup:
    name, first, second = row
    here = first if names[0] == mine else second
    shown = el("a", name, href=link("entity", name=name), class_="name") if here is not None else el("span", name)
    drift = drifted(first, second)
    return join(shown, el("span", "≠ " + ", ".join(drift), class_="mark warn") if drift else None)


def drifted(first: Document | None, second: Document | None) -> list[str]:
    """In what an entity differs between the namespaces, where both have it."""
    if first is None or second is None:
        return []
    return [key for key in ("kind", "status", "requires_session", "partitioned") if first[key] != second[key]]


def _half(entity: Document | None) -> list[Markup]:
    if entity is None:
        return [el("td", NONE, class_="none group-start num"), *(el("td") for _ in range(4))]
    dead = entity["dead_letter"] + entity["transfer_dead_letter"]
    arriving = entity["arriving"]
    return [
        num(number(entity["active"]), class_="group-start" if entity["active"] else "group-start none"),
        count(entity["scheduled"] + entity["deferred"]),
        num(number(dead), class_="dead" if dead else "none"),
        num(rate(_last(arriving)), class_="" if _last(arriving) else "none"),
        el("td", spark(arriving, entity["leaving"], width=70, label=f"{rate(_last(arriving))} arriving in a second")),
    ]
