"""What tests can do without: whoever needs a part that set-up left out is skipped, by name and with what to install.

requirements/optional.toml names the parts. A test asks for one with `needs`; for a Python package its import is enough,
at the head of a module, in a fixture or in a test.
"""

from __future__ import annotations

import importlib.abc
import inspect
import shutil
import sys
import tomllib
from collections.abc import Sequence
from functools import cache
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

import pytest

ROOT = Path(__file__).parents[2]
JS = ROOT / "tests" / "compat" / "js"
LEFT_OUT = Path(sys.prefix) / "left-out"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")


@cache
def parts() -> dict[str, dict[str, Any]]:
    """The parts by name, as requirements/optional.toml describes them."""
    return tomllib.loads((ROOT / "requirements" / "optional.toml").read_text())


def chromium() -> str | None:
    """Where the system's browser is."""
    return next((path for name in BROWSERS if (path := shutil.which(name))), None)


def is_there(name: str) -> bool:
    """Whether a part can be used."""
    if name == "node":
        return shutil.which("node") is not None and (JS / "node_modules" / ".package-lock.json").exists()
    if name == "postgres" and (LEFT_OUT / name).exists():
        return False  # It is installed and does not start here.
    found = all(map(_is_installed, parts()[name]["modules"]))
    return found and not (name == "browser" and chromium() is None)


def _is_installed(module: str) -> bool:
    return any(finder.find_spec(module, None) for finder in sys.meta_path if not isinstance(finder, SkippingFinder))


def needs(name: str) -> None:
    """Skip the test, or the module that is just imported, if a part is not there."""
    if not is_there(name):
        skip(name)


def skip(name: str) -> NoReturn:
    """Skip the test, or the module that is just imported, and say which."""
    pytest.skip(f"{_module_being_imported()}{reason(name)}", allow_module_level=True)


def reason(name: str) -> str:
    """What is missing, how to have it, and why set-up left it out."""
    sentence = f"needs {parts()[name]['what']}: {parts()[name]['to_have']}"
    file = LEFT_OUT / name
    return f"{sentence} (left out: {file.read_text().splitlines()[0]})" if file.exists() else sentence


def _module_being_imported() -> str:
    """The file that pytest collects right now; nothing when a test or a fixture runs."""
    for frame in inspect.stack(0):
        path = Path(frame.filename)
        if frame.function == "<module>" and path.name.startswith("test_"):
            return f"{path.relative_to(ROOT)} "
    return ""


class SkippingFinder(importlib.abc.MetaPathFinder):
    """Asked last for a module, so only for one that is not there; one of an optional part skips the test."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        for name, part in parts().items():
            if fullname in part["modules"]:
                skip(name)
        return None


def skip_on_import() -> None:
    """From now on, importing a package of a part that was left out skips whoever does it."""
    if not any(isinstance(finder, SkippingFinder) for finder in sys.meta_path):
        sys.meta_path.append(SkippingFinder())
