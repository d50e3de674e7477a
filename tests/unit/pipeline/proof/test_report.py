"""The report: one page that needs nothing else, in which nothing that a sender wrote is obeyed."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from twinbus.pipeline.proof.findings import Balance, Delay, Findings, Found, Series, Timeline
from twinbus.pipeline.proof.report import page, seconds, shown, write_report

EVIL = "<script>alert('x')</script>\x1b[31m\" onload=\"x"
FINDINGS = Findings(
    balances=(Balance("contoso", {"accepted": 5}, {"completed": 4}, {"active": 1}, {"ping": 3}), Balance("<fabrikam>")),
    tables={
        "lost": Found(
            "lost", 250, ("message_id", "entity", "why", "at_us"), ((EVIL, EVIL, "gone", 1_794_787_200_000_000),)
        ),
        "stuck": Found("stuck", 0, ("message_id",), ()),
        "redelivered": Found("redelivered", 1, ("message_id", "deliveries"), (("again", 2),)),
    },
    delays=(Delay("end to end", 5, 0.02, 3.5, 200.0, 90_000.0),),
    timeline=Timeline(
        1_794_787_200_000_000,
        1_000_000,
        (Series("accepted", ((0, 5), (9, 2))), Series("diverted", ((2, 4),)), Series("brought home", ((8, 4),))),
    ),
    latencies=(Series("direct", ((4, 3), (12, 1))), Series("diverted", ((40, 4),))),
    limits=("Nobody <looked>.",),
    operations=12_345,
    acknowledged=9,
)


@pytest.fixture(scope="module")
def text() -> str:
    """The page; drawing takes a moment."""
    return page(FINDINGS, {EVIL: EVIL})


class Elements(HTMLParser):
    """The elements and attributes of a page; every element is closed in order."""

    VOID = ("meta", "br")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.seen: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self._open: list[str] = []
        self.feed(text)
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        self.attributes += attrs
        if tag not in self.VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag


def test_the_page_is_well_formed_and_brings_everything_with_it(text: str) -> None:
    elements = Elements(text)
    assert elements.seen.count("svg") == 2
    assert not {"script", "img", "link", "iframe", "object"} & set(elements.seen)
    reaching = [value for name, value in elements.attributes if name in ("src", "href", "xlink:href", "action")]
    assert [value for value in reaching if not (value or "").startswith("#")] == []
    assert "@import" not in text
    assert not re.search(r"url\((?!#)", text)
    assert not [name for name, _ in elements.attributes if name.startswith("on")]


def test_what_a_sender_wrote_is_shown_and_not_obeyed(text: str) -> None:
    assert "<script" not in text
    assert "&lt;script&gt;" in text
    assert "\x1b" not in text
    assert "<fabrikam>" not in text
    assert "<looked>" not in text


def test_counts_and_balances_are_there(text: str) -> None:
    assert "It does not hold: 250 lost." in text
    assert "The first 1 of 250." in text
    assert "<b>250</b>lost" in text
    assert "apart: pings 3" in text
    assert "1.5 min" not in text
    assert "25.0 h" in text


def test_an_endless_id_is_cut(text: str) -> None:
    endless = Found("lost", 1, ("message_id",), (("x" * 100_000,),))
    assert len(page(Findings(tables={"lost": endless}))) < len(text)


def test_the_page_knows_dark_and_light_and_its_pictures_do_too(text: str) -> None:
    assert "prefers-color-scheme: dark" in text
    pictures = "".join(re.findall(r"<svg.*?</svg>", text, re.DOTALL))
    assert "var(--ink)" in pictures
    assert not re.search(r"#0[0-9a-f]{5}", pictures)


def test_two_pictures_share_no_names(text: str) -> None:
    names = re.findall(r'\bid="([^"]*)"', text)
    assert len(names) == len(set(names))


def test_findings_about_nothing_make_a_page_too() -> None:
    elements = Elements(page(Findings()))
    assert "svg" not in elements.seen


def test_the_file_is_written_whole(tmp_path: Path) -> None:
    write_report(Findings(), tmp_path / "report.html", {"operations": "12,345"})
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]
    assert "12,345" in (tmp_path / "report.html").read_text()


def test_values_are_told_in_the_unit_that_suits_them() -> None:
    assert [seconds(value) for value in (0.0204, 3.54, 200, 90_000)] == ["20 ms", "3.5 s", "3.3 min", "25.0 h"]
    assert shown("at_us", 1_794_787_200_123_456) == "2026-11-16 00:00:00.123"
    assert shown("message_id", "a\tb") == "a\\u0009b"
    assert shown("at_us", None) == ""
