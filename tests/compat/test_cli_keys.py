"""`twinbus keys` against a broker."""

from __future__ import annotations

import pytest

from support.broker import BrokerProcess, NewQueue
from support.prompt import Prompt, bodies
from twinbus.client import ConnectionString

pytest_plugins = ["compat.conftest_cli"]
pytestmark = pytest.mark.feature("commands at a prompt")


def test_a_policy_is_added_used_rotated_and_removed(run: Prompt, broker: BrokerProcess, new_queue: NewQueue) -> None:
    queue = new_queue()
    shown = run("keys", "add", queue, "app", "--right", "send")
    assert shown.stdout.split() == ["ENTITY", "POLICY", "RIGHTS", queue, "app", "Send"]
    assert {"kind": "queue", "entity": queue, "name": "app", "rights": ["Send"]} in run.json("keys", "list")
    (policy,) = run.json("keys", "list", queue, "--show")
    app = Prompt(broker, policy["connection_string"])
    app("send", queue, "hello")
    assert "unauthorized-access" in app("peek", queue, code=1).stderr
    assert ConnectionString.parse(policy["connection_string"]).entity_path == queue
    (rotated,) = run.json("keys", "rotate", queue, "app", "--yes", "--show")
    assert rotated["primary_key"] not in (policy["primary_key"], policy["secondary_key"])
    assert rotated["secondary_key"] == policy["primary_key"]
    app("send", queue, "still")
    assert "no policy 'other'" in run("keys", "remove", queue, "other", code=1).stderr
    assert "has a policy" in run("keys", "add", queue, "APP", "--right", "send", code=1).stderr
    assert "No policies" in run("keys", "remove", queue, "app", "--yes").stderr
    assert "not valid here" in app("send", queue, "no more", code=1).stderr
    assert bodies(run.json("peek", queue)) == ["hello", "still"]


def test_a_topic_has_policies_and_its_subscriptions_have_those(run: Prompt, broker: BrokerProcess) -> None:
    run("entity", "create", "guarded", "--topic")
    run("entity", "create", "guarded:sub")
    (policy,) = run.json("keys", "add", "guarded", "reader", "--right", "listen", "--show")
    assert (policy["kind"], policy["entity"], policy["rights"]) == ("topic", "guarded", ["Listen"])
    run("send", "guarded", "hello")
    reader = Prompt(broker, policy["connection_string"])
    assert bodies(reader.json("receive", "guarded:sub")) == ["hello"]
    assert "unauthorized-access" in reader("send", "guarded", "x", code=1).stderr
    assert "those of its topic 'guarded' hold" in run("keys", "list", "guarded:sub", code=1).stderr


def test_a_token_opens_what_its_policy_opens(run: Prompt, broker: BrokerProcess, new_queue: NewQueue) -> None:
    queue = new_queue()

    def status(token: str) -> int:
        return broker.request("GET", f"/{queue}?api-version=2021-05", headers={"Authorization": token})[0]

    assert status(run("keys", "token", queue).stdout.strip()) == 200
    (told,) = run.json("keys", "token", queue, "--for", "10m")
    assert told["policy"] == "RootManageSharedAccessKey"
    assert told["resource"].endswith(queue)
    assert "twinbus keys add" in run("keys", "token", queue, "--right", "listen", code=1).stderr
    run("keys", "add", queue, "reader", "--right", "listen")
    (reading,) = run.json("keys", "token", queue, "--right", "listen")
    assert reading["policy"] == "reader"
    assert status(reading["token"]) == 401
    assert status(run("keys", "token", queue, "--for", "0").stdout.strip()) == 401
    signed = Prompt(broker, broker.connection_string(signature=broker.token()))
    assert "signs nothing else" in signed("keys", "token", queue, code=1).stderr
