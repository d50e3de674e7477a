"""`twinbus entity` against a broker: queues, topics, subscriptions and rules."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from support.broker import BrokerProcess
from support.prompt import SOON_S, Prompt

pytest_plugins = ["compat.conftest_cli"]
pytestmark = pytest.mark.feature("commands at a prompt")

COUNTS = ("ACTIVE", "SCHEDULED", "DEAD", "BYTES")


def test_a_queue_is_created_changed_and_deleted(run: Prompt) -> None:
    settings = ["--lock-duration", "1m", "--ttl", "P14D", "--max-delivery-count", "5", "--duplicate-detection"]
    assert run("entity", "create", "life/of-a.queue", *settings).stdout == "Created 'life/of-a.queue'.\n"
    (made,) = run.json("entity", "show", "life/of-a.queue")
    assert (made["kind"], made["lock_duration"], made["default_time_to_live"]) == ("queue", "PT1M", "P14D")
    assert (made["max_delivery_count"], made["requires_duplicate_detection"]) == (5, True)
    assert "exists already" in run("entity", "create", "life/of-a.queue", "--if-missing").stderr
    assert "already exists" in run("entity", "create", "life/of-a.queue", code=1).stderr
    run("entity", "update", "life/of-a.queue", "--lock-duration", "20", "--metadata", "<mine & yours>")
    (changed,) = run.json("entity", "show", "life/of-a.queue")
    differences = {name for name in made if made[name] != changed[name]} - {"updated_at", "accessed_at"}
    assert differences == {"lock_duration", "metadata"}
    assert changed["metadata"] == "<mine & yours>"
    assert "Nothing would change" in run("entity", "update", "life/of-a.queue", "--lock-duration", "20s", code=1).stderr
    assert "LockDuration" in run("entity", "update", "life/of-a.queue", "--lock-duration", "1h", code=1).stderr
    assert "Nothing was done" in run("entity", "delete", "life/of-a.queue", code=1).stderr
    assert "Deleted" in run("entity", "delete", "life/of-a.queue", typed="y\n").stdout
    assert "could not be found" in run("entity", "show", "life/of-a.queue", code=1).stderr


def test_a_list_goes_over_all_pages_and_is_aligned(tmp_path: Path) -> None:
    names = "".join(f'[[queues]]\nName = "q-{number:03}"\n' for number in range(130))
    with BrokerProcess(tmp_path, config=names) as broker:
        run = Prompt(broker)
        assert [queue["name"] for queue in run.json("entity", "list")] == [f"q-{number:03}" for number in range(130)]
        listed = run("entity", "list")
    lines = listed.stdout.splitlines()
    assert len(lines) == 131
    assert lines[0].split() == ["NAME", "KIND", "STATUS", *COUNTS, "LOCK", "TTL", "DELIVERIES"]
    assert len({line.index("Active") for line in lines[1:]}) == 1
    assert listed.stderr == "130 queues.\n"


def test_a_topic_its_subscriptions_and_their_rules_are_created_changed_and_deleted(run: Prompt) -> None:
    assert run("entity", "create", "news", "--topic", "--ttl", "1d").stdout == "Created 'news'.\n"
    assert run("entity", "create", "news:all", "--lock-duration", "1m").stdout == "Created 'news:all'.\n"
    words = ["--filter", "size > @least", "--parameter", "@least:=5", "--action", "SET big = 'yes'"]
    run("entity", "create", "news/Subscriptions/some", *words)
    run("entity", "create", "news:some:red", "--correlation", "colour=red", "--correlation", "sys.Subject=s")
    (topic,) = run.json("entity", "show", "news")
    assert (topic["kind"], topic["default_time_to_live"], topic["subscriptions"]) == ("topic", "P1D", 2)
    (some,) = run.json("entity", "show", "news:some")
    first, red = some["rules"]
    assert (first["name"], first["action"]["expression"]) == ("$Default", "SET big = 'yes'")
    assert first["filter"] == {"type": "sql", "expression": "size > @least", "parameters": {"@least": 5}}
    assert red["filter"] == {"type": "correlation", "subject": "s", "properties": {"colour": "red"}}
    run("entity", "update", "news:some:red", "--filter", "colour = 'red'", "--action", "REMOVE size")
    assert run("entity", "show", "news:some:red").stdout.splitlines()[2:4] == [
        "filter      colour = 'red'",
        "action      REMOVE size",
    ]
    run("entity", "update", "news:some:red", "--action", "")
    (red,) = run.json("entity", "show", "news:some:red")
    assert red["action"] is None
    run("entity", "update", "news:all", "--max-delivery-count", "3")
    (every,) = run.json("entity", "show", "news:all")
    assert (every["max_delivery_count"], every["lock_duration"]) == (3, "PT1M")
    assert run("entity", "delete", "news:some:red", "--yes").stdout == "Deleted 'news:some:red'.\n"
    assert "Deleted 'news:some' with 0 messages" in run("entity", "delete", "news:some", "--yes").stdout
    assert "1 subscription and all" in run("entity", "delete", "news", "--yes").stdout
    assert "could not be found" in run("entity", "show", "news:all", code=1).stderr


def test_the_list_is_a_tree(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker:
        run = Prompt(broker)
        run("entity", "create", "a-queue")
        run("entity", "create", "topic", "--topic")
        run("entity", "create", "topic:one")
        run("entity", "create", "topic:two", "--filter", "n = 1")
        listed = run("entity", "list")
        assert [line.split()[:3] for line in listed.stdout.splitlines()[1:]] == [
            ["a-queue", "queue", "Active"],
            ["topic", "topic", "Active"],
            ["├", "one", "subscription"],
            ["└", "two", "subscription"],
        ]
        assert listed.stderr == "1 queue, 1 topic, 2 subscriptions.\n"
        with_rules = run("entity", "list", "--rules").stdout.splitlines()
        assert [line.split()[-1] for line in with_rules if "rule" in line] == ["everything", "1"]


def test_a_namespace_is_copied_by_its_description(run: Prompt, tmp_path: Path) -> None:
    run("entity", "create", "queue-to-copy", "--sessions", "--lock-duration", "2m", "--metadata", "it's")
    run("keys", "add", "queue-to-copy", "reader", "--right", "listen")
    run("entity", "create", "copied", "--topic", "--duplicate-detection")
    run("entity", "create", "copied:none", "--filter", "1=1")
    run("entity", "delete", "copied:none:$Default", "--yes")
    run("entity", "create", "copied:two", "--correlation", "n:=5")
    run("entity", "create", "copied:two:more", "--filter", "x LIKE 'a%'")
    described = run("entity", "list", "--rules", "--json").stdout
    with BrokerProcess(tmp_path) as other:
        copy = Prompt(other)
        copy("entity", "create", "--from", "-", typed=described)
        again = copy("entity", "list", "--rules", "--json").stdout
        assert "exist" in copy("entity", "create", "--from", "-", "--if-missing", typed=described).stderr
    for line, copied in zip(described.splitlines(), again.splitlines(), strict=True):
        one, other_one = json.loads(line), json.loads(copied)
        for told in (one, other_one, *one.get("rules", []), *other_one.get("rules", [])):
            for changing in ("created_at", "updated_at", "accessed_at"):
                told.pop(changing, None)
        assert one == other_one


def test_what_does_not_belong_together_is_told_so(run: Prompt) -> None:
    refused = {
        ("entity", "create", "x", "--topic", "--lock-duration", "5s"): "--lock-duration is no setting of a topic",
        ("entity", "create", "x", "--filter", "1=1"): "--filter belongs to rules and new subscriptions",
        ("entity", "create", "x:y:z"): "Say which messages",
        ("entity", "create", "x:y:z", "--filter", "1=1", "--correlation", "a=b"): "one filter",
        ("entity", "create", "x:y:z", "--correlation", "sys.Nothing=b"): "none of sys.CorrelationId",
        ("entity", "create", "x:y", "--topic"): "no name of a topic",
        ("entity", "create", "x:y:z:a"): "names nothing",
        ("entity", "create"): "Name what is to be created",
        ("send", "x:y", "body"): "send to its topic, 'x'",
        ("peek", "x:y:z"): "is a rule",
    }
    for words, sentence in refused.items():
        assert sentence in run(*words, code=1).stderr, words


def test_who_mistypes_is_told_what_there_is(run: Prompt) -> None:
    run("entity", "create", "invoices", "--topic")
    run("entity", "create", "invoices:audit")
    assert "There is 'invoices'." in run("send", "invoises", "x", code=1).stderr
    assert "'invoices:audit'" in run("receive", "invoices:adit", code=1).stderr
    assert "'invoices:audit'" in run("peek", "invoices/audit", code=1).stderr
    assert "'invoices:audit'" in run("entity", "show", "invoices:audits", code=1).stderr
    assert "There is" not in run("peek", "something-quite-different", code=1).stderr


def test_the_shell_completes_names(run: Prompt) -> None:
    run("entity", "create", "completed", "--topic")
    run("entity", "create", "completed:sub")
    asked = {"_TWINBUS_COMPLETE": "complete_bash", "COMP_CWORD": "2"}

    def complete(line: str) -> list[str]:
        environment = {**run.environment, **asked, "COMP_WORDS": line}
        program = "import sys; sys.argv[0] = 'twinbus'; from twinbus.cli import app; app(prog_name='twinbus')"
        command = [sys.executable, "-c", program]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=SOON_S)
        return done.stdout.split()

    assert complete("twinbus send compl") == ["completed"]
    assert complete("twinbus peek completed/") == ["completed/Subscriptions/sub"]
