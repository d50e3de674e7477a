"""The Pair page: one picture of both namespaces, the clients, the backlog and the syphon, and where every message is.

Shows what the watch in `console.pair` last saw, with its age; it waits for nobody.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from twinbus.console.asking import Document
from twinbus.console.clients import diverting, drainers, next_ping_s, outboxes_of
from twinbus.console.html import Child, Markup, el, join
from twinbus.console.layout import Content
from twinbus.console.pages.incidents import rows_of
from twinbus.console.pages.picture import draw, timeline
from twinbus.console.pair import KINDS, PairWatch, Watched, clients_of, waiting_in
from twinbus.console.shapes import NONE, clock, lasting, link, mark, notice, num, number, size, table, tile
from twinbus.console.visit import Visit

INCIDENTS = 3  # The last so many are on the page.


async def page(visit: Visit) -> Content:
    """The whole page."""
    if visit.pair is None:
        words = "This console knows of no pair: start the broker with --console-pair, or use `twinbus up`."
        return Content("Pair", join(el("h1", "Pair"), notice("plain", words)), status=404)
    parts = await live(visit)
    main = join(el("h1", "Pair", class_="unseen"), [el("div", part, id=name) for name, part in parts.items()])
    return Content("Pair", main, "pair")


async def live(visit: Visit) -> Mapping[str, Markup]:
    """What changes by itself: everything."""
    watch = visit.pair
    if watch is None:
        return {}
    clients = clients_of(watch.primary, watch.secondary)
    return {
        "past": join([notice("bad", words) for words in [*watch.past.noticed.values(), *_dead(watch)]]),
        "standing": _standing(watch, clients),
        "picture": draw(watch, clients),
        "where": _where(watch, clients),
        "balance": _balance(watch),
        "times": _times(watch),
        "incidents": _incidents(watch),
        "backlog": _backlog(watch, visit.session.namespace, clients),
        "clients": _clients(clients),
    }


def _dead(watch: PairWatch) -> list[str]:
    """Messages that could not be brought home are nobody's work but a person's."""
    backlog = watch.secondary.look.backlog if watch.secondary.look is not None else []
    dead = {queue["name"]: queue["dead_letter"] for queue in backlog if queue["dead_letter"]}
    if not dead:
        return []
    where = ", ".join(list(dead)[:3])
    return [f"{number(sum(dead.values()))} messages are dead in the backlog, and nobody moves them: {where}."]


def _standing(watch: PairWatch, clients: Sequence[Document]) -> Markup:
    standing = watch.standing
    age = time.time() - standing.since_s
    said = [
        f"What is shown of the {watched.side.role} is {lasting(time.time() - watched.look.at_s)} old."
        for watched in (watch.primary, watch.secondary)
        if not watched.is_up and watched.look is not None
    ]
    return el(
        "div",
        mark(f"{KINDS.get(standing.state, 'bad')} huge", standing.state),
        el("span", f"for {lasting(age)}", class_="faint") if standing.since_s else None,
        el("p", standing.why, " ", standing.next, " ", " ".join(said)),
        class_=f"standing {KINDS.get(standing.state, 'bad')}",
        role="status",
    )


def _where(watch: PairWatch, clients: Sequence[Document]) -> Markup:
    """Where the messages are: each is counted in one place."""
    primary = watch.primary.look.sums if watch.primary.look is not None else None
    backlog = watch.secondary.look.backlog if watch.secondary.look is not None else []
    waiting = waiting_in(backlog)
    dead_there = sum(queue["dead_letter"] for queue in backlog)
    held = primary["active"] + primary["scheduled"] + primary["deferred"] if primary else None
    dead = primary["dead_letter"] + primary["transfer_dead_letter"] if primary else None
    diverted = sum(record["state"]["diverted"] for record in clients)
    places: list[tuple[str, object, str]] = [
        ("in the primary", held, ""),
        ("of them locked", primary["locked"] if primary else None, "faint"),
        ("in the backlog", waiting, "warn" if waiting else ""),
        ("dead in the primary", dead, "dead" if dead else ""),
        ("dead in the backlog", dead_there, "dead" if dead_there else ""),
        ("diverted, as clients last said", diverted, "faint"),
    ]
    outboxes = outboxes_of(clients)
    if outboxes is not None:
        places.insert(3, ("in outboxes of clients", outboxes.waiting, "warn" if outboxes.waiting else ""))
    return el(
        "div",
        [
            tile(label, number(value) if value is not None else "not known", class_=kind)
            for label, value, kind in places
        ],
        tile("oldest in an outbox", lasting(outboxes.oldest_s)) if outboxes is not None and outboxes.waiting else None,
        _ping(clients),
        class_="tiles",
    )


def _ping(clients: Sequence[Document]) -> Markup | None:
    """When a client tries the primary again."""
    at_s = next_ping_s(clients, time.time())
    if at_s is None:
        return None
    in_s = at_s - time.time()
    return tile("next ping", f"in {lasting(in_s)}" if in_s >= 1 else "now", clock(at_s), "warn")


def _times(watch: PairWatch) -> Markup:
    return el("section", el("h2", "Lately"), timeline(watch.standing.points))


def _backlog(watch: PairWatch, namespace: str, clients: Sequence[Document]) -> Markup:
    look = watch.secondary.look
    if look is None or not look.backlog:
        return el("section", el("h2", "Backlog"), el("p", "There are no backlog queues.", class_="faint"))
    is_here = watch.half(namespace) is watch.secondary
    rows = []
    for queue in look.backlog:
        name: Child = queue["name"]
        if is_here:
            name = el("a", name, href=link("messages", entity=queue["name"]))
        rows.append(
            (
                name,
                num(number(queue["active"] + queue["deferred"] + queue["scheduled"])),
                num(lasting(queue["oldest_s"]) if queue.get("oldest_s") is not None else NONE),
                num(number(queue["locked"])),
                num(number(queue["dead_letter"]), class_="dead" if queue["dead_letter"] else "none"),
                num(size(queue["bytes"])),
                ", ".join(_place(record) for record in drainers(clients, queue["name"])) or "nobody",
            )
        )
    heads = (
        "Queue",
        *(el("th", word, scope="col", class_="num") for word in ("Waiting", "Oldest", "Locked", "Dead", "Size")),
        "Drained by",
    )
    oldest = f"the oldest message is {lasting(look.oldest_s)} old" if look.oldest_s is not None else "empty"
    return el("section", el("h2", "Backlog ", el("small", oldest)), table(heads, rows))


def _place(record: Document) -> str:
    return f"{record['host']}, process {record['process']}"


def _clients(clients: Sequence[Document]) -> Markup:
    if not clients:
        words = "Nobody says that it is alive. Paired clients and syphons do so by themselves."
        return el("section", el("h2", "Clients"), el("p", words, class_="faint"))
    away = {record["id"] for record in diverting(list(clients))}
    rows = []
    for record in clients:
        state = record["state"]
        ill = state["ill"]
        words = ", ".join(f"{name} {how}" for name, how in list(ill.items())[:3])
        more = state["ill_count"] - 3
        syphon = state["syphon"] or {}
        kind, word = "good", "well"
        if record["id"] in away:
            kind, word = "bad", "diverts"
        elif ill:
            kind, word = "warn", "suspects"
        elif syphon.get("waits_for"):
            kind, word = "warn", f"waits for the {syphon['waits_for']}"
            if syphon["next_try_in_s"] is not None:
                words = f"next try in {syphon['next_try_in_s']:g} s"
        elif syphon.get("blocked"):
            kind, word = "warn", "waits for"
            words = ", ".join(list(syphon["blocked"])[:3])
        elif syphon.get("problem"):
            kind, word = "warn", "had a problem"
        shown = mark(kind, word)
        rows.append(
            (
                str(record["kind"]).replace("-", " "),
                _place(record),
                join(shown, " ", words, f" and {more} more" if more > 0 else ""),
                num(number(state["diverted"]) if record["kind"] == "paired-client" else NONE),
                num(number(state["pings"]) if record["kind"] == "paired-client" else NONE),
                num(number(syphon["moved"]) if syphon else NONE),
                num(_outbox(state["outbox"])),
                el("td", syphon.get("problem") or "", class_="words"),
                clock(record["seen_at"]),
            )
        )
    words_of = ("Diverted", "Pings", "Brought home", "Outbox")
    heads = (
        "Kind", "Where", "State", *(el("th", word, scope="col", class_="num") for word in words_of), "Problem", "Seen",
    )  # fmt: skip
    return el("section", el("h2", "Clients and syphons"), table(heads, rows))


def _outbox(told: Mapping[str, float | None] | None) -> str:
    if told is None:
        return NONE
    aside = f", {number(told['set_aside'])} set aside" if told["set_aside"] else ""
    return f"{number(told['waiting'])}{aside}"


def _incidents(watch: PairWatch) -> Markup:
    latest = list(reversed(watch.incidents.kept))[:INCIDENTS]
    listed = rows_of(latest) if latest else el("p", "None so far.", class_="faint")
    everything = el("a", "Incidents and drills", href=link("incidents"))
    return el("section", el("h2", "Last incidents ", el("small", everything)), listed)


# The conservation line


def _balance(watch: PairWatch) -> Markup:
    """What came in is what left and what is there, in each namespace."""
    head = el("h2", "Conservation ", el("small", "what came in is what left and what is there"))
    return el("section", head, [_line(watched) for watched in (watch.primary, watch.secondary)])


def _line(watched: Watched) -> Markup:
    name = el("strong", watched.name)
    if watched.look is None:
        return el("p", name, " has told nothing yet.", class_="line")
    told = watched.look.balance
    if not told.get("told"):
        return el("p", name, ": ", told.get("why"), class_="line faint")
    created, ended, held = told["created"], told["ended"], told["held"]
    delta = told["delta"]
    return el(
        "p",
        name,
        " ",
        _sum("held at the start", told["held_at_start"], {}),
        " + ",
        _sum("created", sum(created.values()), created),
        " = ",
        _sum("ended", sum(ended.values()), ended),
        " + ",
        _sum("held now", sum(held.values()), held),
        mark("good" if delta == 0 else "bad", f"\N{GREEK CAPITAL LETTER DELTA} {number(delta)}"),
        el("small", " since ", clock(told["since"]), "" if watched.is_up else ", as last known"),
        class_="line",
    )


def _sum(words: str, value: int, parts: Mapping[str, int]) -> Markup:
    """One number of the line, with what it is made of."""
    made = ", ".join(f"{way.replace('_', ' ')} {number(count)}" for way, count in parts.items() if count)
    return join(words, " ", el("b", number(value)), el("small", f" ({made})") if made else None)
