"""Each check of a store finds the damage that it is for, and nothing else."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from twinbus.model.message import Outcome
from twinbus.store.verification.checks import CHECKS

from .conftest import Bus

# Made by `filled`: numbers 1 to 5 are active (1 is locked), 6 is deferred, 7 is scheduled, 8 is a dead letter.
LOST = 3
THIRD = "(SELECT body FROM message WHERE queue = 4 AND seq = 3)"
SECOND = "(SELECT body FROM message WHERE queue = 4 AND seq = 2)"


class Damage(NamedTuple):
    """Statements that damage one thing, and what must be found; `other` where PostgreSQL's tables differ."""

    check: str
    told: str
    statements: tuple[str, ...]
    other: tuple[str, ...] | None = None


def removed(number: int) -> tuple[str, ...]:
    """A message is taken out with its record, and its queue's row says so."""
    return (
        f"DELETE FROM body WHERE id IN (SELECT body FROM message WHERE queue = 4 AND seq = {number})",
        f"DELETE FROM message WHERE queue = 4 AND seq = {number}",
    )


DAMAGES = {
    "a flipped bit in a record": Damage(
        "body",
        "number 3",
        (f"UPDATE body SET data = CAST(substr(data, 1, length(data) - 1) || x'00' AS BLOB) WHERE id = {THIRD}",),
        (f"UPDATE body SET data = set_byte(data, length(data) - 1, 0) WHERE id = {THIRD}",),
    ),
    "a record is gone": Damage("message-without-body", "number 3", (f"DELETE FROM body WHERE id = {THIRD}",)),
    "a record of nobody": Damage(
        "body-without-message",
        "records 999 to 999",
        ("INSERT INTO body VALUES (999, x'00000000')",),
        ("INSERT INTO body VALUES (999, '\\x00000000')",),
    ),
    "a record of two": Damage(
        "body-used-twice",
        "2 rows, one of queue 'queue-4'",
        (
            f"DELETE FROM body WHERE id = {THIRD}",
            f"UPDATE message SET body = {SECOND} WHERE queue = 4 AND seq = 3",
        ),
    ),
    "an impossible row": Damage(
        "message-state", "number 3", ("UPDATE message SET delivery_count = -1 WHERE queue = 4 AND seq = 3",)
    ),
    "settings that nobody can read": Damage(
        "queue-row",
        "queue 'queue-4'",
        ("UPDATE queue SET settings = '{' WHERE id = 4",),
        ("UPDATE entity SET settings = '{' WHERE id = 1",),
    ),
    "a wrong count": Damage(
        "counts",
        "active: its row says 6, its messages are 5",
        ("UPDATE queue SET active = 6 WHERE id = 4",),
        ("UPDATE entity SET counts[2] = 6 WHERE id = 1",),
    ),
    "a wrong sum of bytes": Damage(
        "counts",
        "bytes: its row says 0",
        ("UPDATE queue SET bytes = 0 WHERE id = 4",),
        ("UPDATE entity SET counts[6] = 0 WHERE id = 1",),
    ),
    "a number that is taken": Damage(
        "next-number",
        "The next number of queue 'queue-4' is 2",
        ("UPDATE queue SET next_seq = 2 WHERE id = 4",),
        ("UPDATE entity SET counts[1] = 2 WHERE id = 1",),
    ),
    "an id in the window of nobody": Damage(
        "stray-rows", "queue 4000: 1", ("INSERT INTO duplicate VALUES (4000, 'a', 1)",)
    ),
    "a session of nobody": Damage(
        "stray-rows",
        "'session_state'",
        ("INSERT INTO session_state VALUES (4000, 'a', x'00', 1)",),
        ("INSERT INTO session_state VALUES (4000, 'a', '\\x00', 1)",),
    ),
    "a lock of nobody": Damage(
        "stray-rows", "queue 4000: 1", ("UPDATE claim SET queue = 4000",), ("UPDATE lock SET queue = 4000",)
    ),
    "a lock that nobody can read": Damage("claims", "1 claims", ("UPDATE claim SET held = '[['",), ()),
    "a flipped bit in the journal": Damage(
        "journal-row",
        "row 2",
        ("UPDATE journal SET ops = CAST(replace(ops, '\"m2\"', '\"m3\"') AS BLOB) WHERE id = 2",),
        ("UPDATE journal SET ops = set_bit(ops, 100, 1 - get_bit(ops, 100)) WHERE id = 2",),
    ),
    "another instant in the journal": Damage(
        "journal-row", "row 2", ("UPDATE journal SET at_ms = at_ms + 1 WHERE id = 2",)
    ),
    "a commit is missing": Damage("journal-gap", "row 2", ("DELETE FROM journal WHERE id = 2",)),
    "the newest commits are missing": Damage(
        "journal-gap",
        "to 1000",
        ("INSERT INTO export VALUES (0, 1, 1000, 1, 1, 1, 1)",),
        ("INSERT INTO export SELECT writer, 1, 1000, 1, 1, 1, 1 FROM journal LIMIT 1",),
    ),
    "a message was taken out": Damage(
        "journal-state",
        "1 messages of queue 'queue-4' were stored and have not ended",
        (*removed(LOST), "UPDATE queue SET active = 4, bytes = bytes - 5 WHERE id = 4"),
        (*removed(LOST), "UPDATE entity SET counts[2] = 4, counts[6] = counts[6] - 5 WHERE id = 1"),
    ),
    "a message was put in": Damage(
        "journal-state",
        "1 messages of queue 'queue-4' are there",
        (
            "INSERT INTO body VALUES (999, x'00000000')",
            "INSERT INTO message (queue, seq, body, enqueued_at, message_id) VALUES (4, 9, 999, 1, 'x')",
            "UPDATE queue SET active = 6, next_seq = 10 WHERE id = 4",
        ),
        (
            "INSERT INTO body VALUES (999, '\\x00000000')",
            "INSERT INTO message (queue, seq, body, size, state, delivery_count, enqueued_at, message_id)"
            " VALUES (4, 9, 999, 0, 0, 0, 1, 'x')",
            "UPDATE entity SET counts[2] = 6, counts[1] = 10 WHERE id = 1",
        ),
    ),
    "a message has another id": Damage(
        "journal-state",
        "the journal says 'm3', the row says 'zz'",
        ("UPDATE message SET message_id = 'zz' WHERE queue = 4 AND seq = 3",),
    ),
    "a message has another number": Damage(
        "message-state",
        "number 0",
        ("UPDATE message SET seq = 0 WHERE queue = 4 AND seq = 3",),
    ),
}


@pytest.fixture
def filled(bus: Bus) -> Bus:
    for index in range(1, 6):
        bus.send(f"m{index}")
    bus.send("deferred", "dead")
    messages = bus.receive(7)
    bus.settle(Outcome.DEFER, messages[5])
    bus.settle(Outcome.DEAD_LETTER, messages[6])
    bus.settle(Outcome.RELEASE, *messages[1:5])
    bus.send("later", due_at_ms=bus.now + 10**15)
    return bus


def test_a_store_that_is_whole_has_no_findings(filled: Bus) -> None:
    assert filled.verify() == []


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damage_is_found_by_its_check(filled: Bus, name: str) -> None:
    damage = DAMAGES[name]
    statements = damage.statements
    if filled.factory.engine == "postgres" and damage.other is not None:
        statements = damage.other
    if not statements:
        pytest.skip("there is no such table")
    filled.is_harmed = True
    for statement in statements:
        filled.factory.execute(filled.store, statement)
    found = filled.verify()
    is_expected = {damage.check, *_FOLLOWS.get(name, ())}
    assert {finding.check for finding in found} == is_expected, found
    assert damage.told in str(next(finding for finding in found if finding.check == damage.check)), found


# What cannot be damaged alone.
_FOLLOWS: dict[str, tuple[str, ...]] = {"a message has another number": ("journal-state",)}


def test_every_check_of_a_store_has_its_damage() -> None:
    of_namespaces = {"pages", "catalog-row", "entity-without-queue", "queue-without-entity", "transfers", "identity"}
    assert {damage.check for damage in DAMAGES.values()} == set(CHECKS) - of_namespaces


def test_what_was_trimmed_cannot_be_told_and_is_no_finding(filled: Bus) -> None:
    """The journal begins in the middle: older messages may be there or not, newer ones must be."""
    filled.is_harmed = True
    filled.factory.execute(filled.store, "DELETE FROM journal WHERE id <= 3")
    assert filled.verify() == []
    filled.factory.execute(filled.store, "UPDATE message SET message_id = 'zz' WHERE queue = 4 AND seq = 2")
    assert filled.verify() == []
    filled.factory.execute(filled.store, "UPDATE message SET message_id = 'zz' WHERE queue = 4 AND seq = 5")
    [finding] = filled.verify()
    assert finding.check == "journal-state"


def test_findings_are_told_with_their_meaning(filled: Bus) -> None:
    filled.is_harmed = True
    filled.factory.execute(filled.store, f"DELETE FROM body WHERE id = {THIRD}")
    [finding] = filled.verify()
    told: dict[str, Any] = finding.document()
    assert (told["check"], told["where"], told["count"]) == ("message-without-body", "store 0", 1)
    assert told["examples"] == ["number 3"]
    assert told["means"]
    assert told["advice"]
