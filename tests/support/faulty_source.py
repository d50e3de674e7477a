"""The source, in a process that ends at a chosen line: what a crash beside the driver looks like to Spark.

The process ends once for each file that is there, and removes it first; with no file left it works as always.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from twinbus.model.message import Outcome
from twinbus.pipeline.datasource import ServiceBusDataSource
from twinbus.pipeline.options import SourceOptions
from twinbus.pipeline.reading.intake import Intake
from twinbus.pipeline.reading.staging import Key, Staged, Staging
from twinbus.pipeline.reading.streaming import StagedReader
from twinbus.pipeline.rows import RowMaker

AFTER_STAGING, IN_COMMIT = "after-staging", "in-commit"


def _die_if(directory: Path, point: str) -> None:
    try:
        (directory / point).unlink()
    except FileNotFoundError:
        return
    os._exit(9)


class FaultyStaging(Staging):
    def write(self, number: int, messages: Sequence[Staged]) -> None:
        super().write(number, messages)
        _die_if(self._directory.parent, AFTER_STAGING)


class FaultyIntake(Intake):
    directory: Path

    def settle(
        self, keys: Iterable[Key], outcome: Outcome = Outcome.COMPLETE, properties: dict[str, Any] | None = None
    ) -> set[Key]:
        wanted = sorted(keys)
        namespace = super().settle(wanted[: len(wanted) // 2], outcome, properties)
        if namespace:
            _die_if(self.directory, IN_COMMIT)
        return namespace | super().settle(wanted[len(wanted) // 2 :], outcome, properties)


class FaultyReader(StagedReader):
    def __init__(self, options: SourceOptions, make: RowMaker) -> None:
        super().__init__(options, make)
        self._staging = FaultyStaging(Path(options.staging_location or ""))

    @property
    def _broker(self) -> Intake:
        if self._intake is None:
            self._intake = FaultyIntake(self._options)
            self._intake.directory = Path(self._options.staging_location or "").parent
        return self._intake


class FaultySource(ServiceBusDataSource):
    @classmethod
    def name(cls) -> str:
        return "servicebus-faulty"

    def streamReader(self, schema: Any) -> Any:  # noqa: N802
        types = {field.name: field.dataType.simpleString() for field in schema.fields}
        return FaultyReader(SourceOptions.parse(self.options), RowMaker(types))
