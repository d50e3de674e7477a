"""Which extra brings what, and the words for those who lack it."""

from __future__ import annotations

import re
import shutil
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from twinbus.cli.drill import BY_SPARK, NEEDS_SPARK
from twinbus.drill.scenarios import SCENARIOS
from twinbus.model import extras
from twinbus.model.extras import BRINGS, PACKAGES, MissingExtraError, install_command, missing, needing, require

ROOT = Path(__file__).parents[3]
DECLARED: dict[str, list[str]] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
    "optional-dependencies"
]


@pytest.fixture(autouse=True)
def from_an_index(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As if it had come from there, by the pip of this Python."""
    monkeypatch.setattr(extras, "__file__", str(tmp_path / "lib" / "twinbus" / "model" / "extras.py"))
    monkeypatch.setattr(extras, "_direct_url", dict)
    monkeypatch.setattr(shutil, "which", lambda name: str(Path(sys.executable).with_name(name)))


# The table


@pytest.mark.parametrize("module", PACKAGES)
def test_pyproject_has_the_package_in_the_extra(module: str) -> None:
    package, extra = PACKAGES[module]
    assert package in [re.split(r"[\[<>=~! ]", text)[0] for text in DECLARED[extra]]


def test_pyproject_has_the_extras_that_bring_others() -> None:
    found = {
        extra: tuple(text.removeprefix("twinbus[").removesuffix("]").split(","))
        for extra, texts in DECLARED.items()
        for text in texts
        if text.startswith("twinbus[") and extra in {package.extra for package in PACKAGES.values()}
    }
    assert found == BRINGS


def test_the_drills_by_spark_are_known_to_those_who_cannot_import_them() -> None:
    assert [name for name, one in SCENARIOS.items() if one.by_spark or one.needs_spark] == list(BY_SPARK)
    assert [name for name, one in SCENARIOS.items() if one.needs_spark] == list(NEEDS_SPARK)


# The sentence


@pytest.mark.parametrize(
    ("modules", "sentence"),
    [
        (["psycopg"], "This needs psycopg, which comes with the extra 'postgres': pip install 'twinbus[postgres]'"),
        (
            ["pyspark", "pyarrow", "azure.servicebus"],
            "This needs pyspark, pyarrow and azure-servicebus, which come with the extra 'spark': "
            "pip install 'twinbus[spark]'",
        ),
        (
            ["azure.servicebus", "psycopg"],
            "This needs azure-servicebus and psycopg, which come with the extras 'pair' and 'postgres': "
            "pip install 'twinbus[pair,postgres]'",
        ),
    ],
)
def test_one_sentence_names_packages_extras_and_the_command(modules: list[str], sentence: str) -> None:
    assert str(MissingExtraError(modules)) == sentence


def test_what_is_there_is_not_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert missing("psycopg", "azure.servicebus") == []
    require("psycopg", "azure.servicebus")
    monkeypatch.setitem(sys.modules, "psycopg", None)
    assert missing("psycopg", "azure.servicebus") == ["psycopg"]
    with pytest.raises(MissingExtraError, match="This needs psycopg,"):
        require("psycopg", "azure.servicebus")


def test_a_module_below_one_that_is_missing_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "azure"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "azure", None)
    assert missing("azure.servicebus") == ["azure.servicebus"]


def test_an_import_that_finds_nothing_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(MissingExtraError, match=r"^This needs psycopg, which comes with"), needing("psycopg"):
        import psycopg  # noqa: F401


def test_a_package_that_is_half_there_is_told_with_its_own_words() -> None:
    with pytest.raises(MissingExtraError) as told, needing("psycopg"):
        raise ImportError("no pq wrapper available.\nAttempts made: …")
    assert str(told.value) == (
        "This needs psycopg, which cannot be imported here (no pq wrapper available.), and comes with the extra"
        " 'postgres': pip install 'twinbus[postgres]'"
    )


def test_the_innermost_need_is_told() -> None:
    with pytest.raises(MissingExtraError, match="This needs pyarrow,"), needing("pyspark"), needing("pyarrow"):
        raise ImportError("broken")


def test_a_mistake_of_ours_stays_what_it_is() -> None:
    with pytest.raises(ImportError) as told, needing("pyspark"):
        from twinbus.model import nothing_of_that_name  # type: ignore[attr-defined] # noqa: F401
    assert not isinstance(told.value, MissingExtraError)


# The command


def directory(path: Path, **more: Any) -> dict[str, Any]:
    return {"url": path.as_uri(), "dir_info": more}


@pytest.mark.parametrize(
    ("origin", "source"),
    [
        ({}, "'twinbus[pair]'"),
        (
            {"url": "https://example.org/t.git", "vcs_info": {"vcs": "git", "commit_id": "c0ffee"}},
            "'twinbus[pair] @ git+https://example.org/t.git@c0ffee'",
        ),
        (
            {"url": "https://example.org/twinbus-1-py3-none-any.whl", "archive_info": {}},
            "'twinbus[pair] @ https://example.org/twinbus-1-py3-none-any.whl'",
        ),
        (directory(Path("/nowhere/any more")), "'twinbus[pair]'"),
        (directory(ROOT), f"'{ROOT}[pair]'"),
    ],
    ids=["index", "repository", "wheel", "directory that is gone", "directory"],
)
def test_the_command_names_where_this_copy_came_from(
    origin: dict[str, Any], source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(extras, "_direct_url", lambda: origin)
    assert install_command(["pair"]) == f"pip install {source}"


def test_a_directory_may_have_a_space_in_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my clone").mkdir()
    monkeypatch.setattr(extras, "_direct_url", lambda: directory(tmp_path / "my clone"))
    assert install_command(["pair", "java"]) == f"pip install '{tmp_path}/my clone[pair,java]'"


def test_in_a_clone_it_stays_editable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "__file__", str(ROOT / "src" / "twinbus" / "model" / "extras.py"))
    assert install_command(["pair"]) == f"pip install -e '{ROOT}[pair]'"


def test_another_pip_on_the_path_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    for found in ("/elsewhere/bin/pip", None):
        monkeypatch.setattr(shutil, "which", lambda name, found=found: found)
        assert install_command(["pair"]) == f"{sys.executable} -m pip install 'twinbus[pair]'"


def test_an_environment_without_pip_is_one_of_uv(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pip", None)
    monkeypatch.setattr(extras, "find_spec", lambda name: None)
    assert install_command(["pair"]) == f"uv pip install --python {sys.executable} 'twinbus[pair]'"
