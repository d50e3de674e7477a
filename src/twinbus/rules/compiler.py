"""A tree made into nested functions, once, so that judging a message is a few calls.

Every function takes the view of a message and returns a value, None for unknown; conditions return True, False or
None. What the operators mean is in `values` and `patterns`; which messages are judged is left to `matching`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from twinbus.rules import operators
from twinbus.rules.errors import FilterError, FilterSyntaxError
from twinbus.rules.limits import PATTERN_CHARS_MAX
from twinbus.rules.operators import Evaluate
from twinbus.rules.patterns import matcher, simple_form
from twinbus.rules.tree import (
    Among,
    And,
    Arithmetic,
    Comparison,
    Exists,
    IsNull,
    Like,
    Literal,
    Lookup,
    NewId,
    Node,
    Not,
    Or,
    Parameter,
    Property,
    Sign,
)
from twinbus.rules.values import CALCULATIONS, negative, plain, positive
from twinbus.rules.view import MessageView, system_property

Parameters = Mapping[str, Any]


def folded_parameters(parameters: Parameters) -> dict[str, Any]:
    """Parameters by lower-case name without the @, their values as the language knows them."""
    return {name.removeprefix("@").lower(): plain(value) for name, value in parameters.items()}


def compile_condition(tree: Node, parameters: Parameters) -> Evaluate:
    """The function of a whole condition; a property that stands for a condition must be a boolean."""
    return _Compiler(parameters).condition(tree)


def compile_value(tree: Node, parameters: Parameters) -> Evaluate:
    """The function of a value in an action."""
    return _Compiler(parameters).value(tree)


class _Compiler:
    """Makes functions of nodes; holds the parameters that came with the rule."""

    def __init__(self, parameters: Parameters) -> None:
        self.parameters = folded_parameters(parameters)

    def condition(self, node: Node) -> Evaluate:
        match node:
            case Comparison(sign, left, right):
                made = self.comparison(sign, left, right)
            case IsNull(operand, negated):
                made = operators.is_null(self.value(operand), negated)
            case Among():
                made = self.among(node)
            case Like():
                made = self.like(node)
            case Exists(subject):
                made = self.exists(subject)
            case Not(operand):
                made = operators.negation(self.condition(operand))
            case And(operands):
                made = operators.conjunction([self.condition(operand) for operand in operands])
            case Or(operands):
                made = operators.disjunction([self.condition(operand) for operand in operands])
            case _:
                made = operators.truth(self.value(node))
        return self.settled(node, made)

    def value(self, node: Node) -> Evaluate:
        match node:
            case Literal(value):
                return operators.constant(value)
            case Parameter():
                return operators.constant(self.parameter(node))
            case Property(name, system):
                return self.system(name) if system else operators.user_property(name.lower())
            case Lookup(name):
                return operators.lookup(self.value(name))
            case NewId():
                return operators.new_id
            case Sign(sign, operand):
                made = operators.applied(negative if sign == "-" else positive, self.value(operand))
            case Arithmetic(sign, left, right):
                made = operators.combined(CALCULATIONS[sign], self.value(left), self.value(right))
            case _:
                raise TypeError(f"{type(node).__name__} is no value.")
        return self.settled(node, made)

    def settled(self, node: Node, made: Evaluate) -> Evaluate:
        """A part that needs no message is evaluated now; what fails then fails for every message."""
        if not self.is_constant(node):
            return made
        try:
            return operators.constant(made(MessageView({}, {})))
        except FilterError as error:
            return operators.failing(str(error))

    def is_constant(self, node: Node) -> bool:
        return not isinstance(node, Property | Lookup | NewId) and all(map(self.is_constant, node.children))

    def parameter(self, node: Parameter) -> Any:
        try:
            return self.parameters[node.name.lower()]
        except KeyError:
            raise FilterSyntaxError(f"Expected a value for the parameter @{node.name}", node.position) from None

    def system(self, name: str) -> Evaluate:
        known = system_property(name)
        if known is None:
            return operators.failing(f"The system property '{name}' does not exist.")
        return operators.system_property(known.name)

    def exists(self, subject: Property) -> Evaluate:
        if not subject.system:
            return operators.user_exists(subject.name.lower())
        known = system_property(subject.name)
        return self.system(subject.name) if known is None else operators.system_exists(known.name)

    def fixed(self, node: Node) -> tuple[bool, Any]:
        """Whether a node is a constant, and which."""
        if isinstance(node, Literal):
            return True, node.value
        if isinstance(node, Parameter):
            return True, self.parameter(node)
        return False, None

    def comparison(self, sign: str, left: Node, right: Node) -> Evaluate:
        _, constant = self.fixed(right)
        if isinstance(constant, str):
            return operators.comparison_with_text(sign, self.value(left), constant)
        if isinstance(constant, int | float) and not isinstance(constant, bool):
            return operators.comparison_with_number(sign, self.value(left), constant)
        return operators.comparison(sign, self.value(left), self.value(right))

    def among(self, node: Among) -> Evaluate:
        operand = self.value(node.operand)
        fixed = [self.fixed(choice) for choice in node.choices]
        if all(is_fixed and isinstance(constant, str) for is_fixed, constant in fixed):
            return operators.among_texts(operand, frozenset(constant for _, constant in fixed), node.negated)
        return operators.among(operand, [self.value(choice) for choice in node.choices], node.negated)

    def like(self, node: Like) -> Evaluate:
        operand = self.value(node.operand)
        pattern_fixed, pattern = self.fixed(node.pattern)
        escape_fixed, escape = (True, "") if node.escape is None else self.fixed(node.escape)
        if not (pattern_fixed and escape_fixed) or pattern is None or escape is None:
            made = None if node.escape is None else self.value(node.escape)
            return operators.like_dynamic(operand, self.value(node.pattern), made, node.negated, PATTERN_CHARS_MAX)
        if not isinstance(pattern, str) or not isinstance(escape, str):
            raise FilterSyntaxError("Expected a text after LIKE and ESCAPE", node.pattern.position)
        try:
            character = escape if node.escape is not None else None
            simple = simple_form(pattern, character)
            if simple is not None:
                return operators.like_simple(operand, *simple, node.negated)
            return operators.like(operand, matcher(pattern, character), node.negated)
        except FilterError as error:
            position = (node.escape or node.pattern).position
            raise FilterSyntaxError(str(error).removesuffix("."), position) from error


def is_costly(tree: Node) -> bool:
    """Whether evaluating the tree can take far more work than its size says; then its steps are counted."""
    return isinstance(tree, Like) or any(map(is_costly, tree.children))
