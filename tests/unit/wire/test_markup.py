"""XML from strangers: what is read, what is refused, and what we write."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinbus.model.errors import BusError, Fault
from twinbus.wire.markup import MAX_DEPTH, MAX_ELEMENTS, escaped, parse, tag


def test_names_carry_their_namespace_whatever_the_prefix() -> None:
    for document in (b'<a xmlns="urn:x" q="1"><b>t</b></a>', b'<p:a xmlns:p="urn:x" q="1"><p:b>t</p:b></p:a>'):
        root = parse(document)
        assert (root.name, root.attributes) == ("{urn:x}a", {"q": "1"})
        assert [(child.name, child.text) for child in root.children] == [("{urn:x}b", "t")]


def test_attributes_carry_the_namespace_of_their_prefix() -> None:
    assert parse(b'<a xmlns:i="urn:i" i:type="T"/>').attributes == {"{urn:i}type": "T"}


def test_the_declared_encoding_does_not_choose_a_codec() -> None:
    # The Python client declares 'utf8' and 'utf-8'; somebody else might declare a codec that does more than decode.
    for encoding in ("utf8", "utf-8", "utf-7", "rot13", "no-such-codec"):
        assert parse(f"<?xml version='1.0' encoding='{encoding}'?><a>é</a>".encode()).text == "é"


def test_a_byte_order_mark_is_no_obstacle() -> None:
    assert parse(b"\xef\xbb\xbf<a/>").name == "a"
    assert parse("<a/>".encode("utf-16")).name == "a"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"   ",
        b"text",
        b"<a>",
        b"<a></b>",
        b"<a/><b/>",
        b"<p:a/>",
        b"<a>\xff\xfe</a>",
        b"<!DOCTYPE a><a/>",
        b'<!DOCTYPE a SYSTEM "file:///etc/passwd"><a/>',
        b'<!DOCTYPE a [<!ENTITY e "x">]><a>&e;</a>',
        b'<!DOCTYPE a [<!ENTITY % e SYSTEM "http://127.0.0.1/"> %e;]><a/>',
        b"<a>&undefined;</a>",
        b"<a>" * (MAX_DEPTH + 1) + b"</a>" * (MAX_DEPTH + 1),
        b"<a>" + b"<b/>" * MAX_ELEMENTS + b"</a>",
    ],
    ids=range(15),
)
def test_a_document_that_is_not_acceptable_is_refused_as_an_argument(body: bytes) -> None:
    with pytest.raises(BusError) as refused:
        parse(body)
    assert refused.value.fault is Fault.ARGUMENT


@given(st.binary(max_size=200) | st.from_regex(rb"<a(>|/>| b='1'>)[<>&;/a!?\[\]\xff-]{0,20}</a>"))
def test_no_bytes_do_more_than_be_refused(body: bytes) -> None:
    faults = []
    try:
        parse(body)
    except BusError as refused:
        faults.append(refused.fault)
    assert faults in ([], [Fault.ARGUMENT])


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters=[*map(chr, range(32)), "\ufffe", "\uffff"])))
def test_text_survives_being_written_and_read(text: str) -> None:
    assert parse(tag("a", text).encode()).text == text
    assert parse(f'<a b="{escaped(text)}"/>'.encode()).attributes["b"] == text


def test_what_xml_cannot_carry_is_replaced() -> None:
    assert parse(tag("a", "x\0y\x1b\ud800\r\n").encode()).text == "x\ufffdy\ufffd\ufffd\r\n"
