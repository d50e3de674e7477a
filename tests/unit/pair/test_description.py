"""A pair described by a file or by the environment: what is read, what goes first, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from twinbus.pair.description import DescriptionError, PairDescription
from twinbus.pair.ledger.tags import Tag

FIRST = "Endpoint=sb://contoso.example/;SharedAccessKeyName=root;SharedAccessKey=secret-one"
SECOND = "Endpoint=sb://fabrikam.example/;SharedAccessKeyName=root;SharedAccessKey=secret-two"
BOTH = {"TWINBUS_PRIMARY": FIRST, "TWINBUS_SECONDARY": SECOND}


def written(folder: Path, text: str) -> Path:
    file = folder / "pair.toml"
    file.write_text(text)
    return file


def test_the_environment_alone_is_enough() -> None:
    pair = PairDescription.read(None, BOTH)

    assert (pair.primary.connection_string, pair.secondary.connection_string) == (FIRST, SECOND)
    assert pair.options.backlog_queue_count == 10


def test_a_file_says_everything(tmp_path: Path) -> None:
    (tmp_path / "key").write_text(f"{SECOND}\n")
    file = written(
        tmp_path,
        f'[primary]\nconnection_string = "{FIRST}"\nname = "contoso"\nhttp = "http://contoso.example:5300/"\n'
        'datacenter = "north"\n[secondary]\nconnection_string_file = "key"\n'
        '[options]\nfailover_interval = "PT1M30S"\nping_primary_interval = 5\nenable_syphon = true\n'
        'preset = "documents"\n',
    )
    pair = PairDescription.read(file, {})

    assert (pair.primary.name, pair.primary.http, pair.primary.datacenter) == (
        "contoso",
        "http://contoso.example:5300",
        "north",
    )
    assert pair.secondary.connection_string == SECOND
    options = pair.options
    assert (options.failover_interval, options.ping_primary_interval, options.enable_syphon) == (90.0, 5, True)
    assert options.preset == "documents"


def test_what_copies_share_is_told_above_the_tables(tmp_path: Path) -> None:
    path = tmp_path / "pair.toml"
    assert PairDescription.read(environment=BOTH).tag == Tag()
    path.write_text('tag = "property:job-id"')
    assert PairDescription.read(path, BOTH).tag == Tag.parse("property:job-id")
    for wrong in ('tag = "body"', "tag = 7"):
        path.write_text(wrong)
        with pytest.raises(DescriptionError, match="message_id, subject or property:NAME"):
            PairDescription.read(path, BOTH)


def test_the_file_may_be_named_by_the_environment(tmp_path: Path) -> None:
    file = written(tmp_path, '[primary]\nconnection_string_env = "ONE"\n[secondary]\nconnection_string_env = "TWO"\n')
    pair = PairDescription.read(None, {"TWINBUS_PAIR": str(file), "ONE": FIRST, "TWO": SECOND})

    assert pair.secondary.connection_string == SECOND


def test_the_environment_goes_before_the_file(tmp_path: Path) -> None:
    file = written(tmp_path, f'[primary]\nconnection_string = "{SECOND}"\n[options]\npoll = 60\nattempts = 3\n')
    environment = BOTH | {"TWINBUS_PAIR_POLL": "PT10S", "TWINBUS_PAIR_ENABLE_SYPHON": "true"}
    pair = PairDescription.read(file, environment | {"TWINBUS_PRIMARY_NAME": "contoso"})

    assert pair.primary.connection_string == FIRST
    assert pair.primary.name == "contoso"
    assert (pair.options.poll, pair.options.attempts, pair.options.enable_syphon) == (10.0, 3, True)


@pytest.mark.parametrize(
    ("text", "environment", "sentence"),
    [
        ("", {}, "no primary namespace: give [primary] connection_string, or set TWINBUS_PRIMARY"),
        ("colour = 1", BOTH, "a pair has no 'colour'; it may have primary, secondary, options"),
        ("[primry]", BOTH, "a pair has no 'primry'; did you mean 'primary'?"),
        ("[primary]\nconection_string = 'x'", BOTH, "did you mean 'connection_string'?"),
        ("primary = 3", BOTH, "[primary] must be a table"),
        ("[primary]\nname = 5", BOTH, "[primary] name must be a text"),
        ("[primary]\nhttp = 'localhost:5300'", BOTH, "http must be an address such as http://localhost:5300"),
        ("[primary]\nca = 'none.pem'", BOTH, "none.pem' cannot be read"),
        (
            "[primary]\nconnection_string = 'a'\nconnection_string_env = 'B'",
            {},
            "has connection_string and connection_string_env: one is enough",
        ),
        ("[primary]\nconnection_string_env = 'NOT_SET'", {}, "the variable NOT_SET is not set"),
        ("[primary]\nconnection_string_file = 'gone'", {}, "'gone' cannot be read"),
        ("[primary]\nconnection_string = 'Endpoint=sb://x'", {}, "[primary] the connection string needs"),
        ("[options]\nfailover_interval = 3601", BOTH, "failover_interval must be between 0 and 3600"),
        ("[options]\nfailover_interval = 'soon'", BOTH, "failover_interval must be seconds or a duration"),
        ("[options]\nfailover_interval = true", BOTH, "failover_interval must be seconds or a duration"),
        ("[options]\nbacklog_queue_count = 2.5", BOTH, "backlog_queue_count must be a whole number, not 2.5"),
        ("[options]\nenable_syphon = 'perhaps'", BOTH, "enable_syphon must be true or false"),
        ("[options]\npreset = 'mine'", BOTH, "preset must be one of"),
        ("", BOTH | {"TWINBUS_PAIR_FAILOVER": "3"}, "TWINBUS_PAIR_FAILOVER is no option"),
        (
            "",
            BOTH | {"TWINBUS_PAIR_ATTEMPTS": "many"},
            "TWINBUS_PAIR_ATTEMPTS attempts must be a whole number, not 'many'",
        ),
        ("nonsense", BOTH, "is not TOML"),
    ],
)
def test_what_cannot_be_is_refused(tmp_path: Path, text: str, environment: dict[str, str], sentence: str) -> None:
    with pytest.raises(DescriptionError) as refused:
        PairDescription.read(written(tmp_path, text), environment)
    assert sentence in str(refused.value)


def test_all_problems_are_told_at_once_and_no_secret_with_them(tmp_path: Path) -> None:
    file = written(tmp_path, f"[primary]\nconnection_string = '{FIRST};;x'\ncolour = 1\n[options]\nattempts = 99\n")
    with pytest.raises(DescriptionError) as refused:
        PairDescription.read(file, {})

    assert [problem.path for problem in refused.value.problems] == [
        ("primary", "colour"),
        ("primary", "connection_string"),
        ("secondary",),
        ("options", "attempts"),
    ]
    assert "secret-one" not in str(refused.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(DescriptionError, match="cannot be read"):
        PairDescription.read(tmp_path / "gone.toml", {})


def test_a_namespace_is_not_paired_with_itself() -> None:
    with pytest.raises(ValueError, match="same namespace"):
        PairDescription.read(None, {"TWINBUS_PRIMARY": FIRST, "TWINBUS_SECONDARY": FIRST}).namespaces()


def test_secrets_stay_out_of_the_words_for_it() -> None:
    assert "secret" not in repr(PairDescription.read(None, BOTH))
