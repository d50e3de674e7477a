"""The door over HTTP: who may enter, what is answered, and what is left behind in the namespace and the journal."""

from __future__ import annotations

import asyncio
import io
import json
import logging
from typing import Any

import pytest

from twinbus.admin import app
from twinbus.admin.probes import Finding
from twinbus.model.errors import BusError, Fault
from twinbus.model.message import Counts
from twinbus.model.security import AuthorizationRule, Rights
from twinbus.store.commands import Configure, Create, Drop
from twinbus.wire.markup import ATOM, INSTANCE, SERVICE_BUS, Element, parse

WRONG = AuthorizationRule("RootManageSharedAccessKey", "not-the-key", "nor-this", Rights.ALL)


def of(root: Element, *path: str) -> str:
    """The text at the end of a path of names, each in Atom's namespace or the service's."""
    for name in path:
        child = root.child(f"{{{ATOM}}}{name}") or root.child(f"{{{SERVICE_BUS}}}{name}")
        assert child is not None, f"{name} is missing"
        root = child
    return root.text


def setting(answer: Any, name: str) -> str:
    return of(parse(answer.body.encode()), "content", "QueueDescription", name)


def entries(answer: Any) -> list[Element]:
    return [child for child in parse(answer.body.encode()).children if child.name == f"{{{ATOM}}}entry"]


def titles(answer: Any) -> list[str]:
    return [of(entry, "title") for entry in entries(answer)]


def links(answer: Any) -> dict[str, str]:
    root = parse(answer.body.encode())
    return {link.attributes["rel"]: link.attributes["href"] for link in root.children if link.name == f"{{{ATOM}}}link"}


def refused(answer: Any, status: int, *words: str) -> None:
    """The answer is an error document of that status whose sentence has these words and can be found again."""
    root = parse(answer.body.encode())
    assert (answer.status, answer.headers["Content-Type"]) == (status, "application/xml; charset=utf-8")
    assert (root.name, root.children[0].name, root.children[0].text) == ("Error", "Code", str(status))
    detail = root.children[1].text
    assert detail.startswith(f"SubCode={status}")
    for word in ("TrackingId:", "SystemTracker:testbus:", *words):
        assert word in detail


class TestProbes:
    @pytest.mark.parametrize("path", ["/livez", "/readyz", "/health", "/metrics"])
    async def test_need_no_token(self, door: Any, path: str) -> None:
        assert (await door.ask("GET", path, token=None)).status == 200
        assert (await door.ask("HEAD", path, token=None)).status == 200

    async def test_readiness_and_health_follow_the_broker_and_liveness_does_not(self, door: Any) -> None:
        door.ready = False
        answers = {
            path: await door.ask("GET", path, token=None) for path in ("/livez", "/readyz", "/health", "/metrics")
        }
        assert {path: answer.status for path, answer in answers.items()} == {
            "/livez": 200,
            "/readyz": 503,
            "/health": 503,
            "/metrics": 200,
        }
        assert answers["/readyz"].body == "The broker is starting or stopping.\n"

    async def test_metrics_are_what_is_counted(self, door: Any) -> None:
        door.counters["twinbus_messages_accepted_total"] = {(("namespace", "testbus"),): 41}
        page = (await door.ask("GET", "/metrics", token=None)).body
        assert '\ntwinbus_messages_accepted_total{namespace="testbus"} 41.0\n' in page

    async def test_readiness_needs_a_store_and_nothing_else(self, door: Any) -> None:
        door.serves = False
        assert (await door.ask("GET", "/readyz", token=None)).status == 503
        door.serves = True
        door.findings["disk"] = Finding(False, "The disk of 'testbus' does not answer.")
        assert (await door.ask("GET", "/readyz", token=None)).status == 200

    async def test_each_check_can_be_asked_alone_and_tells_since_when(self, door: Any) -> None:
        door.findings["disk"] = Finding(False, "The disk of 'testbus' does not answer.", 1_700_000_000_000)
        failing = await door.ask("GET", "/healthz/disk", token=None)
        document = {
            "status": "failing",
            "reason": "The disk of 'testbus' does not answer.",
            "since": "2023-11-14T22:13:20.000Z",
        }
        assert (failing.status, json.loads(failing.body)) == (503, document)
        assert (await door.ask("GET", "/healthz/store", token=None)).status == 200
        both = await door.ask("GET", "/healthz", token=None)
        assert (both.status, json.loads(both.body)["disk"]) == (503, document)
        unknown = await door.ask("GET", "/healthz/moon", token=None)
        assert (unknown.status, json.loads(unknown.body)) == (404, {"checks": ["disk", "store"]})

    async def test_a_queue_may_bear_the_name_of_a_probe(self, door: Any) -> None:
        assert (await door.put("metrics")).status == 201
        assert setting(await door.get("/metrics"), "MessageCount") == "0"
        assert "process_cpu" in (await door.ask("GET", "/metrics", token=None)).body


class TestTokens:
    async def test_none_is_refused(self, door: Any) -> None:
        answer = await door.get("/$namespaceinfo", token=None)
        refused(answer, 401, "no Authorization header")
        assert answer.headers["WWW-Authenticate"] == "SharedAccessSignature"

    async def test_a_bearer_token_is_refused_in_a_sentence_of_its_own(self, door: Any) -> None:
        refused(await door.get("/$namespaceinfo", token="Bearer abc.def.ghi"), 401, "shared access signatures")

    async def test_a_signature_sent_as_a_bearer_token_is_accepted(self, door: Any) -> None:
        assert (await door.get("/$namespaceinfo", token=f"Bearer {door.token()}")).status == 200

    @pytest.mark.parametrize(
        "scope", ["https://{host}", "https://{host}/", "sb://{host}/", "http://{host}/$Resources", "https://127.0.0.1"]
    )
    async def test_for_the_namespace_or_a_part_of_it_are_accepted(self, door: Any, scope: str) -> None:
        token = door.token(resource=scope.format(host=door.host))
        assert (await door.get("/$Resources/Queues", token=token)).status == 200

    async def test_for_the_whole_address_in_lower_case_are_accepted(self, door: Any) -> None:
        token = door.token(resource=f"https://{door.host}/some/queue?api-version=2021-05".lower())
        assert (await door.put("Some/Queue", token=token)).status == 201

    @pytest.mark.parametrize("resource", ["https://elsewhere.example", "https://127.0.0.1/other", "https:///"])
    async def test_for_another_resource_are_refused(self, door: Any, resource: str) -> None:
        refused(await door.get("/queue", token=door.token(resource=resource)), 401)

    async def test_of_a_wrong_key_an_unknown_policy_or_a_past_time_are_refused(self, door: Any) -> None:
        stranger = AuthorizationRule("stranger", "root-primary", "x", Rights.ALL)
        for token in (door.token(WRONG), door.token(stranger), door.token(valid_s=0)):
            answer = await door.get("/$namespaceinfo", token=token)
            refused(answer, 401)
            assert "root-primary" not in answer.body
            assert token not in answer.body

    async def test_that_do_not_grant_manage_are_refused(self, door: Any) -> None:
        await door.put("q")
        token = door.token(door.namespace.rules[1])
        for answer in (
            await door.get("/q", token=token),
            await door.get("/$Resources/Queues", token=token),
            await door.get("/$namespaceinfo", token=token),
            await door.put("other", token=token),
            await door.update("q", token=token),
            await door.ask("DELETE", "/q", token=token),
        ):
            refused(answer, 401, "The Manage right is required")
        assert [queue.name for queue in door.namespace.queues()] == ["q"]

    async def test_of_a_queues_own_policy_reach_that_queue_alone(self, door: Any) -> None:
        rights = "".join(f"<AccessRights>{name}</AccessRights>" for name in ("Manage", "Send", "Listen"))
        rule = f"<AuthorizationRule><Rights>{rights}</Rights><KeyName>own</KeyName></AuthorizationRule>"
        await door.put("mine", f"<AuthorizationRules>{rule}</AuthorizationRules>")
        await door.put("other")
        own = door.namespace.queue("mine").description.authorization_rules[0]
        token = door.token(own, resource=f"https://{door.host}/mine")
        assert (await door.get("/MINE", token=token)).status == 200
        refused(await door.get("/other", token=token), 401)
        refused(await door.get("/$Resources/Queues", token=token), 401)
        refused(await door.get("/other", token=door.token(own)), 401)

    async def test_secrets_do_not_reach_the_log(self, door: Any, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.DEBUG)
        token = door.token(WRONG)
        answer = await door.get("/$namespaceinfo", token=token)
        tracking_id = answer.body.partition("TrackingId:")[2].partition(",")[0]
        ours = [record.getMessage() for record in caplog.records if record.name.startswith("twinbus")]
        assert [tracking_id in message for message in ours] == [True]
        assert "sig=" not in caplog.text
        assert "not-the-key" not in caplog.text


class TestCreate:
    async def test_makes_a_queue_with_the_defaults(self, door: Any) -> None:
        answer = await door.put("orders/new.v1-x_y")
        assert (answer.status, answer.headers["Content-Type"]) == (
            201,
            "application/atom+xml;type=entry;charset=utf-8",
        )
        root = parse(answer.body.encode())
        assert of(root, "id") == f"http://{door.host}/orders/new.v1-x_y"
        assert of(root, "title") == "orders/new.v1-x_y"
        assert of(root, "author", "name") == "testbus"
        assert setting(answer, "LockDuration") == "PT30S"
        assert door.namespace.queue("orders/new.v1-x_y").description.created_at_ms == door.clock.at_ms
        assert [row.name for row in door.catalog.rows.values()] == ["orders/new.v1-x_y"]
        assert len(door.commands(Create)) == 1
        assert door.notes() == [("manage", "created")]

    async def test_reads_slashes_escaped_or_not(self, door: Any) -> None:
        assert (await door.put("a%2Fb%2fc")).status == 201
        assert (await door.get("/a/b/c")).status == 200
        assert (await door.get("/A%2FB/C/")).status == 200

    async def test_of_a_name_that_is_taken_in_any_case_conflicts(self, door: Any) -> None:
        await door.put("orders")
        refused(await door.put("Orders"), 409, "already exists")
        assert door.notes() == [("manage", "created")]

    @pytest.mark.parametrize(
        "name",
        [
            *("", "with%20space", "a%22b", "%28%29", "-a", "a-", "a//b", "a/%2E%2E/b", "a%00", "a%0Ab", "%C3%A9"),
            *("$Resources/Queues", "$namespaceinfo", "x" * 261, "a/Subscriptions/b", "%3Cqueue%3E"),
        ],
    )
    async def test_of_a_name_that_cannot_be_is_refused(self, door: Any, name: str) -> None:
        refused(await door.put(name), 400)
        assert door.namespace.queues() == []

    async def test_with_an_address_that_is_not_utf8_is_refused(self, door: Any) -> None:
        refused(await door.put("a%FF"), 400)

    @pytest.mark.parametrize(
        "inside",
        [
            "<LockDuration>PT5M1S</LockDuration>",
            "<LockDuration>PT4S</LockDuration>",
            "<DuplicateDetectionHistoryTimeWindow>P7DT1S</DuplicateDetectionHistoryTimeWindow>",
            "<MaxMessageSizeInKilobytes>1024</MaxMessageSizeInKilobytes>",
            "<MaxSizeInMegabytes>7</MaxSizeInMegabytes>",
            "<MaxDeliveryCount>0</MaxDeliveryCount>",
            f"<UserMetadata>{'x' * 1025}</UserMetadata>",
        ],
    )
    async def test_with_a_value_out_of_bounds_is_refused(self, door: Any, inside: str) -> None:
        refused(await door.put("q", inside), 400, inside[1:].partition(">")[0])

    async def test_that_forwards_to_nowhere_is_refused(self, door: Any) -> None:
        refused(await door.put("q", "<ForwardTo>sb://h/other</ForwardTo>"), 400, "ForwardTo: there is no queue")

    async def test_that_forwards_tells_its_destinations_as_addresses(self, door: Any) -> None:
        await door.put("End")
        inside = "<ForwardTo>sb://h/end</ForwardTo><ForwardDeadLetteredMessagesTo>end</ForwardDeadLetteredMessagesTo>"
        answer = await door.put("q", inside)
        assert answer.status == 201
        for body in (answer.body, (await door.get("/q")).body):
            assert f"<ForwardTo>sb://{door.host}/End</ForwardTo>" in body
            assert f"<ForwardDeadLetteredMessagesTo>sb://{door.host}/End</ForwardDeadLetteredMessagesTo>" in body

    @pytest.mark.parametrize(
        ("element", "header"),
        [
            ("ForwardTo", "ServiceBusSupplementaryAuthorization"),
            ("ForwardDeadLetteredMessagesTo", "ServiceBusDlqSupplementaryAuthorization"),
        ],
    )
    async def test_that_forwards_needs_the_right_to_manage_the_destination_too(
        self, door: Any, element: str, header: str
    ) -> None:
        rights = "".join(f"<AccessRights>{name}</AccessRights>" for name in ("Manage", "Send", "Listen"))
        rule = f"<AuthorizationRule><Rights>{rights}</Rights><KeyName>own</KeyName></AuthorizationRule>"
        rules = f"<AuthorizationRules>{rule}</AuthorizationRules>"
        await door.put("mine", rules)
        await door.put("other", rules)
        mine, other = (door.namespace.queue(name).description.authorization_rules[0] for name in ("mine", "other"))
        own = door.token(mine, resource=f"https://{door.host}/mine")
        forward = f"<{element}>sb://{door.host}/other</{element}>"
        refused(await door.update("mine", rules + forward, token=own), 401, "Manage right is required on 'other' too")
        wrong = {header: door.token(mine, resource=f"https://{door.host}/other")}
        refused(await door.update("mine", rules + forward, token=own, **wrong), 401)
        assert door.namespace.queue("mine").description.forward_to is None
        right = {header: door.token(other, resource=f"sb://{door.host}/other")}
        assert (await door.update("mine", rules + forward, token=own, **right)).status == 200
        assert (await door.update("mine", rules + forward)).status == 200  # The namespace's own policy reaches both.

    async def test_with_more_than_twelve_rules_is_refused(self, door: Any) -> None:
        rules = "".join(
            f"<AuthorizationRule><Rights><AccessRights>Send</AccessRights></Rights><KeyName>r{number}</KeyName></AuthorizationRule>"
            for number in range(13)
        )
        refused(await door.put("q", f"<AuthorizationRules>{rules}</AuthorizationRules>"), 400, "At most 12")

    async def test_with_a_body_that_is_no_entry_is_refused(self, door: Any) -> None:
        for body in (None, "", "no xml", "<entry/>", f'<entry xmlns="{ATOM}"/>', '{"json": true}'):
            refused(await door.ask("PUT", "/q?api-version=2021-05", body), 400)

    async def test_with_a_document_type_is_refused(self, door: Any) -> None:
        bomb = '<!DOCTYPE entry [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]><entry>&b;</entry>'
        refused(await door.ask("PUT", "/q?api-version=2021-05", bomb), 400, "document type")

    async def test_with_too_large_a_body_is_refused_whether_its_length_is_told_or_not(self, door: Any) -> None:
        body = b" " * (app.BODY_BYTES_MAX + 1)

        async def unannounced() -> Any:
            yield body

        refused(await door.ask("PUT", "/q", io.BytesIO(body)), 413)
        refused(await door.ask("PUT", "/q", unannounced()), 413)
        assert (await door.put("still-works")).status == 201

    async def test_with_a_compressed_body_is_refused(self, door: Any) -> None:
        refused(await door.put("q", Content_Encoding="gzip"), 415)

    async def test_by_a_client_that_goes_away_leaves_no_queue_and_no_traceback(
        self, door: Any, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.INFO)
        address, _, port = door.host.partition(":")
        _, writer = await asyncio.open_connection(address, int(port))
        head = f"PUT /q HTTP/1.1\r\nHost: {door.host}\r\nAuthorization: {door.token()}\r\nContent-Length: 99\r\n\r\n"
        writer.write(head.encode() + b"<entry")
        await writer.drain()
        assert (await door.put("another")).status == 201
        writer.close()
        await writer.wait_closed()
        assert (await door.put("later")).status == 201
        assert [queue.name for queue in door.namespace.queues()] == ["another", "later"]
        assert "Traceback" not in caplog.text

    async def test_with_a_body_that_does_not_arrive_is_refused(
        self, door: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(app, "BODY_S", 0.01)
        forever = asyncio.Event()

        async def stalled() -> Any:
            yield b"<entry"
            await forever.wait()

        refused(await door.ask("PUT", "/q", stalled()), 408)


class TestGet:
    async def test_tells_counts_and_access(self, door: Any) -> None:
        await door.put("q")
        queue = door.namespace.queue("q")
        door.store.counts[queue.number()] = Counts(active=2, dead_letter=1, size_bytes=77)
        queue.accessed_at_ms = door.clock.at_ms
        answer = await door.get("/q?enrich=false")
        assert (setting(answer, "MessageCount"), setting(answer, "SizeInBytes")) == ("3", "77")
        assert setting(answer, "AccessedAt") == "2023-11-14T22:13:20.000Z"
        assert door.notes() == [("manage", "created"), ("manage", "read")]

    async def test_of_a_missing_queue_is_not_found(self, door: Any) -> None:
        refused(await door.get("/nobody"), 404, "'nobody' could not be found")

    async def test_of_an_empty_or_impossible_name_is_refused(self, door: Any) -> None:
        refused(await door.get("/"), 400)
        refused(await door.get("/a%20b"), 400)

    @pytest.mark.parametrize("path", ["/t/Subscriptions/", "/t/subscriptions", "/t/Subscriptions/s/Rules/r"])
    async def test_of_what_belongs_to_a_topic_is_not_found(self, door: Any, path: str) -> None:
        refused(await door.get(path), 404)

    async def test_while_the_store_is_away_can_be_tried_again(self, door: Any) -> None:
        await door.put("q")
        door.store.error = BusError(Fault.STORE_UNAVAILABLE, "The store is closed.")
        refused(await door.get("/q"), 503, "The store is closed.")

    async def test_names_cannot_smuggle_markup_or_lines_into_the_answer_or_the_log(
        self, door: Any, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.INFO, "twinbus")
        refused(await door.get("/%3C/Detail%3E%0A%1B[31m"), 400)
        assert [record.getMessage().isprintable() for record in caplog.records if record.name == "twinbus.admin"] == [
            True
        ]


class TestUpdate:
    async def test_replaces_the_description_and_drops_locks(self, door: Any) -> None:
        await door.put("Q", "<MaxDeliveryCount>3</MaxDeliveryCount><UserMetadata>x</UserMetadata>")
        door.clock.at_ms += 5_000
        answer = await door.update("q", "<LockDuration>PT1M</LockDuration>")
        assert (answer.status, of(parse(answer.body.encode()), "title")) == (200, "Q")
        assert [setting(answer, name) for name in ("LockDuration", "MaxDeliveryCount")] == ["PT1M", "10"]
        assert "UserMetadata" not in answer.body
        queue = door.namespace.queue("q").description
        assert queue.updated_at_ms - queue.created_at_ms == 5_000
        assert [command.settings.lock_duration_ms for command in door.commands(Configure)] == [60_000]
        assert door.notes() == [("manage", "created"), ("manage", "updated")]

    async def test_of_a_missing_queue_is_not_found(self, door: Any) -> None:
        refused(await door.update("nobody"), 404)
        assert door.namespace.queues() == []

    async def test_of_what_is_fixed_is_refused(self, door: Any) -> None:
        await door.put("q")
        refused(await door.update("q", "<RequiresSession>true</RequiresSession>"), 400, "RequiresSession")
        assert door.commands(Configure) == []

    async def test_by_version_is_refused(self, door: Any) -> None:
        await door.put("q")
        refused(await door.put("q", If_Match='"1"'), 412)

    async def test_rules_come_back_in_order_with_their_keys(self, door: Any) -> None:
        await door.put("q")
        rules = "".join(
            f'<AuthorizationRule xmlns:p5="{INSTANCE}" p5:type="SharedAccessAuthorizationRule">'
            f"<ClaimType>SharedAccessKey</ClaimType><ClaimValue>None</ClaimValue><Rights>{rights}</Rights>"
            f"<KeyName>{name}</KeyName><PrimaryKey>{name}-1</PrimaryKey><SecondaryKey>{name}-2</SecondaryKey>"
            "</AuthorizationRule>"
            for name, rights in (
                ("zebra", "<AccessRights>Listen</AccessRights>"),
                ("ant", "<AccessRights>Listen</AccessRights><AccessRights>Send</AccessRights>"),
            )
        )
        await door.update("q", f"<AuthorizationRules>{rules}</AuthorizationRules>")
        body = (await door.get("/q")).body
        root = parse(body.encode())
        shown = root.child(f"{{{ATOM}}}content").children[0].child(f"{{{SERVICE_BUS}}}AuthorizationRules").children
        assert [of(rule, "KeyName") for rule in shown] == ["zebra", "ant"]
        assert [of(rule, "PrimaryKey") for rule in shown] == ["zebra-1", "ant-1"]
        assert [of(rule, "SecondaryKey") for rule in shown] == ["zebra-2", "ant-2"]
        assert body.count('<AuthorizationRule i:type="SharedAccessAuthorizationRule">') == 2


class TestDelete:
    async def test_removes_the_queue_and_answers_with_nothing(self, door: Any) -> None:
        await door.put("q")
        answer = await door.ask("DELETE", "/Q?api-version=2021-05")
        assert (answer.status, answer.body) == (200, "")
        assert (door.namespace.queues(), door.catalog.rows) == ([], {})
        assert len(door.commands(Drop)) == 1
        assert door.notes() == [("manage", "created"), ("manage", "deleted")]

    async def test_of_a_missing_queue_is_not_found(self, door: Any) -> None:
        refused(await door.ask("DELETE", "/nobody"), 404)


class TestLists:
    async def test_have_a_second_link_only_while_more_is_to_come(self, door: Any) -> None:
        for number in range(5):
            await door.put(f"q{number}")
        path, seen = "/$Resources/Queues?$skip=0&$top=2", []
        pages = 0
        while path:
            answer = await door.get(path)
            assert answer.headers["Content-Type"] == "application/atom+xml;type=feed;charset=utf-8"
            seen += titles(answer)
            pages += 1
            assert set(links(answer)) == ({"self", "next"} if pages < 3 else {"self"})
            path = links(answer).get("next", "").removeprefix(f"http://{door.host}").replace("&api-version=2021-05", "")
        assert (seen, pages) == (["q0", "q1", "q2", "q3", "q4"], 3)

    async def test_name_skip_and_top_in_the_next_link_and_keep_the_other_parameters(self, door: Any) -> None:
        for number in range(3):
            await door.put(f"q{number}")
        answer = await door.get("/$Resources/queues?$top=1&$skip=1")
        assert links(answer)["next"] == (f"http://{door.host}/$Resources/queues?$top=1&$skip=2&api-version=2021-05")

    async def test_that_end_with_a_full_page_have_no_next_link(self, door: Any) -> None:
        await door.put("only")
        assert set(links(await door.get("/$Resources/Queues?$top=1"))) == {"self"}

    async def test_have_at_most_a_hundred_entries_by_default_and_at_all(self, door: Any) -> None:
        for number in range(101):
            await door.put(f"q{number:03}")
        for query in ("", "?$top=5000"):
            answer = await door.get(f"/$Resources/Queues{query}")
            assert len(entries(answer)) == 100
            assert "$skip=100" in links(answer)["next"]

    async def test_carry_the_counts_of_each_queue(self, door: Any) -> None:
        for name, count in (("a", 1), ("b", 2)):
            await door.put(name)
            door.store.counts[door.namespace.queue(name).number()] = Counts(active=count)
        found = entries(await door.get("/$Resources/Queues"))
        assert [of(entry, "content", "QueueDescription", "MessageCount") for entry in found] == ["1", "2"]

    async def test_beyond_the_end_and_of_topics_are_empty(self, door: Any) -> None:
        await door.put("q")
        assert titles(await door.get("/$Resources/Queues?$skip=9")) == []
        assert titles(await door.get("/$resources/TOPICS")) == []

    @pytest.mark.parametrize("query", ["$skip=-1", "$top=-1", "$top=0", "$skip=x", "$skip=1e3", "$top=" + "9" * 30])
    async def test_with_a_page_that_cannot_be_are_refused(self, door: Any, query: str) -> None:
        refused(await door.get(f"/$Resources/Queues?{query}"), 400, query.partition("=")[0])

    async def test_leave_out_a_queue_that_is_deleted_meanwhile(
        self, door: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await door.put("gone")
        await door.put("here")
        queue = door.namespace.queue("gone")

        async def deleted() -> Counts:
            await door.namespace.delete_entity("gone")
            raise BusError(Fault.ENTITY_NOT_FOUND, "It is gone.")

        monkeypatch.setattr(queue, "counts", deleted)
        assert titles(await door.get("/$Resources/Queues")) == ["here"]


async def test_the_namespace_tells_of_itself(door: Any) -> None:
    answer = await door.get("/$NamespaceInfo")
    root = parse(answer.body.encode())
    assert of(root, "title") == "testbus"
    info = {
        name: of(root, "content", "NamespaceInfo", name)
        for name in ("Name", "MessagingSKU", "NamespaceType", "CreatedTime", "ModifiedTime")
    }
    assert info == {
        "Name": "testbus",
        "MessagingSKU": "Standard",
        "NamespaceType": "Messaging",
        "CreatedTime": "2023-11-14T22:13:20.000Z",
        "ModifiedTime": "2023-11-14T22:13:20.000Z",
    }


async def test_nothing_is_administered_before_the_broker_is_ready(door: Any) -> None:
    door.ready = False
    refused(await door.get("/$namespaceinfo"), 503, "starting or stopping")


@pytest.mark.parametrize("method", ["POST", "PATCH", "OPTIONS"])
async def test_other_methods_are_not_allowed(door: Any, method: str) -> None:
    answer = await door.ask(method, "/q")
    refused(answer, 405, method)
    assert answer.headers["Allow"] == "GET, PUT, DELETE"


async def test_a_defect_is_answered_without_its_details_and_logged_with_them(
    door: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken() -> list[Any]:
        raise ZeroDivisionError("a secret detail")

    monkeypatch.setattr(door.namespace, "queues", broken)
    answer = await door.get("/$Resources/Queues")
    refused(answer, 500)
    assert "secret detail" not in answer.body
    tracking_id = answer.body.partition("TrackingId:")[2].partition(",")[0]
    assert tracking_id in caplog.text
    assert "a secret detail" in caplog.text
