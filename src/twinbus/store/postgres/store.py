"""A messaging store in a PostgreSQL database that several gateways use at once: the same commands, the same rules.

It keeps the connection and decides what a failure means; one transaction is `execution`'s business, threads are not
here. Time is the server's, so that gateways agree on it.
"""

from __future__ import annotations

from collections.abc import Callable

import psycopg

from twinbus.model.errors import BusError, Fault
from twinbus.model.failpoints import failpoint
from twinbus.model.logged import EventLog
from twinbus.sql import postgres
from twinbus.sql.postgres import Connection
from twinbus.store import commands, quarantine
from twinbus.store.answering import clear, merge, refuse
from twinbus.store.commands import Command, Hints
from twinbus.store.identity import OlderStoreError
from twinbus.store.journal import JournalRow
from twinbus.store.postgres import dialect, schema
from twinbus.store.postgres.execution import Done, Setting, Transaction
from twinbus.store.postgres.loading import Needs
from twinbus.store.postgres.sweeping import HOUSEKEEPING_MS
from twinbus.store.postgres.work import OWNER_BITS, GatewayTokens
from twinbus.store.statements import SEQ_BITS
from twinbus.store.sums import Sums
from twinbus.store.volatile import Memory

_log = EventLog(__name__)

JOURNAL_RETENTION_MS = 7 * 24 * 3600 * 1000
POLL_MS = 1_000
TRIES = 5
FIRST_WAIT_MS = 50
LONGEST_NAME = 63  # The server cuts longer names off, and two of them might become one.
_BEAT = """
WITH me AS (UPDATE gateway SET seen_at = clock_timestamp() WHERE number = %s RETURNING 1),
     gone AS (DELETE FROM gateway WHERE seen_at < clock_timestamp() - interval '1 day' RETURNING 1)
SELECT (SELECT count(*) FROM me), (SELECT count(*) FROM gone),
       (SELECT count(*) FROM gateway WHERE number <> %s AND seen_at > clock_timestamp() - interval '5 seconds')"""
# Whether the store still knows this gateway, and the number of the last row that it wrote to the journal.
_KNOWN = """
SELECT EXISTS (SELECT 1 FROM gateway WHERE number = %s), (SELECT max(id) FROM journal WHERE writer = %s)"""
_COME_BACK = "INSERT INTO gateway (number) OVERRIDING SYSTEM VALUE VALUES (%s) ON CONFLICT DO NOTHING"
_CHANGES = "SELECT id, changes FROM entity"
_OWNERS = """
SELECT owner FROM lock WHERE owner >= %(first)s AND owner < %(past)s
 UNION SELECT owner FROM hold WHERE owner >= %(first)s AND owner < %(past)s"""


class PostgresStore:
    """A messaging store in one schema of a database. Used by one thread at a time, beside those of other gateways.

    With `clock_offset_ms` the time is the server's clock plus what that returns; without, it is what `commit` is given,
    for tests that move it. `poll_ms` is how often `due_at_ms` wants a sweep at least, 0 for never.
    """

    def __init__(
        self,
        url: str,
        schema_name: str,
        *,
        number: int = 0,
        clock_offset_ms: Callable[[], int] | None = None,
        poll_ms: int = POLL_MS,
        journal_retention_ms: int | None = JOURNAL_RETENTION_MS,
    ) -> None:
        if len(schema_name.encode()) > LONGEST_NAME:
            raise BusError(Fault.ARGUMENT, f"The schema name {schema_name} has more than {LONGEST_NAME} bytes.")
        self.number = number
        self.synced_commits = 0  # For the metrics.
        self.sums = Sums()
        self.channel = schema_name
        self._url = url
        self._schema = schema_name
        self._offset = clock_offset_ms
        self._poll_ms = poll_ms
        self._connection: Connection | None = postgres.connect(url, schema_name)
        self._closed = False
        self._failure: BusError | None = None
        # Rows of the journal that this gateway wrote, and of these the ones that must be there whatever happened.
        self._written = self._written_for_sure = 0
        self._others = False
        self._seen: dict[int, int] = {}  # How often each entity's row had changed when it was last looked at.
        self._due_ms: int | None = 0  # In the caller's time, like the next two; nobody knows yet what is due.
        self._swept_ms = self._now_ms = 0
        self._waits_ms = (0, 0)  # From when to when no new connection is tried.
        self._kept_house_ms: int | None = None
        try:
            schema.prepare(self._connection, schema_name)
            failpoint("store.open")
            row = self._connection.execute("INSERT INTO gateway DEFAULT VALUES RETURNING number").fetchone()
            assert row is not None
            self.gateway = int(row[0])
        except psycopg.Error as error:
            self._connection.close()
            raise BusError(Fault.STORE_UNAVAILABLE, f"The messaging store cannot be used: {error}") from error
        except BaseException:
            self._connection.close()
            raise
        # Numbers of bodies, shared bodies and locks begin with the gateway's own, which is never used again.
        self._memory = Memory(0)
        self._memory.next_body = self.gateway << SEQ_BITS | 1
        self._memory.next_shared = -(self.gateway << SEQ_BITS | 1)
        self._setting = Setting(schema_name, self.gateway, GatewayTokens(self.gateway), journal_retention_ms)

    # The Store protocol.

    def commit(self, group: list[Command], now_ms: int) -> Hints:
        """Execute the commands in one transaction; if it fails, one by one, so that only the culprit fails."""
        self._now_ms = now_ms
        if self._closed:
            return refuse(group, BusError(Fault.STORE_UNAVAILABLE, "The messaging store is closed."))
        if self._failure is not None:
            return refuse(group, self._failure)
        if self._connection is None and not self._may_be_back(now_ms):
            text = "The messaging store's database cannot be reached."
            return refuse(group, BusError(Fault.STORE_UNAVAILABLE, text, definite=True))
        try:
            return self._try(group, now_ms)
        except Exception as error:
            if self._gave_up(error):
                return refuse(group, _unknown())
            for command in group:
                clear(command)
            if len(group) == 1:
                group[0].error = self._fault(group[0], error)
                return Hints()
            failure = error
        if postgres.is_late(failure):
            return self._commit_what_is_free(group, now_ms)
        _log.warning(
            "commit.replayed",
            "a group of {commands} commands failed and is replayed one by one: {error}",
            commands=len(group),
            error=failure,
        )
        hints = Hints()
        for command in group:
            if self._connection is None:  # It was lost on the way; the rest was not tried.
                command.error = BusError(Fault.STORE_UNAVAILABLE, "The database was lost.", definite=True)
            else:
                merge(hints, self.commit([command], now_ms))
        return hints

    def _commit_what_is_free(self, group: list[Command], now_ms: int) -> Hints:
        """Somebody holds the rows of some entities for too long: what is about others goes on."""
        assert self._connection is not None
        late = BusError(Fault.STORE_UNAVAILABLE, "The database was too slow.", definite=True)
        asked = postgres.integers(sorted(Needs(group).entities))
        try:
            known = {row[0] for row in self._connection.execute(dialect.READ_ENTITIES, (asked,))}
            held = known - {row[0] for row in self._connection.execute(dialect.FREE_ENTITIES, (asked,))}
            free = [command for command in group if not Needs([command]).entities & held]
            for command in group:
                if command not in free:
                    command.error = late
            return self._try(free, now_ms) if free else Hints()
        except Exception as error:
            return refuse(group, _unknown() if self._gave_up(error) else late)

    def due_at_ms(self) -> int | None:
        """When the next sweep should be: something is due, or others may have done something worth a look."""
        if self._closed:
            return None
        poll_ms = self._swept_ms + self._poll_ms if self._poll_ms else None
        return min((at for at in (self._due_ms, poll_ms) if at is not None), default=None)

    def close(self) -> None:
        """Give back what this gateway's receivers hold, and leave."""
        if self._closed:
            return
        try:
            if self._connection is not None:
                own = {"first": self.gateway << OWNER_BITS, "past": self.gateway + 1 << OWNER_BITS}
                rows = self._connection.execute(_OWNERS, own).fetchall()
                mask = (1 << OWNER_BITS) - 1
                group: list[Command] = [commands.DropLocks(queue=0, owner=row[0] & mask) for row in rows]
                if group:
                    self.commit(group, self._now_ms)
            if self._connection is not None:
                self._connection.execute("DELETE FROM gateway WHERE number = %s", (self.gateway,))
        except psycopg.Error as error:
            _log.warning(
                "store.locks.left",
                "store {store}: its locks will expire by themselves: {error}",
                store=self.number,
                error=error,
            )
        self._closed = True
        self._drop_connection()

    # What the shell around it needs.

    @property
    def failure(self) -> BusError | None:
        """That the database is not the one that was served. A lost connection is none: the next commit makes one."""
        return self._failure

    @property
    def is_connected(self) -> bool:
        """Whether the last commit had a database to talk to."""
        return self._connection is not None

    @property
    def is_full(self) -> bool:
        """Not known beforehand: each command is answered by what the server says to it."""
        return False

    def checkpoint_due(self) -> bool:
        """The server does that by itself."""
        return False

    def checkpoint(self) -> bool:
        """The server does that by itself."""
        return True

    def entities(self) -> list[int]:
        """The entities that the store holds, those being dropped left out."""
        return [row[0] for row in self._ask(dialect.ENTITIES)]

    def held(self) -> list[quarantine.Held]:
        """The same, with what a start must know of each."""
        return [
            quarantine.Held(entity, aside, used, published, path or "", kind or "", fragment or 0)
            for entity, aside, used, published, path, kind, fragment in self._ask(dialect.HELD)
        ]

    # The journal.

    def writers(self) -> list[int]:
        """The gateways that have written to the journal; each has a stream of its own."""
        return [row[0] for row in self._ask(dialect.WRITERS)]

    def journal_after(self, row_id: int, limit: int, writer: int | None = None) -> list[JournalRow]:
        """Committed journal rows of a writer (this gateway if none is named) behind a number, for the exporter."""
        rows = self._ask(dialect.JOURNAL_AFTER, self.gateway if writer is None else writer, row_id, limit)
        return [JournalRow(*row) for row in rows]

    def _ask(self, statement: str, *values: int) -> list[postgres.Row]:
        if self._connection is None:
            self._reconnect()
        assert self._connection is not None
        try:
            return self._connection.execute(statement, values).fetchall()
        except psycopg.Error as error:
            if self._gave_up(error):
                raise _unknown() from error
            raise BusError(Fault.INTERNAL, f"The messaging store could not do this: {error}") from error

    # One transaction, and what its failure means.

    def _try(self, group: list[Command], now_ms: int) -> Hints:
        """Execute a group; what the server asks to be tried again is."""
        for left in reversed(range(TRIES)):
            try:
                return self._run(group, now_ms)
            except psycopg.Error as error:
                if left == 0 or not postgres.is_retryable(error) or self._gave_up(error):
                    raise
                for command in group:
                    clear(command)
        raise AssertionError("not reached")

    def _run(self, group: list[Command], now_ms: int) -> Hints:
        assert self._connection is not None
        sweeps = any(isinstance(command, commands.Sweep) for command in group)
        # Without a poll a sweep comes when something is due, which may be this.
        last_ms = self._kept_house_ms if self._poll_ms else None
        keeps_house = sweeps and (last_ms is None or now_ms - last_ms >= HOUSEKEEPING_MS)
        memory = Memory(0)
        memory.next_body, memory.next_shared = self._memory.next_body, self._memory.next_shared
        try:
            offset = self._offset
            at_ms = (lambda server_ms: server_ms + offset()) if offset is not None else (lambda server_ms: now_ms)
            transaction = Transaction(self._connection, self._setting, group, memory)
            done = transaction.run(at_ms, self._others, keeps_house)
        finally:
            # Numbers are not used again, whatever became of the transaction.
            self._memory.next_body, self._memory.next_shared = memory.next_body, memory.next_shared
        if keeps_house:
            self._kept_house_ms = now_ms
        self._note(done, now_ms, sweeps)
        if sweeps:
            try:
                self._look_around(done.hints)
            except psycopg.Error as error:
                self._gave_up(error)  # What was committed is committed.
        return done.hints

    def _note(self, done: Done, now_ms: int, swept: bool) -> None:
        self.synced_commits += done.synced
        self.sums.add(done.journal)
        self._written += bool(done.journal)
        if done.synced:
            self._written_for_sure = self._written  # What was not waited for before is on disk with it.
        for entity in done.changed & self._seen.keys():
            self._seen[entity] += 1
        due = None if done.due_ms is None else done.due_ms + now_ms - done.now_ms
        if swept:
            self._swept_ms = now_ms
            self._due_ms = due
        elif due is not None:
            self._due_ms = due if self._due_ms is None else min(due, self._due_ms)

    def _look_around(self, hints: Hints) -> None:
        """Tell the others that this gateway lives, see whether there are any, and what they have done."""
        if not self._poll_ms or self._connection is None:
            return
        with self._connection.transaction():
            self._connection.execute("SET LOCAL synchronous_commit TO off")
            row = self._connection.execute(_BEAT, (self.gateway, self.gateway)).fetchone()
            if row is not None and row[0] == 0:
                self._connection.execute(_COME_BACK, (self.gateway,))
        alone = row is None or row[2] == 0
        if alone and not self._others:
            return
        self._others = not alone
        seen: dict[int, int] = dict(self._connection.execute(_CHANGES).fetchall())
        for entity, changes in seen.items():
            if self._seen.get(entity, 0) != changes:
                hints.ready.update(range(entity * 4, entity * 4 + 3))
        self._seen = seen

    def _gave_up(self, error: BaseException) -> bool:
        """End a failed transaction; True when the connection is gone with it."""
        connection = self._connection
        if not postgres.is_lost(connection, error):
            assert connection is not None
            try:
                connection.give_up()
                return False
            except psycopg.Error as worse:
                error = worse
        _log.warning(
            "store.database.lost",
            "store {store}: the database is gone: {error}",
            store=self.number,
            error=" ".join(str(error).split()),
        )
        self._drop_connection()
        return True

    def _drop_connection(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _may_be_back(self, now_ms: int) -> bool:
        """Try to connect anew, ever more seldom up to once a second; without a poll, at every call."""
        first_ms, next_ms = self._waits_ms
        if self._poll_ms and first_ms <= now_ms < next_ms:
            return False
        try:
            self._reconnect()
        except BusError as error:
            _log.debug("store.database.debug", "store {store}: {error}", store=self.number, error=error)
            self._waits_ms = (now_ms, now_ms + min(max(2 * (next_ms - first_ms), FIRST_WAIT_MS), POLL_MS))
            self._due_ms = self._waits_ms[1]
            return False
        self._waits_ms = (0, 0)
        return True

    def _reconnect(self) -> None:
        """Connect anew; with several hosts in the address, to the one that takes writes now."""
        connection = postgres.connect(self._url, self._schema)
        try:
            self._failure = self._judge(connection)
            if self._failure is not None:
                connection.close()
                _log.critical("store.failed", "store {store}: {error}", store=self.number, error=self._failure.text)
                raise self._failure
            connection.execute(_COME_BACK, (self.gateway,))
        except psycopg.Error as error:
            connection.close()
            raise BusError(Fault.STORE_UNAVAILABLE, f"The database cannot be used: {error}") from error
        self._connection = connection
        self._seen = {}
        self._others = True  # Perhaps; and what was committed unheard is found by looking around.
        _log.warning("store.database.back", "store {store}: connected again", store=self.number)

    def _judge(self, connection: Connection) -> BusError | None:
        """Whether the database is the one that was served, with all that was acknowledged."""
        row = connection.execute(_KNOWN, (self.gateway, self.gateway)).fetchone()
        assert row is not None
        is_known, last = row
        if not is_known or (last is None and self._written_for_sure):
            # Given up by the others after a day of silence, or another store: opening it anew shows which.
            text = f"The store does not know gateway {self.gateway} any more. It is opened anew."
            return BusError(Fault.STORE_UNAVAILABLE, text, definite=True)
        if (last or 0) < self._written_for_sure:
            return OlderStoreError(
                f"The database is older than what was served: the journal of gateway {self.gateway} ends with row"
                f" {last}, and row {self._written_for_sure} was acknowledged. Put the right one back, or give up what"
                f" is missing, and bring it up with `twinbus store up {self.number}`. Nothing in it was changed."
            )
        self._written = self._written_for_sure = last or 0
        return None

    def _fault(self, command: Command, error: Exception) -> BusError:
        if postgres.is_full(error):
            return BusError(Fault.STORE_UNAVAILABLE, "The database's disk is full.", definite=True)
        if postgres.is_late(error):
            return BusError(Fault.STORE_UNAVAILABLE, "The database was too slow.", definite=True)
        _log.error(
            "command.failed",
            "store {store}: a {command} failed",
            store=self.number,
            command=type(command).__name__,
            exc_info=error,
        )
        text = f"The messaging store could not do this: {type(error).__name__}."
        return BusError(Fault.INTERNAL, text, definite=True)


def _unknown() -> BusError:
    """What clients are told; where the database is and what it said is for the log only."""
    return BusError(Fault.STORE_UNAVAILABLE, "The database was lost, and whether this was done is not known.")
