"""Topics, subscriptions and rules over HTTP: addresses, statuses, and what is left behind in the namespace."""

from __future__ import annotations

from typing import Any

import pytest

from twinbus.model.errors import BusError, Fault
from twinbus.model.message import Counts
from twinbus.model.security import AuthorizationRule, Rights
from twinbus.rules.description import CorrelationFilter, FalseFilter, SqlFilter, TrueFilter
from twinbus.store.commands import Configure, Create, Drop
from twinbus.wire.markup import ATOM, SERVICE_BUS, Element, parse

TRUE = '<Filter i:type="TrueFilter"/>'
SQL = '<Filter i:type="SqlFilter"><SqlExpression>a = 1</SqlExpression></Filter>'
CORRELATION = '<Filter i:type="CorrelationFilter"><Label>x</Label></Filter>'


def of(root: Element, *path: str) -> str:
    for name in path:
        child = root.child(f"{{{ATOM}}}{name}") or root.child(f"{{{SERVICE_BUS}}}{name}")
        assert child is not None, f"{name} is missing"
        root = child
    return root.text


def root_of(answer: Any) -> Element:
    return parse(answer.body.encode())


def ids(answer: Any) -> list[tuple[str, str]]:
    """Title and path of every entry of a feed."""
    entries = [child for child in root_of(answer).children if child.name == f"{{{ATOM}}}entry"]
    return [(of(entry, "title"), of(entry, "id").partition("://")[2].partition("/")[2]) for entry in entries]


def refused(answer: Any, status: int, *words: str) -> None:
    """The answer is an error document of that status whose sentence has these words."""
    root = root_of(answer)
    assert (answer.status, root.name) == (status, "Error")
    for word in words:
        assert word in root.children[1].text


@pytest.fixture
async def subscribed(door: Any) -> Any:
    """A door to a namespace with the topic Team/T and its subscription S."""
    await door.put_topic("Team/T")
    await door.put_subscription("Team/T/Subscriptions/S")
    return door


class TestTopics:
    async def test_are_created_read_updated_and_deleted_at_their_name(self, door: Any) -> None:
        created = await door.put_topic("Team/T", "<UserMetadata>x</UserMetadata>")
        assert (created.status, of(root_of(created), "title")) == (201, "Team/T")
        assert of(root_of(created), "id") == f"http://{door.host}/Team/T"
        updated = await door.update("team/t", kind="TopicDescription")
        assert (updated.status, of(root_of(updated), "title")) == (200, "Team/T")
        assert door.namespace.topic("Team/T").description.user_metadata is None
        assert of(root_of(await door.get("/TEAM/T/")), "content", "TopicDescription", "Status") == "Active"
        assert (await door.ask("DELETE", "/team/t")).status == 200
        assert (door.namespace.topics(), door.catalog.rows) == ([], {})
        assert door.notes() == [("manage", outcome) for outcome in ("created", "updated", "read", "deleted")]

    async def test_share_their_names_with_queues(self, door: Any) -> None:
        await door.put("q")
        await door.put_topic("t")
        refused(await door.put_topic("Q"), 409)
        refused(await door.put("T"), 409)
        refused(await door.update("q", kind="TopicDescription"), 404)
        refused(await door.update("t"), 404)
        assert ids(await door.get("/$Resources/Topics")) == [("t", "t")]
        assert ids(await door.get("/$Resources/Queues")) == [("q", "q")]
        assert door.commands(Configure) == []

    async def test_asked_for_as_a_queue_are_shown_as_what_they_are(self, door: Any) -> None:
        await door.put_topic("t")
        content = root_of(await door.get("/t")).child(f"{{{ATOM}}}content")
        assert content is not None
        assert [child.name for child in content.children] == [f"{{{SERVICE_BUS}}}TopicDescription"]

    async def test_take_what_is_below_them_along(self, subscribed: Any) -> None:
        assert len(subscribed.commands(Create)) == 2
        assert (await subscribed.ask("DELETE", "/Team/T")).status == 200
        assert (len(subscribed.commands(Drop)), subscribed.catalog.rows) == (2, {})
        refused(await subscribed.get("/Team/T/Subscriptions/S"), 404)

    async def test_count_their_filters_for_clients_that_know_them(self, subscribed: Any) -> None:
        await subscribed.put_subscription("Team/T/subscriptions/other")
        await subscribed.put_rule("Team/T/subscriptions/other/rules/sql", SQL)
        await subscribed.put_rule("Team/T/subscriptions/other/rules/correlation", CORRELATION)
        topic = subscribed.namespace.topic("Team/T")
        subscribed.store.counts[topic.number()] = Counts(scheduled=3, size_bytes=77)
        shown = root_of(await subscribed.ask("GET", "/Team/T?api-version=2024-05"))
        numbers = {
            name: of(shown, "content", "TopicDescription", name)
            for name in ("SubscriptionCount", "SqlFilterCount", "CorrelationFilterCount", "SizeInBytes")
        }
        assert list(numbers.values()) == ["2", "3", "1", "77"]
        assert "SqlFilterCount" not in (await subscribed.get("/Team/T")).body

    @pytest.mark.parametrize("name", ["with%20space", "a-", "a/Rules/b", "x" * 261])
    async def test_of_a_name_that_cannot_be_are_refused(self, door: Any, name: str) -> None:
        refused(await door.put_topic(name), 400)
        assert door.namespace.topics() == []


class TestSubscriptions:
    async def test_have_the_id_that_the_javascript_client_takes_apart(self, subscribed: Any) -> None:
        created = await subscribed.put_subscription("team%2Ft/subscriptions/Other")
        assert created.status == 201
        assert of(root_of(created), "id") == f"http://{subscribed.host}/Team/T/Subscriptions/Other"
        for path in ("/Team/T/Subscriptions/", "/team/t/subscriptions", "/team%2Ft/SUBSCRIPTIONS"):
            assert ids(await subscribed.get(path)) == [
                ("Other", "Team/T/Subscriptions/Other"),
                ("S", "Team/T/Subscriptions/S"),
            ]

    async def test_are_listed_by_pages(self, subscribed: Any) -> None:
        for name in ("A", "B"):
            await subscribed.put_subscription(f"Team/T/Subscriptions/{name}")
        answer = await subscribed.get("/Team/T/Subscriptions/?$skip=0&$top=2")
        assert [title for title, _ in ids(answer)] == ["A", "B"]
        links = [link.attributes for link in root_of(answer).children if link.name == f"{{{ATOM}}}link"]
        assert [link["rel"] for link in links] == ["self", "next"]
        assert links[1]["href"].startswith(f"http://{subscribed.host}/Team/T/Subscriptions/?$skip=2&$top=2")

    async def test_begin_with_the_rule_that_is_asked_for_or_the_one_that_takes_everything(
        self, subscribed: Any
    ) -> None:
        rule = f"<DefaultRuleDescription>{SQL}<Name>first</Name></DefaultRuleDescription>"
        await subscribed.put_subscription("Team/T/Subscriptions/other", rule)
        rules = {s.description.name: s.rules for s in subscribed.namespace.topic("Team/T").subscriptions()}
        assert [(rule.name, rule.filter) for rule in rules["other"]] == [("first", SqlFilter("a = 1"))]
        assert [(rule.name, rule.filter) for rule in rules["S"]] == [("$Default", TrueFilter())]

    async def test_that_are_updated_keep_their_rules_and_their_spelling(self, subscribed: Any) -> None:
        rule = f"<DefaultRuleDescription>{SQL}<Name>other</Name></DefaultRuleDescription>"
        inside = f"{rule}<MaxDeliveryCount>3</MaxDeliveryCount>"
        answer = await subscribed.update("team/t/subscriptions/s", inside, "SubscriptionDescription")
        assert (answer.status, of(root_of(answer), "title")) == (200, "S")
        subscription = subscribed.namespace.subscription("Team/T/Subscriptions/S")
        assert subscription.description.max_delivery_count == 3
        assert [rule.name for rule in subscription.rules] == ["$Default"]

    async def test_are_missing_where_there_is_no_topic(self, subscribed: Any) -> None:
        await subscribed.put("q")
        for topic in ("q", "nobody"):
            refused(await subscribed.get(f"/{topic}/Subscriptions/"), 404)
            refused(await subscribed.get(f"/{topic}/Subscriptions/s"), 404)
            refused(await subscribed.put_subscription(f"{topic}/Subscriptions/s"), 404)
        refused(await subscribed.update("Team/T/Subscriptions/absent", kind="SubscriptionDescription"), 404)
        refused(await subscribed.ask("DELETE", "/Team/T/Subscriptions/absent"), 404)

    async def test_that_cannot_be_are_refused(self, subscribed: Any) -> None:
        path = "Team/T/Subscriptions"
        refused(await subscribed.put_subscription(f"{path}/{'x' * 51}"), 400)
        refused(await subscribed.put_subscription(f"{path}/a%2Fb"), 400)
        refused(await subscribed.put_subscription(f"{path}/a%20b"), 400)
        refused(await subscribed.put_subscription(f"{path}/s"), 409)
        refused(
            await subscribed.put_subscription(f"{path}/n", "<LockDuration>PT6M</LockDuration>"), 400, "LockDuration"
        )
        bad = f"<DefaultRuleDescription>{SQL.replace('a = 1', 'a = =')}</DefaultRuleDescription>"
        refused(await subscribed.put_subscription(f"{path}/n", bad), 400)
        assert [s.description.name for s in subscribed.namespace.topic("Team/T").subscriptions()] == ["S"]

    async def test_that_are_deleted_while_they_are_listed_are_left_out(
        self, subscribed: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await subscribed.put_subscription("Team/T/Subscriptions/here")
        gone = subscribed.namespace.subscription("Team/T/Subscriptions/S")

        async def deleted() -> Counts:
            await subscribed.namespace.delete_entity(gone.path)
            raise BusError(Fault.ENTITY_NOT_FOUND, "It is gone.")

        monkeypatch.setattr(gone, "counts", deleted)
        assert [title for title, _ in ids(await subscribed.get("/Team/T/Subscriptions"))] == ["here"]

    async def test_obey_the_policies_of_their_topic(self, subscribed: Any) -> None:
        description = subscribed.namespace.topic("Team/T").description
        own = AuthorizationRule("own", "own-key", "other", Rights.ALL)
        inside = (
            "<AuthorizationRules><AuthorizationRule><Rights><AccessRights>Manage</AccessRights>"
            "<AccessRights>Send</AccessRights><AccessRights>Listen</AccessRights></Rights><KeyName>own</KeyName>"
            "<PrimaryKey>own-key</PrimaryKey></AuthorizationRule></AuthorizationRules>"
        )
        await subscribed.update(description.name, inside, "TopicDescription")
        token = subscribed.token(own, resource=f"https://{subscribed.host}/team/t")
        assert (await subscribed.get("/Team/T/Subscriptions/S/Rules/", token=token)).status == 200
        assert (await subscribed.put_subscription("Team/T/Subscriptions/new", token=token)).status == 201
        refused(await subscribed.get("/$Resources/Topics", token=token), 401)


class TestRules:
    path = "Team/T/Subscriptions/S/Rules"

    async def test_are_created_read_replaced_and_deleted_at_their_name(self, subscribed: Any) -> None:
        created = await subscribed.put_rule(f"{self.path}/R", f"{SQL}<Name>R</Name>")
        assert (created.status, of(root_of(created), "title")) == (201, "R")
        assert of(root_of(created), "id") == f"http://{subscribed.host}/{self.path}/R"
        subscribed.clock.at_ms += 5_000
        replaced = await subscribed.update(f"{self.path.lower()}/r", CORRELATION, "RuleDescription")
        assert (replaced.status, of(root_of(replaced), "title")) == (200, "R")
        rule = subscribed.namespace.subscription("Team/T/Subscriptions/S").rule("R")
        assert (rule.filter, subscribed.clock.at_ms - rule.created_at_ms) == (CorrelationFilter(subject="x"), 5_000)
        assert of(root_of(await subscribed.get(f"/{self.path}/%24Default")), "content", "RuleDescription", "Name") == (
            "$Default"
        )
        assert (await subscribed.ask("DELETE", f"/{self.path}/$DEFAULT")).status == 200
        assert ids(await subscribed.get(f"/{self.path}/")) == [("R", f"{self.path}/R")]
        assert subscribed.notes()[2:] == [("manage", outcome) for outcome in ("created", "updated", "read", "deleted")]

    async def test_are_listed_by_pages_in_the_order_of_their_making(self, subscribed: Any) -> None:
        for name in ("c", "a", "b"):
            await subscribed.put_rule(f"{self.path}/{name}", TRUE)
        assert [title for title, _ in ids(await subscribed.get(f"/{self.path}?$skip=1&$top=2"))] == ["c", "a"]
        assert [title for title, _ in ids(await subscribed.get(f"/{self.path}?$skip=3"))] == ["b"]

    async def test_that_exist_are_not_created_and_missing_ones_not_replaced(self, subscribed: Any) -> None:
        refused(await subscribed.put_rule(f"{self.path}/$default", TRUE), 409)
        refused(await subscribed.update(f"{self.path}/absent", TRUE, "RuleDescription"), 404)
        refused(await subscribed.get(f"/{self.path}/absent"), 404)
        refused(await subscribed.ask("DELETE", f"/{self.path}/absent"), 404)
        refused(await subscribed.put_rule("Team/T/Subscriptions/absent/Rules/r", TRUE), 404)
        refused(await subscribed.get("/Team/T/Subscriptions/absent/Rules"), 404)

    @pytest.mark.parametrize(
        ("name", "inside"),
        [
            ("r", '<Filter i:type="SqlFilter"><SqlExpression>a = = 1</SqlExpression></Filter>'),
            ("r", f'<Filter i:type="SqlFilter"><SqlExpression>{"a" * 1025}</SqlExpression></Filter>'),
            ("r", f'{TRUE}<Action i:type="SqlRuleAction"><SqlExpression>DROP a</SqlExpression></Action>'),
            ("r", f"{TRUE}<Name>other</Name>"),
            ("with%20space", TRUE),
            ("a" * 51, TRUE),
            ("a%2Fb", TRUE),
        ],
    )
    async def test_that_cannot_be_are_refused(self, subscribed: Any, name: str, inside: str) -> None:
        refused(await subscribed.put_rule(f"{self.path}/{name}", inside), 400)
        assert len(subscribed.namespace.subscription("Team/T/Subscriptions/S").rules) == 1

    async def test_are_durable_with_their_subscription(self, subscribed: Any) -> None:
        await subscribed.put_rule(f"{self.path}/none", '<Filter i:type="FalseFilter"/>')
        documents = [row.document for row in subscribed.catalog.rows.values() if row.kind == "subscription"]
        assert ['"none"' in document for document in documents] == [True]
        assert subscribed.namespace.subscription("Team/T/Subscriptions/S").rule("none").filter == FalseFilter()


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("q", "SubscriptionDescription"),
        ("q", "RuleDescription"),
        ("q", "SomethingElse"),
        ("Team/T/Subscriptions/x", "QueueDescription"),
        ("Team/T/Subscriptions/x", "RuleDescription"),
        ("Team/T/Subscriptions", "SubscriptionDescription"),
        ("Team/T/Subscriptions/S/Rules", "RuleDescription"),
        ("Team/T/Subscriptions/S/Rules/r", "SubscriptionDescription"),
        ("$Resources/Topics", "TopicDescription"),
    ],
)
async def test_a_description_that_does_not_belong_to_its_address_is_refused(
    subscribed: Any, path: str, kind: str
) -> None:
    refused(await subscribed.put(path, kind=kind), 400, "does not belong to this address")


@pytest.mark.parametrize(
    "path", ["/$Resources/Queues", "/$namespaceinfo", "/Team/T/Subscriptions", f"/{TestRules.path}"]
)
async def test_lists_cannot_be_deleted(subscribed: Any, path: str) -> None:
    refused(await subscribed.ask("DELETE", path), 400, "can only be read")


@pytest.mark.parametrize("path", ["/$Resources/queues", "/orders"])
async def test_what_a_lost_store_holds_is_still_there_to_be_seen(door: Any, path: str) -> None:
    await door.put("orders")
    door.store.is_available = False
    door.store.error = BusError(Fault.STORE_UNAVAILABLE, "gone")
    answer = await door.get(path)
    assert answer.status == 200
    assert "<EntityAvailabilityStatus>Limited</EntityAvailabilityStatus>" in answer.body
    assert "<MessageCount>0</MessageCount>" in answer.body
    assert (await door.update("orders")).status == 503
    assert (await door.ask("DELETE", "/orders?api-version=2021-05")).status == 503
