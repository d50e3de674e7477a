"""Queue descriptions: every bound from both sides, what may change afterwards, and the catalog's document."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from typing import Any

import pytest

from twinbus.model import limits
from twinbus.model.entity import (
    EntityStatus,
    QueueDescription,
    check_entity_name,
    check_queue,
    check_rules,
    check_update,
    from_document,
    target_path,
    to_document,
)
from twinbus.model.errors import BusError, Fault
from twinbus.model.security import AuthorizationRule, Rights

DAY_MS = 24 * 3_600_000


def queue(**settings: Any) -> QueueDescription:
    return QueueDescription(name="orders", **settings)


def rules(count: int) -> tuple[AuthorizationRule, ...]:
    return tuple(AuthorizationRule(f"rule-{n}", "a", "b", Rights.SEND) for n in range(count))


class TestDefaults:
    def test_a_bare_queue_is_valid_and_has_the_documented_defaults(self) -> None:
        bare = queue()
        check_queue(bare)
        assert bare.lock_duration_ms == 30_000
        assert bare.max_delivery_count == 10
        assert bare.max_size_mb == 1024
        assert bare.duplicate_window_ms == 600_000
        assert bare.default_ttl_ms == bare.auto_delete_on_idle_ms == limits.UNLIMITED_MS
        assert bare.status is EntityStatus.ACTIVE
        assert not bare.requires_session
        assert not bare.requires_duplicate_detection


class TestStatus:
    @pytest.mark.parametrize(
        ("status", "may_send", "may_receive"),
        [
            (EntityStatus.ACTIVE, True, True),
            (EntityStatus.DISABLED, False, False),
            (EntityStatus.SEND_DISABLED, False, True),
            (EntityStatus.RECEIVE_DISABLED, True, False),
        ],
    )
    def test_it_says_which_doors_are_open(self, status: EntityStatus, may_send: bool, may_receive: bool) -> None:
        assert (status.may_send, status.may_receive) == (may_send, may_receive)


class TestNames:
    @pytest.mark.parametrize(
        "name",
        [
            "a",
            "7",
            "_",
            "orders",
            "Orders.EU-west_2",
            "eu/orders/new",
            "a..b",
            "a--b",
            "_internal_",
            "rules2/mysubscriptions",
            "x" * 260,
        ],
    )
    def test_a_name_of_letters_digits_and_the_four_signs_is_accepted(self, name: str) -> None:
        check_entity_name(name)
        check_queue(replace(queue(), name=name))

    @pytest.mark.parametrize(
        "name",
        [
            "",
            "x" * 261,
            " ",
            "two words",
            "-orders",
            "orders-",
            ".orders",
            "orders.",
            "/orders",
            "orders/",
            "eu//orders",
            "$management",
            "orders/$DeadLetterQueue",
            "orders?",
            "orders#1",
            "orders'",
            'orders"',
            "(orders)",
            "orders\n",
            "orders\x00",
            "bestellung-ä",
            "orders\\new",
            "a/../b",
            "a/./b",
            "topic/Subscriptions/s",
            "rules",
            "a/RULES/b",
        ],
    )
    def test_what_is_no_name_is_refused(self, name: str) -> None:
        with pytest.raises(BusError) as refused:
            check_entity_name(name)
        assert refused.value.fault is Fault.ARGUMENT
        with pytest.raises(BusError):
            check_queue(replace(queue(), name=name))


BOUNDS = [
    ("lock_duration_ms", 5_000, 300_000, "LockDuration"),
    ("max_delivery_count", 1, 2_147_483_647, "MaxDeliveryCount"),
    ("default_ttl_ms", 1_000, limits.UNLIMITED_MS, "DefaultMessageTimeToLive"),
    ("auto_delete_on_idle_ms", 300_000, limits.UNLIMITED_MS, "AutoDeleteOnIdle"),
    ("duplicate_window_ms", 20_000, 7 * DAY_MS, "DuplicateDetectionHistoryTimeWindow"),
]


class TestBounds:
    @pytest.mark.parametrize(("attribute", "least", "most", "name"), BOUNDS, ids=lambda v: str(v))
    def test_both_ends_are_allowed_and_one_beyond_is_not(
        self, attribute: str, least: int, most: int, name: str
    ) -> None:
        for allowed in (least, most):
            check_queue(queue(**{attribute: allowed}))
        for forbidden in (least - 1, most + 1):
            with pytest.raises(BusError, match=f"{name}.* must be between .* not {forbidden}") as refused:
                check_queue(queue(**{attribute: forbidden}))
            assert refused.value.fault is Fault.ARGUMENT

    @pytest.mark.parametrize("size_mb", [1024, 2048, 3072, 4096, 5120])
    def test_the_sizes_of_a_standard_namespace_are_allowed(self, size_mb: int) -> None:
        check_queue(queue(max_size_mb=size_mb))

    @pytest.mark.parametrize("size_mb", [-1024, 0, 1, 1023, 1025, 1536, 6144])
    def test_other_sizes_are_not(self, size_mb: int) -> None:
        with pytest.raises(BusError, match="MaxSizeInMegabytes") as refused:
            check_queue(queue(max_size_mb=size_mb))
        assert refused.value.fault is Fault.ARGUMENT

    def test_user_metadata_has_a_length(self) -> None:
        check_queue(queue(user_metadata="x" * 1024))
        with pytest.raises(BusError, match="UserMetadata has at most 1024"):
            check_queue(queue(user_metadata="x" * 1025))

    def test_a_message_size_of_its_own_is_for_premium_only(self) -> None:
        with pytest.raises(BusError, match="Premium") as refused:
            check_queue(queue(max_message_size_kb=1024))
        assert refused.value.fault is Fault.ARGUMENT

    def test_a_queue_that_requires_sessions_forwards_dead_letters_only(self) -> None:
        check_queue(queue(forward_to="other"))
        check_queue(queue(requires_session=True, forward_dead_letters_to="other"))
        with pytest.raises(BusError, match=r"^ForwardTo: .*sessions") as refused:
            check_queue(queue(requires_session=True, forward_to="other"))
        assert refused.value.fault is Fault.ARGUMENT


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("other", "other"),
        ("a/b", "a/b"),
        ("sb://127.0.0.1:5300/a/b", "a/b"),
        ("https://bus.example/other/", "other"),
        ("sb://host", None),
        ("", None),
        (None, None),
    ],
)
def test_a_destination_is_read_as_a_path_or_as_an_address(text: str | None, path: str | None) -> None:
    assert target_path(text) == path


class TestRules:
    def test_twelve_rules_are_allowed_and_thirteen_are_not(self) -> None:
        check_rules(rules(12))
        check_queue(queue(authorization_rules=rules(12)))
        with pytest.raises(BusError, match="At most 12"):
            check_rules(rules(13))
        with pytest.raises(BusError, match="At most 12"):
            check_queue(queue(authorization_rules=rules(13)))

    def test_two_rules_whose_names_differ_only_in_case_are_refused(self) -> None:
        pair = (
            AuthorizationRule("Reader", "a", "b", Rights.LISTEN),
            AuthorizationRule("reader", "c", "d", Rights.LISTEN),
        )
        with pytest.raises(BusError, match="same name") as refused:
            check_rules(pair)
        assert refused.value.fault is Fault.ARGUMENT


class TestUpdate:
    @pytest.mark.parametrize(
        ("attribute", "name"),
        [
            ("requires_session", "RequiresSession"),
            ("requires_duplicate_detection", "RequiresDuplicateDetection"),
        ],
    )
    @pytest.mark.parametrize("before", [True, False])
    def test_what_is_fixed_at_creation_cannot_change(self, attribute: str, name: str, before: bool) -> None:
        old, new = queue(**{attribute: before}), queue(**{attribute: not before})
        with pytest.raises(BusError, match=f"^{name} is fixed") as refused:
            check_update(old, new)
        assert refused.value.fault is Fault.ARGUMENT

    def test_everything_else_may_change_at_once(self) -> None:
        new = queue(
            lock_duration_ms=60_000,
            max_size_mb=5120,
            default_ttl_ms=60_000,
            dead_letter_on_expiration=True,
            duplicate_window_ms=20_000,
            max_delivery_count=3,
            batched_operations=False,
            authorization_rules=rules(2),
            status=EntityStatus.DISABLED,
            auto_delete_on_idle_ms=300_000,
            user_metadata="changed",
        )
        check_update(queue(), new)

    def test_the_new_description_obeys_the_bounds(self) -> None:
        with pytest.raises(BusError, match="LockDuration"):
            check_update(queue(), queue(lock_duration_ms=300_001))


class TestDocument:
    FULL = QueueDescription(
        name="eu/Orders",
        lock_duration_ms=60_000,
        max_size_mb=2048,
        requires_duplicate_detection=True,
        requires_session=True,
        default_ttl_ms=5_000,
        dead_letter_on_expiration=True,
        duplicate_window_ms=20_000,
        max_delivery_count=3,
        batched_operations=False,
        authorization_rules=(AuthorizationRule("reader", "a", "b", Rights.LISTEN),),
        status=EntityStatus.SEND_DISABLED,
        auto_delete_on_idle_ms=300_000,
        partitioned=True,
        express=True,
        forward_to="x",
        forward_dead_letters_to="y",
        user_metadata="z",
        max_message_size_kb=1024,
        created_at_ms=1,
        updated_at_ms=2,
    )

    def test_the_full_example_leaves_no_field_at_its_default(self) -> None:
        bare = queue()
        assert [f.name for f in fields(bare) if getattr(self.FULL, f.name) == getattr(bare, f.name)] == []

    @pytest.mark.parametrize("description", [queue(), FULL], ids=["bare", "full"])
    def test_a_description_survives_the_round_trip_through_json(self, description: QueueDescription) -> None:
        assert from_document(json.loads(json.dumps(to_document(description)))) == description

    def test_a_document_of_a_later_version_is_refused_by_the_field_it_adds(self) -> None:
        document = to_document(queue()) | {"requires_moonlight": True}
        with pytest.raises(TypeError, match="requires_moonlight"):
            from_document(document)

    def test_a_document_of_an_earlier_version_takes_the_defaults(self) -> None:
        document = to_document(queue())
        del document["user_metadata"], document["max_delivery_count"]
        assert from_document(document) == queue()
