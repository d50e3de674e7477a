"""Pictures for the report of a reconciliation, as SVG that takes its colours from the page it stands in.

Drawn by matplotlib; what is drawn was counted by `reconcile`, and the page is `report`'s work.
"""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from twinbus.model.extras import needing
from twinbus.pipeline.proof.findings import Series, Timeline

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Drawn in these colours, which are then replaced by variables of the page, so that it reads in dark and light.
_INK, _FAINT = "#010203", "#040506"
_COLOURS = {
    "accepted": "#0a0101", "diverted": "#0a0102", "brought home": "#0a0103", "worked on": "#0a0104",
    "depth": "#0a0105", "direct": "#0a0104",
}  # fmt: skip
_VARIABLES = {
    _INK: "var(--ink)", _FAINT: "var(--faint)", "#0a0101": "var(--accepted)", "#0a0102": "var(--diverted)",
    "#0a0103": "var(--home)", "#0a0104": "var(--worked)", "#0a0105": "var(--depth)",
}  # fmt: skip
_WIDTH_IN = 9.0
_TICKS_S = (0.001, 0.01, 0.1, 1, 10, 60, 600, 3_600, 36_000, 86_400, 864_000)


def timeline(found: Timeline) -> str:
    """Sends, deliveries and what was in the backlog over time; empty when nothing happened."""
    if not found.series:
        return ""
    figure, axes = _figure(2, 4.6)
    upper, lower = axes
    last = max(number for series in found.series for number, _ in series.bins)
    seconds = found.width_us / 1_000_000
    instants: list[Any] = [_instant(found.first_us + number * found.width_us) for number in range(last + 2)]
    by_name = {series.what: _filled(series, last) for series in found.series}
    for what in ("accepted", "diverted", "worked on"):
        if what in by_name:
            rates = [count / seconds for count in by_name[what]]
            # What is accepted is mostly worked on at once: the first line is drawn broad, the other over it.
            width = 3.0 if what == "accepted" else 1.3
            upper.step(instants, [*rates, rates[-1]], where="post", color=_COLOURS[what], linewidth=width, label=what)
    upper.set_ylabel("messages a second")
    _legend(upper)
    depth = _depth(by_name, last)
    lower.fill_between(instants, [*depth, depth[-1]], step="post", color=_COLOURS["depth"], alpha=0.35, linewidth=0)
    lower.step(instants, [*depth, depth[-1]], where="post", color=_COLOURS["depth"], linewidth=1.3)
    lower.set_ylabel("in the backlog")
    lower.set_ylim(bottom=0, top=max(max(depth) * 1.1, 1))
    upper.set_ylim(bottom=0)
    lower.set_xlabel(f"UTC, {instants[0]:%Y-%m-%d}")
    _clock(lower)
    return _svg(figure, "Messages a second, and messages in the backlog, over time")


def latencies(found: Sequence[Series]) -> str:
    """How long messages took from being accepted to being completed; empty when none was."""
    if not any(series.bins for series in found):
        return ""
    figure, (axes,) = _figure(1, 2.8)
    from matplotlib.ticker import NullLocator

    total = sum(count for series in found for _, count in series.bins)
    for series in found:
        edges = [2 ** (number / 4) / 1000 for number, _ in series.bins]
        widths = [edge * (2**0.25 - 1) for edge in edges]
        shares = [100 * count / total for _, count in series.bins]
        colour = _COLOURS.get(series.what, _INK)
        axes.bar(edges, shares, widths, align="edge", color=colour, alpha=0.6, linewidth=0, label=series.what)
    axes.set_xscale("log")
    first, last = axes.get_xlim()
    axes.set_xticks([at for at in _TICKS_S if first <= at <= last])
    axes.xaxis.set_major_formatter(_duration)
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_ylabel("% of messages")
    axes.set_xlabel("from accepted to completed")
    _legend(axes)
    return _svg(figure, "How long messages took from being accepted to being completed")


def _figure(rows: int, height_in: float) -> tuple[Figure, list[Axes]]:
    # The classes themselves and no pyplot: nothing of the process's own settings is touched, and no window is opened.
    with needing("matplotlib"):
        from matplotlib.backends.backend_svg import FigureCanvasSVG
        from matplotlib.figure import Figure

    figure = Figure(figsize=(_WIDTH_IN, height_in), layout="constrained")
    FigureCanvasSVG(figure)
    figure.patch.set_alpha(0)
    axes = figure.subplots(rows, 1, sharex=True, squeeze=False)[:, 0]
    for one in axes:
        one.patch.set_alpha(0)
        for name, spine in one.spines.items():
            spine.set_color(_FAINT)
            spine.set_visible(name in ("left", "bottom"))
        one.tick_params(colors=_INK, labelsize=9, length=3)
        one.xaxis.label.set_color(_INK)
        one.yaxis.label.set_color(_INK)
        one.grid(True, axis="y", color=_FAINT, linewidth=0.5, alpha=0.6)
        one.set_axisbelow(True)
    return figure, list(axes)


def _legend(axes: Axes) -> None:
    look = {"frameon": False, "labelcolor": _INK, "fontsize": 9, "borderpad": 0, "ncols": 4}
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), **look)


def _clock(axes: Axes) -> None:
    from matplotlib.dates import AutoDateLocator, DateFormatter

    axes.xaxis.set_major_locator(AutoDateLocator(tz=UTC, maxticks=9))  # type: ignore[no-untyped-call]
    first, last = axes.get_xlim()
    days = last - first
    form = "%m-%d %H:%M" if days > 1 else "%H:%M" if days > 0.02 else "%H:%M:%S"
    axes.xaxis.set_major_formatter(DateFormatter(form, UTC))  # type: ignore[no-untyped-call]


def _svg(figure: Figure, title: str) -> str:
    from matplotlib import rc_context

    buffer = io.StringIO()
    # Text stays text, in the page's own letters; the salt keeps the names inside equal from run to run.
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": title, "font.family": "sans-serif"}):
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None, "Title": title})
    return _inline(buffer.getvalue(), title)


def _inline(svg: str, title: str) -> str:
    """A drawing as part of a page: without its own head, as wide as there is room, in the page's colours."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", svg, count=1)
    svg = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", svg, count=1)
    svg = svg.replace("<svg ", f'<svg role="img" aria-label="{title}" ', 1)
    # Two drawings in one page must not share the names of their parts.
    prefix = re.sub(r"\W", "", title)[:12]
    svg = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{prefix}-", svg)
    svg = re.sub(r"font: [^;\"]*", "font-size: 9px", svg)
    for colour, variable in _VARIABLES.items():
        svg = svg.replace(colour, variable)
    return svg


def _filled(series: Series, last: int) -> list[int]:
    counts = [0] * (last + 1)
    for number, count in series.bins:
        counts[number] += count
    return counts


def _depth(by_name: Mapping[str, list[int]], last: int) -> list[int]:
    """How many messages were in the backlog at the end of each bin."""
    nothing = [0] * (last + 1)
    depth, now = [], 0
    for came, left in zip(by_name.get("diverted", nothing), by_name.get("brought home", nothing), strict=True):
        now += came - left
        depth.append(now)
    return depth


def _instant(at_us: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=at_us)


def _duration(seconds: float, place: Any = None) -> str:
    """A duration in the unit that suits it."""
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1)):
        if seconds >= size:
            return f"{seconds / size:g} {unit}"
    return f"{seconds * 1000:g} ms"
