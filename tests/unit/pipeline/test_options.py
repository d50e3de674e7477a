"""Options of the source: read in any case, checked, and refused in so many words."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from twinbus.pipeline.errors import PipelineError
from twinbus.pipeline.options import Given, SourceOptions, Target, entity_path

KEY = "the-secret-itself"
CONNECTION = f"Endpoint=sb://contoso.example/;SharedAccessKeyName=root;SharedAccessKey={KEY}"
NAMESPACE = {"connectionStringEnv": "BUS"}
STREAM = {**NAMESPACE, "queue": "orders", "stagingLocation": "/x"}


def parse(**options: str) -> SourceOptions:
    return SourceOptions.parse({**NAMESPACE, **options})


def test_names_are_read_in_any_case() -> None:
    options = SourceOptions.parse({"CONNECTIONSTRINGENV": "BUS", "Subscribe": "a, b,a", "maxmessagespertrigger": "7"})
    assert options.target.variable == "BUS"
    assert options.subscribed.names == ("a", "b")
    assert options.max_messages == 7


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({"queue": "orders"}, ("orders",)),
        ({"topic": "news", "subscription": "audit"}, ("news/Subscriptions/audit",)),
        ({"subscribe": "orders,news:audit"}, ("orders", "news/Subscriptions/audit")),
        ({}, ()),
    ],
)
def test_entities_are_named_in_several_ways(options: dict[str, str], names: tuple[str, ...]) -> None:
    assert parse(**options).subscribed.names == names


@pytest.mark.parametrize(
    ("sub_queue", "address"),
    [("main", "q"), ("DeadLetter", "q/$DeadLetterQueue"), ("transferdeadletter", "q/$Transfer/$DeadLetterQueue")],
)
def test_a_subqueue_is_part_of_the_address(sub_queue: str, address: str) -> None:
    assert parse(queue="q", subQueue=sub_queue).subscribed.address("q") == address


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"stagingLokation": "/x"}, "has no option 'stagingLokation'. Did you mean stagingLocation?"),
        ({"zzz": "1"}, "has no option 'zzz'.$"),
        ({"queue": "a", "subscribe": "b"}, "Only one of subscribe"),
        ({"topic": "a"}, "belong together"),
        ({"subscribePattern": "("}, "no regular expression"),
        ({"maxMessagesPerTrigger": "many"}, "maxMessagesPerTrigger is 'many', and should be a whole number"),
        ({"maxMessagesPerTrigger": "0"}, "should be 1 or more"),
        ({"maxBytesPerTrigger": "10q"}, "a size such as 64k"),
        ({"maxTriggerDelay": "soon"}, "a length of time such as 30s"),
        ({"failOnDataLoss": "perhaps"}, "should be true or false"),
        ({"claimMode": "steal"}, "claimMode is 'steal', and should be stage or defer"),
        ({"subQueue": "upper"}, "should be main, deadletter or transferdeadletter"),
        ({"startingSequenceNumber": "9", "endingSequenceNumber": "3"}, "which is before startingSequenceNumber, 9"),
        ({"minMessagesPerTrigger": "9", "maxMessagesPerTrigger": "3"}, "is more than maxMessagesPerTrigger"),
        ({"connectionString": CONNECTION}, "Only one of connectionStringEnv"),
        ({"stagingLocation": "s3://bucket/x"}, "stagingLocation is 's3://bucket/x', and should be a directory"),
    ],
)
def test_what_will_not_do_is_told_in_a_sentence(options: dict[str, str], sentence: str) -> None:
    with pytest.raises(PipelineError, match=sentence):
        parse(**options)


def test_a_namespace_must_be_named() -> None:
    with pytest.raises(PipelineError, match="No namespace is named: give connectionStringEnv"):
        SourceOptions.parse({"queue": "orders"})


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"stagingLocation": ""}, "A stream needs stagingLocation"),
        ({"startingSequenceNumber": "3"}, "startingSequenceNumber is for batch reads"),
        ({"claimMode": "defer"}, "claimMode=defer needs claimName"),
        ({"claimMode": "defer", "settleOn": "stage"}, "settleOn=stage needs claimMode=stage"),
        ({"claimMode": "defer", "claimName": "me", "minMessagesPerTrigger": "2"}, "minMessagesPerTrigger needs"),
    ],
)
def test_what_a_stream_needs_is_asked_for(options: dict[str, str], sentence: str) -> None:
    found = SourceOptions.parse({**STREAM, **options})
    with pytest.raises(PipelineError, match=sentence):
        found.check_streaming()


@pytest.mark.parametrize(
    ("told", "found"), [("/x/y", "/x/y"), ("file:///x/y", "/x/y"), ("file:/x", "/x"), ("x", f"{Path.cwd()}/x")]
)
def test_the_staging_directory_is_the_same_for_everybody(told: str, found: str) -> None:
    assert parse(stagingLocation=told).staging_location == found


def test_sizes_and_times_have_units() -> None:
    given = Given({"a": "10m", "b": "500ms", "c": "2h", "d": "64"})
    assert (given.bytes("a"), given.seconds("b"), given.seconds("c"), given.bytes("d")) == (10 * 1024**2, 0.5, 7200, 64)


def test_the_secret_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BUS", CONNECTION)
    assert Target(variable="BUS").resolve().key == KEY
    monkeypatch.delenv("BUS")
    with pytest.raises(PipelineError, match="environment variable BUS is not set"):
        Target(variable="BUS").resolve()


def test_the_secret_comes_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "bus"
    file.write_text(f"{CONNECTION}\n")
    assert Target(file=str(file)).resolve().key == KEY
    with pytest.raises(PipelineError, match="cannot be read: No such file"):
        Target(file=str(tmp_path / "none")).resolve()


def test_a_bad_connection_string_is_told_without_its_secret() -> None:
    with pytest.raises(PipelineError, match="has no Endpoint") as caught:
        Target(connection_string=f"SharedAccessKey={KEY}").resolve()
    assert KEY not in str(caught.value)


def test_a_reference_to_a_secret_is_all_that_travels() -> None:
    options = parse(queue="orders")
    assert KEY not in repr(SourceOptions.parse({"connectionString": CONNECTION, "queue": "q"}))
    assert KEY.encode() not in pickle.dumps(options)


def test_a_subscription_is_written_short_or_long() -> None:
    assert entity_path("news:audit") == entity_path("news/Subscriptions/audit") == "news/Subscriptions/audit"
