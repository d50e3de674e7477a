"""Twinbus as `pip install twinbus` installs it, without any extra: an environment in which nothing else is found.

Making a virtual environment would take half a minute. So the packages of the extras stay where they are, and
`plain_site` hides them.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import tomllib
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement

PYPROJECT = Path(__file__).parents[2] / "pyproject.toml"
SITE = Path(__file__).with_name("plain_site.py")
# What is there in every virtual environment, and ourselves.
ALWAYS = {"pip", "twinbus", "pyspark_servicebus"}


def dependencies() -> list[str]:
    """What a plain installation requires, by pyproject.toml: metadata of an installation may be older."""
    found: list[str] = tomllib.loads(PYPROJECT.read_text())["project"]["dependencies"]
    return found


def modules_of(requirements: list[str]) -> set[str]:
    """The top-level modules of packages and of all that they need in turn."""
    modules: set[str] = set()
    seen: set[str] = set()
    waiting = [Requirement(text) for text in requirements]
    while waiting:
        wanted = waiting.pop()
        key = f"{re.sub(r'[-_.]+', '-', wanted.name).lower()}[{','.join(sorted(wanted.extras))}]"
        if key in seen:
            continue
        seen.add(key)
        try:
            found = distribution(wanted.name)
        except PackageNotFoundError:
            raise AssertionError(f"{wanted.name}, which pyproject.toml asks for, is not installed") from None
        modules |= {file.parts[0].split(".")[0] for file in found.files or () if file.parts[0] != ".."}
        for text in found.requires or ():
            needed = Requirement(text)
            extras = wanted.extras or {""}
            if needed.marker is None or any(needed.marker.evaluate({"extra": extra}) for extra in extras):
                waiting.append(needed)
    return modules


def environment(directory: Path) -> dict[str, str]:
    """The variables with which a Python process, and all that it starts, is without extras."""
    directory.mkdir()
    shutil.copy(SITE, directory / "sitecustomize.py")
    (directory / "allowed.json").write_text(json.dumps(sorted(modules_of(dependencies()) | ALWAYS)))
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("TWINBUS_", "PYTEST_"))}
    path = [str(directory), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**kept, "PYTHONPATH": os.pathsep.join(path)}
