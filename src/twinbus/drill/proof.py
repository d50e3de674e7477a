"""Spark beside a drill: it drains the backlog, then proves from journals, ledger and send log what became of it all.

It starts while the drill begins, since that takes a while. What counts as proven is told in `pipeline.proof`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from twinbus.pair.description import PairDescription
from twinbus.pair.ledger.ledger import records

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from twinbus.pipeline.costs.cost import Bill
    from twinbus.pipeline.proof.evidence import Evidence, Window
    from twinbus.pipeline.proof.findings import Findings

PATIENCE_S = 60.0


@dataclass(frozen=True, slots=True)
class Proof:
    """What the files say."""

    findings: Findings
    bill: Bill
    report: Path

    @property
    def holds(self) -> bool:
        """Whether everything that was acknowledged is accounted for, and the line balances."""
        return self.findings.holds and self.findings.is_proven

    def lines(self) -> list[str]:
        """For people, before the verdict."""
        from twinbus.pipeline.costs.cost import amount

        priced = f"{amount(self.bill.total)} {self.bill.prices.currency} by the prices of {self.bill.prices.as_of}"
        return [
            self.findings.verdict(),
            self.findings.line(),
            self.findings.pair_line(),
            f"cost: {self.bill.operations:,} billable operations, {priced}",
        ]


class Prover:
    """A Spark session for one drill; use it with `async with`."""

    def __init__(self, directory: Path, report: Path, say: Callable[[str], None]) -> None:
        self._directory = directory
        self._report = report
        self._say = say
        self._opening: asyncio.Task[SparkSession] | None = None
        self._description: PairDescription | None = None

    async def __aenter__(self) -> Prover:
        self._opening = asyncio.create_task(asyncio.to_thread(self._open))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._opening is not None
        if kind is asyncio.CancelledError:
            # Whoever cut the drill off has ended Spark, or ends with this process and takes it along.
            await asyncio.gather(self._opening, return_exceptions=True)
            return
        spark = await self._spark()
        await asyncio.to_thread(spark.stop)

    def _open(self) -> SparkSession:
        from twinbus.pipeline.session import open_session

        spark = open_session("twinbus drill", scratch=self._directory)
        spark.sparkContext.parallelize([0], 1).map(lambda number: number).count()  # The first worker takes its time.
        self._say("Spark is up")
        return spark

    async def _spark(self) -> SparkSession:
        assert self._opening is not None
        return await self._opening

    def describe(self, pair: PairDescription) -> None:
        """Which pair it is about."""
        self._description = pair

    async def drain(self) -> int | None:
        """Bring the backlog home; how many messages are left, or None if nobody can tell."""
        from twinbus.pipeline.syphoning.syphon import SparkSyphon

        assert self._description is not None
        async with SparkSyphon(await self._spark(), self._description, round_s=2.0) as syphon:
            await syphon.pair()
            return (await syphon.drain(PATIENCE_S)).left

    async def prove(self, send_log: Path, ledger: Path) -> Proof:
        """Browse what is left, have the journals written, and judge."""
        from twinbus.pipeline.proof.evidence import Evidence, Window
        from twinbus.pipeline.proof.gathering import gather

        assert self._description is not None
        exported = self._directory / "ledger.jsonl"
        exported.write_text("".join(f"{json.dumps(row.document())}\n" for row in records(str(ledger))))
        namespaces = self._description.namespaces()
        try:
            evidence, remarks = await gather(
                namespaces, Evidence(send_logs=[send_log], ledgers=[exported]), self._directory / "evidence"
            )
        finally:
            for namespace in namespaces:
                await namespace.close()
        for remark in remarks:
            self._say(remark)
        window = Window(backlog_queues=self._description.options.backlog_queue_count)
        return await asyncio.to_thread(self._judge, await self._spark(), evidence, window)

    def _judge(self, spark: SparkSession, evidence: Evidence, window: Window) -> Proof:
        from twinbus.pipeline.costs.cost import cost, in_short
        from twinbus.pipeline.proof.reconcile import reconcile
        from twinbus.pipeline.proof.report import write_report

        findings = reconcile(spark, evidence, window)
        bill = cost(spark, evidence.journals)
        write_report(findings, self._report, in_short(bill))
        return Proof(findings, bill, self._report)
