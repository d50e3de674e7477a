"""The report of a drill that ran without Spark: a page with the verdict, a picture of the counts, and what happened.

With Spark the report is `pipeline.proof.report`, which proves more. Needs no network and no script to look at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from html import escape
from pathlib import Path

from twinbus.drill.course import Course, Point
from twinbus.drill.ending import Ending
from twinbus.drill.stage import Plan

WIDTH, HEIGHT, LEFT, BOTTOM, RIGHT, TOP = 960, 320, 56, 28, 110, 12
SERIES = ("acknowledged", "diverted", "received")
LISTED_MAX = 1000  # Ids on the page.
SENTENCE_MAX = 160
_STYLE = """
:root { color-scheme: light dark; --page: #fbfbf9; --card: #fff; --ink: #1d2329; --soft: #5b6570; --faint: #c9ced4;
  --good: #176f3c; --bad: #b3261e; --acknowledged: #3566b8; --diverted: #c2570c; --received: #1b7f5c; }
@media (prefers-color-scheme: dark) { :root { --page: #14181c; --card: #1c2126; --ink: #e4e7ea; --soft: #9aa4ae;
  --faint: #46505a; --good: #5cc98b; --bad: #ff8a80; --acknowledged: #86b1ff; --diverted: #ffa869;
  --received: #63d2a6; } }
body { margin: 0 auto; max-width: 62rem; padding: 2rem 1.25rem 4rem; background: var(--page); color: var(--ink);
  font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.5rem; margin: 0 0 .25rem; } h2 { font-size: 1.1rem; margin: 2rem 0 .5rem; }
.soft { color: var(--soft); } .verdict { border-left: .4rem solid var(--good); background: var(--card);
  padding: .9rem 1.1rem; margin: 1.25rem 0; } .verdict.bad { border-color: var(--bad); }
figure { margin: .5rem 0; background: var(--card); padding: .75rem; border-radius: .4rem; }
svg { display: block; width: 100%; height: auto; } svg text { font: 12px system-ui, sans-serif; fill: var(--soft); }
polyline { fill: none; stroke-width: 2; } .axis { stroke: var(--faint); }
.acknowledged { stroke: var(--acknowledged); } .diverted { stroke: var(--diverted); }
.received { stroke: var(--received); } .mark { stroke: var(--bad); stroke-dasharray: 4 4; }
svg text.name { fill: var(--ink); }
table { border-collapse: collapse; width: 100%; background: var(--card); font-size: .9rem; }
th, td { text-align: left; padding: .3rem .7rem; border-bottom: 1px solid var(--faint); }
th { color: var(--soft); } .number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
code { font-family: ui-monospace, monospace; overflow-wrap: anywhere; }
"""


def write_report(path: Path, plan: Plan, course: Course, ending: Ending) -> None:
    """Write the page, whole or not at all."""
    unfinished = path.with_name(f".{path.name}.tmp")
    unfinished.write_text(page(plan, course, ending), encoding="utf-8")
    unfinished.replace(path)


def page(plan: Plan, course: Course, ending: Ending) -> str:
    """The whole page."""
    said = "It holds." if ending.holds else "It does not hold."
    seed = f"seed {plan.seed}, {plan.rate:g} messages a second"
    moments = "".join(
        f'<tr><td class="number">{at_s:.1f} s</td><td>{escape(what)}</td></tr>' for at_s, what in course.moments
    )
    body = [
        f"<h1>Drill: {escape(plan.scenario)}</h1>",
        f'<p class="soft">{course.began_at:%Y-%m-%d %H:%M:%S} UTC; {seed}</p>',
        f'<div class="verdict{"" if ending.holds else " bad"}"><b>{said}</b><br>{escape(ending.verdict.line())}</div>',
        *(_remark(text) for text in (*ending.broken, *ending.remarks)),
        f"<h2>Messages over time</h2><figure>{picture(course)}</figure>",
        f"<h2>What happened</h2><table><tr><th>after</th><th></th></tr>{moments}</table>",
        *_listed("Lost", ending.verdict.lost),
        *_listed("Worked on twice", ending.verdict.duplicated),
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>Drill: {escape(plan.scenario)}</title><style>{_STYLE}</style></head>\n<body>\n"
        + "\n".join(body)
        + "\n</body></html>\n"
    )


def _remark(text: str) -> str:
    """A sentence; one with a long list is opened by whoever wants it."""
    if len(text) <= SENTENCE_MAX:
        return f"<p>{escape(text)}</p>"
    return f"<details><summary>{escape(text[:SENTENCE_MAX])}…</summary><p>{escape(text)}</p></details>"


def picture(course: Course) -> str:
    """The counts as lines, with the moments when a namespace went and came back."""
    points = course.points
    if len(points) < 2:
        return ""
    span_s = max(points[-1].at_s, 0.1)
    most = max((max(point[1:]) for point in points), default=0) or 1

    def x(at_s: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * at_s / span_s

    def y(count: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * count / most

    floor = HEIGHT - BOTTOM
    marks = [
        f'<line class="mark" x1="{x(at_s):.1f}" x2="{x(at_s):.1f}" y1="{TOP}" y2="{floor}"/>'
        f'<text x="{x(at_s) + 4:.1f}" y="{TOP + 10}">{name}</text>'
        for name, at_s in course.marks.items()
        if name in ("gone", "back")
    ]
    lines = [
        f'<polyline class="{name}" points="{_line(points, place, x, y)}"/>' for place, name in enumerate(SERIES, 1)
    ]
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="Messages over time">'
        f'<line class="axis" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{floor}" y2="{floor}"/>'
        f'<text x="{LEFT - 6}" y="{TOP + 6}" text-anchor="end">{most:,}</text>'
        f'<text x="{LEFT - 6}" y="{floor}" text-anchor="end">0</text>'
        f'<text x="{WIDTH - RIGHT}" y="{HEIGHT - 8}" text-anchor="end">{span_s:.0f} s</text>'
        + "".join(marks + lines + list(_names(points[-1], y)))
        + "</svg>"
    )


def _line(points: list[Point], place: int, x: Callable[[float], float], y: Callable[[float], float]) -> str:
    return " ".join(f"{x(point.at_s):.1f},{y(point[place]):.1f}" for point in points)


def _names(last: Point, y: Callable[[float], float]) -> Iterable[str]:
    """The lines' names at their ends, one below the other where they would cover each other."""
    lowest = -100.0
    for at_y, name in sorted((y(getattr(last, name)), name) for name in SERIES):
        lowest = max(at_y, lowest + 14)
        yield f'<text class="name" x="{WIDTH - RIGHT + 8}" y="{lowest + 4:.1f}">{name}</text>'


def _listed(title: str, ids: tuple[str, ...]) -> Iterable[str]:
    if ids:
        shown = ", ".join(f"<code>{escape(message_id)}</code>" for message_id in ids[:LISTED_MAX])
        more = f" and {len(ids) - LISTED_MAX:,} more" if len(ids) > LISTED_MAX else ""
        yield f"<h2>{title}: {len(ids):,}</h2><p>{shown}{more}</p>"
