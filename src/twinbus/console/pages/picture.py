"""The picture of a pair, and its timeline, as SVG: where sends go now, where messages wait, who brings them home.

Drawn from what the watch saw; which state that is, `console.pair` judges.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import pairwise

from twinbus.console.asking import Document
from twinbus.console.clients import diverting, syphoned, syphons_in, told_ago_s
from twinbus.console.html import Child, Markup, el, join
from twinbus.console.incidents import Point
from twinbus.console.pair import PairWatch, Watched, waiting_in
from twinbus.console.shapes import clock, lasting, number, rate

WIDTH, HEIGHT = 980, 330
_CLIENTS, _PRIMARY, _SECONDARY = (20, 96, 170, 138), (360, 24, 600, 112), (360, 196, 600, 112)


def draw(watch: PairWatch, clients: Sequence[Document]) -> Markup:
    """The picture; all that it says is also in the page's words."""
    away = diverting(list(clients))
    diverts = bool(away) or watch.standing.state == "diverted"
    paired = [record for record in clients if record["kind"] == "paired-client"]
    direct = watch.primary.is_up and len(away) < max(1, len(paired))
    waiting = waiting_in(watch.secondary.look.backlog) if watch.secondary.look is not None else 0
    syphons = syphons_in(list(clients))
    works = [record for record in syphons if not (record["state"]["syphon"] or {}).get("waits_for")]
    brings = bool(waiting and works and watch.primary.is_up and watch.secondary.is_up)
    shapes: list[Child] = [
        _arrows(),
        _client_box(clients, paired),
        _half_box(_PRIMARY, watch.primary, _primary_lines(watch.primary)),
        _half_box(_SECONDARY, watch.secondary, _secondary_lines(watch.secondary)),
        _queues(watch.secondary),
        _way((190, 140, 352, 86), direct, "sends" if direct else "no sends arrive", (262, 88)),
        _way((190, 190, 352, 244), diverts, "diverts" if diverts else "", (262, 252), kind="warn"),
        _syphon(brings, bool(syphons), clients),
    ]
    words = f"{watch.standing.state}: {watch.standing.why}"
    return el("svg", shapes, viewBox=f"0 0 {WIDTH} {HEIGHT}", class_="picture", role="img", aria_label=words)


def _arrows() -> Markup:
    heads = [
        el(
            "marker", el("path", d="M0,0 L8,4 L0,8 z", class_=f"head-{kind}"), id=f"head-{kind}", viewBox="0 0 8 8",
            refX=7, refY=4, markerWidth=7, markerHeight=7, orient="auto",
        )
        for kind in ("good", "warn", "idle")
    ]  # fmt: skip
    return el("defs", heads)


def _text(x: float, y: float, words: Child, class_: str = "") -> Markup:
    return el("text", words, x=x, y=y, class_=class_ or None)


def _box(place: tuple[int, int, int, int], class_: str) -> Markup:
    x, y, width, height = place
    return el("rect", x=x, y=y, width=width, height=height, rx=8, class_=f"box {class_}")


def _client_box(clients: Sequence[Document], paired: Sequence[Document]) -> Markup:
    x, y, _, _ = _CLIENTS
    away = len(diverting(list(clients)))
    diverted = sum(record["state"]["diverted"] for record in paired)
    return join(
        _box(_CLIENTS, "warn" if away else "plain"),
        _text(x + 16, y + 28, "clients", "title"),
        _text(x + 16, y + 54, f"{number(len(paired))} paired alive"),
        _text(x + 16, y + 76, f"{number(away)} divert now", "" if away else "faint"),
        _text(x + 16, y + 98, f"{number(diverted)} diverted", "faint"),
        _text(x + 16, y + 118, _as_told(paired), "faint small"),
    )


def _as_told(clients: Sequence[Document]) -> str:
    """What clients say of themselves is as old as their last word."""
    age_s = told_ago_s(list(clients), time.time())
    return "" if age_s is None else f"as told {lasting(age_s)} ago"


def _half_box(place: tuple[int, int, int, int], watched: Watched, lines: Sequence[str]) -> Markup:
    x, y, width, _ = place
    state = "answers" if watched.is_up else "does not answer"
    took = f" in {watched.look.took_ms:.0f} ms" if watched.is_up and watched.look is not None else ""
    since = f" since {clock(watched.since_s).partition('>')[2].partition('<')[0]}" if watched.since_s else ""
    place_of = watched.look.status.get("datacenter") if watched.look is not None else None
    where = f" · {place_of}" if place_of else ""
    return join(
        _box(place, "good" if watched.is_up else "bad"),
        _text(x + 16, y + 28, f"{watched.side.role.upper()}  {watched.name[:28]}{where}", "title"),
        el("circle", cx=x + width - 20, cy=y + 22, r=6, class_="dot-good" if watched.is_up else "dot-bad"),
        el("text", f"{state}{took}{since}", x=x + width - 34, y=y + 27, class_="faint end"),
        [_text(x + 16, y + 56 + 22 * at, line) for at, line in enumerate(lines)],
    )


def _primary_lines(watched: Watched) -> list[str]:
    if watched.look is None:
        return [f"{watched.problem}"]
    sums = watched.look.sums
    held = sums["active"] + sums["scheduled"] + sums["deferred"]
    dead = sums["dead_letter"] + sums["transfer_dead_letter"]
    lines = [
        f"{rate(sums['arriving'])} msg/s in   {rate(sums['leaving'])} msg/s out",
        f"depth {number(held)}   locked {number(sums['locked'])}   dead {number(dead)}",
    ]
    if not watched.is_up:
        lines[0] = f"last known, {lasting(watched.asked_at_s - watched.look.at_s)} before it was last asked"
    return lines


def _secondary_lines(watched: Watched) -> list[str]:
    if watched.look is None:
        return [f"{watched.problem}"]
    waiting = waiting_in(watched.look.backlog)
    oldest = f"   oldest {lasting(watched.look.oldest_s)}" if watched.look.oldest_s is not None else ""
    return [f"backlog {number(waiting)}{oldest}"]


def _queues(watched: Watched) -> Markup | None:
    """The backlog queues side by side, fuller the more there is."""
    if watched.look is None or not watched.look.backlog:
        return None
    x, y, _, _ = _SECONDARY
    queues = watched.look.backlog[:10]
    depths = [int(queue["active"] + queue["deferred"] + queue["scheduled"]) for queue in queues]
    most = max(depths) or 1
    drawn: list[Child] = []
    for at, depth in enumerate(depths):
        left, top = x + 16 + at * 56, y + 68
        drawn.append(el("rect", x=left, y=top, width=46, height=20, rx=3, class_="slot"))
        if depth:
            drawn.append(
                el(
                    "rect",
                    x=left,
                    y=top,
                    width=f"{max(4.0, 46 * depth / most):.0f}",
                    height=20,
                    rx=3,
                    class_="slot-full",
                )
            )
        drawn.append(el("text", number(depth), x=left + 23, y=top + 34, class_="small middle"))
    return join(drawn)


def _way(
    line: tuple[int, int, int, int], is_on: bool, words: str, at: tuple[int, int], *, kind: str = "good"
) -> Markup:
    x1, y1, x2, y2 = line
    shown = kind if is_on else "idle"
    return join(
        el("line", x1=x1, y1=y1, x2=x2, y2=y2, class_=f"way {shown}", marker_end=f"url(#head-{shown})"),
        el("text", words, x=at[0], y=at[1], class_="small middle") if words else None,
    )


def _syphon(brings: bool, runs: bool, clients: Sequence[Document]) -> Markup:
    moved = syphoned(list(clients))
    told = _as_told(syphons_in(list(clients)))
    words = f"syphon · {number(moved)} brought home, {told}" if runs else "no syphon runs"
    shown = "good" if brings else "idle"
    return join(
        el("line", x1=640, y1=192, x2=640, y2=142, class_=f"way {shown}", marker_end=f"url(#head-{shown})"),
        el("text", words, x=656, y=172, class_="small" if runs else "small warn-text"),
    )


def timeline(points: Sequence[Point], when: str = "In the last") -> Markup:
    """The backlog's depth over time, above the pair's state."""
    if len(points) < 2:
        return el("p", "The timeline begins with the first minute of watching.", class_="faint")
    first, last = points[0].at_s, points[-1].at_s
    span = max(1.0, last - first)
    most = max(point.backlog for point in points) or 1
    fastest = max(point.arriving for point in points) or 1.0

    def across(at_s: float) -> float:
        return 960 * (at_s - first) / span

    depth = [f"{across(point.at_s):.1f},{78 - 70 * point.backlog / most:.1f}" for point in points]
    pace = [f"{across(point.at_s):.1f},{78 - 70 * point.arriving / fastest:.1f}" for point in points]
    states: list[Child] = []
    for before, after in pairwise(list(points)):
        left, wide = across(before.at_s), across(after.at_s) - across(before.at_s)
        kind = before.state.replace(" ", "-")
        states.append(el("rect", x=f"{left:.1f}", y=84, width=f"{wide + 0.6:.1f}", height=10, class_=f"state-{kind}"))
    words = f"{lasting(span)}: backlog up to {number(most if most > 1 else max(p.backlog for p in points))}"
    drawn = el(
        "svg",
        el("polygon", points=" ".join(["0,78", *depth, "960,78"]), class_="depth"),
        el("polyline", points=" ".join(pace), class_="pace", fill="none"),
        states,
        viewBox="0 0 960 98", class_="timeline", role="img", aria_label=words, preserveAspectRatio="none",
    )  # fmt: skip
    legend = el(
        "p",
        f"{when} {lasting(span)}. Filled: messages in the backlog, up to {number(max(p.backlog for p in points))}. "
        f"Line: messages that arrive in the primary, up to {rate(max(p.arriving for p in points))} a second. "
        "Below: the state.",
        class_="faint",
    )
    ends = el("p", clock(first), clock(last), class_="ends faint")
    return join(drawn, ends, legend)
