"""Settings: what may be combined, and what the two kinds of configuration file say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, ClassVar

import pytest

from twinbus.broker.settings import Settings, SettingsError, from_file
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


class TestDefaults:
    def test_without_arguments_a_broker_serves_this_machine_only(self) -> None:
        settings = Settings()
        settings.check()
        assert (settings.namespace, settings.host) == ("twinbus", "127.0.0.1")
        assert (settings.amqp_port, settings.amqps_port) == (5672, 5671)
        assert (settings.http_port, settings.https_port) == (5300, 5301)
        assert settings.serves_plain
        assert not settings.serves_tls

    def test_data_is_kept_per_user_and_namespace(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
        assert Settings(namespace="east").data_directory == tmp_path / "twinbus" / "east"
        monkeypatch.delenv("XDG_DATA_HOME")
        monkeypatch.setenv("HOME", str(tmp_path))
        assert Settings().data_directory == tmp_path / ".local" / "share" / "twinbus" / "twinbus"

    def test_a_directory_that_is_given_is_taken(self, tmp_path: Path) -> None:
        assert Settings(data=tmp_path).data_directory == tmp_path

    def test_the_key_is_not_in_the_representation(self) -> None:
        assert "very-secret" not in repr(Settings(key="very-secret"))


class TestSafety:
    @pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "localhost"])
    def test_plain_text_is_for_loopback(self, host: str) -> None:
        settings = Settings(host=host)
        settings.check()
        assert settings.serves_plain

    @pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "bus.example"])
    def test_elsewhere_it_must_be_asked_for(self, host: str) -> None:
        with pytest.raises(SettingsError, match=r"not loopback.*--tls.*--allow-plain"):
            Settings(host=host).check()
        asked = Settings(host=host, allow_plain=True)
        asked.check()
        assert asked.serves_plain

    def test_with_a_certificate_only_the_encrypted_doors_are_open_to_others(self) -> None:
        settings = Settings(host="0.0.0.0", certificate=Path("host.pem"), certificate_key=Path("host.key"))
        settings.check()
        assert settings.serves_tls
        assert not settings.serves_plain

    @pytest.mark.parametrize("half", ["certificate", "certificate_key"])
    def test_a_certificate_and_its_key_come_together(self, half: str) -> None:
        with pytest.raises(SettingsError, match="A certificate needs its key"):
            Settings(**{half: Path("host.pem")}).check()


class TestBounds:
    @pytest.mark.parametrize("name", ["a", "twinbus", "East-2", "a" * 50])
    def test_a_namespace_name_is_accepted(self, name: str) -> None:
        Settings(namespace=name).check()

    @pytest.mark.parametrize("name", ["", "2east", "-east", "east-", "ea st", "east.west", "../x", "a" * 51])
    def test_what_is_no_namespace_name_is_refused(self, name: str) -> None:
        with pytest.raises(SettingsError, match="is not a namespace name"):
            Settings(namespace=name).check()

    @pytest.mark.parametrize("stores", [None, 1, 4, 64])
    def test_a_namespace_has_one_to_64_stores(self, stores: int | None) -> None:
        Settings(stores=stores).check()

    @pytest.mark.parametrize("stores", [-1, 0, 65])
    def test_another_number_of_stores_is_refused(self, stores: int) -> None:
        with pytest.raises(SettingsError, match=f"between 1 and 64, not {stores}"):
            Settings(stores=stores).check()

    @pytest.mark.parametrize("length", [8, 256])
    def test_a_key_of_allowed_length(self, length: int) -> None:
        Settings(key="k" * length).check()

    @pytest.mark.parametrize("length", [0, 7, 257])
    def test_a_key_too_short_or_too_long_is_refused_without_being_shown(self, length: int) -> None:
        with pytest.raises(SettingsError, match="8 to 256 characters") as refused:
            Settings(key="k" * length).check()
        assert "kkk" not in str(refused.value)


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
            """,
        )
        assert settings == Settings(
            namespace="east",
            data=Path("somewhere/east"),
            host="0.0.0.0",
            amqp_port=1,
            amqps_port=2,
            http_port=3,
            https_port=4,
            key="a-key-of-some-length",
            stores=2,
            certificate=Path("host.pem"),
            certificate_key=Path("host.key"),
            allow_plain=True,
        )

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
        assert settings.queues == [
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
        assert toml(tmp_path, "") == Settings()

    @pytest.mark.parametrize(
        ("text", "complaint"),
        [
            ("colour = 'blue'", "unknown setting 'colour'"),
            ("amqp_port = '5672'", "'amqp_port' must be a whole number, not '5672'"),
            ("stores = true", "'stores' must be a whole number"),
            ("allow_plain = 'no'", "'allow_plain' must be true or false, not 'no'"),
            ("namespace = 7", "'namespace' must be a text"),
            ("data = 7", "'data' must be a text"),
            ("[[queues]]", "a queue has no Name"),
            ("[[queues]]\nName = 7", "'Name' must be a text"),
            ("[[queues]]\nName = 'q'\nColour = 'blue'", "queue 'q': unknown property 'Colour'"),
            ("[[queues]]\nName = 'q'\nLockDuration = '5s'", "queue 'q': '5s' is not a duration"),
            ("[[queues]]\nName = 'q'\nLockDuration = 'PT1S'", "queue 'q': LockDuration in ms must be between"),
            ("[[queues]]\nName = 'q'\nRequiresSession = 'false'", "'RequiresSession' must be true or false"),
            ("[[queues]]\nName = 'q'\nMaxDeliveryCount = 2.5", "'MaxDeliveryCount' must be a whole number"),
            ("[[queues]]\nName = 'q'\nStatus = 'Asleep'", "queue 'q': 'Asleep' is not a valid"),
            ("[[queues]]\nName = 'q'\nForwardTo = 'other'", "queue 'q': ForwardTo is not offered"),
            ("[[queues]]\nName = '-q'", "queue '-q': '-q' is not an entity name"),
            ("queues = 7", "is not valid"),
            ("namespace = ", "is not valid"),
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
        assert settings.namespace == "sbemulatorns"
        first, second = settings.queues
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
        (topic,) = emulator(tmp_path, document).topics
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
            ({"FilterType": "Magic"}, "unknown FilterType 'Magic'"),
            ({"FilterType": "Sql", "SqlFilter": {"SqlExpression": "color ="}}, "subscription 's'"),
            ({"FilterType": "Correlation", "CorrelationFilter": {"Colour": "red"}}, "unknown condition 'Colour'"),
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
        assert len(emulator(tmp_path, document).queues) == 2

    @pytest.mark.parametrize(
        "document",
        [
            {},
            [],
            {"UserConfig": {}},
            {"UserConfig": {"Namespaces": []}},
            {"UserConfig": {"Namespaces": [{}, {}]}},
        ],
    )
    def test_a_file_without_exactly_one_namespace_is_refused(self, tmp_path: Path, document: Any) -> None:
        with pytest.raises(SettingsError, match="is not valid"):
            emulator(tmp_path, document)

    def test_what_is_no_json_is_refused(self, tmp_path: Path) -> None:
        path = tmp_path / "Config.json"
        path.write_text("{")
        with pytest.raises(SettingsError, match=r"Config\.json is not valid"):
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
        (topic,) = from_file(path).topics
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
