"""Random texts, trees, messages and rules: the parser is total, trees survive their text, what is compiled agrees with
the slow interpreter, and an index with asking every rule.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given, reject, settings
from hypothesis import strategies as st

from twinbus.rules import tree as t
from twinbus.rules.compiler import compile_condition
from twinbus.rules.description import CorrelationFilter, RuleDescription, SqlAction, SqlFilter, TrueFilter
from twinbus.rules.errors import FilterError, FilterSyntaxError
from twinbus.rules.index import RuleSet, TopicRules
from twinbus.rules.matching import NOTHING, compile_rule, match_all
from twinbus.rules.parser import parse_action, parse_filter
from twinbus.rules.spelling import spell, spell_statements
from twinbus.rules.view import MessageView
from unit.rules.interpreter import NEW_ID, PARAMETERS, Message, NoAnswerError, truth

# Any text, and texts made of the language's own words, which get further into the grammar.

VOCABULARY = """
AND OR NOT IN LIKE ESCAPE EXISTS IS NULL TRUE FALSE SET REMOVE a b sys. user. sys.Label [ab] "q" 'x' '' 'it''s'
1 -1 2.5 .5 1e3 0x1F 9223372036854775808 @p @ newid() property( p( ( ) , ; . = <> != > >= < <= + - * / % [ ' " # é _
"""
WORDS = VOCABULARY.split()
TEXTS = st.one_of(st.text(max_size=60), st.lists(st.sampled_from(WORDS), max_size=25).map(" ".join))


@settings(max_examples=300)
@given(TEXTS)
@example("(" * 1024)
@example("NOT " * 256)
@example("-" * 1024)
@example("a=1+" + "1+" * 500 + "1")
@example("a" * 1024)
@example("\x00\ud800'")
def test_any_text_is_a_filter_or_a_syntax_error_with_a_position(text: str) -> None:
    for parse in (parse_filter, parse_action):
        assert 0 <= position_of_error(parse, text) <= len(text)


def position_of_error(parse: Callable[[str], object], text: str) -> int:
    try:
        parse(text)
    except FilterSyntaxError as error:
        return error.position
    return 0


# Trees.

NAMES = st.sampled_from(["a", "b", "flag", "n", "x", "text", "A b", "and", "a]b", 'q"', "p", "sys", "é"])
SYSTEM_NAMES = st.sampled_from(["Label", "size", "To", "Nonsense"])
SHORT_TEXT = st.text("ab%_!'", max_size=4)
NUMBERS = st.one_of(
    st.integers(-3, 12),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(-4, 4).map(lambda number: round(number, 1)),
    st.floats(allow_nan=False, allow_infinity=False),
)
PROPERTIES = st.one_of(NAMES.map(t.Property), SYSTEM_NAMES.map(lambda name: t.Property(name, True)))
LEAVES = st.one_of(
    NUMBERS.map(t.Literal),
    SHORT_TEXT.map(t.Literal),
    st.sampled_from(
        [t.Literal(True), t.Literal(False), t.Literal(None), t.NewId(), t.Parameter("p"), t.Parameter("Q")]
    ),
    PROPERTIES,
    PROPERTIES,
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.builds(t.Arithmetic, st.sampled_from("+-*/%"), inner, inner),
        st.builds(t.Sign, st.sampled_from("+-"), inner),
        st.builds(t.Lookup, inner),
    ),
    max_leaves=4,
)
SIGNS = st.sampled_from(["=", "<>", "<", "<=", ">", ">="])
PATTERNS = st.one_of(SHORT_TEXT.map(t.Literal), PROPERTIES, st.just(t.Parameter("p")))
ESCAPES = st.one_of(st.none(), st.just(t.Literal("!")), st.just(t.Property("bang")))
SIMPLE_CONDITIONS = st.one_of(
    st.builds(t.Comparison, SIGNS, VALUES, VALUES),
    st.builds(t.Comparison, SIGNS, PROPERTIES, LEAVES),
    st.builds(t.IsNull, VALUES, st.booleans()),
    st.builds(t.Among, VALUES, st.lists(LEAVES, min_size=1, max_size=3).map(tuple), st.booleans()),
    st.builds(t.Like, st.one_of(PROPERTIES, VALUES), PATTERNS, ESCAPES, st.booleans()),
    st.builds(t.Exists, PROPERTIES),
    st.sampled_from([t.Property("flag"), t.Property("a"), t.Literal(True), t.Literal(False), t.Literal(None)]),
)
CONDITIONS = st.recursive(
    SIMPLE_CONDITIONS,
    lambda inner: st.one_of(
        st.builds(t.Not, inner),
        st.lists(inner, min_size=2, max_size=4).map(lambda found: t.And(tuple(found))),
        st.lists(inner, min_size=2, max_size=4).map(lambda found: t.Or(tuple(found))),
    ),
    max_leaves=5,
)


@settings(max_examples=200)
@given(CONDITIONS)
def test_a_tree_survives_its_text(tree: t.Node) -> None:
    text = spell(tree)
    if len(text) > 1024:
        reject()
    assert parse_filter(text) == tree
    assert spell(parse_filter(text)) == text


@given(
    st.lists(
        st.one_of(st.builds(t.Assign, PROPERTIES, VALUES), st.builds(t.Remove, PROPERTIES)), min_size=1, max_size=4
    )
)
def test_statements_survive_their_text(statements: list[t.Statement]) -> None:
    text = spell_statements(tuple(statements))
    if len(text) > 1024:
        reject()
    assert parse_action(text) == tuple(statements)


MESSAGES = st.builds(
    Message,
    st.fixed_dictionaries({}, optional={"Label": SHORT_TEXT, "Size": st.integers(0, 9), "To": st.none()}),
    st.fixed_dictionaries(
        {"flag": st.booleans(), "bang": st.sampled_from(["!", "a", "ab", ""])},
        optional={
            "A": st.one_of(st.integers(-3, 12), SHORT_TEXT, st.booleans(), st.none()),
            "b": st.one_of(NUMBERS, st.just(b"x"), st.just(NEW_ID)),
            "n": NUMBERS,
            "TEXT": SHORT_TEXT,
            "x": st.sampled_from(["a", "b", "text"]),
        },
    ),
)


@settings(max_examples=500)
@given(CONDITIONS, MESSAGES)
def test_what_is_compiled_agrees_with_the_slow_interpreter(tree: t.Node, message: Message) -> None:
    try:
        condition = compile_condition(tree, PARAMETERS)
    except FilterSyntaxError:  # A constant pattern that no text can match is refused when the rule is made.
        reject()
    view = MessageView(message.system, message.user, lambda: NEW_ID)
    try:
        expected = truth(tree, message)
    except NoAnswerError:
        with pytest.raises(FilterError):
            condition(view)
    else:
        assert condition(view) is expected


# Rules in sets.

FILTERS = st.one_of(
    st.just(TrueFilter()),
    st.builds(
        lambda subject, properties: CorrelationFilter(subject=subject, properties=properties),
        st.sampled_from([None, "a", "b"]),
        st.dictionaries(st.sampled_from(["x", "n"]), st.sampled_from(["a", "b", 1, 2.0, True]), max_size=2),
    ),
    st.sampled_from(
        [
            "x = 'a'",
            "X = 'b' AND n > 1",
            "x IN ('a', 'b')",
            "n = 1",
            "n IN (1, 2) AND x = 'a'",
            "x = 1",
            "sys.Label = 'a'",
            "sys.Label = 'a' AND sys.Nonsense = 1",
            "n > 0 OR x = 'a'",
            "NOT x = 'a'",
        ]
    ).map(SqlFilter),
)
RULES = st.lists(st.tuples(FILTERS, st.sampled_from([None, SqlAction("SET n = n + 1")])), max_size=8).map(
    lambda found: [compile_rule(RuleDescription(f"r{n}", *rule)) for n, rule in enumerate(found)]
)
VIEWS = st.tuples(
    st.fixed_dictionaries({}, optional={"Label": st.sampled_from(["a", "b", "c"])}),
    st.fixed_dictionaries(
        {}, optional={"x": st.sampled_from(["a", "b", "c", 1, [1]]), "N": st.sampled_from([1, 2, 3, 2.0, True, "a"])}
    ),
)


@settings(max_examples=200)
@given(RULES, VIEWS)
def test_an_index_answers_as_asking_every_rule_would(rules: list[Any], properties: tuple[Any, Any]) -> None:
    view = MessageView(*properties, lambda: NEW_ID)
    expected = match_all(rules, view)
    assert RuleSet(rules).match(view) == expected
    by_owner = {"all": rules, "none": [], "half": rules[::2]}
    answers = {owner: match_all(own, view) for owner, own in by_owner.items()}
    assert TopicRules(by_owner).match(view) == {k: found for k, found in answers.items() if found is not NOTHING}
