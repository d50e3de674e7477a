"""Opening a PostgreSQL database so that a commit is durable when it returns and no call waits for ever.

Which tables there are, and what is written, is the business of whoever opens it; so is trying again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, LiteralString, TypeAlias, TypeVar

from twinbus.model.errors import BusError, Fault
from twinbus.model.extras import needing

with needing("psycopg"):
    import psycopg
    from psycopg import errors, sql
    from psycopg.abc import PQGen
    from psycopg.conninfo import conninfo_to_dict, make_conninfo
    from psycopg.types.numeric import Int8BinaryDumper

# No call may keep its thread for longer than ten seconds, whatever has become of the database.
PATIENCE_S = 8.0

_OPTIONS: dict[str, Any] = {
    "application_name": "twinbus",
    "connect_timeout": 4,
    "keepalives": 1,
    "keepalives_idle": 4,
    "keepalives_interval": 2,
    "keepalives_count": 2,
    "tcp_user_timeout": 8000,
    # With several hosts in the address, the one that takes writes: after a failover that is another one.
    "target_session_attrs": "read-write",
}
# The first three keep a hanging statement or a hanging neighbour from holding up others; the rest make plans
# predictable: everything is reached through an index, however few rows the planner believes to be there.
_SETTINGS = {
    "lock_timeout": "3s",
    "statement_timeout": "6s",
    "idle_in_transaction_session_timeout": "10s",
    "default_transaction_isolation": "read committed",
    "timezone": "UTC",
    "enable_seqscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "enable_bitmapscan": "off",
    "enable_sort": "off",
    "jit": "off",
    "plan_cache_mode": "force_generic_plan",
}
# For whoever moves whole tables: statements take as long as they take, and the server chooses its plans itself.
_BULK_SETTINGS = {
    "statement_timeout": "0",
    "idle_in_transaction_session_timeout": "0",
    "client_encoding": "UTF8",
    "enable_seqscan": "on",
    "enable_hashjoin": "on",
    "enable_mergejoin": "on",
    "enable_bitmapscan": "on",
    "enable_sort": "on",
    "plan_cache_mode": "auto",
}
BULK_PATIENCE_S = 3600.0
_DURABLE = {"fsync": ("on",), "full_page_writes": ("on",), "synchronous_commit": ("on", "remote_apply")}

Row: TypeAlias = tuple[Any, ...]
T = TypeVar("T")


class Connection(psycopg.Connection[Row]):
    """A connection that gives itself up when the server is silent for too long.

    It never asks the server to cancel: cancelling a commit that waits for its standby would let it look done.
    """

    patience_s = PATIENCE_S

    def wait(self, gen: PQGen[T], interval: float = 0.1, timeout: float | None = None) -> T:
        """Wait for an answer; a silence of more than `patience_s` ends the connection, and the outcome is unknown."""
        if timeout is not None:
            return super().wait(gen, interval, timeout)
        try:
            return super().wait(gen, interval, self.patience_s)
        except errors._WaitTimeout as error:
            self.close()
            raise psycopg.OperationalError(f"The database did not answer for {self.patience_s:.0f} s.") from error

    def give_up(self) -> None:
        """End what has failed, and forget which statements are prepared.

        A statement of an aborted pipeline was never prepared, and psycopg remembers it as prepared all the same.
        """
        if self.info.transaction_status != psycopg.pq.TransactionStatus.IDLE:
            self.execute("ROLLBACK")
        self._prepared.clear()


def connect(url: str, schema: str | None = None, settings: Mapping[str, str] | None = None) -> Connection:
    """A connection in autocommit mode to a server that keeps what it acknowledges, or the reason why there is none.

    With a schema, names in statements are looked up there and nowhere else. Statements are prepared on first use.
    """
    try:
        given = conninfo_to_dict(url)
        address = make_conninfo(url, **{name: value for name, value in _OPTIONS.items() if name not in given})
        connection = Connection.connect(address, autocommit=True, prepare_threshold=2)
    except (psycopg.Error, UnicodeError) as error:
        text = f"The database cannot be reached: {_line(error)}"
        raise BusError(Fault.STORE_UNAVAILABLE, text, definite=True) from error
    connection.adapters.register_dumper(int, Int8BinaryDumper)  # One type for all sizes, so that one plan serves all.
    try:
        _check(connection)
        names = {**_SETTINGS, **(settings or {})}
        if schema is not None:
            names["search_path"] = sql.Identifier(schema).as_string(connection)
        setting = sql.SQL("set_config({}, {}, false)")
        calls = sql.SQL(", ").join(
            [setting.format(sql.Literal(name), sql.Literal(value)) for name, value in names.items()]
        )
        connection.execute(sql.SQL("SELECT {}").format(calls), prepare=False)
    except psycopg.Error as error:
        connection.close()
        text = f"The database cannot be used: {_line(error)}"
        raise BusError(Fault.STORE_UNAVAILABLE, text, definite=True) from error
    except BaseException:
        connection.close()
        raise
    return connection


def connect_for_bulk(url: str, schema: str | None = None) -> Connection:
    """A connection for moving whole tables, on which a statement may take an hour."""
    connection = connect(url, schema, _BULK_SETTINGS)
    connection.patience_s = BULK_PATIENCE_S
    return connection


class NotDurableError(BusError):
    """The server would lose what it has acknowledged; somebody has to change its settings."""


def _check(connection: Connection) -> None:
    """Refuse a server that would lose what it has acknowledged."""
    asked = "SELECT " + ", ".join(["current_setting(%s)"] * len(_DURABLE))
    row = connection.execute(asked, list(_DURABLE), prepare=False).fetchone()
    for (name, allowed), value in zip(_DURABLE.items(), row or (), strict=True):
        if value not in allowed:
            raise NotDurableError(
                Fault.STORE_UNAVAILABLE,
                f"The database does not offer what durability needs: {name} is {value} and must be"
                f" {' or '.join(allowed)}.",
                definite=True,
            )


def is_lost(connection: Connection | None, error: BaseException) -> bool:
    """Whether the connection is of no more use after this error; what was under way has an unknown outcome."""
    if connection is None or connection.closed or connection.broken:
        return True
    # The server is going down or is not the primary any more, or the tables are gone under it, with the statements that
    # were prepared for them: another connection is needed.
    return isinstance(
        error,
        errors.AdminShutdown
        | errors.CrashShutdown
        | errors.ReadOnlySqlTransaction
        | errors.UndefinedTable
        | errors.InvalidSchemaName
        | errors.InvalidSqlStatementName,
    )


def is_retryable(error: BaseException) -> bool:
    """Whether the same transaction may succeed if it is tried again, and certainly did not happen."""
    return isinstance(error, errors.SerializationFailure | errors.DeadlockDetected | errors.UniqueViolation)


def is_full(error: BaseException) -> bool:
    """Whether the server has no room left."""
    return isinstance(error, errors.DiskFull)


def is_late(error: BaseException) -> bool:
    """Whether the server gave a statement up because it took too long, and it certainly did not happen."""
    return isinstance(error, errors.LockNotAvailable | errors.QueryCanceled)


def integers(values: Sequence[int | None]) -> str:
    """An array of integers as the server reads it; much quicker to make than an adapted list."""
    return "{" + ",".join(["NULL" if value is None else str(value) for value in values]) + "}"


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())


class Listener:
    """A connection that waits for notifications on some channels; belongs to whoever has a thread for it."""

    def __init__(self, url: str, *channels: str) -> None:
        self._connection = connect(url)
        listen: LiteralString = "LISTEN {}"
        for channel in channels:
            self._connection.execute(sql.SQL(listen).format(sql.Identifier(channel)))

    def wait(self, timeout_s: float) -> list[tuple[str, str]]:
        """Channels and payloads that arrived, or none when the time is over.

        Raises psycopg.Error when the connection is lost.
        """
        return [(each.channel, each.payload) for each in self._connection.notifies(timeout=timeout_s, stop_after=1)]

    def check(self) -> None:
        """Ask for a sign of life, because a lost connection brings no notifications either."""
        self._connection.execute("SELECT 1")

    def close(self) -> None:
        """Stop listening."""
        self._connection.close()
