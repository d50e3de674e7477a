"""What a listener says is understood in the order of the table, and in no other."""

from __future__ import annotations

import json
from typing import Any

import pytest

from twinbus.relay.commands import CommandError, RenewToken, Response
from twinbus.relay.framing import Opcode, Piece
from twinbus.relay.hearing import BodyPart, Hearing
from twinbus.relay.states import NEXT, Came, Expected


def response(**told: Any) -> Piece:
    command = {"requestId": "1", "statusCode": 200, "responseHeaders": {"A": "b"}, "body": False} | told
    return Piece(Opcode.TEXT, json.dumps({"response": command}).encode())


def hearing() -> Hearing:
    return Hearing(text_bytes_max=1000, body_bytes_max=10)


def test_a_response_without_a_body_is_heard_at_once() -> None:
    assert hearing().hear(response(statusCode="404")) == Response("1", 404, "", [("A", "b")], False)


def test_a_command_in_fragments_is_put_together() -> None:
    told, heard = response(), hearing()
    assert heard.hear(Piece(Opcode.TEXT, told.data[:20], True, False)) is None
    assert heard.is_amid
    assert isinstance(heard.hear(Piece(Opcode.TEXT, told.data[20:], False, True)), Response)
    assert not heard.is_amid


def test_a_body_is_passed_on_in_the_parts_it_comes_in() -> None:
    heard = hearing()
    heard.hear(response(body=True))
    assert heard.hear(Piece(Opcode.BINARY, b"one", True, False)) == BodyPart(b"one", False)
    assert heard.hear(Piece(Opcode.BINARY, b"two", False, True)) == BodyPart(b"two", True)
    assert isinstance(heard.hear(response()), Response)


def test_a_new_token_is_heard() -> None:
    told = Piece(Opcode.TEXT, b'{"renewToken": {"token": "T"}}')
    assert hearing().hear(told) == RenewToken("T")


def test_several_values_of_a_header_stay_several() -> None:
    heard = hearing().hear(response(responseHeaders={"Set-Cookie": ["a", "b"], "N": 1, "None": None}))
    assert isinstance(heard, Response)
    assert heard.headers == [("Set-Cookie", "a"), ("Set-Cookie", "b"), ("N", "1")]


@pytest.mark.parametrize("status", [502, "504"])
def test_a_status_of_the_relay_itself_becomes_500(status: int | str) -> None:
    heard = hearing().hear(response(statusCode=status))
    assert isinstance(heard, Response)
    assert heard.status == 500


@pytest.mark.parametrize(
    "piece",
    [
        Piece(Opcode.BINARY, b"a body without a response"),
        Piece(Opcode.TEXT, b"no JSON"),
        Piece(Opcode.TEXT, b"[]"),
        Piece(Opcode.TEXT, b'{"dance": {}}'),
        Piece(Opcode.TEXT, b"[" * 900),
        Piece(Opcode.TEXT, b"x" * 1001, True, False),
        response(statusCode=101),
        response(statusCode=True),
        response(statusCode="2xx"),
        response(requestId=1),
        response(responseHeaders=["a"]),
    ],
)
def test_what_is_no_command_is_refused(piece: Piece) -> None:
    with pytest.raises(CommandError):
        hearing().hear(piece)


def test_a_command_instead_of_a_body_and_a_body_too_large_are_refused() -> None:
    heard = hearing()
    heard.hear(response(body=True))
    with pytest.raises(CommandError):
        heard.hear(response())
    heard = hearing()
    heard.hear(response(body=True))
    with pytest.raises(CommandError):
        heard.hear(Piece(Opcode.BINARY, b"x" * 11))


def test_the_table_leads_back_to_a_command_from_everywhere() -> None:
    reached = {Expected.COMMAND}
    for _ in Expected:
        reached |= {state for (state, _), following in NEXT.items() if following in reached}
    assert reached == set(Expected)
    assert {came for _, came in NEXT} == set(Came)
