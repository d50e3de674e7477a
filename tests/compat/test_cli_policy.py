"""`twinbus policy` against a broker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.broker import BrokerProcess, NewQueue
from support.prompt import Prompt, bodies

pytest_plugins = ["compat.conftest_cli"]
pytestmark = pytest.mark.feature("commands at a prompt")

CONFIG = '[[policies]]\nName = "reader"\nRights = ["Listen"]\nPrimaryKey = "a-key-of-some-length"\n'
ROOT = "RootManageSharedAccessKey"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("broker"), config=CONFIG) as process:
        yield process
        assert "Traceback" not in process.log, process.log[-8000:]


def test_a_policy_of_the_namespace_is_added_used_rotated_and_removed(
    run: Prompt, broker: BrokerProcess, new_queue: NewQueue
) -> None:
    queue = new_queue()
    (made,) = run.json("policy", "add", "shop", "--right", "send", "--show")
    assert (made["rights"], made["came_from"], made["given"]) == (["Send"], "api", [])
    shop = Prompt(broker, made["connection_string"])
    shop("send", queue, "hello")
    assert "unauthorized-access" in shop("peek", queue, code=1).stderr
    run("policy", "update", "shop", "--right", "send", "--right", "listen")
    assert bodies(shop.json("peek", queue)) == ["hello"]
    (rotated,) = run.json("policy", "rotate", "shop", "--yes", "--show")
    assert rotated["secondary_key"] == made["primary_key"] != rotated["primary_key"]
    shop("send", queue, "still")
    (again,) = run.json("policy", "rotate", "shop", "--key", "secondary", "--yes", "--show")
    assert again["primary_key"] == rotated["primary_key"]
    assert "not valid here" in shop("send", queue, "no more", code=1).stderr
    assert run("policy", "remove", "SHOP", "--yes").stdout == "'shop' is removed.\n"
    assert bodies(run.json("peek", queue)) == ["hello", "still"]


def test_the_list_tells_where_policies_came_from_and_keys_only_when_asked(run: Prompt, broker: BrokerProcess) -> None:
    shown = run("policy", "list").stdout
    assert [line.split("  ")[-1].strip() for line in shown.splitlines()] == [
        "CAME FROM",
        "first start",
        "configuration file",
    ]
    assert broker.key not in shown
    root, reader = run.json("policy", "list", "--show")
    assert (root["name"], root["given"], root["primary_key"]) == (ROOT, ["primary_key"], broker.key)
    assert root["connection_string"].replace("/;", ";") == broker.connection_string()
    assert (reader["came_from"], reader["primary_key"]) == ("file", "a-key-of-some-length")
    assert {"name", "rights", "came_from", "given"} == run.json("policy", "list")[0].keys()


REFUSED = [
    (("add", "READER", "--right", "send"), "has a policy 'READER' already"),
    (("add", "a b", "--right", "send"), "A policy's name has 1 to 50"),
    (("remove", "reader", "--yes"), "is in the configuration file: take it out there and start again"),
    (("update", "reader", "--right", "manage"), "are in the configuration file"),
    (("rotate", "reader", "--yes"), "The primary key of 'reader' is given by the broker's settings"),
    (("remove", "nobody"), "The namespace has no policy 'nobody'"),
    (("rotate", ROOT, "--key", "primary", "--yes"), "uses the very key that would go"),
    (("remove", ROOT), "Nothing was done; --yes goes on without asking"),
    (("remove", ROOT, "--yes"), "would make it again at the next start"),
]


def test_what_cannot_be_is_told_and_changes_nothing(run: Prompt) -> None:
    before = run.json("policy", "list", "--show")
    for words, told in REFUSED:
        refused = run("policy", *words, code=1).stderr
        assert told in refused
        assert ("Choose another name" in refused) is ("already" in told)  # Advice for a name that is taken.
    assert run.json("policy", "list", "--show") == before


def test_a_right_is_not_taken_away_without_asking(run: Prompt) -> None:
    run("policy", "add", "both", "--right", "send", "--right", "listen")
    assert "Take Send away from 'both'?" in run("policy", "update", "both", "--right", "listen", code=1).stderr
    run("policy", "update", "both", "--right", "listen", "--yes")
    assert run.json("policy", "list")[-1]["rights"] == ["Listen"]
    run("policy", "update", "both", "--right", "manage")  # More is no loss.
    run("policy", "remove", "both", "--yes")
