"""The way out of a connection: what its links may fetch, and who is told when there is room again."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from twinbus.gateway.node import Node
from twinbus.gateway.outlet import BUFFER_BYTES, Outlet


class Receiving(Node):
    """A node with so many frames under way."""

    def __init__(self, under_way: int = 0) -> None:
        self.under_way = under_way
        self.resumed = 0

    @property
    def frames_under_way(self) -> int:
        return self.under_way

    def resume(self) -> None:
        self.resumed += 1


def session(window: int) -> Any:
    return SimpleNamespace(sendable_frames=window, links=[1, 2, 3], wants_window=False)


@pytest.fixture
def nodes() -> dict[Any, Node]:
    return {}


@pytest.fixture
def outlet(nodes: dict[Any, Node]) -> Outlet:
    return Outlet(nodes)


class Link:
    def __init__(self, session: Any) -> None:
        self.session = session


def test_what_others_of_the_session_fetch_is_not_free(outlet: Outlet, nodes: dict[Any, Node]) -> None:
    here, there = session(10), session(10)
    mine, other, elsewhere = Receiving(4), Receiving(7), Receiving(9)
    nodes |= {Link(here): mine, Link(here): other, Link(there): elsewhere}
    assert outlet.frames(mine, here) == 3
    assert outlet.frames(other, here) == 6
    assert not here.wants_window


def test_who_finds_no_room_is_told_when_another_has_what_it_fetched(outlet: Outlet, nodes: dict[Any, Node]) -> None:
    here = session(5)
    mine, other = Receiving(), Receiving(5)
    nodes |= {Link(here): mine, Link(here): other}
    assert outlet.frames(mine, here) == 0
    assert here.wants_window
    outlet.fetched(other, here)
    assert (mine.resumed, other.resumed, here.wants_window) == (1, 0, False)
    outlet.fetched(other, here)
    assert mine.resumed == 1


def test_nothing_is_fetched_while_nothing_can_be_written(outlet: Outlet, nodes: dict[Any, Node]) -> None:
    here = session(5)
    mine = Receiving()
    nodes[Link(here)] = mine  # type: ignore[index]
    outlet.is_full = outlet.is_stopped = True
    outlet.emptied()
    assert (outlet.frames(mine, here), here.wants_window) == (0, False)
    outlet.restarted()
    assert (outlet.frames(mine, here), mine.resumed) == (5, 2)


def test_the_buffer_is_divided_among_the_links_that_delete(outlet: Outlet) -> None:
    used = BUFFER_BYTES // 2
    outlet.opened(SimpleNamespace(set_write_buffer_limits=lambda high: None, get_write_buffer_size=lambda: used))  # type: ignore[arg-type]
    assert outlet.bytes_for_each() == BUFFER_BYTES - used
    outlet.deleting_links = 4
    assert outlet.bytes_for_each() == (BUFFER_BYTES - used) // 4
    used = 2 * BUFFER_BYTES
    assert outlet.bytes_for_each() == 0
