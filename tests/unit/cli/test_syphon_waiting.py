"""A syphon that cannot begin yet goes on when the primary answers, and not only after its pause."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from twinbus.cli import syphon
from twinbus.client.errors import UNREACHABLE, ClientError


async def test_a_pause_ends_when_the_primary_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(syphon, "LOOK_S", 0.0)
    answers: list[Any] = [ClientError(UNREACHABLE, "gone"), ClientError(UNREACHABLE, "gone"), "back"]

    async def ask_together() -> Any:
        if isinstance(answer := answers.pop(0), ClientError):
            raise answer
        return answer

    run: Any = SimpleNamespace(primary=SimpleNamespace(ask_together=ask_together))
    await syphon._until_it_answers(run, 60.0)
    assert answers == []
