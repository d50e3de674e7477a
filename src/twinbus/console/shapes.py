"""Small things that pages are made of: numbers and times in words, sparklines, bars, tables and forms.

Nothing here asks anybody; what is shown is handed in.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from urllib.parse import urlencode

from twinbus.console.html import Attribute, Child, Markup, el, join

ROOT = "/$console/"
NONE = "\N{EN DASH}"


def link(page: str, **parameters: object) -> str:
    """The address of a page of the console."""
    given = {name: value for name, value in parameters.items() if value not in (None, "", False)}
    return f"{ROOT}{page}" + (f"?{urlencode(given)}" if given else "")


def number(value: object) -> str:
    """A count with its thousands apart."""
    return f"{int(value):,}" if isinstance(value, int | float) else NONE


def rate(value: float | None) -> str:
    """Messages in a second."""
    if value is None:
        return NONE
    return f"{value:,.0f}" if value >= 10 or value == 0 else f"{value:.1f}" if value >= 0.05 else "<0.1"


def size(value: object) -> str:
    """Bytes in the unit that fits."""
    if not isinstance(value, int | float):
        return NONE
    amount = float(value)
    for unit in ("B", "KB", "MB", "GB"):
        if amount < 1024:
            return f"{amount:.0f} {unit}" if amount >= 10 or unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} TB"


def lasting(seconds: float | None) -> str:
    """How long, in one or two units."""
    if seconds is None:
        return NONE
    whole = int(max(0.0, seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min" + (f" {whole % 60} s" if whole < 600 else "")
    if whole < 86_400:
        return f"{whole // 3600} h {whole % 3600 // 60} min"
    return f"{whole // 86_400} d {whole % 86_400 // 3600} h"


def seconds_of(instant: object) -> float | None:
    """An instant of the API in seconds since 1970."""
    try:
        return datetime.fromisoformat(str(instant).replace("Z", "+00:00")).timestamp()
    except ValueError:
        return None


def clock(instant: object, *, exact: bool = False) -> Markup:
    """An instant, short, with all of it behind; `exact` to the second on other days, too."""
    at_s = instant if isinstance(instant, int | float) else seconds_of(instant)
    if at_s is None:
        return join(NONE)
    at = datetime.fromtimestamp(at_s, UTC)
    today = datetime.now(UTC).date() == at.date()
    shown = at.strftime("%H:%M:%S" if today else "%Y-%m-%d %H:%M:%S" if exact else "%Y-%m-%d %H:%M")
    return el("time", shown, datetime=at.isoformat(timespec="seconds"), title=f"{at:%Y-%m-%d %H:%M:%S} UTC")


def spark(*lines: Sequence[float], width: int = 96, height: int = 22, label: str = "") -> Markup:
    """Lines of rates, the latest at the right; the first is filled."""
    top = max((max(line) for line in lines if line), default=0.0) or 1.0
    drawn: list[Markup] = []
    for index, line in enumerate(lines):
        values = list(line)[-40:]
        if not values:
            continue
        step = width / 39
        start = width - step * (len(values) - 1)
        points = [
            f"{start + step * at:.1f},{height - 1 - (height - 3) * value / top:.1f}" for at, value in enumerate(values)
        ]
        if index == 0:
            area = " ".join([f"{start:.1f},{height}", *points, f"{width},{height}"])
            drawn.append(el("polygon", points=area, class_="spark-area"))
        drawn.append(el("polyline", points=" ".join(points), class_=f"spark-line spark-{index}", fill="none"))
    return el(
        "svg", drawn, viewBox=f"0 0 {width} {height}", width=width, height=height, class_="spark", role="img",
        aria_label=label,
    )  # fmt: skip


def bar(parts: Iterable[tuple[str, float]], width: int = 90, height: int = 8, label: str = "") -> Markup:
    """Shares of a whole, side by side."""
    given = [(kind, value) for kind, value in parts if value > 0]
    whole = sum(value for _, value in given)
    at, drawn = 0.0, [el("rect", x=0, y=0, width=width, height=height, rx=2, class_="bar-rest")]
    for kind, value in given:
        wide = max(1.5, width * value / whole)
        drawn.append(el("rect", x=f"{at:.1f}", y=0, width=f"{wide:.1f}", height=height, class_=f"bar-{kind}"))
        at += wide
    return el(
        "svg", drawn, viewBox=f"0 0 {width} {height}", width=width, height=height, class_="bar", role="img",
        aria_label=label,
    )  # fmt: skip


def table(heads: Sequence[Child], rows: Iterable[Sequence[Child]], *, class_: str = "", caption: str = "") -> Markup:
    """Rows under their heads; a cell that is Markup of a `td` stays as it is."""
    body = [el("tr", [cell if _is_cell(cell) else el("td", cell) for cell in row]) for row in rows]
    head = el("tr", [item if _is_cell(item) else el("th", item, scope="col") for item in heads])
    return el(
        "div",
        el(
            "table",
            el("caption", caption, class_="unseen") if caption else None,
            el("thead", head),
            el("tbody", body),
            class_=class_,
        ),
        class_="scroll",
    )


def _is_cell(child: Child) -> bool:
    return isinstance(child, Markup) and child.startswith(("<td", "<th"))


def num(child: Child, class_: str = "", **attributes: Attribute) -> Markup:
    """A cell with a number."""
    return el("td", child, class_=f"num {class_}".strip(), **attributes)


def count(value: object, class_: str = "") -> Markup:
    """A cell with a count, faint if there is nothing."""
    return num(number(value), class_=(class_ if value else "none"))


def field(label: str, control: Markup, hint: str = "") -> Markup:
    """A labelled control."""
    return el("label", el("span", label, class_="label"), control, el("small", hint) if hint else None, class_="field")


def choice(name: str, options: Iterable[tuple[str, str]], chosen: str, **attributes: Attribute) -> Markup:
    """A list to choose one from."""
    made = [el("option", shown, value=value, selected=value == chosen) for value, shown in options]
    return el("select", made, name=name, **attributes)


def tile(label: str, value: Child, note: Child = None, class_: str = "") -> Markup:
    """One number that matters."""
    return el(
        "div",
        el("span", label, class_="label"),
        el("strong", value),
        el("small", note) if note else None,
        class_=f"tile {class_}".strip(),
    )


def notice(kind: str, *words: Child) -> Markup:
    """A sentence that must be seen: `bad`, `warn`, `good` or `plain`."""
    return el("p", words, class_=f"notice {kind}", role="alert" if kind == "bad" else "status")


def mark(kind: str, word: str) -> Markup:
    """A state in a word, with its colour beside it."""
    return el("span", word, class_=f"mark {kind}")
