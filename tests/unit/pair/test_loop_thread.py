"""Work on the loop in a thread is waited for by others only: who runs there would wait for itself."""

from __future__ import annotations

import pytest

from twinbus.pair.loop_thread import LoopThread


async def seven() -> int:
    return 7


def test_who_runs_there_is_refused_instead_of_waiting_for_ever() -> None:
    thread = LoopThread()

    async def listener() -> int:
        return thread.run(seven())

    with pytest.raises(RuntimeError, match="must not wait"):
        thread.run(listener())
    assert thread.run(seven()) == 7

    async def nothing() -> None:
        pass

    thread.stop(nothing)
