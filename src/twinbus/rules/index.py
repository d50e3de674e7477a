"""Many rules asked at once: those whose probe fails are never evaluated.

Rules are kept by property and value, so that thousands of equalities on one property cost one look-up. What a rule
means is left to `matching`, and the answer is the same as if every rule had been asked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from typing import Any, Generic, TypeVar

from twinbus.rules.description import FalseFilter, TrueFilter
from twinbus.rules.matching import PLAIN, CompiledRule, Entry, Matches, Verdict, judged, matches_of
from twinbus.rules.probe import Probe
from twinbus.rules.values import OTHER, kind_of, plain
from twinbus.rules.view import MessageView

Owner = TypeVar("Owner", bound=Hashable)


class Column(Generic[Owner]):
    """The rules that are probed by one property."""

    def __init__(self, system: bool, name: str) -> None:
        self.system = system
        self.name = name
        self.by_value: dict[tuple[str, Any], list[Entry[Owner]]] = {}
        self.strict_by_kind: dict[str, list[Entry[Owner]]] = {}
        self.when_missing: list[Entry[Owner]] = []

    def add(self, probe: Probe, entry: Entry[Owner]) -> None:
        for value in dict.fromkeys(probe.values):
            self.by_value.setdefault((probe.kind, value), []).append(entry)
        if probe.strict:
            self.strict_by_kind.setdefault(probe.kind, []).append(entry)
            if not probe.alone:
                self.when_missing.append(entry)

    def candidates(self, view: MessageView) -> list[Entry[Owner]]:
        """The rules that have to be asked about a message."""
        value = view.system.get(self.name) if self.system else view.user.get(self.name)
        if value is None:
            return self.when_missing
        kind = kind_of(value)
        if kind is OTHER:
            value = plain(value)
            kind = kind_of(value)
        try:
            found = self.by_value.get((kind, value), [])
        except TypeError:  # It cannot be hashed: no key is like it, and it may not even be comparable.
            found, kind = [], OTHER
        strict = [entry for other, entries in self.strict_by_kind.items() if other is not kind for entry in entries]
        return found + strict if strict else found


class RuleIndex(Generic[Owner]):
    """Entries by their probes; those without one are always asked."""

    def __init__(self, entries: Iterable[Entry[Owner]]) -> None:
        entries = list(entries)
        # A rule with several conditions is kept by the one that the fewest others share.
        shared = Counter(key for entry in entries for probe in entry.rule.probes for key in _keys(probe))
        columns: dict[tuple[bool, str], Column[Owner]] = {}
        self._always: list[Entry[Owner]] = []
        for entry in entries:
            probe = min(entry.rule.probes, key=lambda probe: sum(shared[key] for key in _keys(probe)), default=None)
            if probe is None:
                self._always.append(entry)
            else:
                place = (probe.system, probe.name)
                columns.setdefault(place, Column(*place)).add(probe, entry)
        self._columns = list(columns.values())

    def candidates(self, view: MessageView) -> list[Entry[Owner]]:
        """The entries that have to be asked about a message, in order."""
        found: list[Entry[Owner]] = []
        for column in self._columns:
            found += column.candidates(view)
        if not found:
            return self._always
        found += self._always
        found.sort(key=_place)
        return found


def _keys(probe: Probe) -> list[tuple[bool, str, str, Any]]:
    return [(probe.system, probe.name, probe.kind, value) for value in probe.values]


def _place(entry: Entry[Owner]) -> int:
    return entry.place


class RuleSet:
    """The rules of one subscription."""

    def __init__(self, rules: Iterable[CompiledRule]) -> None:
        self.rules = tuple(rules)
        self._index = RuleIndex(Entry(None, rule, place) for place, rule in enumerate(self.rules))

    def match(self, view: MessageView) -> Matches:
        """What the rules say about a message; the same as `match_all`."""
        return matches_of(verdict for _, verdict in judged(self._index.candidates(view), view))


class TopicRules(Generic[Owner]):
    """The rules of all subscriptions of a topic, in one index."""

    def __init__(self, rules: Mapping[Owner, Iterable[CompiledRule]]) -> None:
        # Subscriptions that take everything and do nothing else need not be asked.
        self._everything: dict[Owner, Matches] = {}
        entries: list[Entry[Owner]] = []
        for owner, compiled in rules.items():
            own = [rule for rule in compiled if not isinstance(rule.description.filter, FalseFilter)]
            if own and all(isinstance(r.description.filter, TrueFilter) and r.action is None for r in own):
                self._everything[owner] = PLAIN
            else:
                entries += (Entry(owner, rule, place) for place, rule in enumerate(own, len(entries)))
        self._index = RuleIndex(entries)

    def match(self, view: MessageView) -> dict[Owner, Matches]:
        """What to do, by subscription; one that gets nothing and has no error is left out."""
        verdicts: dict[Owner, list[Verdict]] = {}
        for owner, verdict in judged(self._index.candidates(view), view):
            verdicts.setdefault(owner, []).append(verdict)
        return self._everything | {owner: matches_of(own) for owner, own in verdicts.items()}
