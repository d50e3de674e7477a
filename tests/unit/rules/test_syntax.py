"""The grammar: which tree a text becomes, and for a wrong text where the error is and what was expected."""

from __future__ import annotations

import pytest

from twinbus.model.errors import Fault
from twinbus.rules.compiler import compile_condition
from twinbus.rules.errors import FilterSyntaxError
from twinbus.rules.limits import DEPTH_MAX, EXPRESSION_CHARS_MAX, NESTING_MAX, STATEMENTS_MAX
from twinbus.rules.parser import parse_action, parse_filter
from twinbus.rules.spelling import spell, spell_statements
from twinbus.rules.tree import (
    Among,
    And,
    Arithmetic,
    Assign,
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
    Remove,
    Sign,
)

A, B, C = Property("a"), Property("b"), Property("c")
ONE, TWO, THREE = Literal(1), Literal(2), Literal(3)


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("a = 1", Comparison("=", A, ONE)),
        ("a != 1", Comparison("<>", A, ONE)),
        ("a OR b AND c", Or((A, And((B, C))))),
        ("(a OR b) AND c", And((Or((A, B)), C))),
        ("a OR b OR c", Or((A, B, C))),
        ("a AND (b AND c)", And((A, And((B, C))))),
        ("NOT a AND b", And((Not(A), B))),
        ("NOT NOT a", Not(Not(A))),
        ("NOT a = 1", Not(Comparison("=", A, ONE))),
        ("a = 1 + 2 * 3", Comparison("=", A, Arithmetic("+", ONE, Arithmetic("*", TWO, THREE)))),
        ("a = 1 - 2 - 3", Comparison("=", A, Arithmetic("-", Arithmetic("-", ONE, TWO), THREE))),
        ("a = (1 + 2) * 3", Comparison("=", A, Arithmetic("*", Arithmetic("+", ONE, TWO), THREE))),
        ("a = -1", Comparison("=", A, Literal(-1))),
        ("a = -(1)", Comparison("=", A, Sign("-", ONE))),
        ("a = - -1", Comparison("=", A, Sign("-", Literal(-1)))),
        ("a = +b", Comparison("=", A, Sign("+", B))),
        ("a = 1 - -1", Comparison("=", A, Arithmetic("-", ONE, Literal(-1)))),
        ("a IS NULL", IsNull(A)),
        ("a IS NOT NULL", IsNull(A, True)),
        ("a IN (1)", Among(A, (ONE,))),
        ("a NOT IN (1, b)", Among(A, (ONE, B), True)),
        ("a LIKE 'x'", Like(A, Literal("x"))),
        ("a NOT LIKE b ESCAPE c", Like(A, B, C, True)),
        ("EXISTS(a)", Exists(A)),
        ("NOT EXISTS(sys.a)", Not(Exists(Property("a", True)))),
        ("sys.a = @a", Comparison("=", Property("a", True), Parameter("a"))),
        ("newid() = property('a')", Comparison("=", NewId(), Lookup(Literal("a")))),
        ("P('a' + b) = 1", Comparison("=", Lookup(Arithmetic("+", Literal("a"), B)), ONE)),
        ("'a''b' = \"a\"\"b\"", Comparison("=", Literal("a'b"), Property('a"b'))),
        ("[a]]b] = TRUE", Comparison("=", Property("a]b"), Literal(True))),
    ],
)
def test_a_filter_becomes_a_tree(text: str, tree: Node) -> None:
    assert parse_filter(text) == tree
    assert parse_filter(spell(tree)) == tree


@pytest.mark.parametrize(
    ("text", "statements"),
    [
        ("SET a = 1", (Assign(A, ONE),)),
        ("set a=1;", (Assign(A, ONE),)),
        ("SET a = 1; REMOVE b", (Assign(A, ONE), Remove(B))),
        ("SET a = 1, SET b = 2", (Assign(A, ONE), Assign(B, TWO))),
        ("SET a = 1;, SET b = 2", (Assign(A, ONE), Assign(B, TWO))),
        ("SET a = 1 SET b = 2 REMOVE c", (Assign(A, ONE), Assign(B, TWO), Remove(C))),
        ("SET a = b;;REMOVE user.c;", (Assign(A, B), Remove(C))),
        ("SET set = remove", (Assign(Property("set"), Property("remove")),)),
        ("SET sys.To = sys.ReplyTo", (Assign(Property("To", True), Property("ReplyTo", True)),)),
        ("REMOVE [a b]", (Remove(Property("a b")),)),
    ],
)
def test_an_action_becomes_statements(text: str, statements: tuple[Assign | Remove, ...]) -> None:
    assert parse_action(text) == statements
    assert parse_action(spell_statements(statements)) == statements


def test_nodes_know_where_they_stood() -> None:
    tree = parse_filter("NOT color = 'red' OR  EXISTS( size )")
    assert isinstance(tree, Or)
    negation, existence = tree.operands
    assert (tree.position, negation.position, existence.position) == (0, 0, 22)
    assert [node.position for node in negation.children[0].children] == [4, 12]
    assert existence.children[0].position == 30


SYNTAX_ERRORS = [
    ("", 0, "Expected a property, a value or '(', found the end"),
    ("   ", 3, "found the end"),
    ("a =", 3, "Expected a property, a value or '(', found the end"),
    ("= 1", 0, "found '='"),
    ("a = = 1", 4, "found '='"),
    ("a == 1", 3, "found '='"),
    ("a = 1 b", 6, "Expected AND, OR, a comparison or the end, found the name 'b'"),
    ("a = 1 AND", 9, "found the end"),
    ("AND a", 0, "found the keyword 'AND'"),
    ("a AND OR b", 6, "found the keyword 'OR'"),
    ("(a = 1", 6, "Expected ')', found the end"),
    ("a = 1)", 5, "found ')'"),
    ("()", 1, "found ')'"),
    ("a IS", 4, "Expected NULL or NOT NULL"),
    ("a IS NOT 1", 9, "Expected NULL, found"),
    ("a NOT = 1", 6, "Expected IN or LIKE"),
    ("a NOT NULL", 6, "Expected IN or LIKE"),
    ("a IN 1", 5, "Expected '('"),
    ("a IN ()", 6, "Expected a property, a value"),
    ("a IN (1", 7, "Expected ',' or ')'"),
    ("a IN (1,)", 8, "Expected a property, a value"),
    ("a IN (1 2)", 8, "Expected ',' or ')'"),
    ("a LIKE", 6, "found the end"),
    ("a LIKE 'x' ESCAPE", 17, "found the end"),
    ("EXISTS a", 7, "Expected '('"),
    ("EXISTS()", 7, "Expected a property"),
    ("EXISTS('a')", 7, "Expected a property"),
    ("EXISTS(a", 8, "Expected ')'"),
    ("EXISTS(property('a'))", 15, "Expected ')'"),
    ("'abc", 0, "Expected a closing ' for the '"),
    ("a = 'it''s", 4, "Expected a closing '"),
    ("[abc = 1", 0, "Expected a closing ] for the ["),
    ('"abc = 1', 0, 'Expected a closing " for the "'),
    ("[] = 1", 0, "Expected a name between the delimiters"),
    ("a = #", 4, "Unexpected character '#'"),
    ("_a = 1", 0, "Unexpected character '_'"),
    ("a = ?", 4, "Unexpected character '?'"),
    ("a ! = 1", 2, "Unexpected character '!'"),
    ("a && b", 2, "Unexpected character '&'"),
    ("a = @", 5, "Expected a name after '@'"),
    ("a = 1x", 5, "Expected a space or an operator after the number"),
    ("a = 1e", 6, "Expected the digits of an exponent"),
    ("a = 1e+", 7, "Expected the digits of an exponent"),
    ("a = 0x", 6, "Expected hexadecimal digits"),
    ("a = 0xg", 6, "Expected hexadecimal digits"),
    ("a = 9223372036854775808", 4, "Expected a number within its range"),
    ("a = - 9223372036854775809", 6, "Expected a number within its range"),
    ("a = 0xFFFFFFFFFFFFFFFFF", 4, "Expected a number within its range"),
    ("a = 1e999", 4, "Expected a number within its range"),
    ("a.b = 1", 0, "Expected the scope sys or user before '.', found 'a'"),
    ("x = 1 AND NServiceBus.Type = 'x'", 10, "as in [a.b]"),
    ("sys. = 1", 5, "Expected the name of a property"),
    ("sys.'a' = 1", 4, "Expected the name of a property"),
    ("sys.and = 1", 4, "Expected the name of a property"),
    ("like = 1", 0, "found the keyword 'LIKE'"),
    ("foo(1) = 1", 0, "Expected the function newid() or property()"),
    ("[p](1) = 1", 3, "found '('"),
    ("newid(1) = 1", 6, "Expected ')'"),
    ("property() = 1", 9, "Expected a property, a value"),
    ("1", 0, "Expected a condition, found a value"),
    ("'a'", 0, "Expected a condition, found a value"),
    ("a + 1", 0, "Expected a condition, found a value"),
    ("a AND 1", 6, "Expected a condition, found a value"),
    ("NOT 'x'", 4, "Expected a condition, found a value"),
    ("newid()", 0, "Expected a condition, found a value"),
    ("(a = 1) = 1", 1, "Expected a value, found a condition"),
    ("a = (b = 1)", 5, "Expected a value, found a condition"),
    ("1 + EXISTS(a) = 2", 4, "Expected a value, found a condition"),
    ("-(a AND b) = 1", 2, "Expected a value, found a condition"),
    ("a IN ((b = 1))", 7, "Expected a value, found a condition"),
    ("(NOT a) IS NULL", 1, "Expected a value, found a condition"),
    ("a = 1; b = 2", 5, "found ';'"),
    ("a = 1 /* no comments */", 7, "found '*'"),
]


@pytest.mark.parametrize(("text", "position", "expected"), SYNTAX_ERRORS)
def test_a_wrong_filter_is_refused_with_its_position(text: str, position: int, expected: str) -> None:
    with pytest.raises(FilterSyntaxError) as refused:
        compile_condition(parse_filter(text), {})
    assert refused.value.position == position
    assert expected in refused.value.text
    assert refused.value.text.endswith(f" at position {position}.")
    assert refused.value.fault is Fault.ARGUMENT


@pytest.mark.parametrize(
    ("text", "position", "expected"),
    [
        ("", 0, "Expected SET or REMOVE, found the end"),
        (";", 0, "Expected SET or REMOVE"),
        ("a = 1", 0, "Expected SET or REMOVE, found the name 'a'"),
        ("[SET] a = 1", 0, "Expected SET or REMOVE"),
        ("SET", 3, "Expected a property"),
        ("SET 'a' = 1", 4, "Expected a property"),
        ("SET a", 5, "Expected '='"),
        ("SET a <> 1", 6, "Expected '='"),
        ("SET a =", 7, "found the end"),
        ("SET a = 1,", 10, "Expected SET or REMOVE"),
        ("SET a = 1, b = 2", 11, "Expected SET or REMOVE"),
        ("SET a = 1; UPDATE b", 11, "Expected SET or REMOVE"),
        ("SET a = b = c", 10, "Expected SET or REMOVE"),
        ("SET a = (b = c)", 9, "Expected a value, found a condition"),
        ("REMOVE", 6, "Expected a property"),
        ("REMOVE 1", 7, "Expected a property"),
        ("SET a.b = 1", 4, "Expected the scope sys or user"),
    ],
)
def test_a_wrong_action_is_refused_with_its_position(text: str, position: int, expected: str) -> None:
    with pytest.raises(FilterSyntaxError) as refused:
        parse_action(text)
    assert (refused.value.position, expected in refused.value.text) == (position, True)


@pytest.mark.parametrize(
    ("text", "position", "expected"),
    [
        ("a = @missing", 4, "Expected a value for the parameter @missing"),
        ("a LIKE 5", 7, "Expected a text after LIKE and ESCAPE"),
        ("a LIKE 'x' ESCAPE 5", 7, "Expected a text after LIKE and ESCAPE"),
        ("a LIKE 'x' ESCAPE 'ab'", 18, "ESCAPE needs a text of one character"),
        ("a LIKE 'x' ESCAPE ''", 18, "ESCAPE needs a text of one character"),
        ("a LIKE 'x!' ESCAPE '!'", 19, "The pattern ends with its escape character"),
    ],
)
def test_what_only_the_compiler_can_see_is_refused_too(text: str, position: int, expected: str) -> None:
    with pytest.raises(FilterSyntaxError) as refused:
        compile_condition(parse_filter(text), {})
    assert (refused.value.position, expected in refused.value.text) == (position, True)


def test_a_text_may_have_1024_characters_and_no_more() -> None:
    longest = "a = '" + "x" * (EXPRESSION_CHARS_MAX - 6) + "'"
    assert parse_filter(longest) == Comparison("=", A, Literal("x" * (EXPRESSION_CHARS_MAX - 6)))
    with pytest.raises(FilterSyntaxError, match="at most 1024 characters"):
        parse_filter(longest + " ")


def test_an_action_may_have_32_statements_and_no_more() -> None:
    assert len(parse_action("SET a=1;" * STATEMENTS_MAX)) == STATEMENTS_MAX
    with pytest.raises(FilterSyntaxError, match="at most 32 statements"):
        parse_action("SET a=1;" * (STATEMENTS_MAX + 1))


@pytest.mark.parametrize(
    ("opening", "closing"),
    [("(", ")"), ("NOT ", ""), ("NOT(", ")"), ("1 = -(", ")"), ("1 = p(", ")")],
)
def test_nesting_is_bounded(opening: str, closing: str) -> None:
    if not opening.startswith("1"):
        assert parse_filter(opening * (NESTING_MAX // 2) + "a" + closing * (NESTING_MAX // 2))
    deep = opening.removeprefix("1 = ")
    start = "1 = " if opening.startswith("1") else ""
    with pytest.raises(FilterSyntaxError, match="inside one another"):
        parse_filter(start + deep * (NESTING_MAX + 1) + "a" + closing * (NESTING_MAX + 1))
    with pytest.raises(FilterSyntaxError):
        parse_filter((start + deep * EXPRESSION_CHARS_MAX)[:EXPRESSION_CHARS_MAX])


def test_a_chain_of_signs_is_bounded_as_the_nesting_it_becomes() -> None:
    with pytest.raises(FilterSyntaxError, match="inside one another"):
        parse_filter("a = " + "- " * (NESTING_MAX + 1) + "b")


def test_a_chain_of_operators_is_bounded_by_the_depth_of_its_tree() -> None:
    assert parse_filter("a = 1" + "+1" * (DEPTH_MAX - 2))
    with pytest.raises(FilterSyntaxError, match="at most 512 parts on 64 levels"):
        parse_filter("a = 1" + "+1" * DEPTH_MAX)


def test_a_long_list_of_conditions_is_not_deep() -> None:
    tree = parse_filter(" OR ".join(["a=1"] * 120))
    assert isinstance(tree, Or)
    assert len(tree.operands) == 120
