"""How commands end: sentences, exit codes, and no tracebacks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from twinbus.cli import app
from twinbus.cli.address import path_of
from twinbus.cli.connection import Namespace, namespace
from twinbus.cli.running import PromptError, command, confirm, words
from twinbus.client import ClientError, ConnectionString

KEYS = "SharedAccessKeyName=root;SharedAccessKey=secret"
LOCAL = f"Endpoint=sb://localhost;{KEYS};UseDevelopmentEmulator=true"
AZURE = f"Endpoint=sb://contoso.servicebus.windows.net/;{KEYS}"


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        "TWINBUS_CONNECTION_STRING",
        "AZURE_SERVICEBUS_CONNECTION_STRING",
        "TWINBUS_HTTP_PORT",
        "TWINBUS_DEBUG",
    ):
        monkeypatch.delenv(name, raising=False)


def failing(problem: BaseException) -> Callable[[], None]:
    @command
    async def work() -> None:
        raise problem

    return work


@pytest.mark.parametrize(
    ("problem", "code", "sentence"),
    [
        (PromptError("Give a name."), 1, "twinbus: Give a name."),
        (ClientError("amqp:not-found", "there is none"), 1, "There is none. [amqp:not-found]\n  Create the entity"),
        (KeyboardInterrupt(), 130, "interrupted"),
        (ZeroDivisionError("oh"), 70, "should not have happened: ZeroDivisionError('oh')"),
        (typer.Exit(5), 5, ""),
    ],
)
def test_a_failure_is_a_sentence_and_a_code(
    problem: BaseException, code: int, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(typer.Exit) as ending:
        failing(problem)()
    assert ending.value.exit_code == code
    assert sentence in capsys.readouterr().err


def test_whoever_looks_for_a_defect_gets_the_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TWINBUS_DEBUG", "1")
    with pytest.raises(ZeroDivisionError):
        failing(ZeroDivisionError())()


def test_a_tracking_id_stands_alone() -> None:
    text = "No. TrackingId:abc, SystemTracker:bus:q, Timestamp:now"
    assert words(ClientError("contoso:odd", text)) == "No. [contoso:odd]\n  TrackingId: abc"


def test_agreeing_in_advance_asks_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    confirm("Sure?", yes=True)
    assert capsys.readouterr() == ("", "")


async def test_the_administration_is_where_somebody_says() -> None:
    assert await namespace(LOCAL, None, 8080).address() == "http://localhost:8080"


async def test_nobody_asks_the_service_where_it_is_administered() -> None:
    assert await namespace(AZURE).address() == "https://contoso.servicebus.windows.net"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (None, "No namespace is named"),
        ("", "No namespace is named"),
        ("Endpoint=sb://x", "SharedAccessKeyName and SharedAccessKey"),
        ("nonsense", "part without '='"),
    ],
)
def test_what_is_wrong_with_a_connection_string_is_told(text: str | None, sentence: str) -> None:
    with pytest.raises(PromptError, match=sentence):
        namespace(text)


def test_an_authority_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    with pytest.raises(PromptError, match="cannot be read"):
        namespace(AZURE, tmp_path / "none.pem")
    (tmp_path / "bad.pem").write_text("nonsense")
    with pytest.raises(PromptError, match="cannot be read"):
        namespace(AZURE, tmp_path / "bad.pem")


@pytest.mark.parametrize("text", [LOCAL, AZURE])
def test_a_queues_own_connection_string_leads_to_the_same_namespace(text: str) -> None:
    place = namespace(text)
    found = ConnectionString.parse(place.connection_string("app", "key=", "orders"))
    assert (found.host, found.port, found.tls) == (place.target.host, place.target.port, place.target.tls)
    assert (found.policy, found.key, found.entity_path) == ("app", "key=", "orders")


def test_the_secret_is_not_in_what_a_namespace_says_of_itself() -> None:
    assert "secret" not in repr(Namespace(ConnectionString.parse(LOCAL), "http://localhost"))


def test_a_dead_letter_queue_has_its_own_path() -> None:
    assert path_of("orders", False) == "orders"
    assert path_of("orders", True) == "orders/$DeadLetterQueue"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["send", "q"], "nothing to send"),
        (["send", "q", "-", "x"], "`-` stands alone"),
        (["send", "q", "x", "--file", "y"], "not from both"),
        (["send", "q", "x", "--lines"], "--lines is for --file"),
        (["send", "q", "x", "--ttl", "60d"], "49 days"),
        (["receive", "q", "--complete", "--abandon"], "one fate only"),
        (["receive", "q", "--reason", "r"], "belong to --dead-letter"),
        (["receive", "q", "--mode", "receive-and-delete", "--defer"], "gone when they come"),
        (["entity", "create"], "Name what is to be created"),
        (["entity", "create", "q", "--from", "x"], "Name what is to be created"),
        (["entity", "create", "t:s", "--topic"], "no name of a topic"),
        (["entity", "show", "a:b:c:d"], "names nothing"),
        (["send", "t:s", "x"], "send to its topic"),
    ],
)
def test_options_that_do_not_fit_are_told_before_anything_is_done(arguments: list[str], sentence: str) -> None:
    done = CliRunner().invoke(app, [*arguments, "-c", f"{LOCAL};EntityPath=unused"])
    assert done.exit_code == 1
    assert sentence in done.stderr
    assert "secret" not in done.output


def test_the_connection_string_comes_from_either_variable() -> None:
    for name in ("TWINBUS_CONNECTION_STRING", "AZURE_SERVICEBUS_CONNECTION_STRING"):
        done = CliRunner().invoke(app, ["peek", "q"], env={name: "nonsense"})
        assert "part without '='" in done.stderr


def test_help_shows_no_secret_of_the_environment() -> None:
    done = CliRunner().invoke(app, ["send", "--help"], env={"TWINBUS_CONNECTION_STRING": LOCAL})
    assert done.exit_code == 0
    assert "secret" not in done.output


def test_completion_can_be_installed() -> None:
    assert "--install-completion" in CliRunner().invoke(app, ["--help"]).output
