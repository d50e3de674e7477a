"""How fast the syphon on Spark is, beside one pump in a process and beside a loop of the bare SDK in the same run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.alone, pytest.mark.timeout(300)]

MOVED = 40_000
RUNS = 3
LOOPED = 200


async def test_spark_keeps_up_with_a_pump_and_moves_ten_times_what_an_sdk_loop_moves(
    spark: SparkSession, tmp_path: Path
) -> None:
    from twinbus.drill.moving import between_two_brokers

    async with between_two_brokers(tmp_path, queues=4) as moving:
        rates = await moving.compare(spark, MOVED, RUNS, LOOPED)

    print(f"{rates}: {rates.to_pump:.2f} of the pump, {rates.to_loop:.1f} of the loop")
    assert rates.to_pump >= 0.8
    assert rates.to_loop >= 10
