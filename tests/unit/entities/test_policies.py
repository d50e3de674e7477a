"""Policies of a namespace as the catalog keeps them: durable first, one change at a time, origins before and after."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from twinbus.entities.namespace import Namespace
from twinbus.entities.policies import ORIGINS_KEY, RULES_KEY
from twinbus.model.errors import BusError, Fault
from twinbus.model.policies import (
    CameFrom,
    Decision,
    DeclaredPolicy,
    Origins,
    PolicyOrigin,
    Rules,
    added,
    at_start,
    read_origins,
    removed,
)
from twinbus.model.security import ROOT_POLICY, AuthorizationRule, Rights
from twinbus.wire import view

ROOT = AuthorizationRule(ROOT_POLICY, "root-primary", "root-secondary", Rights.ALL)
ADMIN = AuthorizationRule("admin", "admin-primary", "admin-secondary", Rights.ALL)
SENDER = AuthorizationRule("sender", "send-primary", "send-secondary", Rights.SEND)
READER = DeclaredPolicy("reader", Rights.LISTEN, "read-primary", "read-secondary")


async def follow(namespace: Namespace, declared: Sequence[DeclaredPolicy] | None) -> Decision:
    return await namespace.follow_settings(
        lambda rules, origins: at_start(rules, origins, declared, None, lambda: "a-new-key")
    )


async def add(namespace: Namespace, rule: AuthorizationRule) -> None:
    await namespace.change_policies(lambda rules, _: added(rules, rule))


async def remove(namespace: Namespace, name: str) -> None:
    await namespace.change_policies(lambda rules, origins: removed(rules, origins, name))


@pytest.fixture
def namespace(clock: Any, stores: list[Any], catalog: Any) -> Namespace:
    made = Namespace("test", clock, stores, catalog, view)
    made.load({}, [])
    return made


def names(namespace: Namespace) -> list[str]:
    return [rule.name for rule in namespace.rules]


async def test_a_restart_finds_policies_and_where_they_came_from(
    namespace: Namespace, clock: Any, stores: list[Any], catalog: Any
) -> None:
    await follow(namespace, [READER])
    await add(namespace, SENDER)
    again = Namespace("test", clock, stores, catalog, view)
    again.load(catalog.meta, [])
    assert names(again) == [ROOT_POLICY, "reader", "sender"]
    assert again.rules == namespace.rules
    assert again.origins == namespace.origins
    catalog.log.clear()
    await follow(again, [READER])
    assert catalog.log == []  # A start that changes nothing writes nothing.
    await follow(again, [])
    assert names(again) == [ROOT_POLICY, "sender"]


async def test_a_crash_at_any_write_leaves_no_policy_of_a_file_that_passes_for_one_of_the_api(
    clock: Any, stores: list[Any], catalog: Any, namespace: Namespace
) -> None:
    """Started with another file: one goes and one comes. Whatever was written, the next file is followed exactly."""
    await follow(namespace, [READER])
    before = dict(catalog.meta)
    catalog.log.clear()
    await follow(namespace, [replace(READER, name="other")])
    assert catalog.log == [f"meta {ORIGINS_KEY}", f"meta {RULES_KEY}", f"meta {ORIGINS_KEY}"]
    for writes in range(4):
        catalog.meta = dict(before)
        started = Namespace("test", clock, stores, catalog, view)
        started.load(catalog.meta, [])
        catalog_writes = iter(range(writes))

        async def set_meta(key: str, value: str, left: Any = catalog_writes) -> None:
            if next(left, None) is None:
                raise BusError(Fault.STORE_UNAVAILABLE, "killed")
            catalog.meta[key] = value

        started._catalog = type("Killed", (), {"set_meta": staticmethod(set_meta)})()  # type: ignore[assignment]
        if writes < 3:
            with pytest.raises(BusError, match="killed"):
                await follow(started, [replace(READER, name="other")])
        again = Namespace("test", clock, stores, catalog, view)
        again.load(catalog.meta, [])
        await follow(again, [])
        assert names(again) == [ROOT_POLICY], writes
        assert again.origins == {ROOT_POLICY.lower(): PolicyOrigin(CameFrom.FIRST_START)}


async def test_what_cannot_be_written_does_not_hold(namespace: Namespace, catalog: Any) -> None:
    await follow(namespace, None)
    told: list[bool] = []
    namespace.on_rules_changed.append(lambda: told.append(True))
    catalog.fails = True
    with pytest.raises(OSError, match="no space"):
        await add(namespace, SENDER)
    assert names(namespace) == [ROOT_POLICY]
    assert told == []
    catalog.fails = False
    await add(namespace, SENDER)
    assert names(namespace) == [ROOT_POLICY, "sender"]
    assert told == [True]


async def test_of_two_changes_at_once_the_second_is_told_to_try_again(namespace: Namespace, catalog: Any) -> None:
    await follow(namespace, None)
    catalog.open.clear()
    first = asyncio.create_task(add(namespace, SENDER))
    await asyncio.sleep(0)
    with pytest.raises(BusError, match="by somebody else; retry") as refused:
        await add(namespace, ADMIN)
    assert refused.value.fault is Fault.SERVER_BUSY
    catalog.open.set()
    await first
    await add(namespace, ADMIN)
    assert names(namespace) == [ROOT_POLICY, "sender", "admin"]


async def test_what_another_gateway_did_meanwhile_is_not_lost(namespace: Namespace, catalog: Any) -> None:
    """It is taken over while the origins are written, before the policies are."""
    await follow(namespace, None)
    await add(namespace, ADMIN)
    catalog.open.clear()
    removal = asyncio.create_task(remove(namespace, ROOT_POLICY))
    await asyncio.sleep(0)
    others = (*namespace.rules, SENDER)
    namespace.rules = others
    catalog.open.set()
    with pytest.raises(BusError, match="retry"):
        await removal
    assert namespace.rules is others
    assert "sender" not in catalog.meta[RULES_KEY]
    await remove(namespace, ROOT_POLICY)
    assert names(namespace) == ["admin", "sender"]


async def test_a_root_policy_that_the_api_made_again_came_from_there(namespace: Namespace, catalog: Any) -> None:
    await follow(namespace, None)
    await add(namespace, ADMIN)
    await remove(namespace, ROOT_POLICY)
    assert read_origins(catalog.meta[ORIGINS_KEY]) == {}
    await add(namespace, ROOT)
    assert await follow(namespace, []) == Decision((ADMIN, ROOT), {}, ())


async def test_a_decision_may_be_refused_and_nothing_is_written(namespace: Namespace, catalog: Any) -> None:
    await follow(namespace, None)
    catalog.log.clear()

    def refuse(rules: Rules, origins: Origins | None) -> Rules:
        raise BusError(Fault.ARGUMENT, "no")

    with pytest.raises(BusError, match="no"):
        await namespace.change_policies(refuse)
    assert catalog.log == []
    await add(namespace, SENDER)  # It did not leave the door shut.
