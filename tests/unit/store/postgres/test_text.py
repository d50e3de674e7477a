"""Texts on their way into PostgreSQL and back."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from twinbus.store.postgres.text import from_json, from_text, stored, to_json, to_text

ODD = st.text(st.sampled_from('\0\ue00001a\\"'))


@given(ODD)
def test_any_text_comes_back_as_it_was_and_has_no_zero_in_between(text):
    assert "\0" not in to_text(text)
    assert from_text(to_text(text)) == text


@given(st.lists(st.tuples(st.integers(0, 9), ODD)))
def test_so_do_lists_of_them_as_json(rows):
    sent = json.loads(to_json(rows))
    assert not any("\0" in text for _, text in sent)
    answered = json.dumps(sent, ensure_ascii=False)
    assert json.loads(from_json(answered)) == [list(row) for row in rows]


def test_plain_json_is_left_as_it_is():
    assert to_json([["a", 1]]) == '[["a",1]]'
    assert from_json('[["a",1]]') == '[["a",1]]'


def test_a_message_s_texts_are_read_back():
    row = (1, 2, to_text("i\0"), 3, 0, 5, None, to_text("\ue000"), 0, None, b"o", to_text("r\0"), None)
    message = stored(row)
    assert (message.message_id, message.session, message.reason, message.description) == ("i\0", "\ue000", "r\0", None)
    assert (message.seq, message.overlay) == (1, b"o")
