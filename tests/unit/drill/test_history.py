"""The verdict of a drill: what a send log and the received messages say together."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from twinbus.drill.history import SendLog, judge


def logged(path: Path) -> Path:
    with SendLog(path) as log:
        for number in range(4):
            log.attempted(f"m{number}", "orders", number)
        log.acknowledged("m0", 0.5, diverted=False)
        log.acknowledged("m1", 1.5, diverted=True)
        log.acknowledged("m2", 2.5, diverted=True)
        log.failed("m3", 3.5, "no answer")
    return path


def test_everything_that_was_acknowledged_arrived_once(tmp_path: Path) -> None:
    verdict = judge(logged(tmp_path / "log"), Counter({"m0": 1, "m1": 1, "m2": 1, "m3": 1}))

    assert verdict.holds
    assert (verdict.attempted, verdict.acknowledged, verdict.received) == (4, 3, 4)
    assert (verdict.diverted, verdict.recovered) == (2, 2)


def test_loss_and_duplicates_break_the_claim_and_are_named(tmp_path: Path) -> None:
    verdict = judge(logged(tmp_path / "log"), Counter({"m0": 2, "m1": 1}))

    assert not verdict.holds
    assert verdict.lost == ("m2",)
    assert verdict.duplicated == ("m0",)
    assert "lost 1, duplicated 1, diverted 2, recovered 1" in verdict.line()


def test_a_failed_send_that_never_arrived_is_no_loss(tmp_path: Path) -> None:
    assert judge(logged(tmp_path / "log"), Counter({"m0": 1, "m1": 1, "m2": 1})).holds
