"""The functions that a compiled rule is made of: each factory takes functions or constants and returns a function.

The commonest forms (a property compared with a text or a number) have functions of their own, because every message
of a topic passes through them once for each rule. Which factory a node needs is left to `compiler`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

from twinbus.rules.errors import FilterError
from twinbus.rules.patterns import Matcher, matcher
from twinbus.rules.values import COMPARISONS, equal, kind_of
from twinbus.rules.view import MessageView

Evaluate = Callable[[MessageView], Any]

# Values.


def constant(value: Any) -> Evaluate:
    return lambda view: value


def failing(text: str) -> Evaluate:
    def evaluate(view: MessageView) -> Any:
        raise FilterError(text)

    return evaluate


def user_property(name: str) -> Evaluate:
    return lambda view: view.user.get(name)


def system_property(name: str) -> Evaluate:
    return lambda view: view.system.get(name)


def lookup(name: Evaluate) -> Evaluate:
    def evaluate(view: MessageView) -> Any:
        found = name(view)
        if found is None:
            return None
        if not isinstance(found, str):
            raise FilterError(f"property() needs a name, not a {kind_of(found)} value.")
        return view.user.get(found.lower())

    return evaluate


def new_id(view: MessageView) -> Any:
    return view.new_id()


def applied(calculate: Callable[[Any], Any], operand: Evaluate) -> Evaluate:
    return lambda view: calculate(operand(view))


def combined(judge: Callable[[Any, Any], Any], left: Evaluate, right: Evaluate) -> Evaluate:
    return lambda view: judge(left(view), right(view))


# Comparisons.


_JUDGES: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def comparison(sign: str, left: Evaluate, right: Evaluate) -> Evaluate:
    return combined(COMPARISONS[sign], left, right)


def comparison_with_text(sign: str, left: Evaluate, text: str) -> Evaluate:
    judge, slow = _JUDGES[sign], COMPARISONS[sign]

    def evaluate(view: MessageView) -> Any:
        value = left(view)
        if value.__class__ is str:
            return judge(value, text)
        return slow(value, text)

    return evaluate


def comparison_with_number(sign: str, left: Evaluate, number: int | float) -> Evaluate:
    judge, slow = _JUDGES[sign], COMPARISONS[sign]

    def evaluate(view: MessageView) -> Any:
        value = left(view)
        if isinstance(value, int | float) and value.__class__ is not bool:
            return judge(value, number)
        return slow(value, number)

    return evaluate


def is_null(operand: Evaluate, negated: bool) -> Evaluate:
    if negated:
        return lambda view: operand(view) is not None
    return lambda view: operand(view) is None


def user_exists(name: str) -> Evaluate:
    return lambda view: name in view.user


def system_exists(name: str) -> Evaluate:
    return lambda view: view.system.get(name) is not None


def among_texts(operand: Evaluate, texts: frozenset[str], negated: bool) -> Evaluate:
    def evaluate(view: MessageView) -> Any:
        value = operand(view)
        if value is None:
            return None
        if not isinstance(value, str):
            raise FilterError(f"The operator IN cannot be applied to a {kind_of(value)} value and texts.")
        return (value in texts) is not negated

    return evaluate


def among(operand: Evaluate, choices: Sequence[Evaluate], negated: bool) -> Evaluate:
    """True if any choice is equal; else an error if any cannot be compared; else unknown if any is unknown."""

    def evaluate(view: MessageView) -> Any:
        value = operand(view)
        if value is None:
            return None
        failure: FilterError | None = None
        unknown = False
        for choice in choices:
            try:
                found = equal(value, choice(view))
            except FilterError as error:
                failure = error
                continue
            if found:
                return not negated
            unknown = unknown or found is None
        if failure is not None:
            raise failure
        return None if unknown else negated

    return evaluate


# LIKE.


def _liked(value: Any) -> str:
    if isinstance(value, str):
        return value
    raise FilterError(f"The operator LIKE cannot be applied to a {kind_of(value)} value.")


_ASKED: dict[str, Callable[[str, str], bool]] = {
    "is": operator.eq,
    "starts": str.startswith,
    "ends": str.endswith,
    "holds": operator.contains,
}


def like_simple(operand: Evaluate, asked: str, text: str, negated: bool) -> Evaluate:
    ask = _ASKED[asked]

    def evaluate(view: MessageView) -> Any:
        value = operand(view)
        if value is None:
            return None
        return ask(_liked(value), text) is not negated

    return evaluate


def like(operand: Evaluate, matches: Matcher, negated: bool) -> Evaluate:
    def evaluate(view: MessageView) -> Any:
        value = operand(view)
        if value is None:
            return None
        return matches(_liked(value), view.spend) is not negated

    return evaluate


def like_dynamic(
    operand: Evaluate, pattern: Evaluate, escape: Evaluate | None, negated: bool, pattern_chars_max: int
) -> Evaluate:
    """LIKE with a pattern that the message supplies; it is made anew for every message."""

    def evaluate(view: MessageView) -> Any:
        value, wanted = operand(view), pattern(view)
        character = None if escape is None else escape(view)
        if value is None or wanted is None or (escape is not None and character is None):
            return None
        wanted = _liked(wanted)
        if len(wanted) > pattern_chars_max:
            raise FilterError(f"The pattern of LIKE has more than {pattern_chars_max} characters.")
        text = _liked(value)
        view.spend(1 + len(wanted) // 4 + len(text) // 64)
        made = matcher(wanted, None if character is None else _liked(character))
        return made(text, view.spend) is not negated

    return evaluate


# Logic: None is unknown.


def truth(operand: Evaluate) -> Evaluate:
    def evaluate(view: MessageView) -> Any:
        value = operand(view)
        if value is None or value.__class__ is bool:
            return value
        raise FilterError(f"A {kind_of(value)} value is not a condition.")

    return evaluate


def negation(operand: Evaluate) -> Evaluate:
    def evaluate(view: MessageView) -> Any:
        value = operand(view)
        return None if value is None else not value

    return evaluate


def conjunction(operands: Sequence[Evaluate]) -> Evaluate:
    if len(operands) == 2:
        left, right = operands

        def evaluate_two(view: MessageView) -> Any:
            first = left(view)
            if first is False:
                return False
            second = right(view)
            return second if first or second is False else None

        return evaluate_two

    def evaluate(view: MessageView) -> Any:
        result: bool | None = True
        for operand in operands:
            value = operand(view)
            if value is False:
                return False
            if value is None:
                result = None
        return result

    return evaluate


def disjunction(operands: Sequence[Evaluate]) -> Evaluate:
    def evaluate(view: MessageView) -> Any:
        result: bool | None = False
        for operand in operands:
            value = operand(view)
            if value is True:
                return True
            if value is None:
                result = None
        return result

    return evaluate
