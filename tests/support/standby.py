"""A synchronous standby for a test's PostgreSQL server: real streaming replication, and the promotion after a loss."""

from __future__ import annotations

from support.broker import wait_for
from support.postgres import USER, PostgresServer

NAME = "standby"


def synchronous_standby(primary: PostgresServer) -> PostgresServer:
    """A copy of a running server that gets everything from it before a commit is acknowledged."""
    standby = PostgresServer(wal_retrieve_retry_interval="200ms")
    source = f"host=127.0.0.1 port={primary.port} user={USER} application_name={NAME}"
    standby.account.run(
        "pg_basebackup", "--pgdata", str(standby.data), "--dbname", source, "--write-recovery-conf", "--no-sync",
        "--wal-method=stream", "--checkpoint=fast",
    )  # fmt: skip
    standby.start()
    primary.execute(f"ALTER SYSTEM SET synchronous_standby_names = '{NAME}'")
    primary.execute("SELECT pg_reload_conf()")
    wait_for(
        lambda: primary.execute("SELECT sync_state FROM pg_stat_replication") == [("sync",)],
        "the standby is synchronous",
    )
    return standby


def promote(standby: PostgresServer) -> None:
    """Make the standby the primary, as whatever watches over a cluster would."""
    standby.account.run("pg_ctl", "promote", "--pgdata", str(standby.data), "--wait")


def address_of_both(primary: PostgresServer, standby: PostgresServer, database: str) -> str:
    """One address that leads to whichever of the two takes writes."""
    return f"postgresql://{USER}@127.0.0.1:{primary.port},127.0.0.1:{standby.port}/{database}"
