"""The account at the end of a test that kills something: what the application's own log says, and what became of it.

Loss is judged from outside, by `twinbus.drill.history`; here the line is printed and held.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from pathlib import Path

from twinbus.drill.history import Verdict, judge


def settle(
    log: Path,
    worked: Counter[str],
    *,
    received: Counter[str] | None = None,
    lost: Collection[str] = (),
    repeated: int = 0,
) -> Verdict:
    """Print the account and hold it: nothing lost but `lost`, nothing worked on twice.

    `received` is what came, where more comes than is worked on. `repeated` is how often a worker was killed between
    its work and the mark: so often, and no more often, may work be done a second time.
    """
    verdict = judge(log, worked)
    came = received if received is not None else worked
    twice = sum(times - 1 for times in worked.values())
    again = f", of these after a kill between work and mark at most {repeated}" if repeated else ""
    print(
        f"attempted {verdict.attempted}, acknowledged {verdict.acknowledged}, received {came.total()},"
        f" worked on {len(worked)}, lost {len(verdict.lost)}, duplicated {twice}, recovered {verdict.recovered}{again}"
    )
    assert verdict.lost == tuple(sorted(lost))
    assert twice <= repeated, {tag: times for tag, times in worked.items() if times > 1}
    assert verdict.attempted >= verdict.acknowledged
    return verdict
