"""The compatibility page is what the tests' own markers say now."""

from __future__ import annotations

from pathlib import Path

import pytest

from support import features

TEST = """
import pytest
{module}
class TestThings:
    {marker}
    async def test_a_thing_is_done(self) -> None: ...
"""


def test_the_page_is_current() -> None:
    assert features.PAGE.read_text() == features.page(), "run `make compatibility`"


@pytest.mark.parametrize(
    ("module", "marker"),
    [
        ('pytestmark = pytest.mark.feature("some-thing")', ""),
        ('pytestmark = [pytest.mark.slow, pytest.mark.feature("some-thing")]', ""),
        ('pytestmark = pytest.mark.feature("another")', '@pytest.mark.feature("some-thing-javascript")'),
    ],
)
def test_a_test_shows_what_its_nearest_marker_says(tmp_path: Path, module: str, marker: str) -> None:
    path = tmp_path / "test_rest_things.py"
    path.write_text(TEST.format(module=module, marker=marker))
    assert list(features.shown_by(path)) == [("some thing", "a thing is done", "HTTP")]


def test_a_test_without_a_marker_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "test_things.py"
    path.write_text(TEST.format(module="", marker=""))
    with pytest.raises(SystemExit, match="test_a_thing_is_done"):
        list(features.shown_by(path))
