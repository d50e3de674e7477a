"""Policies of the namespace: which there are and where they came from; one is added, changed, rotated, removed.

Keys are shown for one policy at a time, when somebody asks, and never remembered. What may not be done is not offered;
the namespace decides it all the same.
"""

from __future__ import annotations

from twinbus.console import layout
from twinbus.console.asking import Document, RefusedError
from twinbus.console.html import Child, Markup, el, join
from twinbus.console.layout import Content
from twinbus.console.shapes import choice, field, link, mark, notice, table
from twinbus.console.signing import Credential
from twinbus.console.visit import Form, Visit

_RIGHTS = ("Listen", "Send", "Manage")
_CAME_FROM = {"file": "configuration file", "api": "API", "first-start": "first start"}
_ROOT = "RootManageSharedAccessKey"
# What a rotation does, and which keys it renews: not one that the settings give.
_ROTATIONS = {
    "shift": "A new primary key; the old one becomes the secondary key",
    "primary": "A new primary key; the old one is refused at once",
    "secondary": "A new secondary key; the old one is refused at once",
}
_RENEWED = {
    "shift": {"primary_key", "secondary_key"},
    "primary": {"primary_key"},
    "secondary": {"secondary_key"},
}


async def page(visit: Visit) -> Content:
    """All of them, and the form for a new one."""
    return await _all(visit)


async def one(visit: Visit) -> Content:
    """One policy."""
    return await _one(visit, visit.text("name"))


def _for_managers() -> Content:
    words = "Policies are for those who manage."
    return Content("Policies", join(el("h1", "Policies"), notice("plain", words)), status=403)


async def _all(visit: Visit, problem: str | None = None, given: Form | None = None) -> Content:
    if not visit.session.manages:
        return _for_managers()
    answer = await visit.look("policies")
    found = [] if answer.document is None else answer.document["policies"]
    rows = [
        (
            join(
                el("a", policy["name"], href=link("policy", name=policy["name"]), class_="name"),
                mark("plain", "you") if policy["name"] == visit.session.credential.policy else None,
            ),
            ", ".join(policy["rights"]),
            _CAME_FROM.get(policy["came_from"], policy["came_from"]),
        )
        for policy in found
    ]
    main = join(
        el("h1", "Policies"),
        layout.staleness(answer, f"'{visit.session.namespace}'"),
        table(("Name", "Rights", "Came from"), rows, class_="list") if rows else None,
        el("p", "A policy of the configuration file is changed and removed there.", class_="faint"),
        el("section", el("h2", "New policy"), _adding(visit, problem, given or Form({}))),
    )
    return Content("Policies", main, status=200 if problem is None else 400)


def _adding(visit: Visit, problem: str | None, given: Form) -> Markup:
    return join(
        notice("bad", problem) if problem else None,
        visit.form(
            "policy/add",
            field(
                "Name",
                el("input", name="name", required=True, maxlength=50, value=given.text("name"), spellcheck="false"),
            ),
            _boxes([right for right in _RIGHTS if given.flag(right)]),
            el("button", "Add", class_="main"),
            class_="card",
        ),
    )


def _boxes(chosen: list[str]) -> Markup:
    boxes: list[Child] = [
        el(
            "label",
            el("input", type="checkbox", name=right, value="true", checked=right in chosen),
            el("span", right),
            class_="check",
        )
        for right in _RIGHTS
    ]
    return el("fieldset", el("legend", "Rights; Manage has the other two"), boxes)


async def _one(visit: Visit, name: str, problem: str | None = None, keys: Document | None = None) -> Content:
    if not visit.session.manages:
        return _for_managers()
    answer = await visit.look("policies")
    found = [] if answer.document is None else answer.document["policies"]
    policy = next((each for each in found if each["name"].lower() == name.lower()), None)
    crumbs = el("p", el("a", "Policies", href=link("policies")), class_="crumbs")
    stale = layout.staleness(answer, f"'{visit.session.namespace}'")
    if policy is None:
        missing = None if answer.document is None else notice("bad", problem or "There is no policy of this name.")
        return Content(name, join(crumbs, el("h1", name), stale, missing), status=404)
    facts = [
        ("Rights", ", ".join(policy["rights"])),
        ("Came from", _CAME_FROM.get(policy["came_from"], policy["came_from"])),
        ("Keys that the settings give", ", ".join(_spoken(part) for part in policy["given"]) or "none"),
    ]
    main = join(
        crumbs,
        el("h1", policy["name"]),
        stale,
        notice("bad", problem) if problem else None,
        table(("What", "Is"), facts, class_="facts narrow", caption="The policy"),
        _keys(visit, policy, keys),
        _rotating(visit, policy),
        _changing(visit, policy),
        _removing(visit, policy),
    )
    return Content(policy["name"], main, status=200 if problem is None else 400)


def _spoken(part: str) -> str:
    return part.replace("_", " ")


def _named(policy: Document) -> Markup:
    return el("input", type="hidden", name="name", value=policy["name"])


def _confirmed(policy: Document) -> Markup:
    return field(
        f"Type {policy['name']} to confirm",
        el("input", name="confirm", required=True, autocomplete="off", spellcheck="false"),
    )


def _keys(visit: Visit, policy: Document, keys: Document | None) -> Markup:
    if keys is None:
        return el("section", el("h2", "Keys"), visit.form("policy/keys", _named(policy), el("button", "Show the keys")))
    rows = [(_spoken(part).capitalize(), el("code", keys[part])) for part in ("primary_key", "secondary_key")]
    words = el("p", "Whoever has one of them has the rights of this policy.", class_="faint")
    return el("section", el("h2", "Keys"), table(("Key", "Value"), rows), words)


def _rotating(visit: Visit, policy: Document) -> Markup:
    possible = [(key, words) for key, words in _ROTATIONS.items() if not _RENEWED[key] & set(policy["given"])]
    if not possible:
        words = "Both keys are given by the broker's settings: change them there and start it again."
        return el("section", el("h2", "Rotate"), el("p", words, class_="faint"))
    return el(
        "section",
        el("h2", "Rotate"),
        visit.form(
            "policy/rotate",
            _named(policy),
            field("Which", choice("key", possible, possible[0][0])),
            _confirmed(policy),
            el("button", "Rotate", class_="danger"),
            class_="card",
        ),
    )


def _changing(visit: Visit, policy: Document) -> Markup | None:
    if policy["came_from"] == "file" or policy["name"].lower() == _ROOT.lower():
        return None
    return el(
        "section",
        el("h2", "Rights"),
        visit.form(
            "policy/rights", _named(policy), _boxes(policy["rights"]), el("button", "Change", class_="main"),
            class_="card",
        ),
    )  # fmt: skip


def _removing(visit: Visit, policy: Document) -> Markup | None:
    if policy["came_from"] == "file":
        words = "Its rights are in the configuration file. Take it out there and start the broker again to remove it."
        return el("section", el("h2", "Change or remove"), el("p", words, class_="faint"))
    if policy["given"]:
        return None
    return el(
        "section",
        el("h2", "Remove"),
        visit.form(
            "policy/remove",
            _named(policy),
            el("p", "Whoever uses its keys is refused at once, in open connections too."),
            _confirmed(policy),
            el("button", "Remove", class_="danger"),
            class_="card",
        ),
    )


# Acts


def _chosen(form: Form) -> list[str]:
    return [right for right in _RIGHTS if form.flag(right)]


async def add(visit: Visit, form: Form) -> str | Content:
    """Make a policy with two new keys."""
    name, rights = form.text("name").strip(), _chosen(form)
    if not name or not rights:
        return await _all(visit, "Give a name and choose a right.", form)
    try:
        await visit.own.api("POST", "policies", None, {"name": name, "rights": rights})
    except RefusedError as refused:
        return await _all(visit, refused.message, form)
    return link("policy", name=name)


async def show_keys(visit: Visit, form: Form) -> str | Content:
    """Show the keys, in this answer only."""
    name = form.text("name")
    return await _one(visit, name, keys=await visit.own.api("GET", f"policies/{name}"))


async def change_rights(visit: Visit, form: Form) -> str | Content:
    """Give it other rights."""
    name = form.text("name")
    try:
        await visit.own.api("PUT", f"policies/{name}", None, {"rights": _chosen(form)})
    except RefusedError as refused:
        return await _one(visit, name, refused.message)
    return link("policy", name=name)


async def rotate(visit: Visit, form: Form) -> str | Content:
    """Renew keys, if the name was typed; whoever is signed in with one that goes is signed in with the new one."""
    name, key = form.text("name"), form.text("key")
    try:
        form.confirmed(name)
        policy = await visit.own.api("POST", f"policies/{name}/rotate", None, {} if key == "shift" else {"key": key})
    except RefusedError as refused:
        return await _one(visit, name, refused.message)
    own = visit.session.credential
    if own.policy == policy["name"] and own.key not in (policy["primary_key"], policy["secondary_key"]):
        visit.session.credential = Credential(own.policy, policy["primary_key"])
    return link("policy", name=name)


async def remove(visit: Visit, form: Form) -> str | Content:
    """Remove it, if the name was typed."""
    name = form.text("name")
    try:
        form.confirmed(name)
        await visit.own.api("DELETE", f"policies/{name}")
    except RefusedError as refused:
        return await _one(visit, name, refused.message)
    return link("policies")
