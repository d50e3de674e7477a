"""`make test-clients`: the pair with older releases of azure-servicebus, each in an environment of its own.

An environment has the packages of .venv, but for that one (requirements/clients.toml). What a test shows is its own
matter.
"""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import time
import tomllib
import venv
from pathlib import Path

ROOT = Path(__file__).parents[1]
ENVIRONMENTS = ROOT / "build" / "clients"
# Both flavours through an outage and back; lists, batches, schedules, overlapped sends, outbox, ledger, traces.
TESTS = (
    "tests/unit/pair/test_classes.py",
    "tests/unit/pair/test_failures.py",
    "tests/unit/pair/test_tags.py",
    "tests/pair/test_closing.py",
    "tests/pair/test_description.py",
    "tests/pair/test_health.py",
    "tests/pair/test_observed.py",
    "tests/pair/test_outages.py",
    "tests/pair/test_overlapped.py",
    "tests/pair/test_sync.py",
    "tests/outbox/test_outbox.py",
    "tests/replication/test_receiving.py",
    "tests/replication/test_replication.py",
    "tests/replication/test_replication_sync.py",
)


def environment(version: str, sha256: str) -> Path:
    """The Python of an environment with this release; made anew each time, in seconds."""
    where = ENVIRONMENTS / version
    venv.create(where, clear=True, symlinks=True)
    pins = where / "pins.txt"
    pins.write_text(f"azure-servicebus=={version} --hash=sha256:{sha256}\n")
    python = where / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps", "--no-compile"]
    done = subprocess.run([*pip, "--require-hashes", "-r", str(pins)], stderr=subprocess.PIPE, text=True)
    if done.returncode:
        print(done.stderr, file=sys.stderr)
        sys.exit(f"azure-servicebus {version} could not be installed: does the package index answer?")
    (packages,) = (where / "lib").glob("python*/site-packages")
    # Behind the environment's own packages come those of .venv.
    (packages / "others.pth").write_text(f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n")
    return python


def problem_with(version: str, python: Path, words: list[str]) -> str | None:
    """What went wrong with a release; None if nothing did."""
    seen = "import azure.servicebus, twinbus.pair, twinbus.pair.aio; print(azure.servicebus.__version__)"
    found = subprocess.run([python, "-W", "error", "-c", seen], stdout=subprocess.PIPE, text=True)
    if found.stdout.strip() != version:
        return f"it cannot be imported without a warning, or is {found.stdout.strip() or 'not there'}"
    began = time.monotonic()
    pytest = [python, "-m", "pytest", "-q", "-n", "2", "--dist", "loadfile", "-m", "not alone"]
    code = subprocess.run([*pytest, *(words or TESTS)], cwd=ROOT).returncode
    print(f"== azure-servicebus {version}: {time.monotonic() - began:.0f} s", flush=True)
    return f"pytest ended with exit code {code}" if code else None


def main(words: list[str]) -> int:
    """Every older release, whatever became of those before it; `words` are tests to run instead."""
    problems = {}
    for version, release in tomllib.loads((ROOT / "requirements" / "clients.toml").read_text())["older"].items():
        print(f"\n== azure-servicebus {version}", flush=True)
        problems[version] = problem_with(version, environment(version, release["sha256"]), words)
    for version, problem in problems.items():
        print(f"azure-servicebus {version}: {problem or 'passed'}")
    return 1 if any(problems.values()) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
