"""The JSON API: who may ask, what comes back, and how it refuses."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pytest
from aiohttp import ClientSession

from twinbus.admin.app import make_app
from twinbus.admin.server import bound_port, start_http
from twinbus.entities.hosting import Hosting, nobodys
from twinbus.entities.namespace import Namespace
from twinbus.model.entity import QueueDescription
from twinbus.model.errors import BusError, Fault
from twinbus.store.balance import Balance
from twinbus.store.commands import DeleteBatch
from twinbus.wire import view
from unit.admin.conftest import LISTENER, NOW_MS, ROOT, SENDER, Clock, Door, MemoryCatalog, MemoryStore, sequence


@dataclass
class Control:
    """A store that does what it is told."""

    number: int
    state_name: str = "up"
    reason: str = ""
    since_ms: int = NOW_MS
    pending_bytes: int = 0
    refuses: BusError | None = None

    async def take_down(self, reason: str) -> None:
        self.state_name, self.reason = "down", reason

    async def bring_up(self) -> None:
        if self.refuses is not None:
            raise self.refuses
        self.state_name, self.reason = "up", ""


@dataclass
class FakeClock:
    offset_ms: int = 0

    def advance_ms(self, by_ms: int) -> None:
        self.offset_ms += by_ms


@dataclass
class Examinations:
    """Remembers what was asked for."""

    states: dict[str, dict[str, Any]] = field(default_factory=dict)

    def latest(self, what: str) -> dict[str, Any] | None:
        return self.states.get(what)

    async def begin(self, what: str, destination: str | None = None) -> dict[str, Any]:
        state = {"what": what, "state": "running", "destination": destination, "began_ms": NOW_MS, "ended_ms": None}
        self.states[what] = state
        return state


@dataclass
class Process:
    controls: list[Control] = field(default_factory=lambda: [Control(0), Control(1)])
    test_clock: FakeClock | None = None
    resets: int = 0
    caught_up: int = 0
    exports: int = 0
    examinations: Examinations = field(default_factory=Examinations)
    drills: None = None  # Drills, and faults on purpose, have tests of their own.
    disturber: None = None
    lines: list[Balance] | None = None  # None, as where several gateways share the stores.

    async def balance(self) -> list[Balance] | None:
        return self.lines

    def describe(self) -> dict[str, str]:
        return {"version": "1.2.3", "datacenter": "north"}

    async def reset(self) -> None:
        self.resets += 1

    async def catch_up(self) -> None:
        self.caught_up += 1

    async def export_journal(self) -> dict[str, Any]:
        self.exports += 1
        return await self.describe_journal()

    async def describe_journal(self) -> dict[str, Any]:
        return {"export": True, "files": self.exports}


@dataclass
class ApiDoor(Door):
    process: Process = field(default_factory=Process)

    async def api(self, method: str, path: str, document: Any = None, **options: Any) -> tuple[int, dict[str, Any]]:
        body = document if isinstance(document, str | bytes | None) else json.dumps(document)
        answer = await self.ask(method, f"/$api/{path}", body, **options)
        assert answer.headers["Content-Type"].startswith("application/json")
        return answer.status, json.loads(answer.body)


@pytest.fixture
async def door() -> AsyncIterator[ApiDoor]:
    clock, store, catalog, process = Clock(), MemoryStore(), MemoryCatalog(), Process()
    namespace = Namespace("testbus", clock, [store], catalog, view)
    namespace.rules = (ROOT, LISTENER, SENDER)
    made = ApiDoor(namespace, clock, store, catalog, process=process)
    app = make_app(
        Hosting([namespace], nobodys(clock, view)),
        clock=clock,
        metrics=made.numbers,
        ready=lambda: made.ready,
        random_bytes=sequence(),
        upkeep={namespace: process},
    )
    runner = await start_http(app, "127.0.0.1", 0)
    made.host = f"127.0.0.1:{bound_port(runner)}"
    async with ClientSession() as made.session:
        yield made
    await runner.cleanup()


class TestDoor:
    @pytest.mark.parametrize("token", [None, "Bearer abc", "SharedAccessSignature sr=x"])
    async def test_nobody_gets_in_without_a_token(self, door: ApiDoor, token: str | None) -> None:
        status, document = await door.api("GET", "status", token=token)
        assert status == 401
        assert document["error"]["code"] == "authentication-failed"

    async def test_the_manage_right_is_needed(self, door: ApiDoor) -> None:
        status, document = await door.api("POST", "reset", {"confirm": "testbus"}, token=door.token(LISTENER))
        assert (status, document["error"]["code"]) == (401, "unauthorized")
        assert door.process.resets == 0

    async def test_a_refusal_has_a_code_a_sentence_and_a_tracking_id(self, door: ApiDoor) -> None:
        status, document = await door.api("POST", "purge", {"entity": "none"})
        assert status == 404
        assert set(document["error"]) == {"code", "message", "tracking_id"}
        assert document["error"]["code"] == "entity-not-found"

    @pytest.mark.parametrize(
        ("method", "path", "status"),
        [("GET", "nothing", 404), ("GET", "", 404), ("DELETE", "stores", 405), ("POST", "status", 405)],
    )
    async def test_what_is_not_there(self, door: ApiDoor, method: str, path: str, status: int) -> None:
        assert (await door.api(method, path))[0] == status

    @pytest.mark.parametrize("body", ["[]", "nonsense", '"text"', b"\xff", "{" * 50_000])
    async def test_a_body_is_a_json_object(self, door: ApiDoor, body: str | bytes) -> None:
        status, document = await door.api("POST", "purge", body)
        assert (status, document["error"]["message"]) == (400, "The body is not a JSON object.")

    async def test_an_unknown_key_is_refused(self, door: ApiDoor) -> None:
        status, document = await door.api("POST", "stores/0/down", {"raeson": "x"})
        assert status == 400
        assert "raeson" in document["error"]["message"]
        assert door.process.controls[0].state_name == "up"

    async def test_a_broker_that_is_not_ready_says_so(self, door: ApiDoor) -> None:
        door.ready = False
        assert (await door.api("GET", "status"))[0] == 503


class TestStatus:
    async def test_it_tells_of_namespace_process_and_stores(self, door: ApiDoor) -> None:
        await door.namespace.create_queue(QueueDescription(name="q"))
        status, document = await door.api("GET", "status")
        assert status == 200
        assert document["namespace"] == "testbus"
        assert (document["version"], document["datacenter"]) == ("1.2.3", "north")
        assert document["now"] == "2023-11-14T22:13:20.000Z"
        assert document["entities"] == {"queues": 1, "topics": 0, "subscriptions": 0, "hybrid_connections": 0}
        assert [(store["number"], store["entities"]) for store in document["stores"]] == [(0, 1), (1, 0)]


class TestStores:
    async def test_down_and_up(self, door: ApiDoor) -> None:
        assert (await door.api("POST", "stores/1/down", {"reason": "disk"}))[1]["reason"] == "disk"
        _, listed = await door.api("GET", "stores")
        assert [store["state"] for store in listed["stores"]] == ["up", "down"]
        assert (await door.api("POST", "stores/1/up"))[1]["state"] == "up"

    async def test_one_that_cannot_be_had_is_told_with_its_reason(self, door: ApiDoor) -> None:
        door.process.controls[0].refuses = BusError(Fault.STORE_UNAVAILABLE, "no such device")
        status, document = await door.api("POST", "stores/0/up", {})
        assert (status, document["error"]["message"]) == (503, "no such device")

    @pytest.mark.parametrize("number", ["7", "x", "-1", "99999"])
    async def test_one_that_does_not_exist(self, door: ApiDoor, number: str) -> None:
        assert (await door.api("POST", f"stores/{number}/up", {}))[0] == 404


class TestMessages:
    async def test_a_purge_goes_on_in_chunks_until_nothing_is_left(self, door: ApiDoor) -> None:
        await door.namespace.create_queue(QueueDescription(name="q"))
        left = [1_000, 300, 0]
        plain = door.store.submit

        def submit(command: Any) -> None:
            if isinstance(command, DeleteBatch):
                assert command.every_state
                command.result = left.pop(0)
            plain(command)

        door.store.submit = submit  # type: ignore[method-assign]
        assert await door.api("POST", "purge", {"entity": "q", "sub_queue": "dead-letter"}) == (200, {"removed": 1_300})
        assert left == []
        queue = door.namespace.queue("q")
        assert {command.queue for command in door.commands(DeleteBatch)} == {queue.id * 4 + 1}

    @pytest.mark.parametrize(
        ("path", "body", "words"),
        [
            ("purge", {}, "'entity' must be given"),
            ("purge", {"entity": "q", "sub_queue": "third"}, "'sub_queue' must be one of"),
            ("redrive", {"entity": "q", "limit": True}, "'limit' must be a positive number"),
            ("redrive", {"entity": "q", "sub_queue": "main"}, "not in the main queue"),
            ("redrive", {"entity": "q", "filter": "a ="}, "position"),
            ("redrive", {"entity": "t"}, "is a topic"),
        ],
    )
    async def test_what_cannot_be_is_refused(self, door: ApiDoor, path: str, body: dict[str, Any], words: str) -> None:
        await door.namespace.create_queue(QueueDescription(name="q"))
        await door.put_topic("t")
        status, document = await door.api("POST", path, body)
        assert status == 400
        assert words in document["error"]["message"]


class TestJournal:
    async def test_it_tells_how_far_it_is_in_files(self, door: ApiDoor) -> None:
        assert await door.api("GET", "journal") == (200, {"export": True, "files": 0})

    async def test_it_is_exported_when_somebody_asks(self, door: ApiDoor) -> None:
        assert await door.api("POST", "journal/export") == (200, {"export": True, "files": 1})
        assert door.process.exports == 1


class TestBalance:
    async def test_stores_are_summed_up(self, door: ApiDoor) -> None:
        first = Balance(1_700_000_000_000, 3, {"accepted": 4}, {"completed": 2}, {"active": 5})
        second = Balance(1_700_000_060_000, 0, {"accepted": 1, "fanned_out": 2}, {}, {"active": 2, "dead": 0})
        door.process.lines = [first, second]
        assert await door.api("GET", "balance") == (
            200,
            {
                "told": True, "since": "2023-11-14T22:13:20.000Z", "stores": 2, "held_at_start": 3,
                "created": {"accepted": 5, "fanned_out": 2}, "ended": {"completed": 2},
                "held": {"active": 7, "dead": 0}, "delta": -1,
            },
        )  # fmt: skip

    async def test_a_gateway_that_shares_its_stores_says_that_it_does_not_know(self, door: ApiDoor) -> None:
        status, told = await door.api("GET", "balance")
        assert (status, told["told"]) == (200, False)
        assert "several gateways" in told["why"]


class TestDrills:
    async def test_without_a_pair_there_are_none_and_none_is_begun(self, door: ApiDoor) -> None:
        assert await door.api("GET", "drills") == (200, {"allowed": False, "drills": []})
        assert (await door.api("POST", "drills", {"scenario": "outage"}))[0] == 409
        assert (await door.api("GET", "drills/20261116t060000000-abcdef"))[0] == 404


class TestReset:
    async def test_it_wants_the_name_of_the_namespace(self, door: ApiDoor) -> None:
        for body in ({}, {"confirm": "other"}, {"confirm": True}):
            assert (await door.api("POST", "reset", body))[0] == 400
        assert door.process.resets == 0
        assert (await door.api("POST", "reset", {"confirm": "TestBus"}))[0] == 200
        assert door.process.resets == 1


class TestClock:
    async def test_it_cannot_be_moved_unless_it_was_made_for_tests(self, door: ApiDoor) -> None:
        status, document = await door.api("POST", "clock", {"advance": "PT5M"})
        assert status == 409
        assert "--test-clock" in document["error"]["message"]
        assert (await door.api("GET", "clock"))[1]["movable"] is False

    async def test_it_is_moved_forward(self, door: ApiDoor) -> None:
        door.process.test_clock = FakeClock()
        assert (await door.api("POST", "clock", {"advance": "PT5M"}))[1]["ahead"] == "PT5M"
        assert door.process.test_clock.offset_ms == 300_000
        assert door.process.caught_up == 1
        for wrong in ("-PT5M", "soon", "P99999D", 5):
            assert (await door.api("POST", "clock", {"advance": wrong}))[0] == 400
        assert door.process.test_clock.offset_ms == 300_000


class TestClients:
    RECORD: ClassVar[dict[str, Any]] = {"kind": "syphon", "pair": "contoso", "host": "h", "process": 7, "ttl": 60}

    async def test_who_may_send_may_say_that_it_is_there(self, door: ApiDoor) -> None:
        token = door.token(SENDER)
        assert (await door.api("PUT", "clients/abc", self.RECORD, token=token))[0] == 200
        status, found = await door.api("GET", "clients")
        assert status == 200
        assert [record["id"] for record in found["clients"]] == ["abc"]
        assert (await door.api("DELETE", "clients/abc", token=token)) == (200, {"removed": True})
        assert (await door.api("GET", "clients"))[1] == {"clients": []}

    async def test_seeing_the_others_needs_the_manage_right(self, door: ApiDoor) -> None:
        assert (await door.api("GET", "clients", token=door.token(SENDER)))[0] == 401

    async def test_who_may_only_listen_leaves_no_record(self, door: ApiDoor) -> None:
        assert (await door.api("PUT", "clients/abc", self.RECORD, token=door.token(LISTENER)))[0] == 401
        assert (await door.api("DELETE", "clients/abc", token=door.token(LISTENER)))[0] == 401

    async def test_to_send_is_enough_for_nothing_else(self, door: ApiDoor) -> None:
        for method, path in (("GET", "status"), ("POST", "stores/0/down"), ("PUT", "clients"), ("PUT", "clients/a/b")):
            assert (await door.api(method, path, {}, token=door.token(SENDER)))[0] == 401

    async def test_records_live_by_the_machines_clock(self, door: ApiDoor) -> None:
        await door.api("PUT", "clients/abc", self.RECORD)
        door.clock.at_ms += 60_000
        assert (await door.api("GET", "clients"))[1] == {"clients": []}


class TestExaminations:
    async def test_a_verification_is_begun_and_asked_about(self, door: ApiDoor) -> None:
        assert (await door.api("GET", "verify"))[0] == 404
        status, begun = await door.api("POST", "verify")
        assert (status, begun["state"], begun["ended_at"]) == (200, "running", None)
        door.process.examinations.states["verify"]["ended_ms"] = NOW_MS
        status, told = await door.api("GET", "verify")
        assert (status, told["began_at"]) == (200, told["ended_at"])

    async def test_a_backup_needs_the_whole_path_of_a_directory(self, door: ApiDoor) -> None:
        for body in ({}, {"destination": "here"}, {"destination": 7}, {"destination": "/a", "more": 1}):
            assert (await door.api("POST", "backup", body))[0] == 400
        status, begun = await door.api("POST", "backup", {"destination": "/backups/one"})
        assert (status, begun["destination"]) == (200, "/backups/one")

    @pytest.mark.parametrize(("method", "path"), [("POST", "verify"), ("POST", "backup"), ("GET", "backup")])
    async def test_the_manage_right_is_needed(self, door: ApiDoor, method: str, path: str) -> None:
        assert (await door.api(method, path, {} if method == "POST" else None, token=door.token(LISTENER)))[0] == 401
        assert door.process.examinations.states == {}
