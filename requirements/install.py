"""Installs into .venv what the targets of the Makefile need, from pins with hashes, and shows how far it is.

    python3 requirements/install.py drill      what a drill needs: Twinbus with pair, Spark and Java
    python3 requirements/install.py dev        the test runner, linters and types, on top of it
    python3 requirements/install.py optional   what only some tests need: optional.toml; never fails

It needs the standard library alone, and root only for system packages, which it asks apt-get for where it may. Nothing
is written outside the clone: caches of pip and npm in the home directory are used if they are there, and never made.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import tomllib
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PINS = ROOT / "requirements"
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
JS = ROOT / "tests" / "compat" / "js"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
# For one optional part. A registry that is slower has its part left out: `make setup LIMIT_S=3000` waits longer.
LIMIT_S = float(os.environ.get("LIMIT_S", "300"))
TICK_S = 0.5
LOG_LINE_EVERY_S = 10
ERROR_LINES = 25
# What pip prints when all is well.
_USUAL = re.compile(
    r"\s*(Collecting|Downloading|Using cached|Requirement already|Obtaining|Preparing|Checking|Saved|$)"
)


class SetupError(Exception):
    """A command did not do what it should: a reason in one line, and what it printed."""

    def __init__(self, reason: str, output: list[str] | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.output = output or []

    def details(self) -> str:
        """The end of what the command printed, without what it prints when all is well."""
        return "\n".join([line for line in self.output if not _USUAL.match(line)][-ERROR_LINES:])


class Progress:
    """How far it is: on a terminal one line, written over and over; in a log file a line every ten seconds."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.at = "begins"
        self._began = time.monotonic()
        self._terminal = sys.stdout.isatty()
        self._next_line_s = LOG_LINE_EVERY_S
        if not self._terminal:
            print(f"{title} ...", flush=True)

    def tick(self) -> None:
        """Show it, if it is time to."""
        spent = time.monotonic() - self._began
        if self._terminal:
            line = f"{self.title}: {self.at}, {spent:.0f} s"
            print(f"\r\033[K{line[: shutil.get_terminal_size().columns - 1]}", end="", flush=True)
        elif spent >= self._next_line_s:
            print(f"    {spent:.0f} s: {self.at}", flush=True)
            self._next_line_s = spent + LOG_LINE_EVERY_S

    def end(self, how: str) -> None:
        """The last line."""
        self.say(f"{self.title}: {how} after {time.monotonic() - self._began:.0f} s")

    def say(self, line: str) -> None:
        """A line that stays."""
        print(f"\r\033[K{line}" if self._terminal else line, flush=True)


class Share(Progress):
    """How far one of several things is that are done at the same time. They have one line together."""

    def __init__(self, title: str, whole: Progress, shares: list[Share]) -> None:
        self.title, self.at = title, "begins"
        self._whole, self._shares = whole, shares
        shares.append(self)

    def tick(self) -> None:
        """Show all of them."""
        self._whole.at = "; ".join(f"{share.title}: {share.at}" for share in list(self._shares))
        self._whole.tick()

    def end(self, how: str) -> None:
        """What became of it, in whole lines."""
        self._shares.remove(self)
        self._whole.say(how)


class Limit:
    """The time of one part, without what it waits for others."""

    def __init__(self, limit_s: float = LIMIT_S) -> None:
        self.until = time.monotonic() + limit_s

    @contextmanager
    def alone(self, lock: threading.Lock) -> Iterator[None]:
        """One after another: there is one pip for an environment, and one apt-get for a system."""
        began = time.monotonic()
        with lock:
            self.until += time.monotonic() - began
            yield


_PIP, _APT = threading.Lock(), threading.Lock()
_cut_off = threading.Event()  # Somebody has ended us; what runs in other threads shall end, too.


def run(
    command: list[str | Path],
    progress: Progress,
    *,
    limit: Limit | None = None,
    stage: Callable[[str], str | None] = lambda line: None,
    env: Mapping[str, str] | None = None,
    cwd: Path = ROOT,
) -> None:
    """Run a command to its end and show that it does something; a SetupError if it fails or takes too long."""
    output: list[str] = []
    process = subprocess.Popen(
        command,
        cwd=cwd,
        env={**os.environ, **(env or {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,  # So that what it starts ends with it.
    )

    def read() -> None:
        assert process.stdout is not None
        for line in process.stdout:
            output.append(line.rstrip())
            progress.at = stage(line) or progress.at

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    try:
        while process.poll() is None:
            if _cut_off.is_set():
                raise SetupError(f"{_named(command)} was cut off", output)
            if limit is not None and time.monotonic() > limit.until:
                raise SetupError(f"{_named(command)} was not done after {LIMIT_S:.0f} s", output)
            progress.tick()
            try:
                process.wait(TICK_S)
            except subprocess.TimeoutExpired:
                continue
    finally:
        if process.poll() is None:
            with suppress(PermissionError):  # What sudo started is not ours.
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        reader.join(TICK_S)
        if not reader.is_alive() and process.stdout is not None:
            process.stdout.close()
    if process.returncode != 0:
        raise SetupError(_reason(command, output, process.returncode), output)


def _named(command: list[str | Path]) -> str:
    """The two words that say what it is: `pip install`, `npm ci`, `apt-get update`."""
    words = [Path(word).name for word in command if not re.match(r"-|\d|sudo$|timeout$|env$|.*=|.*/python", str(word))]
    return " ".join(words[:2])


def _reason(command: list[str | Path], output: list[str], status: int) -> str:
    """One line: why it failed, as far as its output says so."""
    refused = [line for line in output if "Retrying (" in line]
    # npm says what it means in a line after its codes.
    errors = [line for line in output if re.match(r"\s*(ERROR:|npm error (?!code|errno|syscall)|E:|error:) ?", line)]
    said = next(iter(errors or [line for line in reversed(output) if line.strip()]), f"it ended with {status}")
    if refused:
        said = f"the package index did not answer ({said.strip()})"
    return f"{_named(command)}: {said.strip()}"


# pip


def pip_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Settings for pip: which cache to use, and how to build a wheel quickly."""
    settings = {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "DIST_EXTRA_CONFIG": str(PINS / "build.cfg")}
    home = Path(environment.get("HOME", "/"))
    caches = Path(environment.get("XDG_CACHE_HOME") or home / ".cache")
    if not {"PIP_CACHE_DIR", "PIP_NO_CACHE_DIR"} & environment.keys() and not (caches / "pip").is_dir():
        settings["PIP_NO_CACHE_DIR"] = "1"  # There is none, and we make none.
    if "RUSTUP_HOME" not in environment and not (home / ".rustup").is_dir():
        settings["RUSTUP_HOME"] = str(VENV / "rustup")  # pip asks rustc for its version: a folder of rustup.
    return settings


class Pip:
    """The pip of .venv; as long as it has none, the pip of the Python that made it."""

    def __init__(self, progress: Progress, limit: Limit | None = None) -> None:
        self._progress = progress
        self._limit = limit or Limit(float("inf"))

    def install(self, *words: str) -> None:
        """Without byte code, which Python makes by itself of the tenth that is used."""
        names = [name for word in words if word.endswith(".txt") for name in pinned(Path(word).read_text())]
        seen: list[str] = []

        def stage(line: str) -> str | None:
            if collected := re.match(r"(?:Collecting|Requirement already satisfied:) ([\w.-]+)", line):
                seen.append(collected[1])
                return f"{collected[1]}, {min(len(seen), len(names))} of {len(names)}" if names else collected[1]
            if built := re.match(r"\s*Building (?:wheel|editable) for ([\w.-]+)", line):
                return f"builds {built[1]}"
            return "copies files" if line.startswith("Installing collected") else None

        own = (VENV / "bin" / "pip").exists()
        pip = [PYTHON, "-m", "pip"] if own else [outer_python(), "-m", "pip", "--python", PYTHON]
        options = ["install", "--no-compile", "--progress-bar", "off", "--no-build-isolation"]
        with self._limit.alone(_PIP):
            run(
                [*pip, *options, *words],
                self._progress,
                limit=self._limit,
                stage=stage,
                env=pip_environment(os.environ),
            )

    def install_pins(self, name: str) -> None:
        """Everything that a file of pins names."""
        self.install("--require-hashes", "-r", str(PINS / f"{name}.txt"))


def pinned(text: str) -> set[str]:
    """The packages of a file of pins."""
    return set(re.findall(r"(?m)^([\w.-]+)==", text))


# The virtual environment


def make_environment(progress: Progress) -> None:
    """A virtual environment in .venv, unless there is one that works; the first pins bring its own pip."""
    progress.at = "makes a virtual environment"
    python = outer_python()
    if works(PYTHON, "-m", "pip", "--version"):
        return
    if has_pip(python):
        run([python, "-m", "venv", "--without-pip", VENV], progress)
        return
    if not works(python, "-c", "import ensurepip; ensurepip.version()"):
        package = f"python{sys.version_info[0]}.{sys.version_info[1]}-venv"
        try:
            apt_get([package], progress, Limit(), of_python=True)
        except SetupError as problem:
            raise SetupError(
                f"{python} can make no virtual environment, since it has neither pip nor ensurepip: {problem.reason}."
                f" Install {package} (its name in Debian), or name another Python with: make PYTHON=/path/to/python3",
                problem.output,
            ) from None
    run([python, "-m", "venv", VENV], progress)


def outer_python() -> str:
    """The Python that runs this; if that is the one of .venv, because somebody has activated it, the one beneath."""
    return sys.executable if sys.prefix != str(VENV) else getattr(sys, "_base_executable", sys.executable)


def works(*command: str | Path) -> bool:
    """Whether a command can be run and ends well."""
    try:
        return subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL, check=False).returncode == 0
    except OSError:
        return False


def has_pip(python: str) -> bool:
    """Whether a Python has a pip that can install for another one: it can since 22.3."""
    return works(python, "-m", "pip", "--python", python, "--version")


# System packages


def apt_get(packages: list[str], progress: Progress, limit: Limit, *, of_python: bool = False) -> None:
    """Install system packages, as root or with a sudo that asks for no password; a SetupError says why not."""
    missing = f"{', '.join(packages)} {'is' if len(packages) == 1 else 'are'} not installed"
    if of_python and sys.base_prefix != "/usr":
        raise SetupError(f"{missing}, and the Python at {sys.base_prefix} is not the system's")
    if shutil.which("apt-get") is None:
        raise SetupError(f"{missing}, and there is no apt-get here")
    as_root = [] if os.geteuid() == 0 else ["sudo", "-n"]
    if as_root and not works(*as_root, "true"):
        raise SetupError(f"{missing}, and apt-get needs root")
    progress.at = f"apt-get installs {', '.join(packages)}"
    options = ["-qq", "-o", "Acquire::Retries=1", "-o", "Acquire::http::Timeout=20", "-o", "DPkg::Lock::Timeout=60"]
    apt: list[str | Path] = ["env", "DEBIAN_FRONTEND=noninteractive", "apt-get", *options]
    install: list[str | Path] = [*apt, "install", "-y", "--no-install-recommends"]
    with limit.alone(_APT):
        # Only what downloads has a limit of time, as dpkg must not be killed; and root's own, as we may not kill it.
        limited: list[str | Path] = [*as_root, "timeout", f"{max(1.0, limit.until - time.monotonic()):.0f}"]
        with suppress(SetupError):  # One source of many may not answer.
            run([*limited, *apt, "update"], progress)
        run([*limited, *install, "--download-only", *packages], progress)
        run([*as_root, *install, *packages], progress)


def without_compiler() -> tuple[list[str], bool]:
    """The Debian packages that building python-qpid-proton lacks here, and whether one is a part of Python."""
    header = "import os, sysconfig; os.stat(os.path.join(sysconfig.get_path('include'), 'Python.h'))"
    of_python = not works(PYTHON, "-c", header)
    packages = [f"python{sys.version_info[0]}.{sys.version_info[1]}-dev"] if of_python else []
    if not (shutil.which("cc") or shutil.which("gcc")):
        packages += ["gcc", "libc6-dev"]
    if not shutil.which("pkg-config"):
        packages.append("pkg-config")
    if not works("pkg-config", "--exists", "openssl"):
        packages.append("libssl-dev")
    return packages, of_python


def without_browser() -> list[str]:
    """The Debian package that is missing when there is no Chromium."""
    return [] if any(map(shutil.which, BROWSERS)) else ["chromium"]


# The optional parts


def install_proton(progress: Progress, limit: Limit) -> None:
    """Built from source; the headers and tools that Python packages bring are there already."""
    packages, of_python = without_compiler()
    if packages:
        apt_get(packages, progress, limit, of_python=of_python)
    Pip(progress, limit).install_pins("proton")


def install_node(progress: Progress, limit: Limit) -> None:
    """Node.js from a wheel, and with its npm the packages of tests/compat/js."""
    Pip(progress, limit).install_pins("node")
    progress.at = "npm installs the JavaScript clients"
    scratch = VENV / "npm"
    environment = npm_environment(os.environ, scratch)
    command: list[str | Path] = [VENV / "bin" / "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
    try:
        run([*command, "--loglevel=error"], progress, limit=limit, env=environment, cwd=JS)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def npm_environment(environment: Mapping[str, str], scratch: Path) -> dict[str, str]:
    """Settings for npm: where its files go if the home directory has no place for them yet."""
    settings = {
        "PATH": f"{VENV / 'bin'}{os.pathsep}{environment.get('PATH', os.defpath)}",
        "npm_config_update_notifier": "false",
    }
    if "npm_config_fetch_retries" not in environment:
        settings |= {"npm_config_fetch_retries": "1", "npm_config_fetch_retry_mintimeout": "1000"}
    named = any(name.lower() == "npm_config_cache" for name in environment)
    if not named and not (Path(environment.get("HOME", "/")) / ".npm").is_dir():
        settings["npm_config_cache"] = str(scratch)
    return settings


def install_browser(progress: Progress, limit: Limit) -> None:
    """What drives the browser, from a wheel; then the browser itself, from the system."""
    Pip(progress, limit).install_pins("browser")
    if packages := without_browser():
        apt_get(packages, progress, limit)


def install_postgres(progress: Progress, limit: Limit) -> None:
    """A server from a wheel, and one start of it, to see that it runs here."""
    Pip(progress, limit).install_pins("postgres")
    progress.at = "starts PostgreSQL once"
    start = "from support.postgres import PostgresServer; PostgresServer().start().remove()"
    run([PYTHON, "-c", start], progress, limit=limit, env={"PYTHONPATH": str(ROOT / "tests")})


# At the same time; where they wait for each other, in this order: what is built comes last.
PARTS: dict[str, Callable[[Progress, Limit], None]] = {
    "postgres": install_postgres,
    "browser": install_browser,
    "node": install_node,
    "proton": install_proton,
}


def is_installed(name: str) -> bool:
    """Whether a part is there as its pins want it."""
    done = VENV / "parts" / name
    there = done.is_file() and done.read_text() == _digest(name)
    if name == "node":
        return there and (JS / "node_modules" / ".package-lock.json").is_file()
    return there and not (name == "browser" and without_browser())


def _digest(name: str) -> str:
    files = [PINS / f"{name}.txt", *([JS / "package-lock.json"] if name == "node" else [])]
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()


def install_optional() -> None:
    """Try every part that is not there; what cannot be had is written down and left out."""
    described = tomllib.loads((PINS / "optional.toml").read_text())
    for folder in ("parts", "left-out"):
        (VENV / folder).mkdir(exist_ok=True)
    missing = [name for name in PARTS if not is_installed(name)]
    if not missing:
        return
    whole = Progress(f"Installing {', '.join(described[name]['what'] for name in missing)}")
    shares: list[Share] = []
    with ThreadPoolExecutor(len(missing)) as pool:
        trying = [pool.submit(_try, name, described[name], Share(name, whole, shares)) for name in missing]
        try:
            for each in trying:
                each.result()
        except BaseException:
            _cut_off.set()
            raise
    whole.end("done")


def _try(name: str, described: Mapping[str, str], progress: Share) -> None:
    left_out = VENV / "left-out" / name
    left_out.unlink(missing_ok=True)
    try:
        PARTS[name](progress, Limit())
    except SetupError as problem:
        left_out.write_text(f"{problem.reason}\n\n{problem.details()}\n")
        progress.end(
            f"Left out: {described['what']}, because {problem.reason}.\n"
            f"    Tests that need it are skipped. To have it: {described['to_have']}."
        )
    else:
        (VENV / "parts" / name).write_text(_digest(name))
        progress.end(f"    {described['what']}: done")


@contextmanager
def archive_of_classes() -> Iterator[None]:
    """Beside something that mostly waits: what lets Spark start in half the time in tests (tests/support says how).

    Nothing depends on it, so nobody is told when it cannot be made.
    """
    making = subprocess.Popen(
        [PYTHON, ROOT / "tests" / "support" / "java_archive.py"],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield
        with suppress(subprocess.TimeoutExpired):
            making.wait(LIMIT_S)
    finally:
        if making.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(making.pid, signal.SIGKILL)
            making.wait()


# What must be there


def install_drill(progress: Progress) -> None:
    """What a drill needs, and nothing else."""
    make_environment(progress)
    pip = Pip(progress)
    pip.install_pins("build")
    pip.install_pins("drill")
    pip.install("--no-deps", "-e", str(ROOT))


def install_dev(progress: Progress) -> None:
    """What `make check` needs besides, and most tests."""
    Pip(progress).install_pins("dev")


REQUIRED: dict[str, tuple[str, Callable[[Progress], None]]] = {
    "drill": ("Installing what a drill needs into .venv", install_drill),
    "dev": ("Installing what tests and linters need into .venv", install_dev),
}


def main(what: str) -> int:
    """Install one of the three; 1 if something that must be there cannot be."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # So that commands in their own sessions are ended.
    if what == "optional":
        with archive_of_classes():
            install_optional()
        return 0
    title, install = REQUIRED[what]
    progress = Progress(title)
    try:
        install(progress)
    except SetupError as problem:
        progress.end("failed")
        print(f"{problem.details()}\n{problem.reason}".strip(), file=sys.stderr)
        return 1
    progress.end("done")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
