"""Queues and the namespace by the official Python administration client, blocking and asynchronous, unmodified."""

from __future__ import annotations

import datetime
import time
from typing import Any

import pytest
from azure.core.exceptions import (
    ClientAuthenticationError,
    HttpResponseError,
    ResourceExistsError,
    ResourceNotFoundError,
)
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.management import AccessRights, ApiVersion, AuthorizationRule

from compat.admin_python import UNLIMITED, Admin, Connect
from twinbus.wire.sas import make_token

pytest_plugins = ["compat.conftest_admin"]
pytestmark = pytest.mark.feature("administration")


async def test_a_new_queue_has_the_defaults_of_the_service(admin: Admin) -> None:
    created = await admin.create_queue("orders")
    queue = await admin.get_queue("orders")
    assert dict(created) == dict(queue)
    assert dict(queue) == {
        "name": "orders",
        "authorization_rules": None,
        "auto_delete_on_idle": UNLIMITED,
        "dead_lettering_on_message_expiration": False,
        "default_message_time_to_live": UNLIMITED,
        "duplicate_detection_history_time_window": datetime.timedelta(minutes=10),
        "availability_status": "Available",
        "enable_batched_operations": True,
        "enable_express": False,
        "enable_partitioning": False,
        "lock_duration": datetime.timedelta(seconds=30),
        "max_delivery_count": 10,
        "max_size_in_megabytes": 1024,
        "requires_duplicate_detection": False,
        "requires_session": False,
        "status": "Active",
        "forward_to": None,
        "user_metadata": None,
        "forward_dead_lettered_messages_to": None,
        "max_message_size_in_kilobytes": None,
    }


async def test_every_setting_comes_back(admin: Admin) -> None:
    settings = {
        "auto_delete_on_idle": datetime.timedelta(minutes=10),
        "dead_lettering_on_message_expiration": True,
        "default_message_time_to_live": datetime.timedelta(minutes=11, milliseconds=250),
        "duplicate_detection_history_time_window": datetime.timedelta(minutes=12),
        "enable_batched_operations": False,
        "enable_express": True,
        "lock_duration": datetime.timedelta(seconds=13),
        "max_delivery_count": 14,
        "max_size_in_megabytes": 3072,
        "requires_duplicate_detection": True,
        "requires_session": True,
        "user_metadata": "notes <&\"'> ünïcode",
    }
    await admin.create_queue("full", **settings)
    queue = dict(await admin.get_queue("full"))
    assert {name: queue[name] for name in settings} == settings


async def test_durations_may_be_given_as_text(admin: Admin) -> None:
    await admin.create_queue("text", lock_duration="PT13S", default_message_time_to_live="P1DT2H3M4.5S")
    queue = await admin.get_queue("text")
    assert queue.lock_duration == datetime.timedelta(seconds=13)
    assert queue.default_message_time_to_live == datetime.timedelta(days=1, hours=2, minutes=3, seconds=4.5)


async def test_names_may_have_slashes_dots_hyphens_and_underscores_and_ignore_case(admin: Admin) -> None:
    await admin.create_queue("txt/.-_123")
    assert [queue.name for queue in await admin.list_queues()] == ["txt/.-_123"]
    assert (await admin.get_queue("TXT/.-_123")).lock_duration == datetime.timedelta(seconds=30)
    with pytest.raises(ResourceExistsError):
        await admin.create_queue("Txt/.-_123")


async def test_an_update_sends_everything_back_and_changes_what_was_changed(admin: Admin) -> None:
    await admin.create_queue("updated")
    queue = await admin.get_queue("updated")
    queue.lock_duration = datetime.timedelta(minutes=2)
    queue.max_delivery_count = 3
    queue.status = "ReceiveDisabled"
    await admin.update_queue(queue)
    again = await admin.get_queue("updated")
    assert dict(again) == dict(queue)
    changes = {"user_metadata": "x", "status": "Active", "max_size_in_megabytes": 2048}
    await admin.update_queue(dict(again), **changes)
    last = await admin.get_queue("updated")
    assert {name: last[name] for name in changes} == changes
    assert last.default_message_time_to_live == UNLIMITED
    last.user_metadata = None
    await admin.update_queue(last)
    assert (await admin.get_queue("updated")).user_metadata is None


async def test_authorization_rules_come_back_in_order_with_rights_and_keys(admin: Admin) -> None:
    await admin.create_queue("ruled")
    queue = await admin.get_queue("ruled")
    everything = [AccessRights.MANAGE, AccessRights.SEND, AccessRights.LISTEN]
    queue.authorization_rules = [
        AuthorizationRule(
            type="SharedAccessAuthorizationRule",
            claim_type="SharedAccessKey",
            claim_value="None",
            rights=rights,
            key_name=name,
            primary_key=f"{name}-primary",
            secondary_key=f"{name}-secondary",
        )
        for name, rights in (("zebra", everything), ("ant", [AccessRights.LISTEN]))
    ]
    await admin.update_queue(queue)
    rules = (await admin.get_queue("ruled")).authorization_rules
    assert [(rule.key_name, rule.rights) for rule in rules] == [("zebra", everything), ("ant", [AccessRights.LISTEN])]
    assert [(rule.type, rule.claim_type, rule.claim_value) for rule in rules] == [
        ("SharedAccessAuthorizationRule", "SharedAccessKey", "None")
    ] * 2
    assert [(rule.primary_key, rule.secondary_key) for rule in rules] == [
        ("zebra-primary", "zebra-secondary"),
        ("ant-primary", "ant-secondary"),
    ]
    # Sent back unchanged, they stay as they are; keys that were not given are made.
    await admin.update_queue(await admin.get_queue("ruled"))
    assert [rule.primary_key for rule in (await admin.get_queue("ruled")).authorization_rules] == [
        "zebra-primary",
        "ant-primary",
    ]
    made = await admin.create_queue(
        "made", authorization_rules=[AuthorizationRule(key_name="r", rights=[AccessRights.SEND])]
    )
    assert len(made.authorization_rules[0].primary_key) == 44


async def test_runtime_properties_of_an_unused_queue_are_zero(admin: Admin) -> None:
    await admin.create_queue("unused")
    one = await admin.get_queue_runtime_properties("unused")
    listed = await admin.list_queues_runtime_properties()
    assert [info.name for info in listed] == ["unused"]
    now = datetime.datetime.now(datetime.UTC)
    for info in (one, *listed):
        assert info.size_in_bytes == info.total_message_count == 0
        assert info.active_message_count == info.dead_letter_message_count == info.scheduled_message_count == 0
        assert info.transfer_message_count == info.transfer_dead_letter_message_count == 0
        assert abs(now - info.created_at_utc) < datetime.timedelta(minutes=1)
        assert abs(now - info.updated_at_utc) < datetime.timedelta(minutes=1)
        assert info.accessed_at_utc is not None


async def test_runtime_properties_count_messages_by_state(admin: Admin, admin_endpoint: Any) -> None:
    await admin.create_queue("counted")
    later = datetime.datetime.now(datetime.UTC) + datetime.timedelta(hours=1)
    async with (
        ServiceBusClient.from_connection_string(admin_endpoint.broker.connection_string()) as bus,
        bus.get_queue_sender("counted") as sender,
        bus.get_queue_receiver("counted") as receiver,
    ):
        await sender.send_messages([ServiceBusMessage(f"message {number}") for number in range(5)])
        await sender.schedule_messages(ServiceBusMessage("later"), later)
        dead, deferred = await receiver.receive_messages(max_message_count=2)
        await receiver.dead_letter_message(dead)
        await receiver.defer_message(deferred)
    for info in (await admin.get_queue_runtime_properties("counted"), *await admin.list_queues_runtime_properties()):
        assert (info.active_message_count, info.dead_letter_message_count, info.scheduled_message_count) == (4, 1, 1)
        assert info.total_message_count == 6
        assert info.size_in_bytes > 0
        assert info.accessed_at_utc >= info.created_at_utc


async def test_queues_outlive_the_broker_process(admin: Admin, admin_endpoint: Any) -> None:
    rules = [AuthorizationRule(key_name="r", rights=[AccessRights.SEND])]
    created = await admin.create_queue("kept", lock_duration="PT1M", authorization_rules=rules, user_metadata="x")
    admin_endpoint.broker.restart()
    kept = await admin.get_queue("kept")
    assert (kept.lock_duration, kept.user_metadata) == (datetime.timedelta(minutes=1), "x")
    assert kept.authorization_rules[0].primary_key == created.authorization_rules[0].primary_key


async def test_lists_are_paged(admin: Admin) -> None:
    names = [f"queue{number}" for number in range(7)]
    for name in names:
        await admin.create_queue(name)
    assert [queue.name for queue in await admin.list_queues(max_page_size=3)] == names
    assert [queue.name for queue in await admin.list_queues(max_page_size=7)] == names
    assert [queue.name for queue in await admin.list_queues(start_index=5, max_page_size=1)] == names[5:]
    assert [queue.name for queue in await admin.list_queues_runtime_properties(max_page_size=2)] == names
    with pytest.raises(HttpResponseError):
        await admin.list_queues(start_index=-1)


async def test_a_deleted_queue_is_gone(admin: Admin) -> None:
    await admin.create_queue("gone")
    await admin.delete_queue("gone")
    for operation in (admin.get_queue, admin.get_queue_runtime_properties, admin.delete_queue):
        with pytest.raises(ResourceNotFoundError):
            await operation("gone")
    await admin.create_queue("gone")


async def test_the_namespace_tells_of_itself(admin: Admin, admin_endpoint: Any) -> None:
    properties = await admin.get_namespace_properties()
    assert (properties.name, properties.messaging_sku, properties.namespace_type) == (
        admin_endpoint.namespace,
        "Standard",
        "Messaging",
    )
    assert properties.created_at_utc.tzinfo is not None


@pytest.mark.parametrize("version", list(ApiVersion))
async def test_every_version_of_the_api_is_spoken(connect: Connect, admin_endpoint: Any, version: ApiVersion) -> None:
    client = connect(admin_endpoint.connection_string(), api_version=version)
    await client.create_queue("versioned")
    assert [queue.name for queue in await client.list_queues()] == ["versioned"]
    with pytest.raises(HttpResponseError, match="MaxMessageSizeInKilobytes"):
        await client.create_queue("large", max_message_size_in_kilobytes=1024)
    await client.delete_queue("versioned")


@pytest.mark.parametrize("name", ["with space", 'quo"ted', "it's", "(x)", "", "Exception()", "a" * 261, "ünï"])
async def test_a_name_that_cannot_be_is_refused(admin: Admin, name: str) -> None:
    with pytest.raises(HttpResponseError) as refused:
        await admin.create_queue(name)
    assert refused.value.status_code == 400
    with pytest.raises(HttpResponseError):
        await admin.get_queue(name)


async def test_bad_values_are_refused_with_a_sentence_and_a_tracking_id(admin: Admin) -> None:
    await admin.create_queue("strict")
    queue = await admin.get_queue("strict")
    minute = datetime.timedelta(minutes=1)
    for setting, value in (
        ("lock_duration", 5 * minute + datetime.timedelta(milliseconds=1)),
        ("lock_duration", datetime.timedelta(days=25)),
        ("duplicate_detection_history_time_window", datetime.timedelta(days=8)),
        ("requires_session", True),
        ("requires_duplicate_detection", True),
        ("max_delivery_count", 0),
        ("max_size_in_megabytes", 1),
        ("status", "Creating"),
    ):
        with pytest.raises(HttpResponseError) as refused:
            await admin.update_queue(queue, **{setting: value})
        assert refused.value.status_code == 400, setting
        element = "".join(word.capitalize() for word in setting.split("_"))
        assert element in refused.value.message
        assert "TrackingId:" in refused.value.message
        queue = await admin.get_queue("strict")


async def test_more_than_twelve_rules_are_refused(admin: Admin) -> None:
    rules = [AuthorizationRule(key_name=f"r{number}", rights=[AccessRights.SEND]) for number in range(13)]
    with pytest.raises(HttpResponseError, match="At most 12"):
        await admin.create_queue("ruled", authorization_rules=rules)
    await admin.create_queue("ruled", authorization_rules=rules[:12])
    assert len((await admin.get_queue("ruled")).authorization_rules) == 12


async def test_an_update_of_a_missing_queue_is_refused(admin: Admin) -> None:
    queue = await admin.create_queue("present")
    for name in ("absent", ""):
        queue.name = name
        with pytest.raises(HttpResponseError):
            await admin.update_queue(queue)
    assert [queue.name for queue in await admin.list_queues()] == ["present"]


@pytest.mark.parametrize("policy", ["RootManageSharedAccessKey", "nobody"])
async def test_a_wrong_key_and_an_unknown_policy_are_refused(
    connect: Connect, admin_endpoint: Any, policy: str
) -> None:
    client = connect(admin_endpoint.connection_string(policy, "wrong"))
    with pytest.raises(ClientAuthenticationError):
        await client.list_queues()
    with pytest.raises(ClientAuthenticationError):
        await client.create_queue("never")


async def test_a_signature_by_a_queues_own_policy_opens_what_it_grants(
    admin: Admin, connect: Connect, admin_endpoint: Any
) -> None:
    rights = {
        "manager": [AccessRights.MANAGE, AccessRights.SEND, AccessRights.LISTEN],
        "listener": [AccessRights.LISTEN],
    }
    rules = [
        AuthorizationRule(key_name=name, rights=granted, primary_key=f"{name}-key") for name, granted in rights.items()
    ]
    await admin.create_queue("own", authorization_rules=rules)
    await admin.create_queue("foreign")

    def signed(policy: str) -> Admin:
        resource = f"https://{admin_endpoint.host}/own"
        token = make_token(resource, policy, f"{policy}-key", int(time.time()) + 300)
        return connect(admin_endpoint.signed_connection_string(token))

    manager, listener = signed("manager"), signed("listener")
    assert (await manager.get_queue("own")).name == "own"
    with pytest.raises(ClientAuthenticationError):
        await manager.get_queue("foreign")
    with pytest.raises(ClientAuthenticationError):
        await manager.list_queues()
    with pytest.raises(ClientAuthenticationError):
        await listener.get_queue("own")
