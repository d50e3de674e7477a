"""The report of a reconciliation: one HTML file that needs no network and no script, in dark and in light.

Whatever comes from messages is escaped, since ids are what their senders like. The pictures are `plots`' work, the
findings `reconcile`'s.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from html import escape
from pathlib import Path
from typing import Any

from twinbus.pipeline.proof import plots
from twinbus.pipeline.proof.findings import HARMLESS, SUSPICIOUS, Balance, Findings, Found

_STYLE = """
:root { color-scheme: light dark; --page: #fbfbf9; --card: #ffffff; --ink: #1d2329; --soft: #5b6570; --faint: #c9ced4;
  --good: #176f3c; --bad: #b3261e; --accepted: #3566b8; --diverted: #c2570c; --home: #7a4fb5; --worked: #1b7f5c;
  --depth: #c2570c; }
@media (prefers-color-scheme: dark) { :root { --page: #14181c; --card: #1c2126; --ink: #e4e7ea; --soft: #9aa4ae;
  --faint: #46505a; --good: #5cc98b; --bad: #ff8a80; --accepted: #86b1ff; --diverted: #ffa869; --home: #c3a4f5;
  --worked: #63d2a6; --depth: #ffa869; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 68rem; padding: 2rem 1.25rem 4rem; background: var(--page); color: var(--ink);
  font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.5rem; margin: 0 0 .25rem; } h2 { font-size: 1.1rem; margin: 2.25rem 0 .5rem; }
p { margin: .4rem 0; } .soft { color: var(--soft); }
.verdict { border-left: .4rem solid var(--good); background: var(--card); padding: .9rem 1.1rem; margin: 1.25rem 0;
  font-size: 1.1rem; } .verdict.bad { border-color: var(--bad); } .verdict.open { border-color: var(--diverted); }
.counts { display: flex; flex-wrap: wrap; gap: .75rem; padding: 0; margin: 1rem 0; list-style: none; }
.counts li { background: var(--card); padding: .6rem .9rem; min-width: 8rem; border-radius: .4rem; }
.counts b { display: block; font-size: 1.35rem; font-variant-numeric: tabular-nums; }
.counts .bad b { color: var(--bad); }
.scroll { overflow-x: auto; }
figure { margin: .5rem 0; background: var(--card); padding: .75rem; border-radius: .4rem; }
svg { display: block; width: 100%; height: auto; } svg text { font-family: system-ui, sans-serif; }
table { border-collapse: collapse; width: 100%; background: var(--card); font-size: .9rem; }
th, td { text-align: left; padding: .35rem .7rem; border-bottom: 1px solid var(--faint); vertical-align: top; }
th { font-weight: 600; color: var(--soft); white-space: nowrap; } td.number, th.number { text-align: right;
  font-variant-numeric: tabular-nums; white-space: nowrap; }
td.id { font-family: ui-monospace, monospace; overflow-wrap: anywhere; min-width: 9rem; }
td.side, td.when { white-space: nowrap; } tr.sum .number, tr.sum .side { font-weight: 600; }
.bad { color: var(--bad); } .good { color: var(--good); }
details { margin: .5rem 0; } summary { cursor: pointer; color: var(--soft); }
@media print { body { max-width: none; } }
"""
_HEADINGS = {
    "message_id": "message", "at_us": "when", "delay_us": "took", "last_us": "last", "session_id": "session",
    "why": "why", "number": "number",
}  # fmt: skip
_NUMBERS = {"number", "completed", "suppressed", "worked", "deliveries", "delay_us"}
# The page stays one that a browser opens at once, whatever an id looks like.
_LETTERS_MAX = 300


def write_report(findings: Findings, path: Path, costs: Mapping[str, str] | None = None) -> None:
    """Write the page, whole or not at all. `costs` are lines of a bill, each with its text."""
    unfinished = path.with_name(f".{path.name}.tmp")
    unfinished.write_text(page(findings, costs), encoding="utf-8")
    unfinished.replace(path)


def page(findings: Findings, costs: Mapping[str, str] | None = None) -> str:
    """The whole page."""
    mood = " bad" if not findings.holds else "" if findings.is_proven else " open"
    parts = [
        "<h1>Reconciliation</h1>",
        f'<p class="soft">{_scope(findings)}</p>',
        f'<div class="verdict{mood}">{escape(findings.verdict())}</div>',
        _counts(findings),
        *_limits(findings.limits),
        "<h2>Conservation</h2>",
        '<p class="soft">In copies: what was created has ended, or is there.</p>',
        _balances(findings.balances),
        f'<p class="soft">{escape(findings.pair_line())}</p>' if len(findings.balances) > 1 else "",
        _drawing("Over time", plots.timeline(findings.timeline)),
        _drawing("Delays", plots.latencies(findings.latencies)),
        _delays(findings),
        *(_table(findings.tables[name]) for name in (*SUSPICIOUS, *HARMLESS) if findings.count(name)),
        _costs(costs),
    ]
    body = "\n".join(part for part in parts if part)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>Reconciliation</title><style>{_STYLE}</style></head>\n<body>\n{body}\n</body></html>\n"
    )


def _scope(findings: Findings) -> str:
    names = " and ".join(balance.namespace for balance in findings.balances) or "no namespace"
    told = f"{names}; {findings.operations:,} operations in the journals"
    timeline = findings.timeline
    if timeline.series:
        last = max((number for series in timeline.series for number, _ in series.bins), default=0)
        end_us = timeline.first_us + (last + 1) * timeline.width_us
        told += f", {moment(timeline.first_us)} to {moment(end_us)} UTC"
    return escape(told)


def _counts(findings: Findings) -> str:
    shown = [("acknowledged", f"{findings.acknowledged:,}", False)] if findings.acknowledged is not None else []
    shown += [("worked on", f"{findings.fates.get('worked_on', 0):,}", False)]
    for name in SUSPICIOUS:
        found = findings.tables.get(name)
        if found is not None:
            shown.append((found.title, f"{found.count:,}", found.count > 0 and name in ("lost", "imbalances")))
    items = (f"<li{' class=bad' if bad else ''}><b>{count}</b>{escape(name)}</li>" for name, count, bad in shown)
    return f'<ul class="counts">{"".join(items)}</ul>'


def _limits(limits: Sequence[str]) -> Iterable[str]:
    if limits:
        yield "<h2>What could not be seen</h2>"
        yield f"<ul>{''.join(f'<li>{escape(text)}</li>' for text in limits)}</ul>"


def _balances(balances: Sequence[Balance]) -> str:
    rows = []
    for balance in balances:
        sides = (("created", balance.created, ""), ("ended", balance.ended, "= "), ("resident", balance.resident, "+ "))
        for name, parts, sign in sides:
            told = ", ".join(f"{part.replace('_', ' ')} {count:,}" for part, count in parts.items() if count)
            first = escape(balance.namespace) if name == "created" else ""
            total = f"{sum(parts.values()):,}"
            cells = f'<td>{first}</td><td class="side">{sign}{name}</td><td class="number">{total}</td><td>{told}</td>'
            rows.append(f"<tr>{cells}</tr>")
        off = balance.difference
        words = '<span class="bad">is off by</span>' if off else '<span class="good">balances</span>'
        apart = ", ".join(f"{escape(name)}s {count:,}" for name, count in balance.apart.items())
        told = f"apart: {apart}" if apart else ""
        number = f"{off:+,}" if off else "0"
        cells = f'<td></td><td class="side">{words}</td><td class="number">{number}</td><td class="soft">{told}</td>'
        rows.append(f'<tr class="sum">{cells}</tr>')
    head = '<tr><th>namespace</th><th></th><th class="number">copies</th><th>of these</th></tr>'
    return f'<div class="scroll"><table>{head}{"".join(rows)}</table></div>'


def _drawing(title: str, svg: str) -> str:
    return f"<h2>{escape(title)}</h2><figure>{svg}</figure>" if svg else ""


def _delays(findings: Findings) -> str:
    if not findings.delays:
        return ""
    head = "".join(f'<th class="number">{name}</th>' for name in ("messages", "50 %", "95 %", "99 %", "longest"))
    rows = "".join(
        f'<tr><td>{escape(delay.what)}</td><td class="number">{delay.messages:,}</td>'
        + "".join(f'<td class="number">{seconds(value)}</td>' for value in delay[2:])
        + "</tr>"
        for delay in findings.delays
    )
    return f'<div class="scroll"><table><tr><th></th>{head}</tr>{rows}</table></div>'


def _table(found: Found) -> str:
    """The first rows of a table under its name and number; a column without any value is left out."""
    told = [any(row[place] not in (None, "") for row in found.rows) for place in range(len(found.columns))]
    shown = [(place, name) for place, name in enumerate(found.columns) if told[place]]
    head = "".join(
        f"<th{' class=number' if name in _NUMBERS else ''}>{escape(_HEADINGS.get(name, name.replace('_', ' ')))}</th>"
        for _, name in shown
    )
    rows = "".join("<tr>" + "".join(_cell(name, row[place]) for place, name in shown) + "</tr>" for row in found.rows)
    is_cut = found.count > len(found.rows)
    more = f'<p class="soft">The first {len(found.rows):,} of {found.count:,}.</p>' if is_cut else ""
    title = f"<h2>{escape(found.title.capitalize())}: {found.count:,}</h2>"
    table = f'<div class="scroll"><table><tr>{head}</tr>{rows}</table></div>{more}'
    if found.name in HARMLESS:
        return f"{title}<details><summary>show</summary>{table}</details>"
    return title + table


def _cell(name: str, value: Any) -> str:
    kind = "id" if name in ("message_id", "session_id") else "number" if name in _NUMBERS else ""
    kind = kind or ("when" if name.endswith("_us") else "")
    attribute = f' class="{kind}"' if kind else ""
    return f"<td{attribute}>{escape(shown(name, value))}</td>"


def _costs(costs: Mapping[str, str] | None) -> str:
    if not costs:
        return ""
    rows = "".join(
        f'<tr><td>{escape(shown("", name))}</td><td class="number">{escape(shown("", text))}</td></tr>'
        for name, text in costs.items()
    )
    return f'<h2>Costs</h2><div class="scroll"><table>{rows}</table></div>'


# Values for people


def shown(name: str, value: Any) -> str:
    """A value of a result table; what a terminal or a browser would obey is spelt out, and what is endless cut."""
    if value is None:
        return ""
    if name == "delay_us":
        return seconds(value / 1_000_000)
    if name.endswith("_us"):
        return moment(value)
    if isinstance(value, int):
        return f"{value:,}" if name != "number" else str(value)
    text = "".join(letter if letter.isprintable() else f"\\u{ord(letter):04x}" for letter in str(value))
    return text if len(text) <= _LETTERS_MAX else f"{text[:_LETTERS_MAX]}…"


def moment(at_us: int) -> str:
    """An instant in UTC."""
    at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=at_us)
    return f"{at:%Y-%m-%d %H:%M:%S}.{at.microsecond // 1000:03}"


def seconds(value: float) -> str:
    """A duration."""
    if value < 1:
        return f"{value * 1000:.0f} ms"
    if value < 120:
        return f"{value:.1f} s"
    if value < 7_200:
        return f"{value / 60:.1f} min"
    return f"{value / 3600:.1f} h"
