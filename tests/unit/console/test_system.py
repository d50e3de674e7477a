"""What the System page tells of entities that are kept and not served."""

from __future__ import annotations

from twinbus.console.pages.system import _aside

ORPHAN = {"number": 7, "name": "orders", "messages": 1200, "bytes": 4096}
UNREADABLE = {"name": "bills", "reason": "The catalog's row does not match its checksum."}


def test_on_most_days_there_is_nothing() -> None:
    assert _aside({}) is None
    assert _aside({"orphans": [], "unreadable": []}) is None


def test_what_is_set_aside_is_shown_with_the_way_to_its_page() -> None:
    shown = str(_aside({"orphans": [ORPHAN, ORPHAN | {"name": None}], "unreadable": [UNREADABLE]}))
    assert 'href="/$console/orphan?number=7"' in shown
    assert "orders" in shown
    assert "number 7" in shown
    assert "does not match its checksum" in shown
