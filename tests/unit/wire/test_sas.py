"""Shared access signatures: the official client's own tokens, field order, encodings, scope and secrecy."""

from __future__ import annotations

import base64
import hashlib
import hmac
from urllib.parse import quote

import pytest
from azure.servicebus._base_handler import _generate_sas_token

from twinbus.model.errors import BusError, Fault
from twinbus.model.security import AuthorizationRule, Rights
from twinbus.wire.sas import Token, covers, make_token, parse, path_of, verify

KEY = "c2VjcmV0LWtleS1vZi10aGUtcG9saWN5"
OTHER = "YW5vdGhlci1rZXk="
NOW_S = 1_700_000_000


def sign(encoded_resource: str, expiry: int = NOW_S, key: str = KEY) -> str:
    digest = hmac.new(key.encode(), f"{encoded_resource}\n{expiry}".encode(), hashlib.sha256).digest()
    return quote(base64.b64encode(digest).decode(), safe="")


class TestReading:
    def test_the_official_clients_token(self) -> None:
        text = _generate_sas_token("sb://host:5672/a queue", "policy", KEY).token
        token = parse(text if isinstance(text, str) else text.decode())
        assert token.policy == "policy"
        assert token.resource == "sb://host:5672/a queue"
        assert verify(token, [OTHER, KEY])
        assert not verify(token, [OTHER])

    def test_our_own_token(self) -> None:
        token = parse(make_token("sb://h/q/ä+b", "Root & more", KEY, NOW_S))
        assert (token.resource, token.policy, token.expires_at_s) == ("sb://h/q/ä+b", "Root & more", NOW_S)
        assert verify(token, (KEY, OTHER))

    @pytest.mark.parametrize(
        "encoded",
        ["sb%3A%2F%2Fh%2Fq", "sb%3a%2f%2fh%2fq", "sb://h/q", "https%3A%2F%2FH%2FQ%2F"],
    )
    def test_the_signature_covers_the_resource_as_it_was_written(self, encoded: str) -> None:
        token = parse(f"SharedAccessSignature sig={sign(encoded)}&se={NOW_S}&skn=p&sr={encoded}")
        assert verify(token, [KEY])
        assert covers(token.resource, "sb://h/q")

    def test_a_policy_name_encoded_twice(self) -> None:
        text = f"SharedAccessSignature sr=sb%3A%2F%2Fh&sig=x&se={NOW_S}&skn=a%252Db"
        assert parse(text).policy == "a-b"

    def test_expiry(self) -> None:
        token = parse(make_token("sb://h", "p", KEY, NOW_S))
        assert not token.expired(NOW_S * 1000 - 1)
        assert token.expired(NOW_S * 1000)

    @pytest.mark.parametrize(
        "text",
        [
            "",
            "eyJhbGciOiJIUzI1NiJ9.e30.x",
            "SharedAccessSignature",
            "SharedAccessSignature ",
            "SharedAccessSignature sr=a&sig=b&se=1",
            "SharedAccessSignature sr=a&sig=&se=1&skn=p",
            "SharedAccessSignature sr=a&sig=SECRET&se=-1&skn=p",
            "SharedAccessSignature sr=a&sig=SECRET&se=1e3&skn=p",
            "SharedAccessSignature sr=a&sig=SECRET&se=\u0661&skn=p",
            "SharedAccessSignature sr=a&sig=SECRET&se=9999999999999999&skn=p",
            "SharedAccessSignature sr=a&sig=SECRET&se=1&skn=p&sig=SECRET",
            "SharedAccessSignature sr=" + "a" * 9000 + "&sig=SECRET&se=1&skn=p",
        ],
    )
    def test_what_is_no_token_fails_without_showing_it(self, text: str) -> None:
        with pytest.raises(BusError) as caught:
            parse(text)
        assert caught.value.fault is Fault.AUTHENTICATION_FAILED
        assert "SECRET" not in str(caught.value)

    def test_neither_keys_nor_signatures_are_shown(self) -> None:
        token = parse(make_token("sb://h", "p", KEY, NOW_S))
        assert token.signature not in repr(token)
        rule = AuthorizationRule("p", KEY, OTHER, Rights.ALL)
        assert KEY not in repr(rule)
        assert OTHER not in repr(rule)


class TestVerification:
    def test_any_change_breaks_it(self) -> None:
        good = parse(make_token("sb://h/q", "p", KEY, NOW_S))
        assert verify(good, [KEY])
        fields = (good.resource_raw, good.resource, good.signature, good.expires_at_s, good.policy)
        for forged in (
            Token("sb%3A%2F%2Fh", *fields[1:]),
            Token(*fields[:2], good.signature[:-2] + "A=", *fields[3:]),
            Token(*fields[:3], NOW_S + 1, "p"),
        ):
            assert not verify(forged, [KEY])

    def test_no_key_verifies_nothing(self) -> None:
        assert not verify(parse(make_token("sb://h/q", "p", KEY, NOW_S)), [])

    def test_a_signature_that_is_not_ascii(self) -> None:
        text = f"SharedAccessSignature sr=sb&sig=%C3%A4%ED%A0%80&se={NOW_S}&skn=p"
        assert not verify(parse(text), [KEY])


@pytest.mark.parametrize(
    ("resource", "audience", "covered"),
    [
        ("sb://h", "sb://h/q", True),
        ("sb://h/", "sb://h/q", True),
        ("sb://h/q", "sb://h/q", True),
        ("sb://h/q/", "sb://h/q", True),
        ("sb://h/q", "sb://h/q/", True),
        ("https://h/q", "sb://h/q", True),
        ("amqps://H/Q", "sb://h/q", True),
        ("http://h:5672/q", "sb://h/q", True),
        ("sb://h/q", "sb://h:5672/q", True),
        ("sb://h:1/q", "amqp://h:2/q", True),
        ("sb://h/q", "sb://h/q/$management", True),
        ("sb://h/t", "sb://h/t/Subscriptions/s/$DeadLetterQueue", True),
        ("sb://h/t/subscriptions/s", "sb://h/T/Subscriptions/S", True),
        ("https://h/q?api-version=2021-05", "https://h/q?enrich=false", True),
        ("sb://h/a%2Fb", "sb://h/a/b", True),
        ("sb://h/a%2fb", "sb://h/a%2Fb/c", True),
        ("sb://[::1]:5672/q", "sb://[::1]/q", True),
        ("h/q", "sb://h/q", True),
        ("sb://h/q", "sb://h", False),
        ("sb://h/q", "sb://h/queue", False),
        ("sb://h/queue", "sb://h/q", False),
        ("sb://h/a/b", "sb://h/a", False),
        ("sb://h/b", "sb://h/a/b", False),
        ("sb://h", "sb://h2/q", False),
        ("sb://h", "sb://sub.h/q", False),
        ("sb://fe80::1", "sb://fe80::2/q", False),
        ("", "sb://h/q", False),
        ("sb://", "sb:///q", False),
    ],
)
def test_scope_goes_by_path_segments(resource: str, audience: str, covered: bool) -> None:
    assert covers(resource, audience) is covered


@pytest.mark.parametrize(
    ("uri", "path"),
    [
        ("sb://h", ""),
        ("sb://h:1/", ""),
        ("sb://h/Q", "Q"),
        ("sb://h/t/Subscriptions/s/", "t/Subscriptions/s"),
        ("https://h/a%2Fb?x=/y", "a/b"),
    ],
)
def test_path_of_an_audience(uri: str, path: str) -> None:
    assert path_of(uri) == path


class TestRules:
    @pytest.mark.parametrize("rights", [Rights.LISTEN, Rights.SEND, Rights.LISTEN | Rights.SEND, Rights.ALL])
    def test_rights_that_may_be_granted(self, rights: Rights) -> None:
        rule = AuthorizationRule("p", KEY, OTHER, rights)
        assert rule.keys == (KEY, OTHER)

    @pytest.mark.parametrize(
        ("name", "key", "rights"),
        [
            ("p", KEY, Rights.MANAGE),
            ("p", KEY, Rights.MANAGE | Rights.SEND),
            ("p", KEY, Rights(0)),
            ("", KEY, Rights.ALL),
            ("p", "", Rights.ALL),
        ],
    )
    def test_rules_that_cannot_be(self, name: str, key: str, rights: Rights) -> None:
        with pytest.raises(BusError) as caught:
            AuthorizationRule(name, key, OTHER, rights)
        assert caught.value.fault is Fault.ARGUMENT
