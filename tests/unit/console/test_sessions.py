"""Who is signed in, for how long, and how often a wrong key may be tried."""

from __future__ import annotations

import pytest

from twinbus.console import sessions
from twinbus.console.sessions import Sessions
from twinbus.console.signing import Credential, UnreadableError, typed

CREDENTIAL = Credential("root", "secret")


class Clock:
    def __init__(self) -> None:
        self.at_s = 1000.0

    def __call__(self) -> float:
        return self.at_s


def test_a_session_ends_when_it_is_idle_and_at_last_in_any_case() -> None:
    clock = Clock()
    signed = Sessions(clock)
    cookie, session = signed.begin(CREDENTIAL, True, "contoso")
    for _ in range(int(sessions.LONGEST_S // (sessions.IDLE_S / 2)) - 1):
        clock.at_s += sessions.IDLE_S / 2
        assert signed.find(cookie) is session
    clock.at_s += sessions.IDLE_S / 2
    assert signed.find(cookie) is None
    cookie, _ = signed.begin(CREDENTIAL, True, "contoso")
    clock.at_s += sessions.IDLE_S
    assert signed.find(cookie) is None


def test_nobody_is_found_without_a_cookie_or_after_the_end() -> None:
    signed = Sessions(Clock())
    cookie, session = signed.begin(CREDENTIAL, False, "contoso")
    assert signed.find(None) is None
    assert signed.find("guess") is None
    assert session.is_own(session.form_token)
    assert not session.is_own("")
    signed.end(cookie)
    assert signed.find(cookie) is None


def test_there_are_only_so_many_sessions() -> None:
    clock = Clock()
    signed = Sessions(clock)
    first, _ = signed.begin(CREDENTIAL, True, "contoso")
    for _ in range(sessions.SESSIONS_MAX):
        clock.at_s += 0.001
        signed.begin(CREDENTIAL, True, "contoso")
    assert signed.find(first) is None


def test_wrong_attempts_from_one_address_have_to_wait() -> None:
    clock = Clock()
    signed = Sessions(clock)
    for _ in range(sessions.ATTEMPTS_MAX):
        assert signed.may_try("10.0.0.1")
        signed.was_wrong("10.0.0.1")
    assert not signed.may_try("10.0.0.1")
    assert signed.may_try("10.0.0.2")
    clock.at_s += sessions.ATTEMPTS_S
    assert signed.may_try("10.0.0.1")


def test_a_key_is_in_no_repr() -> None:
    _, session = Sessions(Clock()).begin(CREDENTIAL, True, "contoso")
    assert "secret" not in repr(session)
    assert session.form_token not in repr(session)


def test_a_connection_string_is_taken_in_place_of_a_key() -> None:
    text = "Endpoint=sb://localhost:5672;SharedAccessKeyName=reader;SharedAccessKey=a=b==;UseDevelopmentEmulator=true"
    assert typed("ignored", text) == Credential("reader", "a=b==")
    assert typed(" root ", " key ") == Credential("root", "key")


@pytest.mark.parametrize(("policy", "key"), [("", "key"), ("root", ""), ("root", "SharedAccessKey="), ("r" * 300, "k")])
def test_what_is_no_credential_is_refused(policy: str, key: str) -> None:
    with pytest.raises(UnreadableError):
        typed(policy, key)
