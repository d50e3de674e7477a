"""One message whole: its properties, its body as text, JSON or bytes; sent again as a new message after a change.

A dead letter that was sent again is removed only when the new message is stored.
"""

from __future__ import annotations

import base64
import json
from typing import Any
from urllib.parse import quote

from twinbus.console import layout
from twinbus.console.asking import Document, RefusedError
from twinbus.console.html import Child, Markup, el, join
from twinbus.console.layout import Content
from twinbus.console.shapes import NONE, clock, field, lasting, link, notice, number, table
from twinbus.console.visit import Form, Visit

VIEWS = ("text", "json", "hex")
SHOWN_BYTES = 64 * 1024
HEX_BYTES = 8 * 1024
BATCH = "application/vnd.microsoft.servicebus.json"
_SENT = ("Label", "CorrelationId", "To", "ReplyTo", "ReplyToSessionId", "PartitionKey", "ContentType")
_DIED = ("DeadLetterReason", "DeadLetterErrorDescription")


async def page(visit: Visit) -> Content:
    """The message of a number."""
    entity, sub_queue, at = visit.text("entity"), visit.text("sub_queue") or "main", visit.number("number")
    answer = await visit.look(f"messages/{at}", entity=entity, sub_queue=sub_queue)
    back = link("messages", entity=entity, sub_queue=sub_queue)
    crumbs = el("p", el("a", entity, href=back), " / message ", at, class_="crumbs")
    if answer.document is None:
        words = notice("bad", f"It cannot be shown: {answer.problem}")
        return Content("Message", join(crumbs, el("h1", "Message ", at), words), status=404)
    found = answer.document
    body = base64.b64decode(found["body"])
    main = join(
        crumbs,
        el("h1", found["message_id"] or f"Message {at}"),
        layout.staleness(answer, f"'{entity}'"),
        _died(found),
        el("div", _facts(found), _properties(found), class_="columns"),
        _body(visit, body, found, entity, sub_queue),
        _again(visit, body, found, entity, sub_queue) if visit.session.manages else None,
    )
    return Content("Message", main)


def _died(found: Document) -> Markup | None:
    if not found["reason"]:
        return None
    return notice("warn", el("strong", found["reason"]), ". ", found["description"] or "")


def _facts(found: Document) -> Markup:
    ttl = found["time_to_live_ms"]
    rows: list[tuple[Child, Child]] = [
        ("Number", found["sequence_number"]),
        ("State", found["state"]),
        ("Enqueued", clock(found["enqueued_at"])),
        ("Deliveries", number(found["delivery_count"])),
        ("Time to live", "without end" if ttl is None else lasting(ttl / 1000)),
        ("Session", found["session_id"] or NONE),
        *((name, value) for name, value in found["properties"].items() if name not in ("MessageId", "SessionId")),
    ]
    return el("section", el("h2", "Message"), table(("Property", "Value"), rows, class_="facts"))


def _properties(found: Document) -> Markup:
    rows = [(name, el("code", value)) for name, value in sorted(found["application_properties"].items())]
    shown = table(("Property", "Value"), rows, class_="facts") if rows else el("p", "None.", class_="faint")
    return el("section", el("h2", "Application properties"), shown)


# The body


def best_view(body: bytes) -> str:
    """As what a body is shown if nobody says."""
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return "hex"
    try:
        return "json" if isinstance(json.loads(text), dict | list) else "text"
    except (ValueError, RecursionError):
        return "text"


def shown_as(view: str, body: bytes) -> str:
    """A body for reading."""
    if view == "hex":
        return hex_dump(body[:HEX_BYTES])
    text = body[:SHOWN_BYTES].decode(errors="replace")
    if view == "json":
        try:
            return json.dumps(json.loads(body), indent=2, ensure_ascii=False)[:SHOWN_BYTES]
        except (ValueError, RecursionError):
            return text
    return text


def hex_dump(body: bytes) -> str:
    """Sixteen bytes a line, with what can be read of them."""
    lines = []
    for at in range(0, len(body), 16):
        part = body[at : at + 16]
        readable = "".join(chr(byte) if 32 <= byte < 127 else "·" for byte in part)
        lines.append(f"{at:06x}  {part.hex(' '):<47}  {readable}")
    return "\n".join(lines)


def _body(visit: Visit, body: bytes, found: Document, entity: str, sub_queue: str) -> Markup:
    view = visit.text("view") if visit.text("view") in VIEWS else best_view(body)
    kept: dict[str, Any] = {"entity": entity, "sub_queue": sub_queue, "number": found["sequence_number"]}
    views = [
        el("a", each, href=link("message", **kept, view=each), aria_current="true" if each == view else None)
        for each in VIEWS
    ]
    limit = HEX_BYTES if view == "hex" else SHOWN_BYTES
    cut = el("p", f"Shown are the first {number(limit)} bytes.", class_="faint") if len(body) > limit else None
    return el(
        "section",
        el("h2", "Body ", el("small", f"{number(len(body))} bytes")),
        el("nav", views, class_="tabs", aria_label="Ways to show the body"),
        el("pre", shown_as(view, body), tabindex=0) if body else el("p", "It is empty.", class_="faint"),
        cut,
    )


# Again


def _again(visit: Visit, body: bytes, found: Document, entity: str, sub_queue: str) -> Markup:
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return el("p", "Its body is not text, so that it cannot be edited here.", class_="faint")
    user = {name: value for name, value in found["application_properties"].items() if name not in _DIED}
    system = {name: found["properties"][name] for name in _SENT if found["properties"].get(name)}
    topic, is_subscription, _ = entity.partition("/Subscriptions/")
    where = f"to the topic {topic}, and so to all its subscriptions that want it" if is_subscription else f"to {entity}"
    removing = el(
        "label",
        el("input", type="checkbox", name="remove", value="yes", checked=True),
        el("span", "Then remove this dead letter"),
        class_="check",
    )
    return el(
        "section",
        el("h2", "Send again, edited"),
        visit.form(
            "message/resubmit",
            [
                el("input", type="hidden", name=name, value=value)
                for name, value in (("entity", entity), ("sub_queue", sub_queue), ("number", found["sequence_number"]))
            ],
            el("p", f"Goes as a new message {where}."),
            field("Body", el("textarea", "\n" + text, name="body", rows=8, spellcheck="false")),
            el(
                "div",
                field("Message id", el("input", name="message_id", value=found["message_id"], maxlength=128)),
                field("Session", el("input", name="session_id", value=found["session_id"] or "", maxlength=128)),
                class_="grid",
            ),
            field("Properties", _area("system", system), "broker properties as JSON"),
            field("Application properties", _area("user", user), "as JSON"),
            removing if sub_queue != "main" else None,
            el("button", "Send", class_="main"),
            class_="card",
        ),
    )


def _area(name: str, values: dict[str, Any]) -> Markup:
    text = json.dumps(values, indent=2, ensure_ascii=False)
    return el("textarea", "\n" + text, name=name, rows=min(10, text.count("\n") + 2), spellcheck="false")


async def resubmit(visit: Visit, form: Form) -> str | Content:
    """Send, and when that is stored, remove the dead letter that it was made from."""
    entity, sub_queue, at = form.text("entity"), form.text("sub_queue"), form.text("number")
    message = {
        "Body": form.text("body").replace("\r\n", "\n"),
        "BrokerProperties": {
            **_object(form.text("system"), "The properties"),
            **({"MessageId": form.text("message_id")} if form.text("message_id") else {}),
            **({"SessionId": form.text("session_id")} if form.text("session_id") else {}),
        },
        "UserProperties": _object(form.text("user"), "The application properties"),
    }
    target = entity.partition("/Subscriptions/")[0]
    content = json.dumps([message]).encode()
    await visit.own.send("POST", f"/{quote(target)}/messages", content, {"Content-Type": BATCH})
    if form.flag("remove") and sub_queue != "main" and at.isdigit():
        job = {"work": "purge", "entity": entity, "sub_queue": sub_queue, "filter": f"sys.SequenceNumber = {int(at)}"}
        begun = await visit.own.api("POST", "jobs", None, job)
        return link("job", number=begun["number"])
    return link("messages", entity=entity, sub_queue=sub_queue)


def _object(text: str, what: str) -> dict[str, Any]:
    try:
        found = json.loads(text or "{}")
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise RefusedError(400, "argument", f"{what} must be a JSON object. Nothing was sent.")
    return found
