"""The board of a drill in a terminal: both namespaces, how entities stand, bars that grow, and what happened lately.

Shows what the course knows, several times a second; without a terminal each moment is a plain line instead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from twinbus.drill.course import Course

LATELY = 6
BAR = 40


class Board:
    """What is drawn, anew each time."""

    def __init__(self, course: Course, tells: str) -> None:
        self._course = course
        self._tells = tells

    def __rich__(self) -> RenderableType:
        course = self._course
        lately = [Text(f"{at_s:6.1f} s  {what}", style="dim", no_wrap=True) for at_s, what in course.moments[-LATELY:]]
        lately += [Text("")] * (LATELY - len(lately))
        title = f"drill: {course.scenario}   {course.now_s():.0f} s"
        return Panel(
            Group(Text(self._tells, style="italic"), Text(""), self._sites(), self._bars(), Text(""), *lately),
            title=title,
            title_align="left",
        )

    def _sites(self) -> Text:
        line = Text()
        for name in ("primary", "secondary"):
            gone = name in self._course.away
            line.append(f"{name} ")
            line.append("● gone" if gone else "● up", style="bold red" if gone else "green")
            line.append("     ")
        ill = self._course.ill
        if ill:
            line.append(", ".join(f"{path}: {state}" for path, state in sorted(ill.items())), style="yellow")
        else:
            line.append("all entities are healthy", style="green")
        return line

    def _bars(self) -> Table:
        course = self._course
        total = max(len(course.acknowledged), 1)
        home = len(course.diverted & course.received.keys())
        table = Table.grid(padding=(0, 1))
        rows = (
            ("acknowledged", len(course.acknowledged), total, "blue"),
            ("diverted", len(course.diverted), total, "yellow"),
            ("of these home", home, max(len(course.diverted), 1), "magenta"),
            ("received", len(course.received), total, "green"),
        )
        for name, count, of, style in rows:
            bar = ProgressBar(total=of, completed=min(count, of), width=BAR, complete_style=style, finished_style=style)
            table.add_row(Text(name, justify="right"), bar, Text(f"{count:,}", justify="right"))
        return table
