"""Policies through the JSON API: what is answered, what is refused and how, and what happens when two ask at once."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from twinbus.admin.api import Api
from twinbus.admin.faults import ANSWERS, HttpError
from twinbus.entities.namespace import Namespace
from twinbus.model.errors import BusError
from twinbus.model.policies import PRIMARY, CameFrom, PolicyOrigin
from twinbus.model.security import ROOT_POLICY, Rights
from twinbus.wire import view
from unit.admin.conftest import LISTENER, ROOT, Clock, MemoryCatalog, MemoryStore
from unit.admin.test_api import Process


class Door:
    """The API of a namespace with the root policy, and one of a file that gives its primary key."""

    def __init__(self) -> None:
        self.catalog = MemoryCatalog()
        self.namespace = Namespace("testbus", Clock(), [MemoryStore()], self.catalog, view)
        self.namespace.rules = (ROOT, LISTENER)
        self.namespace.origins = {
            ROOT_POLICY.lower(): PolicyOrigin(CameFrom.FIRST_START),
            "listener": PolicyOrigin(CameFrom.FILE, (PRIMARY,)),
        }
        self._api = Api(self.namespace, Process(), Clock())  # type: ignore[arg-type]

    async def ask(self, method: str, path: str, **body: Any) -> Any:
        return await self._api.serve(method, path, json.dumps(body).encode())

    async def refused(self, method: str, path: str, **body: Any) -> tuple[int, str]:
        with pytest.raises((BusError, HttpError)) as refused:
            await self.ask(method, path, **body)
        error = refused.value
        return (ANSWERS[error.fault] if isinstance(error, BusError) else error.answer).status, error.text


@pytest.fixture
def door() -> Door:
    return Door()


OF_ROOT = {"name": ROOT_POLICY, "rights": ["Manage", "Send", "Listen"], "came_from": "first-start", "given": []}
OF_FILE = {"name": "listener", "rights": ["Listen"], "came_from": "file", "given": ["primary_key"]}


async def test_the_list_has_no_key_and_one_that_is_named_has_both(door: Door) -> None:
    assert await door.ask("GET", "policies") == {"policies": [OF_ROOT, OF_FILE]}
    keys = {"primary_key": LISTENER.primary_key, "secondary_key": LISTENER.secondary_key}
    assert await door.ask("GET", "policies/Listener") == {**OF_FILE, **keys}
    assert await door.refused("GET", "policies/nobody") == (404, "The namespace has no policy 'nobody'.")


@pytest.mark.parametrize("path", ["policies", "policies/x", "policies/x/rotate"])
@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE"])
def test_all_of_it_is_for_those_who_manage(method: str, path: str) -> None:
    assert Api.right_for(method, path) is Rights.MANAGE


async def test_one_is_made_changed_rotated_and_removed(door: Door) -> None:
    made = await door.ask("POST", "policies", name="shop", rights=["Send"])
    assert (made["came_from"], made["rights"], made["given"]) == ("api", ["Send"], [])
    assert len({made["primary_key"], made["secondary_key"]} | {ROOT.primary_key}) == 3
    assert (await door.ask("PUT", "policies/shop", rights=["Manage"]))["rights"] == ["Manage", "Send", "Listen"]
    shifted = await door.ask("POST", "policies/shop/rotate")
    assert shifted["secondary_key"] == made["primary_key"] != shifted["primary_key"]
    primary = await door.ask("POST", "policies/shop/rotate", key="primary")
    assert primary["secondary_key"] == made["primary_key"]
    assert primary["primary_key"] not in (made["primary_key"], shifted["primary_key"])
    secondary = await door.ask("POST", "policies/shop/rotate", key="secondary")
    assert secondary["primary_key"] == primary["primary_key"]
    assert secondary["secondary_key"] != primary["secondary_key"]
    assert await door.ask("DELETE", "policies/SHOP") == {"removed": "shop"}
    assert [rule.name for rule in door.namespace.rules] == [ROOT_POLICY, "listener"]


async def test_keys_may_be_given(door: Door) -> None:
    made = await door.ask("POST", "policies", name="shop", rights=["Send"], primary_key="a-key-of-length")
    assert made["primary_key"] == "a-key-of-length"
    assert len(made["secondary_key"]) == 44


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "words"),
    [
        ("POST", "policies", {"rights": ["Send"]}, 400, "'name' must be given"),
        ("POST", "policies", {"name": "a"}, 400, "'rights' must be a list out of Listen, Send, Manage"),
        ("POST", "policies", {"name": "a", "rights": []}, 400, "'rights' must be a list"),
        ("POST", "policies", {"name": "a", "rights": "Send"}, 400, "'rights' must be a list"),
        ("POST", "policies", {"name": "a", "rights": [["Send"]]}, 400, "'rights' must be a list"),
        ("POST", "policies", {"name": "a", "rights": ["Send"], "key": "x"}, 400, "'key' is not known here"),
        ("POST", "policies", {"name": "a", "rights": ["Send"], "primary_key": 5}, 400, "'primary_key' must be given"),
        ("POST", "policies", {"name": "a", "rights": ["Send"], "primary_key": "x"}, 400, "A key has 8 to 256"),
        ("POST", "policies", {"name": "a b", "rights": ["Send"]}, 400, "A policy's name has"),
        ("POST", "policies", {"name": "LISTENER", "rights": ["Send"]}, 409, "has a policy 'LISTENER' already"),
        ("PUT", "policies/nobody", {"rights": ["Send"]}, 404, "no policy 'nobody'"),
        ("PUT", "policies/listener", {"rights": ["Send"]}, 409, "are in the configuration file"),
        ("PUT", f"policies/{ROOT_POLICY}", {"rights": ["Send"]}, 409, "always manages"),
        ("POST", "policies/listener/rotate", {}, 409, "The primary key of 'listener' is given by the broker's"),
        ("POST", "policies/listener/rotate", {"key": "both"}, 400, "'key' is primary or secondary, or not given"),
        ("POST", "policies/nobody/rotate", {}, 404, "no policy 'nobody'"),
        ("DELETE", "policies/listener", {}, 409, "take it out there"),
        ("DELETE", f"policies/{ROOT_POLICY}", {}, 409, "the last policy that manages"),
        ("DELETE", "policies/nobody", {}, 404, "no policy 'nobody'"),
        ("POST", "policies/listener", {}, 405, "is asked with GET or PUT or DELETE"),
    ],
)
async def test_what_is_refused(
    door: Door, method: str, path: str, body: dict[str, Any], status: int, words: str
) -> None:
    found = await door.refused(method, path, **body)
    assert found[0] == status, found
    assert words in found[1]
    assert door.catalog.meta == {}


async def test_twelve_are_the_most(door: Door) -> None:
    for number in range(10):
        await door.ask("POST", "policies", name=f"p{number}", rights=["Send"])
    assert (await door.refused("POST", "policies", name="p10", rights=["Send"]))[0] == 400


async def test_of_many_that_come_at_once_none_is_lost(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each takes a turn of the loop to be written, and the others wait for theirs."""
    wait = asyncio.sleep
    monkeypatch.setattr("twinbus.admin.policies.asyncio.sleep", lambda _: wait(0))
    real = door.catalog.set_meta

    async def set_meta(key: str, value: str) -> None:
        await wait(0)
        await real(key, value)

    monkeypatch.setattr(door.catalog, "set_meta", set_meta)
    await asyncio.gather(*(door.ask("POST", "policies", name=f"p{n}", rights=["Send"]) for n in range(10)))
    assert sorted(rule.name for rule in door.namespace.rules)[2:] == sorted(f"p{n}" for n in range(10))
    again = Namespace("testbus", Clock(), [MemoryStore()], door.catalog, view)
    again.load(door.catalog.meta, [])
    assert again.rules == door.namespace.rules
