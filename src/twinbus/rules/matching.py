"""Rules ready for work: a description compiled once, and what a set of rules says about one message.

Rules without an action share one copy of the message, each rule with an action makes its own, and what a rule cannot
judge is reported. Making copies and dead-lettering is left to the entities; choosing which rules to ask, to `index`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from twinbus.rules.actions import Changes, compile_action, with_rule_name
from twinbus.rules.compiler import compile_condition, is_costly
from twinbus.rules.description import (
    CorrelationFilter,
    FalseFilter,
    Filter,
    RuleDescription,
    SqlAction,
    SqlFilter,
    TrueFilter,
    check_rule,
)
from twinbus.rules.errors import RuleError
from twinbus.rules.limits import STEPS_MAX
from twinbus.rules.operators import Evaluate, constant
from twinbus.rules.parser import parse_action, parse_filter
from twinbus.rules.probe import Probe, correlation_probes, sql_probe
from twinbus.rules.values import plain, same
from twinbus.rules.view import MessageView

Owner = TypeVar("Owner")


@dataclass(frozen=True, slots=True)
class CompiledRule:
    """A rule that can be asked about messages."""

    description: RuleDescription
    condition: Evaluate  # True, False or None for unknown; or it raises FilterError.
    action: Callable[[MessageView], Changes] | None
    probes: tuple[Probe, ...]  # Any one of them can say, by one look-up, that the rule does not match.

    @property
    def name(self) -> str:
        return self.description.name

    def matches(self, view: MessageView) -> bool:
        """Whether the message passes the filter; unknown is no. Raises FilterError if there is no answer."""
        return self.condition(view) is True

    def apply(self, view: MessageView) -> Changes | None:
        """What the action changes, and RuleName; None if the rule has no action. Raises ActionError."""
        if self.action is None:
            return None
        return with_rule_name(self.action(view), self.name, view.application_properties)


def compile_rule(description: RuleDescription) -> CompiledRule:
    """A rule ready for work; refuses one that breaks a limit or is not in the language."""
    check_rule(description)
    condition, probes = _compiled_filter(description.filter)
    return CompiledRule(description, condition, _compiled_action(description.action), probes)


def _compiled_filter(found: Filter) -> tuple[Evaluate, tuple[Probe, ...]]:
    match found:
        case TrueFilter():
            return constant(True), ()
        case FalseFilter():
            return constant(False), ()
        case CorrelationFilter():
            return _correlation(found), correlation_probes(found)
        case SqlFilter(expression, parameters):
            tree = parse_filter(expression)
            condition = compile_condition(tree, parameters)
            return (_counted(condition) if is_costly(tree) else condition), sql_probe(tree, parameters)


def _counted(condition: Evaluate) -> Evaluate:
    """The condition with a full allowance of steps for each message."""

    def evaluate(view: MessageView) -> Any:
        view.steps = STEPS_MAX
        return condition(view)

    return evaluate


def _correlation(found: CorrelationFilter) -> Evaluate:
    system = tuple(found.system_conditions())
    user = tuple((name.lower(), plain(value)) for name, value in found.properties.items() if value is not None)

    def evaluate(view: MessageView) -> bool:
        for name, text in system:
            if view.system.get(name) != text:
                return False
        for name, value in user:
            found = view.user.get(name)
            if found.__class__ is str is value.__class__:
                if found != value:
                    return False
            elif not same(found, value):
                return False
        return True

    return evaluate


def _compiled_action(action: SqlAction | None) -> Callable[[MessageView], Changes] | None:
    return None if action is None else compile_action(parse_action(action.expression), action.parameters)


class ChangedCopy(NamedTuple):
    """A copy of the message that a rule with an action makes."""

    rule_name: str
    changes: Changes


class RuleFailure(NamedTuple):
    """A rule that has no answer for the message, as dead-letter reason and description."""

    rule_name: str
    reason: str
    description: str


class Matches(NamedTuple):
    """What the rules of one subscription say about one message."""

    plain: bool = False  # Some rule without an action matches: one unchanged copy.
    with_action: tuple[ChangedCopy, ...] = ()
    errors: tuple[RuleFailure, ...] = ()


NOTHING = Matches()
PLAIN = Matches(plain=True)


class Entry(NamedTuple, Generic[Owner]):
    """A rule among others: whose it is, and its place."""

    owner: Owner
    rule: CompiledRule
    place: int


# What a rule that matches or fails says; None for an unchanged copy.
Verdict = ChangedCopy | RuleFailure | None


def judged(entries: Iterable[Entry[Owner]], view: MessageView) -> Iterator[tuple[Owner, Verdict]]:
    """Ask every rule, in order; those that do not match are passed over."""
    for owner, rule, _ in entries:
        try:
            if rule.condition(view) is not True:
                continue
            changes = rule.apply(view)
        except RuleError as error:
            yield owner, RuleFailure(rule.name, error.reason, f"Rule '{rule.name}': {error}")
        else:
            yield owner, None if changes is None else ChangedCopy(rule.name, changes)


def matches_of(verdicts: Iterable[Verdict]) -> Matches:
    """The verdicts of one subscription's rules, put together."""
    found = [*verdicts]
    copies = tuple(verdict for verdict in found if isinstance(verdict, ChangedCopy))
    errors = tuple(verdict for verdict in found if isinstance(verdict, RuleFailure))
    if not copies and not errors:
        return PLAIN if found else NOTHING
    return Matches(len(found) > len(copies) + len(errors), copies, errors)


def match_all(rules: Iterable[CompiledRule], view: MessageView) -> Matches:
    """What the rules of one subscription say about a message."""
    entries = [Entry(None, rule, place) for place, rule in enumerate(rules)]
    return matches_of(verdict for _, verdict in judged(entries, view))
