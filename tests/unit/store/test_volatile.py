"""The line of messages in memory: what is returned, what is rewound, and who gives up memory."""

from __future__ import annotations

import pytest

from twinbus.store import volatile
from twinbus.store.commands import QueueSettings
from twinbus.store.volatile import Entity, Line, Memory, Stored
from twinbus.store.work import TokenSource


def message(seq: int) -> tuple[Stored, bytes]:
    return Stored(seq, seq, f"m{seq}", 10, 0, 0), b"x" * 10


@pytest.fixture
def line() -> Line:
    line = Line()
    line.ready.extend([message(5), message(6)])
    line.ready_bytes = 20
    line.read_to = line.high = 7
    line.caught_up = True
    return line


def test_a_returned_message_waits_in_order(line):
    line.give_back(3)
    line.give_back(2)
    assert line.returned[0] == 2
    assert line.caught_up


def test_a_message_beyond_what_was_read_will_be_read(line):
    line.give_back(9)
    assert line.returned == []
    assert not line.caught_up


def test_too_many_returned_messages_rewind_the_line(line, monkeypatch):
    monkeypatch.setattr(volatile, "RETURNED_LIMIT", 2)
    for seq in (4, 2, 3):
        line.give_back(seq)
    assert (line.read_to, line.high, line.caught_up) == (2, 7, False)
    assert (list(line.ready), line.returned, line.ready_bytes) == ([], [], 0)


def test_the_largest_line_gives_up_its_memory_to_another():
    memory = Memory(cache_bytes=100)
    for entity_id in (1, 2):
        memory.add(Entity(entity_id, QueueSettings()))
    large, small = memory.queues[4].line, memory.queues[8].line
    large.ready.append(message(1))
    large.ready_bytes = memory.cached = 90
    large.read_to = 2
    assert memory.make_room(small, 50)
    assert (large.ready_bytes, large.read_to, memory.cached) == (0, 1, 0)


def test_the_largest_line_gets_no_more_for_itself():
    memory = Memory(cache_bytes=100)
    memory.add(Entity(1, QueueSettings()))
    line = memory.queues[4].line
    line.ready.append(message(1))
    line.ready_bytes = memory.cached = 90
    assert not memory.make_room(line, 50)
    assert len(line.ready) == 1


def test_tokens_never_repeat_and_carry_the_epoch():
    source = TokenSource(b"12345678")
    tokens = source.take(3) + source.take(2)
    assert len(set(tokens)) == 5
    assert {(len(token), token[:8]) for token in tokens} == {(16, b"12345678")}
    with pytest.raises(ValueError, match="8 bytes"):
        TokenSource(b"short")
