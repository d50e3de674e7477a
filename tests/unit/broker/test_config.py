"""Configuration files: what our TOML and the official emulator's JSON say, and on which line they are wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, ClassVar

import pytest

from twinbus.broker.config import ConfigError, from_file
from twinbus.broker.settings import JournalSettings, NamespaceSettings, Settings, SettingsError
from twinbus.model.entity import EntityStatus, QueueDescription
from twinbus.model.limits import UNLIMITED_MS
from twinbus.rules.description import CorrelationFilter, RuleDescription, SqlAction, SqlFilter


def toml(directory: Path, text: str) -> Settings:
    path = directory / "broker.toml"
    path.write_text(text)
    return from_file(path)


def emulator(directory: Path, document: Any) -> Settings:
    path = directory / "Config.json"
    path.write_text(json.dumps(document))
    return from_file(path)


def problems(directory: Path, text: str) -> list[str]:
    """What is said about a file, without its name."""
    with pytest.raises(ConfigError) as refused:
        toml(directory, text)
    return [f"{problem.line}: {problem.text}" for problem in refused.value.problems]


class TestToml:
    def test_every_setting_is_read(self, tmp_path: Path) -> None:
        settings = toml(
            tmp_path,
            """
            namespace = "east"
            data = "somewhere/east"
            host = "0.0.0.0"
            amqp_port = 1
            amqps_port = 2
            http_port = 3
            https_port = 4
            key = "a-key-of-some-length"
            stores = 2
            certificate = "host.pem"
            certificate_key = "host.key"
            allow_plain = true
            test_clock = true
            datacenter = "north"
            """,
        )
        assert settings == Settings(
            host="0.0.0.0",
            amqp_port=1,
            amqps_port=2,
            http_port=3,
            https_port=4,
            certificate=Path("host.pem"),
            certificate_key=Path("host.key"),
            allow_plain=True,
            test_clock=True,
            namespaces=[
                NamespaceSettings(
                    name="east",
                    data=Path("somewhere/east"),
                    key="a-key-of-some-length",
                    stores=2,
                    datacenter="north",
                    policies=[],
                )
            ],
        )

    def test_how_the_journal_becomes_files(self, tmp_path: Path) -> None:
        [namespace] = toml(
            tmp_path,
            """
            [journal]
            export = true
            directory = "files"
            rows = 5
            interval = "PT10S"
            keep_in_store = "PT1H"
            keep_in_store_megabytes = 1
            keep_files = "P1D"
            keep_files_megabytes = 2
            """,
        ).namespaces
        assert namespace.journal == JournalSettings(
            export=True,
            directory=Path("files"),
            rows=5,
            interval_ms=10_000,
            keep_in_store_ms=3_600_000,
            keep_in_store_mb=1,
            keep_files_ms=86_400_000,
            keep_files_mb=2,
        )
        assert namespace.journal_directory == Path("files")
        assert (namespace.journal.keep_in_store_bytes, namespace.journal.keep_files_bytes) == (1 << 20, 2 << 20)

    def test_an_interval_of_nothing_is_refused_with_its_line(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match=r":1: .*interval of the journal"):
            toml(tmp_path, 'journal = { export = true, interval = "PT0S" }')

    def test_queues_are_described_in_the_words_of_service_bus(self, tmp_path: Path) -> None:
        settings = toml(
            tmp_path,
            """
            [[queues]]
            Name = "plain"

            [[queues]]
            Name = "eu/orders"
            LockDuration = "PT5S"
            DefaultMessageTimeToLive = "PT1H"
            DuplicateDetectionHistoryTimeWindow = "PT20S"
            AutoDeleteOnIdle = "P1D"
            MaxDeliveryCount = 3
            MaxSizeInMegabytes = 2048
            RequiresSession = true
            RequiresDuplicateDetection = true
            DeadLetteringOnMessageExpiration = true
            ForwardTo = ""
            ForwardDeadLetteredMessagesTo = ""
            UserMetadata = "ours"
            Status = "SendDisabled"
            """,
        )
        assert settings.namespaces[0].queues == [
            QueueDescription(name="plain"),
            QueueDescription(
                name="eu/orders",
                lock_duration_ms=5_000,
                default_ttl_ms=3_600_000,
                duplicate_window_ms=20_000,
                auto_delete_on_idle_ms=86_400_000,
                max_delivery_count=3,
                max_size_mb=2048,
                requires_session=True,
                requires_duplicate_detection=True,
                dead_letter_on_expiration=True,
                user_metadata="ours",
                status=EntityStatus.SEND_DISABLED,
            ),
        ]

    def test_an_empty_file_leaves_the_defaults(self, tmp_path: Path) -> None:
        assert toml(tmp_path, "") == Settings(namespaces=[NamespaceSettings(policies=[])])

    @pytest.mark.parametrize(
        ("text", "complaint"),
        [
            ("colour = 'blue'", ":1: unknown setting 'colour'"),
            ("amqp_port = '5672'", "'amqp_port' must be a whole number, not '5672'"),
            ("stores = true", "'stores' must be a whole number"),
            ("allow_plain = 'no'", "'allow_plain' must be true or false, not 'no'"),
            ("namespace = 7", "'namespace' must be a text"),
            ("data = 7", "'data' must be a text"),
            ("[[queues]]", "a queue has no Name"),
            ("[[queues]]\nName = 7", "'Name' must be a text"),
            ("[[queues]]\nName = 'q'\nColour = 'blue'", ":3: queue 'q': unknown property 'Colour'"),
            ("[[queues]]\nName = 'q'\nLockDuration = '5s'", ":3: queue 'q': LockDuration: '5s' is not a duration"),
            ("[[queues]]\nName = 'q'\nLockDuration = 'PT1S'", "queue 'q': LockDuration in ms must be between"),
            ("[[queues]]\nName = 'q'\nRequiresSession = 'false'", "'RequiresSession' must be true or false"),
            ("[[queues]]\nName = 'q'\nMaxDeliveryCount = 2.5", "'MaxDeliveryCount' must be a whole number"),
            ("[[queues]]\nName = 'q'\nStatus = 'Asleep'", ":3: queue 'q': 'Status' must be one of Active, Disabled"),
            ("[[queues]]\nName = 'q'\nForwardTo = 'other'", ":3: queue 'q': ForwardTo: no queue or topic 'other'"),
            ("[[queues]]\nName = '-q'", "queue '-q': '-q' is not an entity name"),
            ("queues = 7", ":1: 'queues' must be a list of tables, not 7"),
            ("stores = 2\nnamespace = ", ":2: this is not TOML: Invalid value"),
        ],
    )
    def test_what_cannot_be_is_refused_with_the_files_name_and_the_reason(
        self, tmp_path: Path, text: str, complaint: str
    ) -> None:
        with pytest.raises(SettingsError) as refused:
            toml(tmp_path, text)
        assert str(tmp_path / "broker.toml") in str(refused.value)
        assert complaint in str(refused.value)


class TestEmulatorFile:
    DOCUMENT: ClassVar[dict[str, Any]] = {
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
                        },
                        {"Name": "bare"},
                    ],
                }
            ],
            "Logging": {"Type": "File"},
        }
    }

    def test_its_namespace_and_queues_are_taken(self, tmp_path: Path) -> None:
        settings = emulator(tmp_path, self.DOCUMENT)
        assert settings.namespaces[0].name == "sbemulatorns"
        first, second = settings.namespaces[0].queues
        assert (first.name, first.lock_duration_ms, first.default_ttl_ms) == ("queue.1", 60_000, 3_600_000)
        assert (first.max_delivery_count, first.forward_to) == (3, None)
        assert (second.name, second.default_ttl_ms) == ("bare", UNLIMITED_MS)

    def test_topics_are_read_with_their_rules(self, tmp_path: Path) -> None:
        document = json.loads(json.dumps(self.DOCUMENT))
        document["UserConfig"]["Namespaces"][0]["Topics"] = [
            {
                "Name": "topic.1",
                "Properties": {"DefaultMessageTimeToLive": "PT1H", "RequiresDuplicateDetection": False},
                "Subscriptions": [
                    {
                        "Name": "subscription.1",
                        "Properties": {"LockDuration": "PT1M", "ForwardTo": "", "MaxDeliveryCount": 3},
                        "Rules": [
                            {
                                "Name": "by-properties",
                                "Properties": {
                                    "FilterType": "Correlation",
                                    "CorrelationFilter": {
                                        "ContentType": "text",
                                        "Label": "s",
                                        "Properties": {"a": "b"},
                                    },
                                },
                            },
                            {
                                "Name": "by-sql",
                                "Properties": {
                                    "FilterType": "Sql",
                                    "SqlFilter": {"SqlExpression": "sys.MessageId = '1' AND p = 'v'"},
                                    "Action": {"SqlExpression": "SET sys.To = 'Entity'"},
                                },
                            },
                        ],
                    },
                    {"Name": "subscription.2"},
                ],
            }
        ]
        (topic,) = emulator(tmp_path, document).namespaces[0].topics
        assert (topic.description.name, topic.description.default_ttl_ms) == ("topic.1", 3_600_000)
        first, second = topic.subscriptions
        assert (first.description.path, first.description.max_delivery_count) == (
            "topic.1/Subscriptions/subscription.1",
            3,
        )
        assert first.rules == [
            RuleDescription(
                "by-properties", CorrelationFilter(content_type="text", subject="s", properties={"a": "b"})
            ),
            RuleDescription("by-sql", SqlFilter("sys.MessageId = '1' AND p = 'v'"), SqlAction("SET sys.To = 'Entity'")),
        ]
        assert second.rules is None

    @pytest.mark.parametrize(
        ("rule", "complaint"),
        [
            ({"FilterType": "Magic"}, "'FilterType' must be one of Sql, Correlation, not 'Magic'"),
            ({"FilterType": "Sql", "SqlFilter": {"SqlExpression": "color ="}}, "subscription 's'"),
            ({"FilterType": "Correlation", "CorrelationFilter": {"Colour": "red"}}, "unknown property 'Colour'"),
            ({"FilterType": "Sql", "Extra": 1}, "unknown property 'Extra'"),
        ],
    )
    def test_a_rule_that_cannot_be_is_refused_by_name(
        self, tmp_path: Path, rule: dict[str, object], complaint: str
    ) -> None:
        document = json.loads(json.dumps(self.DOCUMENT))
        subscription = {"Name": "s", "Rules": [{"Name": "r", "Properties": rule}]}
        document["UserConfig"]["Namespaces"][0]["Topics"] = [{"Name": "t", "Subscriptions": [subscription]}]
        with pytest.raises(SettingsError, match=complaint):
            emulator(tmp_path, document)

    def test_no_topics_are_no_topics(self, tmp_path: Path) -> None:
        document = json.loads(json.dumps(self.DOCUMENT))
        document["UserConfig"]["Namespaces"][0]["Topics"] = []
        assert len(emulator(tmp_path, document).namespaces[0].queues) == 2

    @pytest.mark.parametrize(
        "document",
        [
            {},
            [],
            {"UserConfig": {}},
            {"UserConfig": {"Namespaces": []}},
            {"UserConfig": {"Namespaces": [{}]}},
            {"UserConfig": {"Namespaces": [{"Name": "a"}, {"Name": "A"}]}},
            {"UserConfig": {"Namespaces": [{"Name": "no name"}]}},
            {"UserConfig": {"Namespaces": [{"Name": "a"}]}, "Colour": "blue"},
        ],
    )
    def test_a_file_without_a_namespace_that_can_be_is_refused(self, tmp_path: Path, document: Any) -> None:
        with pytest.raises(ConfigError, match=r"Config\.json:1: "):
            emulator(tmp_path, document)

    def test_several_namespaces_are_several_here(self, tmp_path: Path) -> None:
        document = {"UserConfig": {"Namespaces": [{"Name": "east", "Queues": [{"Name": "q"}]}, {"Name": "west"}]}}
        east, west = emulator(tmp_path, document).namespaces
        assert ([queue.name for queue in east.queues], west.queues) == (["q"], [])

    def test_what_only_the_emulator_knows_is_passed_over(self, tmp_path: Path) -> None:
        document = {
            "$schema": "./Config-schema.json",
            "UserConfig": {
                "Namespaces": [{"Name": "sbemulatorns", "Properties": {"MaxAllowedConnections": 100}}],
                "Logging": {"Type": "Console,File"},
            },
        }
        assert emulator(tmp_path, document).namespaces[0].name == "sbemulatorns"

    def test_every_problem_has_its_own_line(self, tmp_path: Path) -> None:
        path = tmp_path / "Config.json"
        document = {
            "UserConfig": {
                "Namespaces": [
                    {
                        "Name": "sbemulatorns",
                        "Queues": [
                            {"Name": "queue.1", "Properties": {"LockDuration": "PT1S", "Colour": "blue"}},
                            {"Name": "QUEUE.1", "Properties": {"ForwardTo": "nowhere"}},
                        ],
                    }
                ],
            }
        }
        path.write_text(json.dumps(document, indent=1))
        with pytest.raises(ConfigError) as refused:
            from_file(path)
        told = [(problem.line, problem.text[:45]) for problem in refused.value.problems]
        text = path.read_text().splitlines()
        assert [("LockDuration" in text[line - 1], "Colour" in text[line - 1]) for line, _ in told[:2]] == [
            (True, False),
            (False, True),
        ]
        assert "QUEUE.1" in text[told[2][0] - 1]
        assert any("nowhere" in text[line - 1] for line, _ in told)

    def test_a_key_that_is_there_twice_is_refused(self, tmp_path: Path) -> None:
        path = tmp_path / "Config.json"
        path.write_text('{"UserConfig": {"Namespaces": [{"Name": "a",\n"Queues": [],\n"Queues": []}]}}')
        with pytest.raises(ConfigError, match=r"Config\.json:3: 'Queues' is there twice"):
            from_file(path)

    def test_what_is_no_json_is_refused(self, tmp_path: Path) -> None:
        path = tmp_path / "Config.json"
        path.write_text("{")
        with pytest.raises(SettingsError, match=r"Config\.json:1: this is not JSON"):
            from_file(path)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"missing\.toml cannot be read: No such file"):
        from_file(tmp_path / "missing.toml")


class TestTopicsInToml:
    TEXT = """
        [[topics]]
        Name = "events"
        RequiresDuplicateDetection = true

        [[topics.subscriptions]]
        Name = "audit"

        [[topics.subscriptions]]
        Name = "red"
        RequiresSession = true

        [[topics.subscriptions.rules]]
        Name = "red"
        SqlFilter = "color = 'red'"
        Action = "SET seen = 'yes'"
    """

    def test_topics_subscriptions_and_rules_are_read(self, tmp_path: Path) -> None:
        path = tmp_path / "twinbus.toml"
        path.write_text(self.TEXT)
        (topic,) = from_file(path).namespaces[0].topics
        assert topic.description.requires_duplicate_detection
        audit, red = topic.subscriptions
        assert audit.rules is None
        assert red.description.requires_session
        assert red.rules == [RuleDescription("red", SqlFilter("color = 'red'"), SqlAction("SET seen = 'yes'"))]

    @pytest.mark.parametrize(
        ("old", "new", "complaint"),
        [
            ("color = 'red'", "color = ", "topic 'events': subscription 'red'"),
            ('Name = "audit"', 'Title = "audit"', "a subscription has no Name"),
            ("RequiresSession = true", "RequiresSession = 'true'", "'RequiresSession' must be true or false"),
            ("RequiresDuplicateDetection = true", "LockDuration = 'PT30S'", "unknown property 'LockDuration'"),
        ],
    )
    def test_what_is_wrong_is_said_with_the_entity(self, tmp_path: Path, old: str, new: str, complaint: str) -> None:
        path = tmp_path / "twinbus.toml"
        path.write_text(self.TEXT.replace(old, new))
        with pytest.raises(SettingsError, match=complaint):
            from_file(path)


class TestEveryProblemAtOnce:
    def test_each_is_told_with_its_line(self, tmp_path: Path) -> None:
        text = """\
# A comment with [brackets] and = signs.
amqp_prot = 5672
stores = 99

[[queues]]
Name = "q"
LockDuration = "PT1S"
MaxDelivery = 3

[[topics]]
Name = "Q"
subscriptions = [
    { Name = "all" },
    { Name = "ALL", rules = [{ Name = "r", SqlFilter = "color = " }] },
]

[[policies]]
Name = "reader"
Rights = ["Listen", "Look"]
"""
        assert problems(tmp_path, text) == [
            "2: unknown setting 'amqp_prot'; is 'amqp_port' meant?",
            "3: 'stores' must be between 1 and 64, not 99",
            "7: queue 'q': LockDuration in ms must be between 5000 and 300000, not 1000.",
            "8: queue 'q': unknown property 'MaxDelivery'; is 'MaxDeliveryCount' meant?",
            "11: topic 'Q': there is another queue or topic of this name",
            "14: topic 'Q': subscription 'ALL': rule 'r': Expected a property, a value or '(', "
            "found the end at position 8.",
            "14: topic 'Q': subscription 'ALL': there is another subscription of this name",
            "19: policy 'reader': 'Rights' must be one of Listen, Send, Manage, not 'Look'",
        ]

    def test_an_action_that_does_not_compile_has_the_actions_line(self, tmp_path: Path) -> None:
        text = (
            "[[topics]]\nName = 't'\n[[topics.subscriptions]]\nName = 's'\n[[topics.subscriptions.rules]]\n"
            "Name = 'r'\nSqlFilter = 'a = 1'\nAction = 'SET'\n"
        )
        (only,) = problems(tmp_path, text)
        assert only.startswith("8: topic 't': subscription 's': rule 'r': ")

    @pytest.mark.parametrize(
        ("text", "told"),
        [
            ("key = 12345678", "1: 'key' must be a text"),
            ("key = 'short'", "1: The key must have 8 to 256 characters."),
            ("stores = 2\nnamespace = '2'", "2: '2' is not a namespace name"),
            ("[[policies]]\nName = 'p'\nRights = []", "3: policy 'p': it needs Rights"),
            ("[[policies]]\nName = 'p'\nRights = 'Send'", "3: policy 'p': 'Rights' must be a list of texts"),
            ("[[policies]]\nName = 'p'", "1: a policy has no Rights"),
            (
                "[[policies]]\nName = 'rootManageSharedAccessKey'\nRights = ['Send']",
                "3: policy 'rootManageSharedAccessKey': this one always grants Manage",
            ),
            (
                "".join(f"[[policies]]\nName = 'p{n}'\nRights = ['Send']\n" for n in range(12)),
                "1: a namespace has at most 12 policies, RootManageSharedAccessKey among them",
            ),
            ("\nqueues = ['q']", "2: queue must be a table, not 'q'"),
            ("namespaces = []", "1: there is no namespace in it"),
            ("key = 'a-key-of-length'\n[[namespaces]]\nname = 'a'", "1: 'key' belongs into one of the [[namespaces]]"),
            ("[[namespaces]]\nname = 'a'\n[[namespaces]]\nname = 'A'", "4: namespace 'A': there is another namespace"),
            ("[[namespaces]]\nstores = 2", "1: a namespace has no name"),
            (
                "[[namespaces]]\nname = 'a'\n[[namespaces.queues]]\nName = 'q'\nColour = 1",
                "5: namespace 'a': queue 'q': unknown property 'Colour'",
            ),
        ],
    )
    def test_what_cannot_be_in_a_namespace(self, tmp_path: Path, text: str, told: str) -> None:
        assert problems(tmp_path, text)[0].startswith(told)

    def test_eleven_policies_and_the_root_policy_are_possible(self, tmp_path: Path) -> None:
        text = "".join(f"[[policies]]\nName = 'p{n}'\nRights = ['Send']\n" for n in range(11))
        root = "[[policies]]\nName = 'RootManageSharedAccessKey'\nRights = ['Manage']\nPrimaryKey = 'abcdefgh'\n"
        [namespace] = toml(tmp_path, text + root).namespaces
        assert len(namespace.policies or []) == 12

    def test_our_file_names_all_policies_and_no_file_and_the_emulators_say_nothing_of_them(
        self, tmp_path: Path
    ) -> None:
        assert toml(tmp_path, "stores = 2").namespaces[0].policies == []
        assert emulator(tmp_path, {"UserConfig": {"Namespaces": [{"Name": "n"}]}}).namespaces[0].policies is None
        assert Settings().namespaces[0].policies is None

    def test_no_key_is_ever_shown(self, tmp_path: Path) -> None:
        text = "key = 987654321\n[[policies]]\nName = 'p'\nRights = ['Send']\nPrimaryKey = 987654321"
        assert "987654321" not in "".join(problems(tmp_path, text))

    def test_bytes_that_are_no_text_are_told_with_their_line(self, tmp_path: Path) -> None:
        path = tmp_path / "broker.toml"
        path.write_bytes(b"stores = 2\nkey = '\xff'")
        with pytest.raises(ConfigError, match=":2: this is not UTF-8"):
            from_file(path)


class TestSeveralNamespaces:
    def test_each_has_its_own_contents_and_what_the_top_says_for_all(self, tmp_path: Path) -> None:
        east, west = toml(
            tmp_path,
            """
            data = "somewhere"
            stores = 2
            datacenter = "north"
            [journal]
            export = true

            [[namespaces]]
            name = "east"
            key = "a-key-of-some-length"
            [[namespaces.queues]]
            Name = "orders"

            [[namespaces]]
            name = "west"
            data = "elsewhere"
            datacenter = "south"
            stores = 1
            [namespaces.journal]
            directory = "kept"
            [[namespaces.queues]]
            Name = "orders"
            LockDuration = "PT5S"
            [[namespaces.policies]]
            Name = "reader"
            Rights = ["Listen"]
            """,
        ).namespaces
        assert (east.data, east.stores, east.datacenter) == (Path("somewhere/east"), 2, "north")
        assert (west.data, west.stores, west.datacenter) == (Path("elsewhere"), 1, "south")
        assert (east.journal.export, east.journal_directory) == (True, Path("somewhere/east/journal"))
        assert (west.journal.export, west.journal_directory) == (False, Path("kept"))
        assert [queue.lock_duration_ms for queue in (*east.queues, *west.queues)] == [30_000, 5_000]
        assert ([policy.name for policy in east.policies or []], [policy.name for policy in west.policies or []]) == (
            [],
            ["reader"],
        )


class TestForwarding:
    def test_a_chain_is_read_and_may_be_an_address(self, tmp_path: Path) -> None:
        (only,) = toml(
            tmp_path,
            """
            [[queues]]
            Name = "in"
            ForwardTo = "sb://contoso.servicebus.windows.net/News"
            ForwardDeadLetteredMessagesTo = "dead"
            [[queues]]
            Name = "dead"
            EnablePartitioning = true
            [[topics]]
            Name = "news"
            [[topics.subscriptions]]
            Name = "all"
            ForwardTo = "dead"
            """,
        ).namespaces
        first, dead = only.queues
        assert (first.forward_to, first.forward_dead_letters_to, dead.partitioned) == ("News", "dead", True)
        assert only.topics[0].subscriptions[0].description.forward_to == "dead"

    def test_a_ring_is_told_at_each_of_its_parts(self, tmp_path: Path) -> None:
        text = (
            "[[queues]]\nName = 'a'\nForwardTo = 'T'\n[[queues]]\nName = 'outside'\nForwardTo = 'a'\n"
            "[[topics]]\nName = 't'\n[[topics.subscriptions]]\nName = 's'\nForwardTo = 'A'\n"
        )
        assert problems(tmp_path, text) == [
            "3: queue 'a': ForwardTo: this leads back to where it began",
            "11: topic 't': subscription 's': ForwardTo: this leads back to where it began",
        ]

    def test_a_queue_cannot_forward_to_itself(self, tmp_path: Path) -> None:
        assert problems(tmp_path, "[[queues]]\nName = 'a'\nForwardTo = 'a'")[0].startswith("3: queue 'a': ForwardTo: ")
