"""The System page: stores, what is set aside, disk, connections, limits, policies, what was refused lately.

Names of policies only, never a key. Faults on purpose are begun and lifted here where the namespace allows them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from twinbus.console import layout
from twinbus.console.asking import Answer, Document
from twinbus.console.html import Child, Markup, el, join
from twinbus.console.layout import Content
from twinbus.console.pages import orphan
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
    size,
    table,
    tile,
)
from twinbus.console.visit import Form, Visit

_STORE_STATES = {"up": "good", "full": "warn"}
_DELAYED = ("visibility-delayed", "store-slow")
CONNECTIONS_SHOWN = 50


async def page(visit: Visit) -> Content:
    """The whole page."""
    if not visit.session.manages:
        words = "The inside of the namespace is for policies that manage."
        return Content("System", join(el("h1", "System"), notice("plain", words)))
    parts, faults = await asyncio.gather(live(visit), visit.look("faults"))
    searched = visit.text("error")
    finding = el(
        "form",
        field(
            "Tracking id or text",
            el("input", name="error", type="search", value=searched, maxlength=200, spellcheck="false"),
        ),
        el("button", "Find"),
        method="get",
        action=link("system"),
        class_="controls",
    )
    main = join(
        el("h1", "System"),
        el("div", parts["inside"], id="inside"),
        _faults(visit, faults.document) if faults.document is not None else None,
        el("section", el("h2", "Refused lately"), finding, el("div", parts["errors"], id="errors")),
    )
    return Content("System", main, f"system?error={quote(searched)}")


async def live(visit: Visit) -> Mapping[str, Markup]:
    """What changes by itself."""
    status, usage, connections, aside, errors = await asyncio.gather(
        visit.look("status"), visit.look("usage"), visit.look("connections"), visit.look("orphans"),
        visit.look("errors", filter=visit.text("error")),
    )  # fmt: skip
    return {"inside": _inside(visit, status, usage, connections, aside), "errors": _errors(errors)}


def _inside(visit: Visit, status: Answer, usage: Answer, connections: Answer, aside: Answer) -> Markup:
    stale = layout.staleness(status, f"'{visit.session.namespace}'")
    if status.document is None or usage.document is None or connections.document is None:
        return join(stale)
    told, used, linked = status.document, usage.document, connections.document["connections"]
    return join(
        stale,
        _numbers(told, used, linked),
        _stores(told["stores"], used["commits"]),
        _aside(aside.document or {}),
        el("div", _limits(used["limits"]), _policies(used["policies"]), class_="columns"),
        _connections(linked),
    )


def _numbers(status: Document, usage: Document, connections: Sequence[Document]) -> Markup:
    disk = usage["disk"]
    now, started = seconds_of(status["now"]), seconds_of(status["started_at"])
    up = None if now is None or started is None else now - started
    free: Child = NONE
    note: Child = "in a database"
    if disk is not None:
        free, note = size(disk["free_bytes"]), f"{disk['free_bytes'] / max(1, disk['bytes']):.0%} free"
    tiles = [
        tile("Version", status["version"], status.get("datacenter") or None),
        tile("Up for", lasting(up), "a clock for tests" if status["test_clock"] else None),
        tile("Connections", number(len(connections)), f"{number(_links(connections))} links"),
        tile("Disk free", free, note),
        tile("Queues", number(status["entities"]["queues"]), f"and {number(status['entities']['topics'])} topics"),
    ]
    return el("div", tiles, class_="tiles")


def _links(connections: Sequence[Document]) -> int:
    return sum(int(connection["link_count"]) for connection in connections)


def _stores(stores: Sequence[Document], commits: Sequence[Document]) -> Markup:
    times = {each["number"]: each for each in commits}
    rows = []
    for store in stores:
        time = times.get(store["number"], {})
        rows.append(
            (
                store["number"],
                join(mark(_STORE_STATES.get(store["state"], "bad"), store["state"]), " ", store["reason"]),
                clock(store["since"]),
                num(number(store["entities"])),
                num(size(store["pending_bytes"])),
                num(number(time.get("synced_commits"))),
                num(_ms(time.get("p50_ms"))),
                num(_ms(time.get("p99_ms"))),
                num(_ms(time.get("most_ms"))),
            )
        )
    words = ("Entities", "Waiting", "Commits", "Usual", "Slow (p99)", "Slowest")
    heads = (
        "Store",
        "State",
        "Since",
        *(el("th", word, scope="col", class_="num") for word in words),
    )
    return el("section", el("h2", "Messaging stores ", el("small", "times of the last commits")), table(heads, rows))


def _aside(found: Document) -> Markup | None:
    """What is kept and not served, each with a page of its own; nothing on most days."""
    orphans, unreadable = found.get("orphans", ()), found.get("unreadable", ())
    if not orphans and not unreadable:
        return None
    rows = [
        (
            el("a", orphan.title(each), href=link("orphan", number=each["number"]), class_="name"),
            "the catalog does not know it",
            num(number(each["messages"])),
            num(size(each["bytes"])),
        )
        for each in orphans
    ]
    rows += [(each["name"], each["reason"], num(NONE), num(NONE)) for each in unreadable]
    heads = ("Entity", "Why", *(el("th", word, scope="col", class_="num") for word in ("Messages", "Size")))
    words = "kept with all messages, and not served"
    return el("section", el("h2", "Set aside ", el("small", words)), table(heads, rows))


def _ms(value: object) -> str:
    return f"{value:.1f} ms" if isinstance(value, int | float) else NONE


def _limits(limits: Sequence[Document]) -> Markup:
    rows = [
        (
            limit["name"],
            num(number(limit["used"])),
            num(number(limit["most"])),
            el("meter", min=0, max=limit["most"], value=limit["used"], high=int(limit["most"] * 0.9)),
        )
        for limit in limits
    ]
    heads = ("Limit", *(el("th", word, scope="col", class_="num") for word in ("Used", "Most")), "")
    return el("section", el("h2", "Limits"), table(heads, rows))


def _policies(policies: Sequence[Document]) -> Markup:
    rows = [
        (el("a", policy["name"], href=link("policy", name=policy["name"])), ", ".join(policy["rights"]))
        for policy in policies
    ]
    return el("section", el("h2", "Policies"), table(("Name", "Rights"), rows))


def _connections(connections: Sequence[Document]) -> Markup:
    rows = []
    for connection in connections[:CONNECTIONS_SHOWN]:
        links = [f"{each['role']} {each['entity']}" for each in connection["links"]]
        shown = ", ".join(links[:4]) + (f" and {len(links) - 4} more" if len(links) > 4 else "")
        rows.append(
            (
                connection["id"],
                connection["peer"],
                clock(connection["since"]),
                ", ".join(connection["policies"]) or NONE,
                shown or NONE,
            )
        )
    more = len(connections) - len(rows)
    listed = table(("Connection", "From", "Since", "Policies", "Links"), rows) if rows else el("p", "Nobody.")
    note = el("p", f"And {number(more)} more.", class_="faint") if more > 0 else None
    return el("section", el("h2", "Connections"), listed, note)


def _errors(errors: Answer) -> Markup:
    found: list[dict[str, Any]] = (errors.document or {"errors": []})["errors"]
    if not found:
        return el("p", "Nothing like that.", class_="empty")
    rows = [
        (
            clock(error["at"]),
            mark("plain", error["code"]),
            el("td", error["entity"], class_="clip"),
            el("td", error["message"]),
            el("code", error["tracking_id"]),
        )
        for error in found[:50]
    ]
    return table(("When", "Code", "Where", "What", "Tracking id"), rows, class_="list")


# Faults on purpose


def _faults(visit: Visit, found: Document) -> Markup | None:
    if not found["allowed"]:
        return None
    going_on = [
        (
            mark("bad", fault["name"]),
            clock(fault["since"]),
            clock(fault["until"]) if fault["until"] else "until it is lifted",
            NONE if fault.get("store") is None else fault["store"],
            visit.form(
                "system/lift", el("input", type="hidden", name="fault", value=fault["name"]), el("button", "Lift")
            ),
        )
        for fault in found["faults"]
    ]
    names = [(fault["name"], f"{fault['name']}: {fault['meaning']}") for fault in found["known"]]
    return el(
        "section",
        el("h2", "Faults on purpose"),
        table(("Fault", "Since", "Until", "Store", ""), going_on) if going_on else el("p", "None.", class_="faint"),
        visit.form(
            "system/fault",
            field("Fault", choice("fault", names, "")),
            field("For seconds", el("input", name="for", value="60", inputmode="numeric", size=6)),
            field("Delay in seconds", el("input", name="delay", value="1", inputmode="numeric", size=6)),
            field("Store", el("input", name="store", value="0", inputmode="numeric", size=4)),
            field(f"Type {visit.session.namespace} to confirm", el("input", name="confirm", required=True, size=16)),
            el("button", "Begin", class_="danger"),
            class_="controls card",
        ),
    )


async def begin_fault(visit: Visit, form: Form) -> str | Content:
    """Begin a fault, if the namespace's name was typed."""
    form.confirmed(visit.session.namespace)
    name = form.text("fault")
    body: dict[str, Any] = {}
    if form.text("for").isdigit() and int(form.text("for")):
        body["for"] = f"PT{int(form.text('for'))}S"
    if name in _DELAYED and form.text("delay").isdigit():
        body["delay"] = f"PT{int(form.text('delay'))}S"
    if name.startswith("store-") and form.text("store").isdigit():
        body["store"] = int(form.text("store"))
    await visit.own.api("PUT", f"faults/{name}", None, body)
    return link("system")


async def lift_fault(visit: Visit, form: Form) -> str | Content:
    """End a fault."""
    await visit.own.api("DELETE", f"faults/{form.text('fault')}")
    return link("system")
