"""The grammar of filters and actions: words in, a tree with positions out, or an error that says what was expected.

One method for each rule of the grammar, from the weakest binding operator to the strongest. What a tree means is left
to `compiler` and `actions`.
"""

from __future__ import annotations

from twinbus.rules.errors import FilterSyntaxError
from twinbus.rules.limits import DEPTH_MAX, EXPRESSION_CHARS_MAX, NESTING_MAX, NODES_MAX, STATEMENTS_MAX
from twinbus.rules.tokens import Kind, Token, tokens_of
from twinbus.rules.tree import (
    Among,
    And,
    Arithmetic,
    Assign,
    Comparison,
    Condition,
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
    Remove,
    Sign,
    Statement,
    is_condition,
    size_and_depth,
)
from twinbus.rules.values import INT64_MAX

_COMPARISONS = ("=", "<>", "<", "<=", ">", ">=")
_CONSTANTS = {"TRUE": True, "FALSE": False, "NULL": None}
_LOOKUPS = ("property", "p")


def parse_filter(text: str) -> Node:
    """The tree of a filter's condition."""
    parser = _Parser(text)
    tree = parser.whole_condition()
    _check_size(tree)
    return tree


def parse_action(text: str) -> tuple[Statement, ...]:
    """The statements of an action."""
    statements = _Parser(text).statements()
    for statement in statements:
        _check_size(statement)
    return statements


def _check_size(tree: Node) -> None:
    size, depth = size_and_depth(tree)
    if size > NODES_MAX or depth > DEPTH_MAX:
        raise FilterSyntaxError(
            f"Expected at most {NODES_MAX} parts on {DEPTH_MAX} levels, found {size} on {depth}", tree.position
        )


class _Parser:
    """Reads words from left to right; each method takes what its rule describes and returns the tree of it."""

    def __init__(self, text: str) -> None:
        if len(text) > EXPRESSION_CHARS_MAX:
            raise FilterSyntaxError(f"Expected at most {EXPRESSION_CHARS_MAX} characters", EXPRESSION_CHARS_MAX)
        self.words = tokens_of(text)
        self.index = 0
        self.nesting = 0

    @property
    def word(self) -> Token:
        return self.words[self.index]

    def take(self) -> Token:
        token = self.word
        if token.kind is not Kind.END:
            self.index += 1
        return token

    def is_sign(self, *signs: str) -> bool:
        return self.word.kind is Kind.SIGN and self.word.value in signs

    def is_keyword(self, *keywords: str) -> bool:
        return self.word.kind is Kind.KEYWORD and self.word.value in keywords

    def skip_sign(self, sign: str) -> bool:
        if self.is_sign(sign):
            self.index += 1
            return True
        return False

    def skip_keyword(self, keyword: str) -> bool:
        if self.is_keyword(keyword):
            self.index += 1
            return True
        return False

    def need_sign(self, sign: str) -> None:
        if not self.skip_sign(sign):
            raise self.expected(f"'{sign}'")

    def expected(self, what: str) -> FilterSyntaxError:
        return FilterSyntaxError(f"Expected {what}, found {self.word}", self.word.position)

    def deeper(self) -> None:
        """Count a level before going into it, so that no text can exhaust the stack."""
        self.nesting += 1
        if self.nesting > NESTING_MAX:
            raise FilterSyntaxError(f"Expected at most {NESTING_MAX} levels inside one another", self.word.position)

    # Conditions.

    def whole_condition(self) -> Node:
        condition = self.as_condition(self.disjunction())
        if self.word.kind is not Kind.END:
            raise self.expected("AND, OR, a comparison or the end")
        return condition

    def disjunction(self) -> Node:
        first = self.conjunction()
        if not self.is_keyword("OR"):
            return first
        operands = [self.as_condition(first)]
        while self.skip_keyword("OR"):
            operands.append(self.as_condition(self.conjunction()))
        return Or(tuple(operands), position=first.position)

    def conjunction(self) -> Node:
        first = self.negation()
        if not self.is_keyword("AND"):
            return first
        operands = [self.as_condition(first)]
        while self.skip_keyword("AND"):
            operands.append(self.as_condition(self.negation()))
        return And(tuple(operands), position=first.position)

    def negation(self) -> Node:
        position = self.word.position
        if not self.skip_keyword("NOT"):
            return self.comparison()
        self.deeper()
        operand = self.as_condition(self.negation())
        self.nesting -= 1
        return Not(operand, position=position)

    def comparison(self) -> Node:
        left = self.sum()
        if self.is_sign(*_COMPARISONS):
            sign = self.take().value
            return Comparison(sign, self.as_value(left), self.as_value(self.sum()), position=left.position)
        if self.skip_keyword("IS"):
            negated = self.skip_keyword("NOT")
            if not self.skip_keyword("NULL"):
                raise self.expected("NULL" if negated else "NULL or NOT NULL")
            return IsNull(self.as_value(left), negated, position=left.position)
        negated = self.skip_keyword("NOT")
        if self.skip_keyword("IN"):
            return Among(self.as_value(left), self.choices(), negated, position=left.position)
        if self.skip_keyword("LIKE"):
            return self.pattern(self.as_value(left), negated)
        if negated:
            raise self.expected("IN or LIKE")
        return left

    def choices(self) -> tuple[Node, ...]:
        self.need_sign("(")
        choices = [self.as_value(self.sum())]
        while self.skip_sign(","):
            choices.append(self.as_value(self.sum()))
        if not self.skip_sign(")"):
            raise self.expected("',' or ')'")
        return tuple(choices)

    def pattern(self, operand: Node, negated: bool) -> Node:
        pattern = self.as_value(self.sum())
        escape = self.as_value(self.sum()) if self.skip_keyword("ESCAPE") else None
        return Like(operand, pattern, escape, negated, position=operand.position)

    # Values.

    def sum(self) -> Node:
        left = self.product()
        while self.is_sign("+", "-"):
            sign = self.take().value
            left = Arithmetic(sign, self.as_value(left), self.as_value(self.product()), position=left.position)
        return left

    def product(self) -> Node:
        left = self.signed()
        while self.is_sign("*", "/", "%"):
            sign = self.take().value
            left = Arithmetic(sign, self.as_value(left), self.as_value(self.signed()), position=left.position)
        return left

    def signed(self) -> Node:
        if not self.is_sign("+", "-"):
            return self.atom()
        token = self.take()
        if token.value == "-" and self.word.kind is Kind.NUMBER:
            return Literal(-self.take().value, position=token.position)
        self.deeper()
        operand = self.as_value(self.signed())
        self.nesting -= 1
        return Sign(token.value, operand, position=token.position)

    def atom(self) -> Node:
        token = self.word
        if token.kind is Kind.TEXT:
            return Literal(self.take().value, position=token.position)
        if token.kind is Kind.NUMBER:
            if isinstance(token.value, int) and token.value > INT64_MAX:
                raise FilterSyntaxError("Expected a number within its range", token.position)
            return Literal(self.take().value, position=token.position)
        if token.kind is Kind.PARAMETER:
            return Parameter(self.take().value, position=token.position)
        if token.kind is Kind.NAME:
            return self.function() if self.is_function() else self.property()
        if self.is_keyword(*_CONSTANTS):
            return Literal(_CONSTANTS[self.take().value], position=token.position)
        if self.skip_keyword("EXISTS"):
            return self.existence(token)
        if self.skip_sign("("):
            self.deeper()
            inner = self.disjunction()
            if not self.skip_sign(")"):
                raise self.expected("')'")
            self.nesting -= 1
            return inner
        raise self.expected("a property, a value or '('")

    def existence(self, token: Token) -> Node:
        self.need_sign("(")
        if self.word.kind is not Kind.NAME:
            raise self.expected("a property")
        subject = self.property()
        self.need_sign(")")
        return Exists(subject, position=token.position)

    def is_function(self) -> bool:
        following = self.words[self.index + 1]
        return not self.word.quoted and following.kind is Kind.SIGN and following.value == "("

    def function(self) -> Node:
        token = self.word
        name = token.value.lower()
        if name != "newid" and name not in _LOOKUPS:
            raise self.expected("the function newid() or property()")
        self.take()
        self.need_sign("(")
        if name == "newid":
            self.need_sign(")")
            return NewId(position=token.position)
        self.deeper()
        argument = self.as_value(self.sum())
        self.nesting -= 1
        self.need_sign(")")
        return Lookup(argument, position=token.position)

    def property(self) -> Property:
        token = self.take()
        if not self.skip_sign("."):
            return Property(token.value, position=token.position)
        scope = token.value.lower()
        if scope not in ("sys", "user"):
            raise FilterSyntaxError(
                f"Expected the scope sys or user before '.', found {token.value!r}; "
                "a name with other characters stands in brackets, as in [a.b],",
                token.position,
            )
        if self.word.kind is not Kind.NAME:
            raise self.expected("the name of a property")
        return Property(self.take().value, scope == "sys", position=token.position)

    def as_condition(self, node: Node) -> Node:
        if not is_condition(node):
            raise FilterSyntaxError("Expected a condition, found a value", node.position)
        return node

    def as_value(self, node: Node) -> Node:
        if isinstance(node, Condition):
            raise FilterSyntaxError("Expected a value, found a condition", node.position)
        return node

    # Actions.

    def statements(self) -> tuple[Statement, ...]:
        statements = [self.statement()]
        while True:
            while self.skip_sign(";"):
                pass
            if self.word.kind is Kind.END:
                return tuple(statements)
            self.skip_sign(",")
            position = self.word.position
            statements.append(self.statement())
            if len(statements) > STATEMENTS_MAX:
                raise FilterSyntaxError(f"Expected at most {STATEMENTS_MAX} statements", position)

    def statement(self) -> Statement:
        token = self.word
        verb = token.value.upper() if token.kind is Kind.NAME and not token.quoted else ""
        if verb not in ("SET", "REMOVE"):
            raise self.expected("SET or REMOVE")
        self.take()
        if self.word.kind is not Kind.NAME:
            raise self.expected("a property")
        target = self.property()
        if verb == "REMOVE":
            return Remove(target, position=token.position)
        self.need_sign("=")
        return Assign(target, self.as_value(self.sum()), position=token.position)
