"""Broker properties and batches as JSON, both ways; bad input is a sentence and never anything else."""

from __future__ import annotations

import json
from typing import Any

import pytest

from twinbus.admin.messages_json import batch_in, broker_properties_in, broker_properties_of
from twinbus.model import limits
from twinbus.model.errors import BusError, Fault
from twinbus.model.message import Delivered
from twinbus.wire import brokered
from twinbus.wire import message as wire_message

NOW_MS = 1_700_000_000_000


def told(**given: Any) -> dict[str, Any]:
    return broker_properties_in(json.dumps(given))


class TestReading:
    def test_each_property_comes_under_its_name(self) -> None:
        texts = ["CorrelationId", "Label", "MessageId", "ReplyTo", "ReplyToSessionId", "SessionId", "To"]
        texts += ["PartitionKey", "ViaPartitionKey", "ContentType"]
        given = dict.fromkeys(texts, "x")
        assert told(**given) == given

    def test_what_only_the_broker_sets_and_what_nobody_knows_is_ignored(self) -> None:
        assert told(SequenceNumber=3, LockToken="x", DeliveryCount="?", ForcePersistence=True, Unknown=[]) == {}

    def test_null_and_empty_text_mean_that_nothing_is_said(self) -> None:
        assert told(MessageId=None, SessionId="", TimeToLive=None) == {}

    @pytest.mark.parametrize(
        ("given", "milliseconds"),
        [
            ({"TimeToLive": 90}, 90_000),
            ({"TimeToLive": 8.123}, 8_123),
            ({"TimeToLive": "60"}, 60_000),
            ({"TimeToLive": "0.5"}, 500),
            ({"TimeToLive": 922337203685.47754}, limits.UNLIMITED_MS),
            ({"TimeToLive": 1e300}, limits.UNLIMITED_MS),
            ({"TimeToLive": 10**400}, limits.UNLIMITED_MS),
            ({"TimeToLiveTimeSpan": "0.00:00:40"}, 40_000),
            ({"TimeToLiveTimeSpan": "00:00:40.5"}, 40_500),
            ({"TimeToLiveTimeSpan": "1.02:03:04"}, 93_784_000),
            ({"TimeToLiveTimeSpan": "10675199.02:48:05.4775807"}, limits.UNLIMITED_MS),
            ({"TimeToLive": 5, "TimeToLiveTimeSpan": "0.00:00:40"}, 5_000),
        ],
    )
    def test_a_time_to_live_is_seconds_or_a_time_span(self, given: dict[str, Any], milliseconds: int) -> None:
        assert told(**given) == {"TimeToLive": milliseconds}

    @pytest.mark.parametrize(
        ("text", "instant_ms"),
        [
            ("Sun, 06 Nov 1994 08:49:37 GMT", 784_111_777_000),
            (" Sun, 06 Nov 1994 08:49:37 GMT", 784_111_777_000),
            ("1994-11-06T08:49:37Z", 784_111_777_000),
            ("1994-11-06T09:49:37+01:00", 784_111_777_000),
            ("1994-11-06T08:49:37", 784_111_777_000),
        ],
    )
    def test_a_time_is_a_date_of_http_or_of_iso(self, text: str, instant_ms: int) -> None:
        assert told(ScheduledEnqueueTimeUtc=text) == {"ScheduledEnqueueTimeUtc": instant_ms}

    @pytest.mark.parametrize(
        "text",
        [
            "",
            "not JSON",
            "[]",
            "7",
            "{'Label': 'single quotes'}",
            '{"TimeToLive": NaN}',
            '{"TimeToLive": -Infinity}',
            '{"TimeToLive": -1}',
            '{"TimeToLive": 0}',
            '{"TimeToLive": true}',
            '{"TimeToLive": "soon"}',
            '{"TimeToLive": "-5"}',
            '{"TimeToLive": "1e9"}',
            '{"TimeToLive": ' + "9" * 5000 + "}",
            '{"TimeToLiveTimeSpan": "forty"}',
            '{"TimeToLiveTimeSpan": 40}',
            '{"MessageId": 7}',
            '{"Label": {"a": 1}}',
            '{"ScheduledEnqueueTimeUtc": "tomorrow"}',
            '{"ScheduledEnqueueTimeUtc": 5}',
            '{"SessionId": "a", "PartitionKey": "b"}',
            "[" * 100_000,
        ],
    )
    def test_bad_input_is_refused_in_a_sentence(self, text: str) -> None:
        with pytest.raises(BusError) as refused:
            broker_properties_in(text)
        assert refused.value.fault is Fault.ARGUMENT
        assert refused.value.text.endswith(".")

    def test_the_same_session_and_partition_key_go_together(self) -> None:
        assert told(SessionId="a", PartitionKey="a") == {"SessionId": "a", "PartitionKey": "a"}


class TestBatches:
    def test_messages_come_in_order_each_with_its_own_properties(self) -> None:
        first, second = batch_in(
            json.dumps(
                [
                    {"Body": "one", "BrokerProperties": {"Label": "M1", "TimeToLiveTimeSpan": "0.00:00:40"}},
                    {"Body": "zwei ü", "UserProperties": {"Priority": "Low", "n": 1, "x": 2.5, "b": True, "z": None}},
                ]
            ).encode()
        )
        assert first == (b"one", {"Label": "M1", "TimeToLive": 40_000}, {})
        assert second == ("zwei ü".encode(), {}, {"Priority": "Low", "n": 1, "x": 2.5, "b": True, "z": None})

    @pytest.mark.parametrize(
        "body",
        [
            b"",
            b"\xff\xfe",
            b"{}",
            b"[]",
            b"[1]",
            b"[{}]",
            b'[{"Body": 7}]',
            b'[{"Body": "\\ud800"}]',
            b'[{"Body": "x", "UserProperties": []}, 1]',
            b'[{"Body": "x", "UserProperties": {"a": [1]}}]',
            b'[{"Body": "x", "UserProperties": "text"}]',
            b'[{"Body": "x", "BrokerProperties": "text"}]',
            b'[{"Body": "x"}, {"Body": "x", "BrokerProperties": {"MessageId": 1}}]',
        ],
    )
    def test_one_bad_message_is_the_end_of_the_batch(self, body: bytes) -> None:
        with pytest.raises(BusError) as refused:
            batch_in(body)
        assert refused.value.fault is Fault.ARGUMENT


class TestWriting:
    def shown(self, token: bytes = b"", deliveries: int = 0, **system: Any) -> dict[str, Any]:
        payload = brokered.encode(b"", {"MessageId": "m", **system}, {}, NOW_MS)
        (incoming,) = wire_message.read(payload, 0, ttl_ceiling_ms=None, new_id=str)
        message = Delivered(7, incoming.record, "m", deliveries, NOW_MS, token=token, locked_until_ms=NOW_MS + 30_000)
        text = broker_properties_of(message, brokered.read(message))
        assert text.isascii()
        assert text.isprintable()
        found = json.loads(text)
        assert isinstance(found, dict)
        return found

    def test_a_plain_message_has_what_every_message_has(self) -> None:
        assert self.shown() == {
            "DeliveryCount": 1,
            "EnqueuedSequenceNumber": 0,
            "EnqueuedTimeUtc": "Tue, 14 Nov 2023 22:13:20 GMT",
            "MessageId": "m",
            "SequenceNumber": 7,
            "State": "Active",
            "TimeToLive": 922337203685.47754,
        }

    def test_no_control_character_reaches_the_header(self) -> None:
        assert self.shown(Label="a\x7f\r\n\x00b")["Label"] == "a\x7f\r\n\x00b"

    def test_a_lock_is_told_with_its_end(self) -> None:
        shown = self.shown(token=bytes(range(16)), deliveries=2)
        assert shown["LockToken"] == "03020100-0504-0706-0809-0a0b0c0d0e0f"
        assert shown["LockedUntilUtc"] == "Tue, 14 Nov 2023 22:13:50 GMT"
        assert shown["DeliveryCount"] == 3

    def test_what_the_sender_said_is_told_again(self) -> None:
        said = dict.fromkeys(["CorrelationId", "Label", "ReplyTo", "ReplyToSessionId", "SessionId", "To"], "ü")
        said |= {"PartitionKey": "ü", "ViaPartitionKey": "v"}
        shown = self.shown(**said, TimeToLive=8_123, ScheduledEnqueueTimeUtc=784_111_777_000, ContentType="text/plain")
        assert said.items() <= shown.items()
        assert shown["TimeToLive"] == 8.123
        assert shown["ScheduledEnqueueTimeUtc"] == "Sun, 06 Nov 1994 08:49:37 GMT"
        assert "ContentType" not in shown

    def test_a_time_to_live_beyond_seven_weeks_is_told_whole(self) -> None:
        assert self.shown(TimeToLive=100 * 86_400_000)["TimeToLive"] == 8_640_000
