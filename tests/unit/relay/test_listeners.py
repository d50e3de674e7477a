"""Listeners are limited in number, and one of those that are there is chosen by the randomness handed in."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from twinbus.entities.hybrid import HybridConnection
from twinbus.model.hybrid import HybridConnectionDescription
from twinbus.relay.channel import Channel
from twinbus.relay.listeners import Listeners
from twinbus.relay.rights import RefusedError

HYBRID = HybridConnection(1, 0, HybridConnectionDescription(name="service"))


def channel(is_open: bool = True) -> Channel:
    return cast(Channel, SimpleNamespace(socket=SimpleNamespace(is_open=is_open)))


def test_the_one_that_chance_names_is_chosen_among_those_that_are_open() -> None:
    asked: list[int] = []

    def last(count: int) -> int:
        asked.append(count)
        return count - 1

    listeners, present = Listeners(25, last), [channel(), channel(False), channel()]
    for each in present:
        listeners.add(HYBRID, each)
    assert listeners.pick(HYBRID) is present[2]
    assert asked == [2]


def test_every_listener_has_its_share() -> None:
    chances: Any = iter(list(range(4)) * 5)
    listeners, present = Listeners(25, lambda _: next(chances)), [channel() for _ in range(4)]
    for each in present:
        listeners.add(HYBRID, each)
    chosen = [listeners.pick(HYBRID) for _ in range(20)]
    assert [sum(one is each for one in chosen) for each in present] == [5] * 4


def test_nobody_there_is_502_and_one_too_many_is_403() -> None:
    listeners = Listeners(1, lambda _: 0)
    with pytest.raises(RefusedError) as nobody:
        listeners.pick(HYBRID)
    only = channel()
    listeners.check_room(HYBRID)
    listeners.add(HYBRID, only)
    with pytest.raises(RefusedError) as too_many:
        listeners.check_room(HYBRID)
    assert (nobody.value.status, too_many.value.status) == (502, 403)
    listeners.remove(HYBRID, only)
    listeners.remove(HYBRID, only)
    assert (listeners.all(), listeners.of(HYBRID)) == ([], [])
