"""An attempt that is shared: once for all who want it at the same time, and again for those who come later."""

from __future__ import annotations

import asyncio

import pytest

from twinbus.client.errors import ClientError
from twinbus.pair.namespace import shared_attempt
from twinbus.pair.namespace.shared_attempt import SharedAttempt

GONE = ClientError("twinbus:unreachable", "gone")


class Tries:
    """Each answers as it is told: with a value, an error, or never."""

    def __init__(self, *answers: int | ClientError | None) -> None:
        self._answers = list(answers)
        self.begun = self.open = 0

    async def __call__(self) -> int:
        self.begun += 1
        self.open += 1
        try:
            answer = self._answers.pop(0)
            await asyncio.sleep(0)
            if answer is None:
                await asyncio.Event().wait()
            if isinstance(answer, ClientError):
                raise answer
            assert answer is not None
            return answer
        finally:
            self.open -= 1


async def test_who_waits_at_the_same_time_shares_the_outcome() -> None:
    tries = Tries(GONE, 7)
    shared = SharedAttempt(tries)
    outcomes = await asyncio.gather(*(shared.get() for _ in range(200)), return_exceptions=True)
    assert {type(outcome) for outcome in outcomes} == {ClientError}
    with pytest.raises(ClientError):
        await shared.get()  # Right after it.
    assert tries.begun == 1


async def test_who_comes_later_tries_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_attempt, "LASTS_S", 0.0)
    tries = Tries(GONE, 7)
    shared = SharedAttempt(tries)
    with pytest.raises(ClientError):
        await shared.get()
    assert (await shared.get(), tries.begun) == (7, 2)


async def test_one_that_hangs_is_no_obstacle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_attempt, "AGAIN_S", 0.001)
    tries = Tries(None, None, 7)
    assert (await SharedAttempt(tries).get(), tries.begun, tries.open) == (7, 3, 0)


async def test_one_who_gives_up_does_not_disturb_the_others() -> None:
    tries = Tries(7)
    shared = SharedAttempt(tries)
    impatient, patient = asyncio.create_task(shared.get()), asyncio.create_task(shared.get())
    await asyncio.sleep(0)
    impatient.cancel()
    assert (await patient, tries.begun) == (7, 1)
