"""Writes docs/compatibility.md from the marker `feature` of the compatibility tests, so that the page cannot flatter.

`python tests/support/features.py` writes it; a unit test compares. What a test shows is its own name; whether it
passes, the test run says. The tests are read and not imported, so that this takes no time.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
COMPAT = ROOT / "tests" / "compat"
PAGE = ROOT / "docs" / "compatibility.md"

PYTHON, JAVASCRIPT, AMQP, HTTP, OURS = "azure-servicebus", "@azure/service-bus", "any AMQP 1.0", "HTTP", "twinbus"
HYBRID, BROWSER = "hyco-https, hyco-ws", "Chromium"
CLIENTS = (PYTHON, JAVASCRIPT, AMQP, HTTP, HYBRID, BROWSER, OURS)
# Whose behaviour a module judges, by a word of its name; the official Python client's if there is none of these.
_WORDS = {"javascript": JAVASCRIPT, "proton": AMQP, "rest": HTTP, "cli": OURS, "client": OURS, "config": OURS}
_WORDS |= {"clients": OURS, "relay": HTTP}
# These have one of the words, or two, and mean another client.
_MODULES = {"test_relay_javascript": HYBRID, "test_relay_browser": BROWSER}
_MODULES["test_relay_streaming"] = OURS
# Tests about the tests, which show nothing of the broker.
_OF_THEMSELVES = {"test_every_file_is_run_and_no_name_is_used_twice", "test_node_ends_when_its_tests_do"}
# One test stands for all those in files of node's own; which file shows what, the module says in this table.
_TABLE = "FILES"

HEAD = """\
# What is compatible, and what shows it

Made by `make compatibility` from the tests in `tests/compat`: each line is a test that `make test` runs against a
broker process. What is not here was not tried. The columns are the clients, none of which was changed for it:
`azure-servicebus` (Python, its blocking and its asynchronous flavour), `@azure/service-bus` (JavaScript), an AMQP 1.0
client that knows nothing of Service Bus (Apache Qpid Proton), plain HTTP requests and WebSockets, the published clients
of Hybrid Connections (JavaScript), a browser's own WebSocket and fetch, and our own commands and client libraries.
"""


class Shown(NamedTuple):
    """One thing that a test shows."""

    feature: str
    behaviour: str
    client: str


def page() -> str:
    """The page as the tests have it now."""
    by_feature: defaultdict[str, dict[Shown, None]] = defaultdict(dict)
    for path in sorted(COMPAT.glob("test_*.py")):
        for shown in shown_by(path):
            by_feature[shown.feature][shown] = None
    lines = [HEAD, f"| feature | {' | '.join(CLIENTS)} |", "|---|" + "--:|" * len(CLIENTS)]
    for feature, all_shown in sorted(by_feature.items()):
        counts = [sum(shown.client == client for shown in all_shown) for client in CLIENTS]
        anchor = feature.lower().replace(":", "").replace(" ", "-")  # As GitHub makes it of the heading.
        lines.append(f"| [{feature}](#{anchor}) | {' | '.join(str(count or '') for count in counts)} |")
    for feature, all_shown in sorted(by_feature.items()):
        lines += ["", f"## {feature}", ""]
        lines += [f"- {shown.behaviour} ({shown.client})" for shown in all_shown]
    return "\n".join(lines) + "\n"


def shown_by(path: Path) -> Iterator[Shown]:
    """What the tests of one file show; a test that does not say of which feature is refused."""
    module = ast.parse(path.read_text(), path.name)
    client = next((who for word, who in _WORDS.items() if word in path.stem.split("_")), PYTHON)
    client = _MODULES.get(path.stem, client)
    assigned = {
        target.id: node.value
        for node in module.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    everywhere = _feature_in([assigned["pytestmark"]]) if "pytestmark" in assigned else None
    if everywhere is None and _TABLE in assigned:
        for file, feature in ast.literal_eval(assigned[_TABLE]).items():
            text = (path.parent / "js" / f"{file}.test.mjs").read_text()
            for sentence in re.findall(r'^ +test\("(.+?)",', text, re.MULTILINE):
                yield Shown(_named(feature), sentence, client)
        return
    for function, feature in _tests(module.body, everywhere):
        if function in _OF_THEMSELVES:
            continue
        if feature is None:
            raise SystemExit(f"{path.name}: {function} does not say which feature it shows.")
        yield Shown(_named(feature), function.removeprefix("test_").replace("_", " "), client)


def _tests(body: list[ast.stmt], inherited: str | None) -> Iterator[tuple[str, str | None]]:
    """The tests among statements, those of classes included, each with its feature."""
    for node in body:
        if isinstance(node, ast.ClassDef) and node.name.startswith("Test"):
            yield from _tests(node.body, _feature_in(node.decorator_list) or inherited)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            yield node.name, _feature_in(node.decorator_list) or inherited


def _feature_in(marks: Iterable[ast.expr]) -> str | None:
    """The feature that decorators, or a mark or a list of marks, name."""
    for mark in marks:
        for node in ast.walk(mark):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.feature":
                return str(ast.literal_eval(node.args[0]))
    return None


def _named(feature: str) -> str:
    """Features have one name for all clients."""
    return feature.removesuffix("-javascript").replace("-", " ")


if __name__ == "__main__":
    PAGE.write_text(page())
