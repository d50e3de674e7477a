"""The commands on Spark start without Spark, and say what is missing."""

from __future__ import annotations

import subprocess
import sys

import pytest

from twinbus.cli.pipeline_session import session
from twinbus.cli.running import PromptError
from twinbus.model.extras import MissingExtraError


def test_no_command_pays_for_spark_before_it_runs() -> None:
    asked = (
        "import sys; from twinbus.cli.commands import app;"
        " print(sorted({'pyspark', 'pyarrow', 'py4j'} & set(sys.modules)))"
    )
    told = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "[]"


@pytest.mark.parametrize("text", ["spark.ui.enabled", "=true", " =true"])
def test_a_setting_that_is_none_is_refused_before_java_starts(text: str) -> None:
    with pytest.raises(PromptError, match="KEY=VALUE"), session("test", None, [text]):
        pass


def test_without_pyspark_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    with pytest.raises(MissingExtraError, match=r"\[spark\b"), session("test", None, None):
        pass
