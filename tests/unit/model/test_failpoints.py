"""Failpoints: each is where the table says, nothing else is armed, and what is armed happens when it should."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

import pytest

import twinbus
from twinbus.model import failpoints
from twinbus.model.failpoints import FAILPOINTS, arm, armed, disarm, failpoint

SOURCE = Path(twinbus.__file__).parent
NAME = "store.commit.before_sync"


def used() -> dict[str, list[str]]:
    """The modules that have each failpoint, once for each time."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in sorted(SOURCE.rglob("*.py")):
        if "failpoint(" not in (text := path.read_text()):
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "failpoint":
                [name] = node.args
                assert isinstance(name, ast.Constant), f"{path}: a failpoint is named where it is"
                found[name.value].append(path.relative_to(SOURCE).as_posix())
    return found


def test_each_is_used_once_in_each_module_that_the_table_names_and_nowhere_else() -> None:
    assert {name: sorted(modules) for name, modules in used().items()} == {
        name: sorted(point.modules) for name, point in FAILPOINTS.items()
    }


@pytest.mark.parametrize("name", ["", "store.commit", "store.commit.before_synch"])
def test_a_name_that_no_place_has_is_refused(name: str) -> None:
    for change in (lambda: arm(name, print), lambda: disarm(name)):
        with pytest.raises(ValueError, match=f"no failpoint '{name}': they are store.open, "):
            change()


def test_nothing_happens_where_nothing_is_armed() -> None:
    failpoint(NAME)
    with armed("store.checkpoint", lambda: pytest.fail("another place")):
        failpoint(NAME)
    failpoint("store.checkpoint")
    assert failpoints._armed == {}


def test_an_action_is_done_each_time_or_the_nth_time_only() -> None:
    done: list[str] = []
    with armed(NAME, lambda: done.append("each")):
        failpoint(NAME)
        failpoint(NAME)
    with armed(NAME, lambda: done.append("second"), nth=2):
        failpoint(NAME)
        assert done == ["each", "each"]
        failpoint(NAME)
        failpoint(NAME)
    assert done == ["each", "each", "second"]
    with pytest.raises(ValueError, match="the first time is 1"):
        arm(NAME, print, nth=0)


def test_it_is_disarmed_also_when_it_raises() -> None:
    with pytest.raises(OSError, match="full"), armed(NAME, fail):
        failpoint(NAME)
    failpoint(NAME)


def fail() -> None:
    raise OSError("full")


def test_the_documentation_has_them_all() -> None:
    page = (SOURCE.parents[1] / "docs" / "faults.md").read_text()
    assert [name for name, point in FAILPOINTS.items() if f"| `{name}` | {point.meaning} |" not in page] == []
