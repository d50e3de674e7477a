"""`twinbus check-config` and `twinbus serve` with files: good ones start, and bad ones are refused with their lines."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.broker import BrokerProcess

pytestmark = pytest.mark.feature("configuration-file")

BAD = """\
namespace = "contoso"
amqp_prot = 5672

[[queues]]
Name = "orders"
LockDuration = "PT1S"
"""


def subscription(number: int, *rules: dict[str, Any]) -> dict[str, Any]:
    properties = {
        "DeadLetteringOnMessageExpiration": False,
        "DefaultMessageTimeToLive": "PT1H",
        "LockDuration": "PT1M",
        "MaxDeliveryCount": 3,
        "ForwardDeadLetteredMessagesTo": "",
        "ForwardTo": "",
        "RequiresSession": False,
    }
    return {"Name": f"subscription.{number}", "Properties": properties, **({"Rules": list(rules)} if rules else {})}


def correlation(name: str, conditions: dict[str, Any]) -> dict[str, Any]:
    return {"Name": name, "Properties": {"FilterType": "Correlation", "CorrelationFilter": conditions}}


# Of the shape that the official emulator's installer brings, with everything that its schema knows.
EMULATOR = {
    "UserConfig": {
        "Namespaces": [
            {
                "Name": "sbemulatorns",
                "Queues": [
                    {
                        "Name": "queue.1",
                        "Properties": {
                            "DeadLetteringOnMessageExpiration": False,
                            "DefaultMessageTimeToLive": "PT1H",
                            "DuplicateDetectionHistoryTimeWindow": "PT20S",
                            "ForwardDeadLetteredMessagesTo": "",
                            "ForwardTo": "",
                            "LockDuration": "PT1M",
                            "MaxDeliveryCount": 3,
                            "RequiresDuplicateDetection": False,
                            "RequiresSession": False,
                        },
                    }
                ],
                "Topics": [
                    {
                        "Name": "topic.1",
                        "Properties": {
                            "DefaultMessageTimeToLive": "PT1H",
                            "DuplicateDetectionHistoryTimeWindow": "PT20S",
                            "RequiresDuplicateDetection": False,
                        },
                        "Subscriptions": [
                            subscription(
                                1,
                                correlation(
                                    "by-system-properties",
                                    {
                                        "ContentType": "application/text",
                                        "CorrelationId": "1",
                                        "Label": "a subject",
                                        "MessageId": "2",
                                        "ReplyTo": "someone",
                                        "ReplyToSessionId": "3",
                                        "SessionId": "4",
                                        "To": "someone else",
                                    },
                                ),
                            ),
                            subscription(2, correlation("by-property", {"Properties": {"colour": "red"}})),
                            subscription(3),
                            subscription(
                                4,
                                {
                                    "Name": "by-sql",
                                    "Properties": {
                                        "FilterType": "Sql",
                                        "SqlFilter": {"SqlExpression": "sys.MessageId = '2' AND colour = 'red'"},
                                        "Action": {"SqlExpression": "SET sys.To = 'someone'"},
                                    },
                                },
                            ),
                        ],
                    }
                ],
            }
        ],
        "Logging": {"Type": "File"},
    }
}


def twinbus(*words: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "twinbus", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)


def test_a_good_file_is_called_good(tmp_path: Path) -> None:
    file = tmp_path / "Config.json"
    file.write_text(json.dumps(EMULATOR))
    done = twinbus("check-config", file)
    told = [f"{file}: ok", "  namespace 'sbemulatorns': 1 queue, 1 topic, 4 subscriptions"]
    assert (done.returncode, done.stdout.splitlines(), done.stderr) == (0, told, "")


def test_every_problem_of_a_bad_file_is_told_with_its_line_and_serve_says_the_same(tmp_path: Path) -> None:
    file = tmp_path / "broker.toml"
    file.write_text(BAD)
    problems = [
        f"{file}:2: unknown setting 'amqp_prot'; is 'amqp_port' meant?",
        f"{file}:6: queue 'orders': LockDuration in ms must be between 5000 and 300000, not 1000.",
    ]
    checked = twinbus("check-config", file)
    assert (checked.returncode, checked.stderr.splitlines(), checked.stdout) == (1, problems, "")
    served = twinbus("serve", file, "--data", tmp_path / "data")
    assert served.returncode == 1
    assert served.stderr.splitlines() == ["twinbus: the configuration file cannot be used:", *problems]
    assert not (tmp_path / "data").exists()


def test_the_schema_is_printed(tmp_path: Path) -> None:
    done = twinbus("check-config", "--schema")
    assert json.loads(done.stdout)["properties"]["amqp_port"]["maximum"] == 65535


class Emulated(BrokerProcess):
    """A broker that is given the emulator's file and nothing that the file says."""

    @property
    def command(self) -> list[str]:
        words = super().command
        at = words.index("--namespace")
        del words[at : at + 2]
        return words


@pytest.fixture(scope="module")
def emulated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    directory = tmp_path_factory.mktemp("emulated")
    file = directory / "Config.json"
    file.write_text(json.dumps(EMULATOR))
    with Emulated(directory, key="SAS_KEY_VALUE", options=(str(file),)) as broker:
        yield broker


def test_the_emulators_file_starts_as_it_is(emulated: BrokerProcess) -> None:
    from proton import Message

    from support.peer import Receiver, connected

    assert "Namespace 'sbemulatorns'" in emulated.output
    assert emulated.queue("queue.1")["LockDuration"] == "PT1M"
    with connected(emulated) as connection:
        connection.create_sender("topic.1").send(Message(id="2", body="m", properties={"colour": "red"}))
        for number, to in ((2, None), (3, None), (4, "someone")):
            message, _ = Receiver(connection, f"topic.1/Subscriptions/subscription.{number}", credit=1).take()
            assert (message.body, message.address) == ("m", to)
    assert emulated.count("topic.1/Subscriptions/subscription.1") == 0


FORWARDING = """
[[queues]]
Name = "in"
ForwardTo = "middle"
[[queues]]
Name = "middle"
ForwardTo = "news"
[[queues]]
Name = "out"
EnablePartitioning = true
[[topics]]
Name = "news"
[[topics.subscriptions]]
Name = "all"
ForwardTo = "out"
"""


def test_what_forwards_is_made_after_its_destinations(tmp_path: Path) -> None:
    from proton import Message

    from support.peer import Receiver, connected

    with BrokerProcess(tmp_path, config=FORWARDING) as broker, connected(broker) as connection:
        connection.create_sender("in").send(Message(body="through all of them"))
        assert Receiver(connection, "out", credit=1).take()[0].body == "through all of them"
