"""A signal whose exception got lost still ends the command."""

from __future__ import annotations

import signal
import weakref

import pytest

from twinbus.cli import interruption


class Gone:
    """Something whose end somebody hears of."""


@pytest.fixture(autouse=True)
def heard(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interruption._State, "begun", True)
    monkeypatch.setattr(interruption._State, "number", None)


def lose_an_interrupt() -> None:
    """As Python's own import machinery does when a signal comes in the callback of a lock that is let go."""

    def heard_here(_: object) -> None:
        interruption._State.number = signal.SIGINT
        interruption._State.how()

    thing = Gone()
    kept = weakref.ref(thing, heard_here)
    del thing
    assert kept() is None


def interrupted(asks: bool) -> list[str]:
    done = ["began"]
    with interruption.raising():
        lose_an_interrupt()
        if asks:
            interruption.check()
        done.append("went on")
    return [*done, "ended"]


@pytest.mark.parametrize("asks", [True, False], ids=["in its midst", "at its end"])
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_block_whose_interrupt_was_lost_is_interrupted_all_the_same(asks: bool) -> None:
    with pytest.raises(KeyboardInterrupt):
        interrupted(asks)


def test_nothing_is_interrupted_that_nobody_interrupts() -> None:
    with interruption.raising():
        interruption.check()
