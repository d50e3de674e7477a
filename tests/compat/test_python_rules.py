"""Rules with the official clients: which messages each kind of filter takes, and what actions make of the copies.

Which copies there are and how they are settled is in `test_python_topics`; the language itself in tests/unit/rules.
"""

from __future__ import annotations

import asyncio
import datetime
import uuid
from decimal import Decimal
from typing import Any

import pytest
from azure.core.exceptions import HttpResponseError, ResourceExistsError, ResourceNotFoundError
from azure.servicebus import ServiceBusMessage, ServiceBusReceivedMessage, ServiceBusReceiveMode, ServiceBusSubQueue
from azure.servicebus.management import (
    CorrelationRuleFilter,
    FalseRuleFilter,
    SqlRuleAction,
    SqlRuleFilter,
    TrueRuleFilter,
)

from support.broker import BrokerProcess
from support.sdk import Bus, both, nothing_comes, receive, together
from support.topics import DEFAULT_RULE, Topics, bodies, receiver, send, sender, taken, taken_by

pytest_plugins = ["compat.conftest_admin", "compat.conftest_topics"]
pytestmark = pytest.mark.feature("rules")

DEAD = ServiceBusSubQueue.DEAD_LETTER
INSTANT = datetime.datetime(2024, 2, 29, 12, 0, 0, tzinfo=datetime.UTC)
ID = uuid.UUID("00112233-4455-6677-8899-aabbccddeeff")

ORDER: dict[str | bytes, Any] = {
    "colour": "red",
    "quantity": 10,
    "price": 2.5,
    "exact": Decimal("1.25"),
    "urgent": True,
    "id": ID,
    "made": INSTANT,
    "a name": "with a space",
    "code": "50%",
    "quote": "it's",
}

# A condition, and whether the message above passes it.
CONDITIONS = [
    ("colour = 'red'", True),
    ("COLOUR = 'red'", True),
    ("colour = 'Red'", False),
    ("user.colour <> 'blue'", True),
    ("colour != 'red'", False),
    ("quantity > 9 AND quantity < 11", True),
    ("quantity >= 10 AND NOT quantity > 10", True),
    ("quantity = 10.0", True),
    ("quantity * price = 25", True),
    ("quantity / 4 = 2", True),
    ("quantity % 3 = 1", True),
    ("-quantity + 1 = -9", True),
    ("price > quantity", False),
    ("exact = 1.25", True),
    ("exact * 4 = 5", True),
    ("urgent", True),
    ("urgent = TRUE", True),
    ("NOT urgent", False),
    ("colour IN ('blue', 'red')", True),
    ("colour NOT IN ('blue', 'red')", False),
    ("quantity IN (1, 10)", True),
    ("colour LIKE 'r_d'", True),
    ("colour LIKE '%e%'", True),
    ("colour NOT LIKE 'b%'", True),
    ("code LIKE '50!%' ESCAPE '!'", True),
    ("code LIKE '5!%' ESCAPE '!'", False),
    ("quote = 'it''s'", True),
    ("[a name] = 'with a space'", True),
    ("\"a name\" LIKE '%space'", True),
    ("EXISTS(colour)", True),
    ("EXISTS(weight)", False),
    ("colour IS NOT NULL", True),
    ("weight IS NULL", True),
    ("weight > 5", False),
    ("NOT weight > 5", False),
    ("weight > 5 OR urgent", True),
    ("weight > 5 AND urgent", False),
    ("property('colour') = 'red'", True),
    ("p('col' + 'our') = 'red'", True),
    ("colour + '-' + quantity = 'red-10'", True),
    (f"made = {int(INSTANT.timestamp() * 1000)}", True),
    ("id = newid()", False),
    ("1=1", True),
    ("1=0", False),
    ("sys.Label = 'order'", True),
    ("sys.subject = 'order'", True),
    ("sys.MessageId LIKE 'm-%'", True),
    ("sys.CorrelationId = 'correlation'", True),
    ("sys.To = 'to' AND sys.ReplyTo = 'reply'", True),
    ("sys.ContentType = 'text/plain'", True),
    ("sys.SessionId = 'session'", True),
    ("sys.ReplyToSessionId = 'reply session'", True),
    ("sys.Size > 0", True),
    ("sys.PartitionKey = sys.SessionId", True),
    ("sys.TimeToLive = 600000", True),
    ("sys.Label = 'Order'", False),
    ("sys.DeadLetterSource IS NULL", True),
    ("EXISTS(sys.Label) AND NOT EXISTS(sys.DeadLetterSource)", True),
]


@pytest.fixture(scope="module")
def broker(admin_endpoint: Any) -> BrokerProcess:
    found: BrokerProcess = admin_endpoint.broker
    return found


def order(body: str = "m", **properties: Any) -> ServiceBusMessage:
    """A message with these application properties."""
    return ServiceBusMessage(body, application_properties=dict(properties))


def rule_names(messages: list[ServiceBusReceivedMessage]) -> list[str]:
    return [(message.application_properties or {}).get(b"RuleName", b"").decode() for message in messages]


@both
async def test_conditions_over_all_that_a_message_says(bus: Bus, topics: Topics) -> None:
    """Each condition is a rule with an action, so that one message makes a copy for each rule that takes it.

    The action removes the decimal: this client sends them, and drops a message that has one without a word.
    """
    topic = topics.new()
    rules = {f"rule-{n}": condition for n, (condition, _) in enumerate(CONDITIONS)}
    topics.subscribe_to(topic, "s", *[(name, condition, "REMOVE exact") for name, condition in rules.items()])
    message = ServiceBusMessage(
        "m",
        message_id="m-1",
        subject="order",
        correlation_id="correlation",
        to="to",
        reply_to="reply",
        content_type="text/plain",
        session_id="session",
        partition_key="session",
        reply_to_session_id="reply session",
        time_to_live=datetime.timedelta(minutes=10),
        application_properties=ORDER,
    )
    await send(bus, topic, message)
    expected = {f"rule-{n}" for n, (_, passes) in enumerate(CONDITIONS) if passes}
    async with receiver(bus, topic, "s", receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE) as one:
        found = set(rule_names(await receive(one, len(expected))))
        assert {rules[name] for name in found ^ expected} == set()
    counts = topics.counts(topic, "s")
    assert (counts.active_message_count, counts.dead_letter_message_count) == (0, 0)


@both
async def test_every_kind_of_filter_chooses_its_messages(bus: Bus, topics: Topics) -> None:
    topic = topics.new("everything")
    kinds = {
        "true": TrueRuleFilter(),
        "false": FalseRuleFilter(),
        "sql": SqlRuleFilter("quantity > 5"),
        "parameters": SqlRuleFilter(
            "colour = @c AND quantity >= @q AND made < @t",
            parameters={"@c": "red", "@q": 7, "@t": datetime.datetime(2025, 1, 1)},
        ),
        "label": CorrelationRuleFilter(label="big"),
        "properties": CorrelationRuleFilter(label="big", properties={"colour": "red", "quantity": 7}),
        "nothing-like-it": CorrelationRuleFilter(label="big", properties={"colour": "Red"}),
    }
    for name, one in kinds.items():
        topics.subscribe_to(topic, name, ("rule", one, None))
    small = ServiceBusMessage("small", application_properties={"colour": "red", "quantity": 3, "made": INSTANT})
    big = ServiceBusMessage(
        "big", subject="big", application_properties={**small.application_properties, "quantity": 7}
    )
    await send(bus, topic, small, big)
    both_of_them, big_only = ["small", "big"], ["big"]
    expected = {
        "everything": both_of_them,
        "true": both_of_them,
        "sql": big_only,
        "parameters": big_only,
        "label": big_only,
        "properties": big_only,
    }
    found = await taken_by(bus, topic, {name: len(bodies) for name, bodies in expected.items()})
    assert dict(zip(expected, map(bodies, found), strict=True)) == expected
    for name in [*expected, "false", "nothing-like-it"]:
        assert topics.counts(topic, name).total_message_count == 0, name


@both
async def test_each_condition_of_a_correlation_filter_must_hold(bus: Bus, topics: Topics) -> None:
    """One rule for each condition that holds, and one that differs in that condition alone."""
    given = {
        "correlation_id": "c",
        "message_id": "m",
        "to": "t",
        "reply_to": "r",
        "label": "l",
        "session_id": "s",
        "reply_to_session_id": "rs",
        "content_type": "text/plain",
    }
    rules = [("all", CorrelationRuleFilter(**given), "SET n = 1")]
    for field in given:
        rules.append((f"{field}-alone", CorrelationRuleFilter(**{field: given[field]}), "SET n = 1"))
        rules.append((f"{field}-differs", CorrelationRuleFilter(**{**given, field: given[field] + "X"}), "SET n = 1"))
    properties = {"text": "x", "number": 7, "real": 2.5, "flag": True}
    for key, value in properties.items():
        rules.append((f"{key}-property", CorrelationRuleFilter(properties={key: value}), "SET n = 1"))
    rules.append(("text-differs", CorrelationRuleFilter(properties={**properties, "text": "y"}), "SET n = 1"))
    rules.append(("number-missing", CorrelationRuleFilter(properties={"other": 7}), "SET n = 1"))
    topic = topics.new()
    topics.subscribe_to(topic, "s", *rules)
    subject = given.pop("label")
    await send(bus, topic, ServiceBusMessage("m", subject=subject, application_properties=dict(properties), **given))
    expected = {name for name, _, _ in rules if not name.endswith(("-differs", "-missing"))}
    async with receiver(bus, topic, "s", receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE) as one:
        assert set(rule_names(await receive(one, len(expected)))) == expected
    assert topics.counts(topic, "s").total_message_count == 0


@both
async def test_several_rules_without_an_action_make_one_copy(bus: Bus, topics: Topics) -> None:
    topic = topics.new()
    topics.subscribe(topic, "s")
    topics.rule(topic, "s", "red", "colour = 'red'")
    topics.rule(topic, "s", "any", CorrelationRuleFilter(properties={"colour": "red"}))
    await send(bus, topic, order("first", colour="red"), order("second", colour="blue"))
    messages = await taken(bus, topic, "s", 2)
    assert bodies(messages) == ["first", "second"]
    assert rule_names(messages) == ["", ""]
    assert topics.counts(topic, "s").total_message_count == 0


@both
async def test_each_rule_with_an_action_makes_a_copy_of_its_own_beside_the_common_one(bus: Bus, topics: Topics) -> None:
    topic = topics.new("untouched")
    topics.subscribe_to(
        topic,
        "s",
        ("plain", "colour = 'red'", None),
        ("also-plain", TrueRuleFilter(), None),
        ("half", "EXISTS(quantity)", "SET quantity = quantity / 2; SET [was it halved] = TRUE; REMOVE colour"),
        ("other", "colour = 'blue'", "SET n = 1"),
        ("label", TrueRuleFilter(), "SET sys.Label = 'for ' + colour; REMOVE sys.To"),
    )
    message = ServiceBusMessage("m", to="somebody", subject="old", message_id="id")
    message.application_properties = {"colour": "red", "quantity": 10}
    await send(bus, topic, message)
    copies = await taken(bus, topic, "s", 3)
    found = dict(zip(rule_names(copies), copies, strict=True))
    assert found.keys() == {"", "half", "label"}
    assert {(str(copy), copy.message_id) for copy in copies} == {("m", "id")}
    assert len({copy.sequence_number for copy in copies}) == 3
    unchanged = {b"colour": b"red", b"quantity": 10}
    assert found[""].application_properties == unchanged
    assert found["half"].application_properties == {
        b"quantity": 5,
        b"was it halved": True,
        b"RuleName": b"half",
    }
    assert (found["half"].subject, found["half"].to) == ("old", "somebody")
    assert found["label"].application_properties == {**unchanged, b"RuleName": b"label"}
    assert (found["label"].subject, found["label"].to) == ("for red", None)
    (untouched,) = await taken(bus, topic, "untouched", 1)
    assert (untouched.application_properties, untouched.subject) == (unchanged, "old")


@both
async def test_an_action_changes_what_the_broker_goes_by(bus: Bus, topics: Topics) -> None:
    """A session id for a subscription with sessions, and a time to live."""
    topic = topics.new()
    topics.subscribe_to(
        topic, "sessions", ("by-colour", TrueRuleFilter(), "SET sys.SessionId = colour"), requires_session=True
    )
    topics.subscribe_to(topic, "short", ("soon", TrueRuleFilter(), "SET sys.TimeToLive = '00:01:00'"))
    topics.subscribe_to(
        topic, "ids", ("new", TrueRuleFilter(), "SET sys.MessageId = newid(); SET sys.CorrelationId = sys.MessageId")
    )
    sent = ServiceBusMessage("m", message_id="old", application_properties={"colour": "red"})
    await send(bus, topic, sent)
    (in_session,), (short,), (renamed,) = await asyncio.gather(
        taken(bus, topic, "sessions", 1, session_id="red"),
        taken(bus, topic, "short", 1),
        taken(bus, topic, "ids", 1),
    )
    assert in_session.session_id == "red"
    assert short.time_to_live == datetime.timedelta(minutes=1)
    assert short.expires_at_utc == short.enqueued_time_utc + datetime.timedelta(minutes=1)
    assert uuid.UUID(renamed.message_id).version == 4
    assert renamed.correlation_id == renamed.message_id


@both
async def test_values_keep_their_types_through_an_action(bus: Bus, topics: Topics) -> None:
    topic = topics.new()
    action = "SET sum = '' + (exact + 1); REMOVE exact; SET text = 'x'; SET real = price * 2"
    action += "; SET flag = NOT_THERE; SET copy = id"
    topics.subscribe_to(topic, "s", ("r", TrueRuleFilter(), action))
    await send(bus, topic, ServiceBusMessage("m", application_properties=ORDER))
    (copy,) = await taken(bus, topic, "s", 1)
    found = copy.application_properties
    assert found is not None
    assert found[b"text"] == b"x"
    assert found[b"real"] == 5.0
    assert found[b"flag"] is None
    assert found[b"copy"] == ID
    assert found[b"made"] == int(INSTANT.timestamp() * 1000)
    assert found[b"urgent"] is True
    assert found[b"sum"] == b"2.25"
    assert b"exact" not in found


@both
async def test_a_rule_without_an_answer_puts_the_message_into_the_dead_letter_queue_or_nowhere(
    bus: Bus, topics: Topics
) -> None:
    topic = topics.new("other")
    bad_filter, bad_action = ("bad-filter", "colour > 5", None), ("bad-action", "1=1", "SET n = colour * 2")
    unknown = ("unknown", "sys.NoSuchThing = 'x'", None)
    topics.subscribe_to(topic, "filter", bad_filter, dead_lettering_on_filter_evaluation_exceptions=True)
    topics.subscribe_to(topic, "action", bad_action, dead_lettering_on_filter_evaluation_exceptions=True)
    topics.subscribe_to(topic, "unknown", unknown, dead_lettering_on_filter_evaluation_exceptions=True)
    topics.subscribe_to(topic, "dropped", bad_filter, dead_lettering_on_filter_evaluation_exceptions=False)
    topics.subscribe(topic, "mixed", dead_lettering_on_filter_evaluation_exceptions=True)
    topics.rule(topic, "mixed", "bad-filter", "colour > 5")
    await send(bus, topic, order(colour="red"))
    (by_filter,), (by_action,), (by_name,), (mixed,), (good,), (other,) = await asyncio.gather(
        *[taken(bus, topic, name, 1, sub_queue=DEAD) for name in ("filter", "action", "unknown", "mixed")],
        *[taken(bus, topic, name, 1) for name in ("mixed", "other")],
    )
    assert (by_filter.dead_letter_reason, by_action.dead_letter_reason) == ("FilterException", "RuleActionException")
    assert (by_name.dead_letter_reason, mixed.dead_letter_reason) == ("FilterException", "FilterException")
    assert "bad-filter" in by_filter.dead_letter_error_description
    assert "NoSuchThing" in by_name.dead_letter_error_description
    assert (str(by_filter), by_filter.application_properties[b"colour"]) == ("m", b"red")
    assert (str(good), str(other)) == ("m", "m")
    assert good.dead_letter_reason is None
    for name in ("filter", "action", "unknown", "dropped", "mixed"):
        assert topics.counts(topic, name).total_message_count == 0, name


@both
async def test_changes_of_rules_hold_for_the_next_message(bus: Bus, topics: Topics) -> None:
    """A sender that does not pause meanwhile: what is sent after the answer to a change obeys it."""
    topic = topics.new()
    topics.subscribe_to(topic, "s", ("r", "phase = 0", None))
    async with together(sender(bus, topic), receiver(bus, topic, "s")) as (out, one):
        sent = 0

        async def publish(phase: int) -> None:
            nonlocal sent
            await out.send_messages([order(f"{sent}", phase=phase), order(f"{sent}", phase=phase + 1)])
            sent += 1

        for phase in range(4):
            await publish(phase)
            busy = asyncio.create_task(publish(phase))
            rule = topics.admin.get_rule(topic, "s", "r")
            rule.filter = SqlRuleFilter(f"phase = {phase + 1}")
            await asyncio.to_thread(topics.admin.update_rule, topic, "s", rule)
            await busy
        await publish(4)
        # Of each pair one message passes, whichever of the two rules it met; after the change it is the later phase's.
        messages = await receive(one, sent)
        assert bodies(messages) == [f"{n}" for n in range(sent)]
        certain = [message.application_properties[b"phase"] for message in messages[::2]]
        assert certain == [0, 1, 2, 3, 4]
        for message in messages:
            await one.complete_message(message)


@both
async def test_without_the_default_rule_nothing_arrives_until_there_is_another(bus: Bus, topics: Topics) -> None:
    topic = topics.new("s")
    default = topics.rules(topic, "s")
    assert list(default) == [DEFAULT_RULE]
    assert isinstance(default[DEFAULT_RULE].filter, TrueRuleFilter)
    assert default[DEFAULT_RULE].action is None
    topics.admin.delete_rule(topic, "s", DEFAULT_RULE)
    async with together(sender(bus, topic), receiver(bus, topic, "s")) as (out, one):
        await out.send_messages(order("lost"))
        assert await nothing_comes(one)
        topics.rule(topic, "s", "red", "colour = 'red'")
        await out.send_messages([order("red", colour="red"), order("blue", colour="blue")])
        assert bodies(await receive(one, 1)) == ["red"]
        topics.rule(topic, "s", DEFAULT_RULE, TrueRuleFilter())
        await out.send_messages(order("blue", colour="blue"))
        assert bodies(await receive(one, 1)) == ["blue"]


@both
async def test_rules_are_kept_as_they_were_given(bus: Bus, topics: Topics) -> None:
    topic = topics.new("s")
    when = datetime.datetime(2024, 2, 29, 12, 0, 0)
    parameters = {"@t": "text", "@n": 7, "@r": 2.5, "@f": True, "@d": when}
    topics.admin.create_rule(
        topic,
        "s",
        "sql",
        filter=SqlRuleFilter("a = @t AND b = @n AND c = @r AND d = @f AND e = @d", parameters=parameters),
        action=SqlRuleAction("SET a = @t", parameters={"@t": "x"}),
    )
    given = {"correlation_id": "c", "label": "l", "content_type": "t", "properties": {"text": "x", "number": 7}}
    topics.rule(topic, "s", "correlation", CorrelationRuleFilter(**given))
    topics.rule(topic, "s", "false", FalseRuleFilter())
    found = topics.rules(topic, "s")
    assert list(found) == [DEFAULT_RULE, "sql", "correlation", "false"]
    sql = found["sql"]
    assert isinstance(sql.filter, SqlRuleFilter)
    assert sql.filter.sql_expression == "a = @t AND b = @n AND c = @r AND d = @f AND e = @d"
    assert sql.filter.parameters == parameters
    assert isinstance(sql.action, SqlRuleAction)
    assert (sql.action.sql_expression, sql.action.parameters) == ("SET a = @t", {"@t": "x"})
    correlation = found["correlation"].filter
    assert isinstance(correlation, CorrelationRuleFilter)
    assert {key: getattr(correlation, key) for key in given} == given
    assert (correlation.to, correlation.message_id) == (None, None)
    assert isinstance(found["false"].filter, FalseRuleFilter)


@both
async def test_rules_that_cannot_be_are_refused_and_change_nothing(bus: Bus, topics: Topics) -> None:
    topic = topics.new("s")
    topics.rule(topic, "s", "good", "colour = 'red'")
    with pytest.raises(ResourceExistsError):
        topics.rule(topic, "s", "GOOD", "colour = 'blue'")
    for condition in ("colour =", "colour = 'red", "SELECT 1", "colour = @missing", f"colour = '{'x' * 1024}'"):
        with pytest.raises(HttpResponseError) as refused:
            topics.rule(topic, "s", "bad", condition)
        assert refused.value.status_code == 400, condition
    for action in ("colour = 'x'", "SET colour", "SET a = 1; " * 33):
        with pytest.raises(HttpResponseError) as refused:
            topics.rule(topic, "s", "bad", "1=1", action)
        assert refused.value.status_code == 400, action
    with pytest.raises(ResourceNotFoundError):
        topics.admin.delete_rule(topic, "s", "bad")
    assert list(topics.rules(topic, "s")) == [DEFAULT_RULE, "good"]
