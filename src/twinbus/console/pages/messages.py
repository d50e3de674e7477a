"""The Messages page: what is in a queue, looked at without taking it; dead letters by their reasons.

The condition that chooses messages is in the rule language, and judged by the namespace.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence

from twinbus.console import layout
from twinbus.console.asking import Document
from twinbus.console.html import Child, Markup, el, join
from twinbus.console.layout import Content
from twinbus.console.shapes import NONE, choice, clock, field, link, mark, num, number, size, table
from twinbus.console.visit import Visit

TOP = 50
SUB_QUEUES = (
    ("main", "messages"),
    ("dead-letter", "dead letters"),
    ("transfer-dead-letter", "dead letters of forwarding"),
)
_STATES = {"active": "plain", "deferred": "plain", "scheduled": "plain"}


async def page(visit: Visit) -> Content:
    """Messages of one queue; without a name, those that have any to choose from."""
    entity, sub_queue = visit.text("entity"), visit.text("sub_queue") or "main"
    if not entity:
        return await _choosing(visit)
    condition = visit.text("filter")
    answer = await visit.look(
        "messages", entity=entity, sub_queue=sub_queue, filter=condition, **{"from": visit.text("from")}, top=TOP
    )
    is_dead = sub_queue != "main"
    reasons = await visit.look("dead-letters", entity=entity, sub_queue=sub_queue) if is_dead else None
    stale = layout.staleness(answer, f"'{entity}'")
    found = answer.document or {"messages": [], "examined": 0, "next": None}
    main = join(
        el("p", el("a", "Entities", href=link("entities")), " / ", _to_entity(entity), class_="crumbs"),
        el("h1", dict(SUB_QUEUES).get(sub_queue, "messages").capitalize(), " of ", entity),
        _controls(visit, entity, sub_queue),
        stale,
        _reasons(entity, sub_queue, reasons.document) if reasons is not None and reasons.document else None,
        _list(found["messages"], entity, sub_queue) if answer.document is not None else None,
        _turning(found, entity, sub_queue, condition) if answer.document is not None else None,
        _work(visit, entity, sub_queue, condition) if visit.session.manages else None,
    )
    return Content(f"Messages of {entity}", main)


def _to_entity(entity: str) -> Markup:
    return el("a", entity, href=link("entity", name=entity))


async def _choosing(visit: Visit) -> Content:
    answer = await visit.look("entities", only="messages", sort="dead", top=100)
    stale = layout.staleness(answer, f"'{visit.session.namespace}'")
    entities = [entity for entity in (answer.document or {"entities": []})["entities"] if entity["kind"] != "topic"]
    rows = [
        (
            _to_entity(entity["name"]),
            num(el("a", number(entity["active"]), href=link("messages", entity=entity["name"]))),
            num(number(entity["scheduled"] + entity["deferred"])),
            num(
                el(
                    "a",
                    number(entity["dead_letter"]),
                    href=link("messages", entity=entity["name"], sub_queue="dead-letter"),
                ),
                class_="dead" if entity["dead_letter"] else "none",
            ),
        )
        for entity in entities
    ]
    heads = ("Entity", *(el("th", word, scope="col", class_="num") for word in ("Active", "Waiting", "Dead")))
    listed = table(heads, rows, class_="list") if rows else el("p", "There are no messages.", class_="empty")
    finding = el(
        "form",
        field("Entity", el("input", name="entity", required=True, maxlength=600)),
        field("Look at", choice("sub_queue", SUB_QUEUES, "main")),
        el("button", "Look"),
        method="get",
        action=link("messages"),
        class_="controls",
    )
    return Content("Messages", join(el("h1", "Messages"), finding, stale, listed))


def _controls(visit: Visit, entity: str, sub_queue: str) -> Markup:
    condition = el(
        "input", name="filter", type="search", value=visit.text("filter"), maxlength=1024, spellcheck="false",
        placeholder="colour = 'red' AND sys.DeliveryCount > 3",
    )  # fmt: skip
    return el(
        "form",
        el("input", type="hidden", name="entity", value=entity),
        field("Look at", choice("sub_queue", SUB_QUEUES, sub_queue)),
        el("div", field("Condition", condition), class_="wide"),
        field("From number", el("input", name="from", value=visit.text("from"), inputmode="numeric", size=8)),
        el("button", "Look"),
        method="get",
        action=link("messages"),
        class_="controls",
    )


def _reasons(entity: str, sub_queue: str, found: Document) -> Markup | None:
    if not found["reasons"]:
        return None
    rows = []
    for group in found["reasons"]:
        condition = _condition(group["reason"])
        shown = link("messages", entity=entity, sub_queue=sub_queue, filter=condition)
        reason = el("a", group["reason"] or "without a reason", href=shown)
        rows.append((num(number(group["count"])), reason, el("span", group["description"], class_="faint")))
    note = None if found["whole"] else f"of the first {number(found['examined'])}"
    heads = (el("th", "Count", scope="col", class_="num"), "Reason", "Description")
    return el("section", el("h2", "Why they died ", el("small", note) if note else None), table(heads, rows))


def _condition(reason: str) -> str:
    if not reason:
        return "DeadLetterReason IS NULL"
    quoted = reason.replace("'", "''")
    return f"DeadLetterReason = '{quoted}'"


def _list(messages: Sequence[Document], entity: str, sub_queue: str) -> Markup:
    if not messages:
        return el("p", "No message is like that.", class_="empty")
    is_dead = sub_queue != "main"
    heads: list[Child] = [
        el("th", "Number", scope="col", class_="num"),
        "Message id",
        "Reason" if is_dead else "State",
        "Enqueued",
        el("th", "Deliveries", scope="col", class_="num"),
        el("th", "Size", scope="col", class_="num"),
        "Body",
    ]
    rows: list[list[Child]] = []
    for message in messages:
        to = link("message", entity=entity, sub_queue=sub_queue, number=message["sequence_number"])
        session = mark("plain", f"session {message['session_id']}") if message["session_id"] else None
        rows.append(
            [
                num(el("a", message["sequence_number"], href=to)),
                el("td", el("a", message["message_id"] or NONE, href=to, class_="name"), session, class_="clip"),
                (message["reason"] or NONE)
                if is_dead
                else mark(_STATES.get(message["state"], "plain"), message["state"]),
                clock(message["enqueued_at"]),
                num(message["delivery_count"]),
                num(size(message["body_bytes"])),
                el("td", el("code", preview(message["body"])), class_="clip"),
            ]
        )
    return table(heads, rows, class_="list", caption="Messages")


def preview(body: str) -> str:
    """The beginning of a body in one line."""
    raw = base64.b64decode(body)
    try:
        text = raw.decode()
    except UnicodeDecodeError as cut:
        # The end may be cut within a letter.
        text = raw[: cut.start].decode() if cut.start > len(raw) - 4 and cut.start else raw[:24].hex(" ")
    return " ".join(text.split())[:120]


def _turning(found: Document, entity: str, sub_queue: str, condition: str) -> Markup:
    more = None
    if found["next"] is not None:
        to = link("messages", entity=entity, sub_queue=sub_queue, filter=condition, **{"from": found["next"]})
        more = el("a", "More", href=to, rel="next")
    words = f"{number(len(found['messages']))} shown, {number(found['examined'])} looked at"
    return el("nav", el("span", words), more, class_="turning", aria_label="Pages of the list")


def _work(visit: Visit, entity: str, sub_queue: str, condition: str) -> Markup:
    """What can be done with many of them. Nothing is done before the count was seen."""
    is_dead = sub_queue != "main"
    chosen = "those that the condition chooses" if condition else "all of them"
    if not is_dead and condition:
        return el("p", "Messages can be removed by a condition among dead letters only.", class_="faint")
    return el(
        "section",
        el("h2", "With ", chosen),
        visit.form(
            "messages/plan",
            el("input", type="hidden", name="entity", value=entity),
            el("input", type="hidden", name="sub_queue", value=sub_queue),
            el("input", type="hidden", name="filter", value=condition),
            el("button", "Send back…", name="work", value="redrive", class_="main") if is_dead else None,
            el("button", "Remove…", name="work", value="purge", class_="danger"),
            el("small", "They are counted first, and you are asked."),
            class_="row",
        ),
    )
