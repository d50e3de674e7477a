"""PostgreSQL's own backup of a namespace that runs, brought back to the instant before a mistake: docs/operating.md."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from support.broker import BrokerProcess, wait_for
from support.postgres import USER, PostgresServer
from support.prompt import Prompt

CONFIG = """
[[queues]]
Name = "orders"
"""


def test_a_base_backup_and_the_log_bring_back_any_instant(tmp_path: Path) -> None:
    server = PostgresServer()
    archive = server.directory / "archive"  # On another machine, where it matters.
    server.settings |= {
        "archive_mode": "on",
        "archive_command": f"mkdir -p {archive} && test ! -f {archive}/%f && cp %p {archive}/%f",
    }
    restored = PostgresServer(restore_command=f"cp {archive}/%f %p")
    if not (restored.account.install / "bin" / "pg_basebackup").exists():
        pytest.skip("pg_basebackup is not here")
    broker = BrokerProcess(tmp_path / "broker", config=CONFIG, options=("--store", server.start().connection_url))
    again = BrokerProcess(tmp_path / "again", config=CONFIG, options=("--store", restored.connection_url))
    try:
        with broker:
            run = Prompt(broker)
            run("send", "orders", "one", "two")
            restored.account.run(
                "pg_basebackup", "--pgdata", str(restored.data), "--checkpoint=fast",
                "--dbname", f"host=127.0.0.1 port={server.port} user={USER}",
            )  # fmt: skip
            run("send", "orders", "three")
            [(instant,)] = server.execute("SELECT clock_timestamp()::text")
            run("purge", "orders", "--yes")
        [(segment,)] = server.execute("SELECT pg_walfile_name(pg_switch_wal())")
        wait_for(lambda: (archive / segment).exists(), "the log to be archived")
        server.kill()  # The machine is gone.

        signal = restored.data / "recovery.signal"
        signal.touch()
        os.chown(signal, *(restored.data.stat().st_uid, restored.data.stat().st_gid))
        restored.settings |= {"recovery_target_time": str(instant), "recovery_target_action": "promote"}
        restored.start()
        wait_for(lambda: restored.execute("SELECT pg_is_in_recovery()") == [(False,)], "the end of the recovery")
        with again:
            assert "whole." in Prompt(again)("verify").stdout
            assert again.count("orders") == 3
    finally:
        broker.kill()
        again.kill()
        server.remove()
        restored.remove()
