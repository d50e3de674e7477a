"""The PostgreSQL store and its server: what it refuses, what it does when the server goes, and what it never says."""

from __future__ import annotations

import itertools
import os
import re
import signal
import threading
from contextlib import closing

import psycopg
import pytest

from contract.conftest import Bus, PostgresFactory, ids
from support.postgres import PostgresServer
from twinbus.model.errors import BusError, Fault
from twinbus.model.message import Incoming
from twinbus.sql import postgres as engine
from twinbus.sql.postgres import Connection
from twinbus.store import commands, quarantine, range_commands, surveying
from twinbus.store.commands import Configure, Count, Create, EntityName, Introduce, QueueSettings, Send
from twinbus.store.postgres import dialect, execution, sweeping
from twinbus.store.postgres.journal import PostgresJournal
from twinbus.store.postgres.schema import VERSION
from twinbus.store.postgres.store import PostgresStore


def send(message_id: str, queue: int = 4) -> Send:
    return Send(queue=queue, units=[[Incoming(b"x", message_id)]])


@pytest.fixture
def bus(postgres):
    bus = Bus(PostgresFactory(postgres))
    bus.create()
    yield bus
    bus.close()


@pytest.fixture(scope="module")
def own_server():
    """A server that tests may stop and spoil."""
    server = PostgresServer().start()
    yield server
    server.remove()


@pytest.fixture
def own(own_server):
    store = PostgresStore(own_server.connection_url, own_server.new_schema(), poll_ms=0)
    store.commit([Create(queue=4, settings=QueueSettings())], 1)
    yield store
    store.close()


@pytest.fixture
def without_standby(own, own_server):
    """A store whose server waits for a standby that does not come."""
    own_server.execute("ALTER SYSTEM SET synchronous_standby_names = 'nobody'")
    own_server.execute("SELECT pg_reload_conf()")
    while own_server.execute("SHOW synchronous_standby_names") != [("nobody",)]:
        pass
    yield own
    own_server.execute("ALTER SYSTEM RESET synchronous_standby_names")
    own_server.execute("SELECT pg_reload_conf()")


def held_row(bus):
    """A connection that holds the row which rules the queue, so that every commit has to wait."""
    connection = psycopg.connect(bus.factory.server.connection_url, options=f"-csearch_path={bus.factory.schema}")
    connection.execute("SELECT 1 FROM entity WHERE id = 1 FOR UPDATE")
    return connection


def backend_of(store):
    return store._connection.info.backend_pid


def waiting(server, backend):
    """Wait until a backend waits for a lock."""
    while server.execute("SELECT wait_event_type FROM pg_stat_activity WHERE pid = %s", [backend]) != [("Lock",)]:
        pass


class TestDurability:
    @pytest.mark.parametrize("setting", ["fsync", "full_page_writes", "synchronous_commit"])
    def test_a_server_that_may_lose_what_it_acknowledged_is_refused(self, own_server, setting):
        own_server.execute(f"ALTER SYSTEM SET {setting} = off")
        own_server.execute("SELECT pg_reload_conf()")
        try:
            while own_server.execute(f"SHOW {setting}") != [("off",)]:
                pass
            with pytest.raises(BusError) as refused:
                PostgresStore(own_server.connection_url, own_server.new_schema())
            assert refused.value.fault is Fault.STORE_UNAVAILABLE
            assert f"{setting} is off" in refused.value.text
        finally:
            own_server.execute(f"ALTER SYSTEM RESET {setting}")
            own_server.execute("SELECT pg_reload_conf()")
            while own_server.execute(f"SHOW {setting}") != [("on",)]:
                pass

    def test_a_send_waits_for_the_disk_and_a_lock_does_not(self, bus):
        before = bus.store.synced_commits
        bus.send("a")
        assert bus.store.synced_commits == before + 1
        [message] = bus.receive()
        assert bus.store.synced_commits == before + 1
        bus.complete(message)
        assert bus.store.synced_commits == before + 2

    @pytest.mark.parametrize(
        "command", [Create(queue=8, settings=QueueSettings()), Configure(queue=4, settings=QueueSettings())]
    )
    def test_a_change_of_an_entity_waits_for_the_disk(self, bus, command):
        before = bus.store.synced_commits
        bus.do(command)
        assert bus.store.synced_commits == before + 1

    def test_an_idle_sweep_does_not_wait_for_the_disk(self, bus):
        before = bus.store.synced_commits
        bus.sweep()
        assert bus.store.synced_commits == before


class TestSchema:
    def test_several_gateways_may_make_it_at_once(self, postgres):
        schema, stores = postgres.new_schema(), []
        threads = [
            threading.Thread(target=lambda: stores.append(PostgresStore(postgres.connection_url, schema)))
            for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert len({store.gateway for store in stores}) == 4
        for store in stores:
            store.close()

    def test_one_of_the_first_version_is_brought_up_to_date(self, postgres):
        schema = postgres.new_schema()
        PostgresStore(postgres.connection_url, schema).close()
        postgres.execute(f"DROP TABLE {schema}.name, {schema}.export")
        postgres.execute(f"ALTER TABLE {schema}.entity DROP COLUMN aside")
        postgres.execute(f"UPDATE {schema}.meta SET value = '1' WHERE key = 'schema_version'")
        for _ in range(2):
            store = PostgresStore(postgres.connection_url, schema)
            store.commit([Introduce(queue=0, names={1: EntityName("orders", "queue")})], 0)
            store.close()
        with closing(PostgresJournal(postgres.connection_url, schema)) as journal:
            assert journal.names([1]) == {1: EntityName("orders", "queue")}

    def test_one_of_a_newer_version_is_refused(self, postgres):
        schema = postgres.new_schema()
        PostgresStore(postgres.connection_url, schema).close()
        postgres.execute(f"UPDATE {schema}.meta SET value = '{VERSION + 1}' WHERE key = 'schema_version'")
        with pytest.raises(BusError, match="newer Twinbus"):
            PostgresStore(postgres.connection_url, schema)

    def test_one_that_holds_something_else_is_left_alone(self, postgres):
        schema = postgres.new_schema()
        postgres.execute(f"CREATE SCHEMA {schema}")
        postgres.execute(f"CREATE TABLE {schema}.theirs (a int)")
        with pytest.raises(BusError, match="not a messaging store"):
            PostgresStore(postgres.connection_url, schema)

    def test_its_name_is_data(self, postgres):
        schema = postgres.new_schema() + '"; DROP SCHEMA public; --'
        store = PostgresStore(postgres.connection_url, schema)
        store.commit([Create(queue=4, settings=QueueSettings())], 1)
        assert store.entities() == [1]
        store.close()

    def test_a_name_that_the_server_would_cut_off_is_refused(self, postgres):
        with pytest.raises(BusError, match="more than 63 bytes"):
            PostgresStore(postgres.connection_url, "n" * 64)

    def test_stores_of_one_database_do_not_see_each_other(self, postgres):
        stores = [PostgresStore(postgres.connection_url, postgres.new_schema()) for _ in range(2)]
        stores[0].commit([Create(queue=4, settings=QueueSettings())], 1)
        assert [store.entities() for store in stores] == [[1], []]
        for store in stores:
            store.close()


class TestTexts:
    @pytest.mark.parametrize("text", ["nul \0 in it", "\0", "\ue000", "\ue0000\0\ue0001", "'; DROP TABLE message; --"])
    def test_ids_and_sessions_are_kept_whatever_they_are(self, bus, text):
        bus.create(8, requires_session=True, duplicate_window_ms=60_000)
        bus.send(text, queue=8, session_id=text)
        assert bus.send(text, queue=8, session_id=text) == [0]
        assert bus.accept(None, queue=8).session_id == text
        [message] = bus.receive(queue=8, session=text, holder=1)
        assert (message.message_id, message.session_id) == (text, text)
        bus.complete(message, queue=8)
        assert [entry.message_id for entry in bus.journal()][-1] == text


class TestFailures:
    def test_only_the_culprit_of_a_group_fails(self, bus):
        group = [send("a"), send("\ud800"), send("b")]  # Half a character is no text for the server.
        bus.commit(*group)
        assert [command.error and command.error.fault for command in group] == [None, Fault.INTERNAL, None]
        assert [command.result for command in group] == [[[1]], [], [[2]]]
        assert ids(bus.receive()) == ["a", "b"]

    @pytest.mark.parametrize("before", range(4))
    def test_the_culprit_may_be_the_one_for_which_statements_are_prepared(self, bus, before):
        bus.commit(send("\ud800"))
        for number in range(before):
            bus.send(f"{number}")
        for number in range(4):
            group = [send("\ud800"), send(f"after {number}")]
            bus.commit(*group)
            assert group[1].error is None
        assert bus.store.is_connected

    def test_a_connection_cut_in_the_middle_of_a_commit_is_told_and_made_anew(self, bus):
        neighbour = held_row(bus)
        server, backend = bus.factory.server, backend_of(bus.store)

        def cut():
            waiting(server, backend)
            server.execute("SELECT pg_terminate_backend(%s)", [backend])

        cutter = threading.Thread(target=cut)
        cutter.start()
        group = [send("a"), send("b")]
        bus.commit(*group)
        cutter.join()
        neighbour.close()
        assert {command.error.fault for command in group} == {Fault.STORE_UNAVAILABLE}
        assert not bus.store.is_connected
        assert bus.send("c") == [1]
        assert bus.store.is_connected
        assert ids(bus.peek()) == ["c"]

    def test_a_commit_whose_answer_is_lost_is_never_called_a_success(self, bus, monkeypatch):
        wait = Connection.wait
        seen = []

        def lossy(self, gen, interval=0.1, timeout=None):
            result = wait(self, gen, interval, timeout)
            seen.append(self.info.transaction_status.name)
            if "INTRANS" in seen and seen[-1] == "IDLE":
                self.close()
                raise psycopg.OperationalError("the line went dead")
            return result

        monkeypatch.setattr(Connection, "wait", lossy)
        command = send("a")
        bus.commit(command)
        monkeypatch.undo()
        assert command.error.fault is Fault.STORE_UNAVAILABLE
        assert command.result == []
        assert ids(bus.peek()) == ["a"]  # It was committed all the same, which nobody could know.

    def test_a_silent_server_is_given_up(self, bus, monkeypatch):
        monkeypatch.setattr(engine, "PATIENCE_S", 0.3)
        backend = backend_of(bus.store)
        os.kill(backend, signal.SIGSTOP)
        try:
            command = send("a")
            bus.commit(command)
        finally:
            os.kill(backend, signal.SIGCONT)
        assert command.error.fault is Fault.STORE_UNAVAILABLE
        monkeypatch.undo()
        bus.send("b")
        assert "b" in ids(bus.peek())

    def test_a_neighbour_that_holds_a_row_does_not_hold_up_the_thread(self, bus):
        bus.store._connection.execute("SET lock_timeout = '100ms'")
        neighbour = held_row(bus)
        command = send("a")
        bus.commit(command)
        neighbour.close()
        assert command.error.fault is Fault.STORE_UNAVAILABLE
        assert bus.send("b") == [1]

    def test_nor_does_it_hold_up_what_is_about_other_queues(self, bus):
        bus.create(8)
        bus.store._connection.execute("SET lock_timeout = '100ms'")
        neighbour = held_row(bus)
        group = [send("a"), send("b", queue=8), send("c", queue=80)]
        bus.commit(*group)
        neighbour.close()
        faults = [command.error and command.error.fault for command in group]
        assert faults == [Fault.STORE_UNAVAILABLE, None, Fault.ENTITY_NOT_FOUND]
        assert group[0].error.is_definite
        assert ids(bus.peek()) == []
        assert ids(bus.peek(queue=8)) == ["b"]

    def test_a_commit_that_did_not_wait_for_its_standby_is_not_called_a_success(self, without_standby, own_server):
        backend = backend_of(without_standby)

        def cancel():
            asked = "SELECT wait_event FROM pg_stat_activity WHERE pid = %s"
            while own_server.execute(asked, [backend]) != [("SyncRep",)]:
                pass
            own_server.execute("SELECT pg_cancel_backend(%s)", [backend])

        canceller = threading.Thread(target=cancel)
        canceller.start()
        command = send("a")
        without_standby.commit([command], 1)
        canceller.join()
        assert command.error.fault is Fault.STORE_UNAVAILABLE
        assert not command.error.is_definite

    def test_a_standby_that_does_not_come_is_not_waited_for_for_ever(self, without_standby, monkeypatch):
        monkeypatch.setattr(engine, "PATIENCE_S", 0.5)
        command = send("a")
        without_standby.commit([command], 1)
        assert command.error.fault is Fault.STORE_UNAVAILABLE
        assert not command.error.is_definite

    def test_it_reconnects_after_a_restart_of_the_server(self, own, own_server):
        own.commit([send("a")], 1)
        own_server.stop()
        lost = [send("b"), Count(queue=4)]
        own.commit(lost, 2)
        own.commit(lost, 2)
        assert {command.error.fault for command in lost} == {Fault.STORE_UNAVAILABLE}
        assert own.due_at_ms() is not None
        own_server.start()
        again, count = send("c"), Count(queue=4)
        own.commit([again, count], 3)
        assert (again.error, again.result) == (None, [[2]])
        assert count.result.active == 2

    def test_a_server_that_is_gone_is_asked_ever_more_seldom(self, own_server, monkeypatch):
        store = PostgresStore(own_server.connection_url, own_server.new_schema())
        store.commit([Create(queue=4, settings=QueueSettings())], 1_000)
        tried = []

        def refused(self):
            tried.append(self._now_ms)
            raise BusError(Fault.STORE_UNAVAILABLE, "nobody is there")

        store._drop_connection()
        with monkeypatch.context() as patched:
            patched.setattr(PostgresStore, "_reconnect", refused)
            for now_ms in range(1_000, 5_000, 10):
                store.commit([send("a")], now_ms)
        assert tried == [1_000, 1_050, 1_150, 1_350, 1_750, 2_550, 3_550, 4_550]
        assert store.due_at_ms() <= 5_550
        command = send("b")
        store.commit([command], 5_550)
        assert (command.error, command.result) == (None, [[1]])
        store.close()

    def test_nothing_accepted_is_lost_when_the_server_is_killed(self, own, own_server):
        accepted = []
        killer = threading.Timer(0.3, own_server.kill)
        killer.start()
        for number in range(100_000):
            command = send(f"m{number}")
            own.commit([command], 1)
            if command.error is not None:
                assert command.error.fault is Fault.STORE_UNAVAILABLE
                break
            accepted.append(f"m{number}")
        killer.join()
        own_server.start()
        count = Count(queue=4)
        own.commit([count], 2)
        held = own_server.execute(f"SELECT message_id FROM {own.channel}.message WHERE queue = 4 ORDER BY seq")
        stored = [row[0] for row in held]
        assert stored[: len(accepted)] == accepted
        assert len(stored) <= len(accepted) + 1
        assert count.result.active == len(stored)

    def test_an_address_without_a_server_is_told_in_one_line(self):
        with pytest.raises(BusError, match="cannot be reached") as refused:
            PostgresStore("postgresql://127.0.0.1:1/none", "none")
        assert "\n" not in refused.value.text
        assert refused.value.facts.transient


def test_every_command_is_known_to_it():
    modules = (commands, range_commands, surveying, quarantine)
    everything = [value for module in modules for value in vars(module).values()]
    known = {command for command in everything if isinstance(command, type)}
    kinds = {command for command in known if issubclass(command, commands.Command)} - {commands.Command}
    # A gateway counts its own commits only, and others share the database: it is not asked for the balance, nor how far
    # a journal is of which there are many.
    assert kinds - {commands.Weigh, quarantine.Position} == set(execution._PHASES)


def test_the_time_is_the_server_s_plus_the_namespace_s_offset(postgres):
    offset = 3_600_000
    store = PostgresStore(postgres.connection_url, postgres.new_schema(), clock_offset_ms=lambda: offset)
    store.commit([Create(queue=4, settings=QueueSettings())], 5)
    store.commit([send("a")], 5)
    [[now]] = postgres.execute("SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint")
    [row] = store.journal_after(0, 1)
    assert abs(row.at_ms - (now + offset)) < 60_000
    store.close()


def all_statements():
    """Every statement of the store, by name."""
    named = {f"named {number}": text for number, text in enumerate(dialect.DIALECT.values())}
    own = {
        name: text
        for module in (dialect, sweeping)
        for name, text in vars(module).items()
        if name.isupper() and isinstance(text, str) and not name.startswith("_") and " " in text
    }
    return {name: text for name, text in {**named, **own}.items() if name not in ("STATE", "SERVED", "UNLOCKED")}


@pytest.mark.parametrize("name", all_statements())
def test_no_statement_reads_a_large_table_from_end_to_end(bus, name):
    numbers = itertools.count(1)
    places = {}

    def placed(match):
        key = match.group(1) or next(numbers)
        return f"${places.setdefault(key, len(places) + 1)}"

    text = re.sub(r"%(?:\((\w+)\))?s", placed, all_statements()[name])
    plan = [row[0] for row in bus.store._connection.execute(f"EXPLAIN (GENERIC_PLAN) {text}")]
    assert plan
    assert [line for line in plan if re.search(r"Seq Scan on (message|body|lock|hold|duplicate|journal)\b", line)] == []
