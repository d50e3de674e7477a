"""What the environment may tell a broker about failpoints, and who obeys."""

from __future__ import annotations

from collections.abc import Iterator

import apsw
import pytest

from twinbus.broker.failing import VARIABLE, arm_as_told
from twinbus.broker.settings import SettingsError
from twinbus.model import failpoints
from twinbus.model.failpoints import failpoint


@pytest.fixture(autouse=True)
def unarmed() -> Iterator[None]:
    yield
    failpoints._armed.clear()


def test_several_orders_are_armed() -> None:
    arm_as_told({VARIABLE: "store.open=full; catalog.write.before=oserror:ENOSPC@2"}, allowed=True)
    with pytest.raises(apsw.FullError):
        failpoint("store.open")
    failpoint("catalog.write.before")
    with pytest.raises(OSError, match="No space left"):
        failpoint("catalog.write.before")


def test_a_broker_that_may_not_be_disturbed_refuses_to_start_with_it() -> None:
    with pytest.raises(SettingsError, match="only one with --faults"):
        arm_as_told({VARIABLE: "store.open=kill"}, allowed=False)
    arm_as_told({VARIABLE: " ; "}, allowed=False)
    arm_as_told({}, allowed=False)


@pytest.mark.parametrize(
    ("order", "words"),
    [
        ("store.open", "is not understood"),
        ("store.open=die", "is not understood"),
        ("store.open=kill@0", "is not understood"),
        ("store.shut=kill", "no failpoint 'store.shut'"),
        ("store.open=oserror:ENOTHING", "cannot be: 'ENOTHING'"),
        ("store.open=sleep:long", "cannot be: could not convert"),
    ],
)
def test_an_order_that_is_not_understood_is_refused(order: str, words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        arm_as_told({VARIABLE: order}, allowed=True)
