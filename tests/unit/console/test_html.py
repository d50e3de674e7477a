"""Elements made by calls: whatever is data stays data."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinbus.console.html import Markup, document, el, join, text

EVIL = "<script>alert('1')</script>\" onload=\"x"


def test_text_is_escaped_and_markup_is_not() -> None:
    assert el("p", EVIL, el("b", "x")) == (
        "<p>&lt;script&gt;alert(&#x27;1&#x27;)&lt;/script&gt;&quot; onload=&quot;x<b>x</b></p>"
    )


def test_attributes_are_escaped() -> None:
    assert el("input", value=EVIL, disabled=True, checked=False, aria_label=None).count('"') == 2


@given(st.text())
def test_no_text_opens_a_tag_or_closes_an_attribute(words: str) -> None:
    assert not {"<", ">", '"', "'"} & set(text(words))
    assert el("p", words, title=words).count("<") == 2


@pytest.mark.parametrize("address", ["javascript:alert(1)", "data:text/html,x", "JAVASCRIPT:x", " /x", ""])
def test_an_address_that_is_not_ours_is_refused(address: str) -> None:
    with pytest.raises(ValueError, match="address of ours"):
        el("a", "x", href=address)


def test_control_characters_are_made_visible() -> None:
    assert text("a\x00b\u202ec\r\n") == "a\\u0000b\\u202ec\n"


def test_lists_are_flattened_and_nothing_is_nothing() -> None:
    assert join(None, False, ["a", [el("i", 1)]], 0) == "a<i>1</i>0"


def test_a_document_is_whole() -> None:
    page = document("<t>", Markup(""), el("main", "x"))
    assert page.startswith("<!doctype html>")
    assert "<title>&lt;t&gt;</title>" in page
