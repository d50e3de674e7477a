"""One entity: what it holds and how it is set; forms to make one, change it and delete it.

Settings go through the namespace's Atom interface, as the official administration clients use it; `atom` words them.
"""

from __future__ import annotations

from urllib.parse import quote

from twinbus.console import atom, layout
from twinbus.console.asking import Document, RefusedError, SilentError
from twinbus.console.html import Child, Markup, el, join
from twinbus.console.layout import Content
from twinbus.console.shapes import choice, field, link, notice, number, rate, size, spark, table, tile
from twinbus.console.visit import Form, Visit

_SIZES = tuple((str(mb), f"{mb // 1024} GB") for mb in (1024, 2048, 3072, 4096, 5120))
_STATUSES = tuple((word, word) for word in ("Active", "Disabled", "SendDisabled", "ReceiveDisabled"))


async def page(visit: Visit) -> Content:
    """An entity whole."""
    name = visit.text("name")
    answer = await visit.look("entities", name=name, top=1)
    stale = layout.staleness(answer, f"'{visit.session.namespace}'")
    if answer.document is None:
        return Content(name, join(el("h1", name), stale))
    if not answer.document["entities"]:
        words = notice("bad", "There is no entity of this name.")
        return Content(name, join(el("h1", name), words, el("a", "All entities", href=link("entities"))), status=404)
    entity = answer.document["entities"][0]
    settings = await _settings(visit, entity)
    main = join(
        el("p", el("a", "Entities", href=link("entities")), " / ", entity["kind"], class_="crumbs"),
        el("h1", entity["name"]),
        stale,
        _numbers(entity),
        _ways(entity),
        settings,
        _deleting(visit, entity) if visit.session.manages else None,
    )
    return Content(entity["name"], main)


def _numbers(entity: Document) -> Markup:
    dead = entity["dead_letter"] + entity["transfer_dead_letter"]
    used = entity["bytes"] / entity["bytes_max"] if entity["bytes_max"] else 0.0
    note = f"{used:.0%} of {size(entity['bytes_max'])}" if entity["bytes_max"] else None
    return el(
        "div",
        tile("Active", number(entity["active"]), f"{number(entity['locked'])} locked"),
        tile("Scheduled", number(entity["scheduled"])),
        tile("Deferred", number(entity["deferred"])),
        tile("Dead letters", number(dead), class_="dead" if dead else ""),
        tile("Stored", size(entity["bytes"]), note),
        tile("Links", number(entity["links"])),
        tile(
            "Rate",
            spark(entity["arriving"], entity["leaving"], width=160, height=34, label="Arriving and leaving"),
            f"{rate(entity['arriving'][-1] if entity['arriving'] else None)} in, "
            f"{rate(entity['leaving'][-1] if entity['leaving'] else None)} out",
        ),
        class_="tiles",
    )


def _ways(entity: Document) -> Markup:
    ways = []
    if entity["kind"] != "topic":
        ways.append(el("a", "Messages", href=link("messages", entity=entity["name"]), class_="button"))
        dead = link("messages", entity=entity["name"], sub_queue="dead-letter")
        ways.append(el("a", "Dead letters", href=dead, class_="button"))
    else:
        below = link("entities", filter=f"{entity['name']}/Subscriptions/")
        ways.append(el("a", "Subscriptions", href=below, class_="button"))
        ways.append(el("a", "New subscription", href=link("new", topic=entity["name"]), class_="button"))
    stores = ", ".join(map(str, entity["stores"]))
    ways.append(el("span", f"On messaging store {stores}.", class_="faint"))
    return el("p", ways, class_="row")


async def _settings(visit: Visit, entity: Document) -> Markup:
    """A form for who may change, a table for who may look; reading them needs Manage."""
    if not visit.session.manages:
        return el("p", "How it is set can be seen with a policy that manages.", class_="faint")
    try:
        found = atom.settings_in(await visit.own.send("GET", _target(entity["name"]), None, {}))
    except (RefusedError, SilentError) as problem:
        return notice("warn", f"Its settings cannot be read: {problem}.")
    changeable = atom.CHANGEABLE[entity["kind"]]
    fixed = [(label, found[key]) for key, label in atom.FIXED.items() if key in found]
    shown = [_control(key, label, found.get(key, "")) for key, label in changeable.items()]
    return el(
        "section",
        el("h2", "Settings"),
        visit.form(
            "entity/change",
            el("input", type="hidden", name="name", value=entity["name"]),
            el("div", shown, class_="grid"),
            el("button", "Change", class_="main"),
            class_="card",
        ),
        el("h3", "Fixed when it was made"),
        table(("Setting", "Value"), fixed, class_="narrow"),
    )


def _control(key: str, label: str, value: str) -> Markup:
    if key == "Status":
        return field(label, choice(key, _STATUSES, value or "Active"))
    if key == "MaxSizeInMegabytes":
        return field(label, choice(key, _SIZES, value or "1024"))
    if value in ("true", "false") or key.startswith(("DeadLettering", "Enable")):
        return field(label, choice(key, (("true", "yes"), ("false", "no")), value or "false"))
    hint = "such as PT30S" if key == "LockDuration" else "such as P14D; empty: never" if key in atom.ENDLESS else ""
    return field(label, el("input", name=key, value="" if value == atom.NEVER else value, maxlength=1024), hint)


def _deleting(visit: Visit, entity: Document) -> Markup:
    held = entity["active"] + entity["scheduled"] + entity["deferred"] + entity["dead_letter"]
    return el(
        "section",
        el("h2", "Delete"),
        visit.form(
            "entity/delete",
            el("input", type="hidden", name="name", value=entity["name"]),
            el("p", f"Its {number(held)} messages are deleted with it, and cannot be brought back."),
            field(
                f"Type {entity['name']} to confirm",
                el("input", name="confirm", required=True, autocomplete="off", spellcheck="false"),
            ),
            el("button", "Delete", class_="danger"),
            class_="card",
        ),
    )


# Making one


async def new_page(visit: Visit) -> Content:
    """The form for a new entity."""
    if not visit.session.manages:
        return Content("New", notice("warn", "Your policy may look and not change."), status=403)
    return _new(visit, visit.text("topic"))


def _new(visit: Visit, topic: str, problem: str | None = None, given: Form | None = None) -> Content:
    kinds = (("queue", "queue"), ("topic", "topic"), ("subscription", "subscription of a topic"))
    before = given or Form({})
    chosen = before.text("kind") or ("subscription" if topic else "queue")
    flags: list[Child] = [
        el(
            "label",
            el("input", type="checkbox", name=key, value="true", checked=before.flag(key)),
            el("span", label),
            class_="check",
        )
        for key, label in {**atom.FIXED, "DeadLetteringOnMessageExpiration": "Expired messages die"}.items()
    ]
    main = join(
        el("p", el("a", "Entities", href=link("entities")), class_="crumbs"),
        el("h1", "New queue, topic or subscription"),
        notice("bad", problem) if problem else None,
        visit.form(
            "entity/create",
            el(
                "div",
                field("Kind", choice("kind", kinds, chosen)),
                field("Name", el("input", name="name", required=True, maxlength=260, value=before.text("name"))),
                field(
                    "Topic",
                    el("input", name="topic", maxlength=260, value=before.text("topic") or topic),
                    "of a subscription",
                ),
                field("Lock duration", el("input", name="LockDuration", value=before.text("LockDuration", "PT30S"))),
                field(
                    "Deliveries before a message dies",
                    el("input", name="MaxDeliveryCount", value=before.text("MaxDeliveryCount", "10")),
                ),
                field(
                    "Time to live",
                    el("input", name="DefaultMessageTimeToLive", value=before.text("DefaultMessageTimeToLive")),
                    "such as P14D; empty: without end",
                ),
                class_="grid",
            ),
            el("fieldset", el("legend", "And"), flags),
            el("button", "Create", class_="main"),
            class_="card",
        ),
    )
    return Content("New", main, status=200 if problem is None else 400)


# Acts


def _target(name: str) -> str:
    return f"/{quote(name)}?api-version=2021-05"


async def create(visit: Visit, form: Form) -> str | Content:
    """Make an entity."""
    kind, name = form.text("kind"), form.text("name").strip().strip("/")
    if kind == "subscription":
        name = f"{form.text('topic').strip()}/Subscriptions/{name}"
    if kind not in atom.CHANGEABLE or not form.text("name").strip():
        return _new(visit, form.text("topic"), "Choose a kind and give a name.", form)
    values = {key: form.text(key).strip() for key in atom.settable(kind) if form.text(key).strip()}
    try:
        await visit.own.send("PUT", _target(name), atom.new(kind, values), {"Content-Type": atom.TYPE})
    except RefusedError as refused:
        return _new(visit, form.text("topic"), refused.message, form)
    return link("entity", name=name)


async def change(visit: Visit, form: Form) -> str | Content:
    """Change what is set; the rest stays as it is."""
    name = form.text("name")
    document = await visit.own.send("GET", _target(name), None, {})
    kind = atom.kind_in(document)
    values = {
        key: form.text(key).strip() or (atom.NEVER if key in atom.ENDLESS else "") for key in atom.CHANGEABLE[kind]
    }
    headers = {"Content-Type": atom.TYPE, "If-Match": "*"}
    await visit.own.send("PUT", _target(name), atom.changed(document, values), headers)
    return link("entity", name=name)


async def delete(visit: Visit, form: Form) -> str | Content:
    """Delete an entity whose name was typed."""
    name = form.text("name")
    form.confirmed(name)
    await visit.own.send("DELETE", _target(name), None, {})
    return link("entities")
