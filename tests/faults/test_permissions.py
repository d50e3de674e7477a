"""Files that the broker's user may not read or write, and one directory under two paths: named, and nothing is changed.

Root may do everything, so that a broker of root's gives up that right first.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from faults.test_files import ask, contents, is_all_there, killed, prepared, refusal, states, stores
from support.broker import BrokerProcess
from support.disks import copy_data
from support.forking import OBEYS_RIGHTS, run_twinbus

__all__ = ["killed", "prepared"]

Prepared = tuple[Path, dict[str, list[str]]]
RESERVES = ("catalog.db.reserve", "store-2.db.reserve")


class Somebody:
    """A broker whose user may not do everything."""

    def __init__(self, place: Path) -> None:
        self.broker = BrokerProcess(place, options=("--no-console",))
        self.environment = self.broker.environment = {OBEYS_RIGHTS: "1"}

    def take(self, directory: Path) -> None:
        """Have a copy of a namespace, with what is laid aside, empty."""
        copy_data(directory, self.broker.data)
        for name in RESERVES:
            (self.broker.data / name).touch()

    def verify(self) -> subprocess.CompletedProcess[str]:
        done = run_twinbus(["verify", str(self.broker.data)], {**os.environ, **self.environment}, timeout_s=60)
        assert "Traceback" not in done.stderr
        assert done.returncode != 70, done.stderr
        return done


@pytest.fixture
def somebody(tmp_path: Path) -> Iterator[Somebody]:
    made = Somebody(tmp_path)
    yield made
    made.broker.kill()
    made.broker.data.chmod(0o700)


REFUSED = [
    (".", 0o400, "cannot be used: Permission denied"),
    (".", 0o500, "no file can be made in"),
    ("lock", 0o000, "cannot be used: Permission denied"),
    ("catalog.db", 0o000, "cannot be read by the user that runs this"),
    ("catalog.db", 0o400, "cannot be written by the user that runs this"),
    ("catalog.db-wal", 0o400, "catalog.db-wal cannot be written"),
    ("catalog.db.reserve", 0o400, "Room for a full disk cannot be laid aside"),
]


def test_a_namespace_that_may_not_be_used_is_refused(somebody: Somebody, killed: Prepared) -> None:
    directory, log = killed
    broker = somebody.broker
    somebody.take(directory)
    before = contents(broker)
    for name, mode, word in REFUSED:
        path = broker.data / name
        was, length = path.stat().st_mode, len(broker.log)
        path.chmod(mode)
        if mode == 0 or name == ".":
            assert somebody.verify().returncode in (0, 2)
        refusal(broker)
        said = " ".join(broker.log[length:].split())
        path.chmod(was)
        assert word in said, f"{name}, {mode:o}"
        assert contents(broker) == before, f"{name}, {mode:o}"
    is_all_there(broker.start(), log)


def test_stores_that_may_not_be_used_are_named(somebody: Somebody, prepared: Prepared) -> None:
    directory, log = prepared
    broker = somebody.broker
    somebody.take(directory)
    harmed = {"store-0.db": 0o000, "store-1.db": 0o400, "store-2.db.reserve": 0o000}
    before = {name: (broker.data / name).read_bytes() for name in ("store-0.db", "store-1.db", "store-2.db")}
    for name, mode in harmed.items():
        (broker.data / name).chmod(mode)
    verified = somebody.verify()
    assert (verified.returncode, "store-0.db cannot be read" in verified.stderr) == (2, True)
    broker.start()
    assert states(broker) == ["failed", "failed", "failed", "up"]
    reasons = [store["reason"] for store in stores(broker)]
    assert "store-0.db cannot be read by the user that runs this" in reasons[0]
    assert "store-1.db cannot be written by the user that runs this" in reasons[1]
    assert "store-2.db.reserve: Permission denied" in reasons[2]
    for name in harmed:
        (broker.data / name).chmod(0o600)
    assert {name: (broker.data / name).read_bytes() for name in before} == before
    for number in range(3):
        ask(broker, "POST", f"stores/{number}/up", {})
    is_all_there(broker, log)


# Paths


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[Callable[..., Path]]:
    """Another path of a directory; a test is skipped where that is not allowed."""
    made: list[Path] = []

    def mount(directory: Path, *options: str) -> Path:
        path = tmp_path / f"path-{len(made)}"
        path.mkdir()
        done = subprocess.run(["mount", "--bind", directory, path], capture_output=True, text=True)
        if done.returncode:
            pytest.skip(f"a directory cannot be mounted at a second path here: {done.stderr.strip()}")
        made.append(path)
        for option in options:
            subprocess.run(["mount", "-o", f"remount,bind,{option}", path], check=True)
        return path

    yield mount
    for path in reversed(made):
        subprocess.run(["umount", "--lazy", path], check=True)


def test_a_directory_under_two_paths_is_served_once(
    prepared: Prepared, mounted: Callable[..., Path], tmp_path: Path
) -> None:
    broker = BrokerProcess(tmp_path / "one", options=("--no-console",))
    copy_data(prepared[0], broker.data)
    with broker:
        linked = BrokerProcess(tmp_path / "two", options=("--no-console",))
        linked.data.symlink_to(broker.data)
        assert "Another process is using the data directory" in refusal(linked)
        other = BrokerProcess(tmp_path / "three", options=("--no-console",))
        other.data = mounted(broker.data)
        assert "Another process is using the data directory" in refusal(other)
        done = run_twinbus(["verify", str(other.data)], os.environ, timeout_s=60)
        assert "A broker is using" in done.stderr
        is_all_there(broker, prepared[1])


def test_a_read_only_disk_is_named_and_can_be_verified(
    killed: Prepared, mounted: Callable[..., Path], tmp_path: Path
) -> None:
    broker = BrokerProcess(tmp_path / "one", options=("--no-console",))
    copy_data(killed[0], broker.data)
    before = contents(broker)
    directory, broker.data = broker.data, mounted(broker.data, "ro")
    assert "Read-only file system" in refusal(broker)
    assert "whole." in run_twinbus(["verify", str(broker.data)], os.environ, timeout_s=60).stdout
    assert contents(broker) == before
    broker.data = directory
    with broker:
        is_all_there(broker, killed[1])
