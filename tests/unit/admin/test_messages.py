"""The data plane over HTTP, before a store that answers as it is told: rights, statuses, waiting and hanging up."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from twinbus.admin import messages
from twinbus.model.errors import BusError, Fault
from twinbus.model.message import Delivered, Outcome, ReceiveMode
from twinbus.model.security import AuthorizationRule, Rights
from twinbus.store.commands import Acquire, Command, Inspect, Renew, Send, Settle
from twinbus.wire import brokered
from twinbus.wire import message as wire_message

SENDER = AuthorizationRule("sender", "send-primary", "send-secondary", Rights.SEND)
LISTENER = AuthorizationRule("listener", "listen-primary", "listen-secondary", Rights.LISTEN)
TOKEN = bytes(range(16))
LOCK = UUID(bytes_le=TOKEN)
NOW_MS = 1_700_000_000_000


def stored(body: bytes = b"hello", token: bytes = TOKEN, **system: Any) -> Delivered:
    payload = brokered.encode(body, {"MessageId": "m", **system}, {"Priority": "High"}, NOW_MS)
    (incoming,) = wire_message.read(payload, 0, ttl_ceiling_ms=None, new_id=str)
    return Delivered(7, incoming.record, "m", 0, NOW_MS, token=token, locked_until_ms=NOW_MS + 30_000)


class Script:
    """What the store answers to each kind of command; commands without an answer wait."""

    def __init__(self, door: Any) -> None:
        self.door = door
        self.waiting: list[Command] = []
        self.answers: dict[type, Callable[[Any], Any]] = {
            Send: lambda command: [[1] * len(unit) for unit in command.units],
            Settle: lambda command: [None] * len(command.settlements),
            Inspect: lambda command: [stored()],
            Renew: lambda command: [NOW_MS + 30_000],
            Acquire: lambda command: [],
        }
        self.plain_submit = door.store.submit
        door.store.submit = self.submit

    def submit(self, command: Any) -> None:
        self.plain_submit(command)
        answer = self.answers.get(type(command))
        if answer is None:
            return
        try:
            command.result = answer(command)
        except BusError as error:
            command.error = error
        if command.done is not None:
            asyncio.get_running_loop().call_soon(command.done, command)

    def acquires(self) -> list[Acquire]:
        return [command for command in self.door.commands(Acquire) if command.origin.connection]  # Not the topic's own.

    def finish(self, result: list[Delivered]) -> None:
        """Answer the acquire that waits."""
        command = self.acquires()[-1]
        command.result = result
        assert command.done is not None
        command.done(command)


@pytest.fixture
async def script(door: Any) -> Script:
    await door.put("q")
    await door.put("locked", "<RequiresSession>true</RequiresSession>")
    await door.put_topic("t")
    await door.put_subscription("t/subscriptions/s")
    door.namespace.rules = (*door.namespace.rules, SENDER)
    return Script(door)


async def send(door: Any, path: str = "/q/messages", body: bytes = b"x", **headers: str) -> Any:
    return await door.ask("POST", path, body, **headers)


async def until(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(5):
        while not condition():
            await asyncio.sleep(0.001)


class TestSending:
    async def test_what_was_sent_is_stored_and_the_answer_is_created(self, door: Any, script: Script) -> None:
        headers = {"BrokerProperties": '{"MessageId": "m", "SessionId": "s"}', "Priority": '"High"', "Num": "3"}
        answer = await send(door, Content_Type="text/plain", **headers)
        assert (answer.status, answer.headers["Content-Type"], answer.body) == (201, "text/plain", "")
        (command,) = door.commands(Send)
        (((incoming,),), origin) = (command.units, command.origin)
        found = brokered.read(Delivered(1, incoming.record, incoming.message_id, 0, NOW_MS))
        assert found.system == {"MessageId": "m", "SessionId": "s", "ContentType": "text/plain"}
        assert (found.user, found.body) == ({"Priority": "High", "Num": 3}, b"x")
        assert origin == ("http:127.0.0.1", "RootManageSharedAccessKey")

    async def test_a_batch_is_one_unit_and_its_headers_are_nobodys_properties(self, door: Any, script: Script) -> None:
        batch = json.dumps([{"Body": "one"}, {"Body": "two", "UserProperties": {"n": 2}}]).encode()
        content_type = "application/vnd.microsoft.servicebus.json; charset=utf-8"
        answer = await send(door, body=batch, Content_Type=content_type, Priority="whatever")
        assert answer.status == 201
        ((unit,),) = [command.units for command in door.commands(Send)]
        assert [brokered.read(Delivered(1, m.record, "", 0, 0)).body for m in unit] == [b"one", b"two"]

    @pytest.mark.parametrize(
        ("path", "status", "words"),
        [
            ("/nowhere/messages", 410, "could not be found"),
            ("/q/$DeadLetterQueue/messages", 400, "dead-letter queue"),
            ("/t/subscriptions/s/messages", 400, "not to its subscription"),
            ("/t/subscriptions/none/messages", 410, "could not be found"),
            ("/locked/messages", 400, "no session id"),
            ("/q/$management/messages", 400, "no messages at this address"),
            ("/%20/messages", 400, "not the address"),
        ],
    )
    async def test_where_nobody_can_send_the_reason_is_told(
        self, door: Any, script: Script, path: str, status: int, words: str
    ) -> None:
        answer = await send(door, path)
        assert answer.status == status
        assert words in answer.body
        assert "TrackingId:" in answer.body
        assert not door.commands(Send)

    @pytest.mark.parametrize(
        "headers",
        [
            {"BrokerProperties": "nonsense"},
            {"BrokerProperties": json.dumps({"MessageId": "x" * 129})},
            {"BrokerProperties": '{"Label": "\\ud800"}'},
            {"Priority": "High"},
            {"Content_Type": "größe"},
        ],
    )
    async def test_bad_headers_are_refused_with_400(self, door: Any, script: Script, headers: dict[str, str]) -> None:
        answer = await send(door, **headers)
        assert (answer.status, door.commands(Send)) == (400, [])

    async def test_a_body_that_is_said_to_be_too_large_is_refused_before_it_is_read(
        self, door: Any, script: Script
    ) -> None:
        reader, writer = await asyncio.open_connection(*door.host.split(":"))
        head = f"POST /q/messages HTTP/1.1\r\nHost: {door.host}\r\nAuthorization: {door.token()}\r\n"
        writer.write(f"{head}Content-Length: 262145\r\n\r\n".encode())
        async with asyncio.timeout(5):
            assert b" 403 " in await reader.readline()
        writer.close()
        await writer.wait_closed()

    async def test_a_body_that_turns_out_to_be_too_large_is_refused(self, door: Any, script: Script) -> None:
        async def chunks() -> Any:
            for _ in range(40):
                yield b"x" * 8192

        assert (await door.ask("POST", "/q/messages", chunks())).status == 403

    @pytest.mark.parametrize(("size", "status"), [(261_000, 201), (262_144, 403)])
    async def test_headers_count_to_the_size_of_a_message(
        self, door: Any, script: Script, size: int, status: int
    ) -> None:
        assert (await send(door, body=b"x" * size, Priority='"High"')).status == status

    async def test_a_batch_larger_than_a_message_may_be_is_refused_whole(self, door: Any, script: Script) -> None:
        batch = json.dumps([{"Body": "x" * 100_000}] * 3).encode()
        answer = await send(door, body=batch, Content_Type="application/vnd.microsoft.servicebus.json")
        assert (answer.status, door.commands(Send)) == (403, [])

    @pytest.mark.parametrize(
        ("fault", "status"),
        [(Fault.QUOTA_EXCEEDED, 403), (Fault.STORE_UNAVAILABLE, 503), (Fault.SERVER_BUSY, 503)],
    )
    async def test_what_the_store_refuses_is_told(self, door: Any, script: Script, fault: Fault, status: int) -> None:
        script.answers[Send] = lambda command: [BusError(fault, "It will not do.")]
        answer = await send(door)
        assert answer.status == status
        assert "It will not do." in answer.body

    async def test_senders_come_back_later_when_the_store_has_too_much_to_write(
        self, door: Any, script: Script
    ) -> None:
        door.store.pending_bytes = messages.BUSY_BYTES + 1
        assert (await send(door)).status == 503


class TestRights:
    @pytest.mark.parametrize(
        ("method", "path", "rule", "status"),
        [
            ("POST", "/q/messages", SENDER, 201),
            ("POST", "/q/messages", LISTENER, 401),
            ("POST", "/q/messages/head?timeout=0", LISTENER, 204),
            ("POST", "/q/messages/head?timeout=0", SENDER, 401),
            ("DELETE", "/q/messages/head?timeout=0", SENDER, 401),
            ("DELETE", f"/q/messages/7/{LOCK}", LISTENER, 200),
            ("DELETE", f"/q/messages/7/{LOCK}", SENDER, 401),
            ("PUT", f"/q/messages/7/{LOCK}", SENDER, 401),
            ("POST", f"/q/messages/7/{LOCK}", SENDER, 401),
        ],
    )
    async def test_sending_needs_send_and_the_rest_needs_listen(
        self, door: Any, script: Script, method: str, path: str, rule: AuthorizationRule, status: int
    ) -> None:
        assert (await door.ask(method, path, token=door.token(rule))).status == status

    async def test_without_a_token_nobody_learns_what_there_is(self, door: Any, script: Script) -> None:
        for path in ("/q/messages", "/nowhere/messages"):
            assert (await door.ask("POST", path, token=None)).status == 401

    @pytest.mark.parametrize("signed", ["", "/q", "/q/messages", "/Q/Messages/", "/q/messages?timeout=60"])
    async def test_an_entitys_own_policy_is_enough_whatever_address_was_signed(
        self, door: Any, script: Script, signed: str
    ) -> None:
        await door.update("q")
        own = AuthorizationRule("own", "own-primary", "own-secondary", Rights.SEND)
        queue = door.namespace.queue("q")
        object.__setattr__(queue.description, "authorization_rules", (own,))
        answer = await send(door, token=door.token(own, f"http://{door.host}{signed}"))
        # The queue's policy cannot sign for the namespace.
        assert answer.status == (201 if signed else 401)

    async def test_a_policy_of_another_queue_is_not(self, door: Any, script: Script) -> None:
        await door.put("q2")
        own = AuthorizationRule("own", "own-primary", "own-secondary", Rights.SEND)
        object.__setattr__(door.namespace.queue("q2").description, "authorization_rules", (own,))
        assert (await send(door, token=door.token(own, f"http://{door.host}/q2/messages"))).status == 401
        assert (await send(door, token=door.token(own, f"http://{door.host}/q/messages"))).status == 401


class TestReceiving:
    async def test_a_locked_message_has_a_body_properties_and_an_address(self, door: Any, script: Script) -> None:
        script.answers[Acquire] = lambda command: [stored(Label="M1", ContentType="text/plain")]
        answer = await door.ask("POST", "/Q/messages/head?timeout=5")
        assert (answer.status, answer.body, answer.headers["Content-Type"]) == (201, "hello", "text/plain")
        assert answer.headers["Location"] == f"http://{door.host}/q/messages/7/{LOCK}"
        assert answer.headers["Priority"] == '"High"'
        assert json.loads(answer.headers["BrokerProperties"])["LockToken"] == str(LOCK)
        (command,) = script.acquires()
        assert (command.mode, command.owner, command.limit) == (ReceiveMode.PEEK_LOCK, 0, 1)

    async def test_the_address_of_a_subscriptions_message_is_spelled_as_clients_look_for_it(
        self, door: Any, script: Script
    ) -> None:
        script.answers[Acquire] = lambda command: [stored()]
        answer = await door.ask("POST", "/T/Subscriptions/S/$DeadLetterQueue/messages/head")
        path = f"/t/subscriptions/s/$deadletterqueue/messages/7/{LOCK}"
        assert answer.headers["Location"] == f"http://{door.host}{path}"
        assert (await door.ask("DELETE", path)).status == 200

    async def test_a_removed_message_has_no_address(self, door: Any, script: Script) -> None:
        script.answers[Acquire] = lambda command: [stored(token=b"")]
        answer = await door.ask("DELETE", "/t/SUBSCRIPTIONS/S/messages/head")
        assert (answer.status, answer.body) == (200, "hello")
        assert "Location" not in answer.headers
        assert "LockToken" not in answer.headers["BrokerProperties"]
        assert script.acquires()[0].queue == door.namespace.subscription("t/Subscriptions/s").number()

    async def test_when_nothing_comes_in_time_there_is_no_content_and_a_note(self, door: Any, script: Script) -> None:
        answer = await door.ask("POST", "/q/messages/head?timeout=0")
        assert (answer.status, answer.body) == (204, "")
        assert ("receive", "empty") in door.notes()

    async def test_a_message_that_comes_later_is_handed_to_who_waits(self, door: Any, script: Script) -> None:
        asked = asyncio.create_task(door.ask("POST", "/q/messages/head?timeout=5"))
        feed = door.namespace.queue("q").mailbox().feed
        await until(lambda: script.acquires() and not feed.is_idle and feed._waiting)
        script.answers[Acquire] = lambda command: [stored()]
        feed.wake()
        assert (await asked).status == 201
        await until(lambda: feed.is_idle)

    @pytest.mark.parametrize("timeout", ["-1", "soon", "1.5", "9" * 10])
    async def test_a_timeout_is_a_number_of_seconds(self, door: Any, script: Script, timeout: str) -> None:
        assert (await door.ask("POST", f"/q/messages/head?timeout={timeout}")).status == 400

    @pytest.mark.parametrize(
        ("path", "status", "words"),
        [
            ("/locked/messages/head", 400, "requires sessions"),
            ("/t/messages/head", 400, "topic"),
            ("/nowhere/messages/head", 410, "could not be found"),
        ],
    )
    async def test_where_nobody_can_receive_the_reason_is_told(
        self, door: Any, script: Script, path: str, status: int, words: str
    ) -> None:
        for method in ("POST", "DELETE"):
            answer = await door.ask(method, path)
            assert answer.status == status
            assert words in answer.body

    async def test_dead_letters_of_a_queue_with_sessions_need_none(self, door: Any, script: Script) -> None:
        assert (await door.ask("POST", "/locked/$deadletterqueue/messages/head?timeout=0")).status == 204

    async def test_a_store_that_fails_is_told(self, door: Any, script: Script) -> None:
        def fail(_: Acquire) -> None:
            raise BusError(Fault.STORE_UNAVAILABLE, "The store is down.")

        script.answers[Acquire] = fail
        assert (await door.ask("POST", "/q/messages/head")).status == 503

    async def test_what_was_locked_for_a_client_that_hung_up_is_given_back_uncounted(
        self, door: Any, script: Script
    ) -> None:
        del script.answers[Acquire]
        await self.hang_up(door, script)
        script.finish([stored()])
        await until(lambda: door.commands(Settle))
        ((settlement,),) = [command.settlements for command in door.commands(Settle)]
        assert (settlement.token, settlement.outcome) == (TOKEN, Outcome.RELEASE)

    async def test_nothing_is_taken_for_a_client_that_hung_up(self, door: Any, script: Script) -> None:
        del script.answers[Acquire]
        feed = door.namespace.queue("q").mailbox().feed
        await self.hang_up(door, script, "DELETE")
        script.finish([])
        feed.wake()
        assert len(script.acquires()) == 1

    async def hang_up(self, door: Any, script: Script, method: str = "POST") -> None:
        """Ask for a message and go away while the store is being asked."""
        _, writer = await asyncio.open_connection(*door.host.split(":"))
        head = f"{method} /q/messages/head?timeout=30 HTTP/1.1\r\nHost: {door.host}\r\n"
        writer.write(f"{head}Authorization: {door.token()}\r\nContent-Length: 0\r\n\r\n".encode())
        await until(script.acquires)
        (poll,) = door.namespace.queue("q").mailbox().feed._busy
        writer.close()
        await writer.wait_closed()
        await until(poll.is_gone)

    async def test_who_waits_for_an_entity_that_is_deleted_is_told(self, door: Any, script: Script) -> None:
        asked = asyncio.create_task(door.ask("POST", "/q/messages/head?timeout=30"))
        await until(script.acquires)
        await door.ask("DELETE", "/q?api-version=2021-05")
        assert (await asked).status == 410

    async def test_who_waits_with_a_key_that_is_taken_away_is_told(self, door: Any, script: Script) -> None:
        asked = asyncio.create_task(door.ask("POST", "/q/messages/head?timeout=30", token=door.token(LISTENER)))
        await until(script.acquires)
        door.namespace.rules = tuple(rule for rule in door.namespace.rules if rule.name != "listener")
        for tell in door.namespace.on_rules_changed:
            tell()
        assert (await asked).status == 401


class TestSettling:
    @pytest.mark.parametrize("message", ["7", "m"])
    @pytest.mark.parametrize(("method", "outcome"), [("DELETE", Outcome.COMPLETE), ("PUT", Outcome.ABANDON)])
    async def test_a_locked_message_is_completed_or_given_up_by_id_or_number(
        self, door: Any, script: Script, method: str, outcome: Outcome, message: str
    ) -> None:
        answer = await door.ask(method, f"/q/messages/{message}/{LOCK}")
        assert answer.status == 200
        ((settlement,),) = [command.settlements for command in door.commands(Settle)]
        assert (settlement.token, settlement.outcome) == (TOKEN, outcome)

    async def test_a_lock_is_renewed_and_its_new_end_told(self, door: Any, script: Script) -> None:
        answer = await door.ask("POST", f"/q/messages/7/{LOCK}")
        assert answer.status == 200
        told = {"LockToken": str(LOCK), "LockedUntilUtc": "Tue, 14 Nov 2023 22:13:50 GMT"}
        assert json.loads(answer.headers["BrokerProperties"]) == told
        assert ("renew", "ok") in door.notes()

    @pytest.mark.parametrize("method", ["DELETE", "PUT", "POST"])
    async def test_a_lock_that_is_lost_or_another_messages_is_not_found(
        self, door: Any, script: Script, method: str
    ) -> None:
        assert (await door.ask(method, f"/q/messages/8/{LOCK}")).status == 404
        script.answers[Inspect] = lambda command: [None]
        assert (await door.ask(method, f"/q/messages/7/{LOCK}")).status == 404
        assert not door.commands(Settle)

    async def test_a_lock_that_is_lost_on_the_way_is_not_found(self, door: Any, script: Script) -> None:
        script.answers[Settle] = lambda command: [BusError(Fault.LOCK_LOST, "It is lost.")]
        assert (await door.ask("DELETE", f"/q/messages/7/{LOCK}")).status == 404


class TestMethods:
    @pytest.mark.parametrize(
        ("method", "path", "allow"),
        [
            ("GET", "/q/messages", "POST"),
            ("HEAD", "/q/messages/head", "DELETE, POST"),
            ("OPTIONS", "/q/messages/head", "DELETE, POST"),
            ("PATCH", f"/q/messages/7/{LOCK}", "DELETE, POST, PUT"),
            ("OPTIONS", "/q", "GET, PUT, DELETE"),
            ("POST", "/q", "GET, PUT, DELETE"),
        ],
    )
    async def test_a_method_that_an_address_does_not_know_is_refused_with_those_that_it_does(
        self, door: Any, script: Script, method: str, path: str, allow: str
    ) -> None:
        answer = await door.ask(method, path)
        assert (answer.status, answer.headers["Allow"]) == (405, allow)

    async def test_strangers_do_not_learn_from_a_method_what_there_is(self, door: Any, script: Script) -> None:
        for method in ("GET", "OPTIONS", "PATCH"):
            answers = [await door.ask(method, f"/{name}/messages", token=None) for name in ("q", "nowhere")]
            assert len({(answer.status, answer.headers.get("Allow")) for answer in answers}) == 1

    async def test_an_entity_may_still_be_called_messages(self, door: Any, script: Script) -> None:
        assert (await door.put("q/messages")).status == 201
        assert (await door.get("/q/messages")).status == 200
        assert (await send(door, "/q/messages/messages")).status == 201
        assert (await door.ask("DELETE", "/q/messages?api-version=2021-05")).status == 200

    async def test_a_broker_that_is_not_ready_says_so(self, door: Any, script: Script) -> None:
        door.ready = False
        assert (await send(door)).status == 503
