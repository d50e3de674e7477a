"""What a new primary needs, whose messages it takes, and how a description is written anew."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from twinbus.client.diverting import MEANT_FOR, PATH, SESSION_ID, MeantFor
from twinbus.client.messages import Message
from twinbus.model.entity import QueueDescription
from twinbus.model.topic import SubscriptionDescription, TopicDescription
from twinbus.pair import replaced
from twinbus.pair.options import SendAvailabilityOptions
from twinbus.pair.replaced import Replaced
from twinbus.pair.replacement import file
from twinbus.pair.replacement.plan import Described, Seen, There, in_order, plan

BEFORE: dict[str, Any] = {
    "tag": "property:job-id",
    "primary": {"connection_string_env": "CONTOSO", "name": "contoso"},
    "secondary": {"connection_string_file": "secrets/fabrikam", "name": "fabrikam", "datacenter": "south"},
    "options": {"ordered": True, "failover_interval": "PT30S", "attempts": 3, "poll": 0.5},
    "entities": {"orders": "orders-b", "a/b": 'with "quotes"'},
}
LOST = Replaced("contoso", "id-1", "north:5672")


def seen(*messages: tuple[str, str | None], meant_for: str = "id-1 north:5672") -> Seen:
    found = Seen()
    for path, session in messages:
        properties = {PATH: path, MEANT_FOR: meant_for}
        found.add(Message(properties=properties if session is None else {**properties, SESSION_ID: session}))
    return found


class TestReplaced:
    """The option `replaces`."""

    @pytest.mark.parametrize("lost", [(), (LOST,), (LOST, Replaced("fabrikam", "", "south:5672"))])
    def test_it_is_read_as_it_was_written(self, lost: tuple[Replaced, ...]) -> None:
        assert replaced.parse(replaced.to_text(lost)) == lost

    def test_what_is_none_is_refused_by_the_options(self) -> None:
        with pytest.raises(ValueError, match="twinbus pair replace"):
            SendAvailabilityOptions(replaces="contoso")

    def test_ids_decide_and_without_one_the_address(self) -> None:
        assert LOST.was_meant(MeantFor("id-1", "elsewhere:1"))
        assert LOST.was_meant(MeantFor("", "north:5672"))
        assert not LOST.was_meant(MeantFor("id-2", "north:5672"))
        assert LOST._replace(id="").was_meant(MeantFor("id-2", "north:5672"))
        assert LOST.names == ("contoso", "north-5672")


class TestSeen:
    """What a look into the backlog found."""

    def test_every_id_at_the_lost_address_is_the_lost_primary(self) -> None:
        found = seen(("orders", None), meant_for="id-0 north:5672")
        found.meant_for[MeantFor("id-9", "west:1")] += 3
        lost = found.replaced(LOST)
        assert [each.id for each in lost] == ["id-0", "id-1"]
        assert found.for_others(lost, "id-new") == {"id-9": 3}

    def test_what_does_not_say_where_it_goes_is_counted(self) -> None:
        found = seen(("orders", None))
        found.add(Message())
        assert (found.count, found.unreadable) == (2, 1)


class TestPlan:
    """What is made."""

    def test_a_queue_has_sessions_if_all_its_messages_have_one(self) -> None:
        made = plan(seen(("carts", "a"), ("carts", "b"), ("mixed", "a"), ("mixed", None)), [], {})
        assert [(each.name, each.requires_session) for each in made.guess] == [("carts", True), ("mixed", False)]
        assert "1 of its 2 messages have none" in made.remarks[1]

    def test_what_is_there_stays_and_what_is_described_is_made_so(self) -> None:
        there = {"orders": There(QueueDescription(name="Orders", requires_session=True))}
        wanted = [
            Described(QueueDescription(name="orders")),
            Described(QueueDescription(name="quiet", max_delivery_count=3)),
        ]
        made = plan(seen(("ORDERS", None)), wanted, there)
        assert (made.stay, made.create, made.guess) == (["orders"], [wanted[1]], [])
        assert "will be dead letters" in made.remarks[0]

    def test_a_topic_without_a_subscription_is_a_problem(self) -> None:
        topic = Described(TopicDescription(name="events"))
        audit = Described(SubscriptionDescription(topic="events", name="audit"))
        assert "would vanish" in plan(seen(("events", None)), [topic], {}).problems[0]
        assert plan(seen(("events", None)), [audit, topic], {}).create == [topic, audit]
        assert plan(seen(("events", None)), [], {"events": There(topic.description, 1)}).problems == []

    def test_backlog_queues_of_an_export_are_not_made(self) -> None:
        assert plan(Seen(), [Described(QueueDescription(name="west/x-servicebus-transfer/0"))], {}).create == []

    def test_what_is_forwarded_to_comes_first(self) -> None:
        chain = [
            Described(QueueDescription(name=name, forward_to=to)) for name, to in (("a", "b"), ("b", "c"), ("c", None))
        ]
        assert [each.path for each in in_order(chain)] == ["c", "b", "a"]


class TestFile:
    """The description written anew."""

    def test_the_primary_is_another(self) -> None:
        after = file.moved(BEFORE, {"connection_string": "new"}, str(LOST), swap=False)
        assert after["primary"] == {"connection_string": "new"}
        assert after["secondary"] == BEFORE["secondary"]
        assert after["options"] == {**BEFORE["options"], "replaces": str(LOST)}
        assert tomllib.loads(file.to_toml(after)) == after

    def test_swapped(self) -> None:
        after = file.moved(BEFORE, {"connection_string": "new"}, str(LOST), swap=True)
        assert after["primary"] == {"connection_string_file": "secrets/fabrikam", "datacenter": "south"}
        assert after["secondary"] == {"connection_string": "new"}
        assert after["entities"] == {"orders-b": "orders", 'with "quotes"': "a/b"}

    def test_the_old_ones_stay(self, tmp_path: Path) -> None:
        path = tmp_path / "pair.toml"
        path.write_text("first")
        path.chmod(0o600)
        assert file.write(path, "second").read_text() == "first"
        assert file.write(path, "third").name == "pair.toml.old2"
        assert (path.read_text(), path.stat().st_mode & 0o777) == ("third", 0o600)
        assert len(list(tmp_path.iterdir())) == 3
