"""docs/store.md has every check, in the words of the table."""

from __future__ import annotations

from pathlib import Path

from twinbus.store.verification.checks import CHECKS

PAGE = Path(__file__).parents[3] / "docs" / "store.md"


def test_the_page_has_every_check_and_no_other() -> None:
    text = PAGE.read_text()
    section = text[text.index("## Verify") : text.index("## Rules")]
    table = section[: section.index("What carries a checksum")]
    written = [line for line in table.splitlines() if line.startswith("| `")]
    assert written == [f"| `{check.name}` | {check.reads} | {check.means} |" for check in CHECKS.values()]
