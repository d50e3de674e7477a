"""A backup or a restore that is cut off: killed at any step, or out of room in the middle.

What is left is never taken for a whole copy, says what to do, and the namespace that was copied has all its messages.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from faults.test_files import QUEUES, contents, is_all_there, refusal, send
from support.broker import BrokerProcess
from support.disks import fill_up, small_disk
from twinbus.broker import copying
from twinbus.broker.copying import CopyFailedError, Source, back_up, restore
from twinbus.broker.settings import SettingsError
from twinbus.broker.verifying import files_in, opened_files, verify_directory

__all__ = ["small_disk"]

Log = dict[str, list[str]]


class Cut:
    """A watcher that does something in the middle of the n-th step."""

    def __init__(self, act: Callable[[], object], at: int) -> None:
        self._act = act
        self._left = at

    def begin(self, what: str, total: int) -> None:
        self.advance(0)

    def advance(self, by: int) -> None:
        self._left -= 1
        if self._left == 0:
            self._act()


class Quiet(Cut):
    def __init__(self) -> None:
        super().__init__(lambda: None, 0)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> tuple[BrokerProcess, Log]:
    """A namespace that was stopped, and what was accepted there."""
    with BrokerProcess(tmp_path_factory.mktemp("prepared"), options=("--no-console",)) as broker:
        for queue in QUEUES:
            broker.create_queue(queue)
        log = send(broker, QUEUES, "first")
        assert broker.stop() == 0
    return broker, log


@pytest.fixture(scope="module")
def whole(prepared: tuple[BrokerProcess, Log], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A backup of it."""
    destination = tmp_path_factory.mktemp("whole") / "backup"
    copy(prepared[0].data, destination, Quiet())
    return destination


def copy(directory: Path, destination: Path, watch: Cut) -> None:
    files = files_in(directory)
    with opened_files(files, is_in_use=False) as opened:
        back_up(Source("test", files, opened), destination, watch, lambda took_s: None, lambda: None)


def until_killed(work: Callable[[Path, Path, Cut], object], source: Path, place: Path, step: int) -> bool:
    """Do it in a process that kills itself at a step; whether it came so far."""
    pid = os.fork()
    if pid == 0:
        try:
            work(source, place, Cut(lambda: os.kill(os.getpid(), signal.SIGKILL), step))
        finally:
            os._exit(0)
    status = os.waitpid(pid, 0)[1]
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
    return os.WIFSIGNALED(status)


def test_a_backup_that_is_killed_is_no_backup(prepared: tuple[BrokerProcess, Log], tmp_path: Path) -> None:
    broker, _ = prepared
    before = contents(broker)
    step = 1
    while until_killed(copy, broker.data, tmp_path / f"at-{step}", step):
        half = tmp_path / f"at-{step}"
        with pytest.raises(CopyFailedError, match="was not finished"):
            restore(half, tmp_path / "new", Quiet())
        assert not (tmp_path / "new").exists()
        with pytest.raises(CopyFailedError, match="Remove the directory and run the command again"):
            copy(broker.data, half, Quiet())
        with pytest.raises(SettingsError, match="was not finished"):
            verify_directory(half, Quiet())
        step += 1
    assert step > 5  # It was killed while copying and while verifying.
    restore(tmp_path / f"at-{step}", tmp_path / "new", Quiet())
    assert contents(broker) == before


def test_a_restore_that_is_killed_is_not_served(
    prepared: tuple[BrokerProcess, Log], whole: Path, tmp_path: Path
) -> None:
    step = 1
    while until_killed(restore, whole, tmp_path / str(step) / "data", step):
        half = tmp_path / str(step) / "data"
        with pytest.raises(CopyFailedError, match="was not finished"):
            restore(whole, half, Quiet())
        step += 1
    assert step > 4
    served = BrokerProcess(tmp_path / str(step - 1), options=("--no-console",))
    assert "Remove the directory and run the command again" in refusal(served)
    with BrokerProcess(tmp_path / str(step), options=("--no-console",)) as restored:
        is_all_there(restored, prepared[1])


@pytest.mark.parametrize("step", [2, 4])
def test_a_disk_that_fills_up_leaves_nothing_behind(
    prepared: tuple[BrokerProcess, Log],
    whole: Path,
    small_disk: Path,
    step: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = contents(prepared[0])
    for name in ("MARGIN_BYTES", "RESERVE_BYTES"):  # What is kept free for a broker is more than this disk has.
        monkeypatch.setattr(copying, name, 0)
    work: list[Callable[[Cut], object]] = [
        lambda watch: copy(prepared[0].data, small_disk / "copy", watch),
        lambda watch: restore(whole, small_disk / "copy", watch),
    ]
    for each in work:
        with pytest.raises(CopyFailedError, match=r"failed: .*(full|space)"):
            each(Cut(lambda: fill_up(small_disk), step))
        assert [path.name for path in small_disk.iterdir()] == ["filler"]
        (small_disk / "filler").unlink()
        each(Quiet())
        shutil.rmtree(small_disk / "copy")
    assert contents(prepared[0]) == before


def test_a_manifest_that_lists_nothing_is_refused(whole: Path, tmp_path: Path) -> None:
    other = tmp_path / "backup"
    shutil.copytree(whole, other)
    manifest = json.loads((other / "manifest.json").read_text())
    for files in (None, [], ["catalog.db"]):
        (other / "manifest.json").write_text(json.dumps({**manifest, "files": files}))
        with pytest.raises(CopyFailedError, match="does not list the files"):
            restore(other, tmp_path / "new", Quiet())
