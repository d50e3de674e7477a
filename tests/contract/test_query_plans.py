"""No statement of the hot paths reads more rows than it needs: each goes by a key or by its index."""

from __future__ import annotations

import re

import apsw
import pytest

from twinbus.store import schema, statements


@pytest.fixture
def database(tmp_path):
    database = apsw.Connection(str(tmp_path / "plans.db"))
    schema.prepare(database)
    yield database
    database.close()


def plan(database, statement):
    """What SQLite would do, one line per step."""
    names = set(re.findall(r":(\w+)", statement))
    values = dict.fromkeys(names) if names else (None,) * statement.count("?")
    return [row[3] for row in database.execute(f"EXPLAIN QUERY PLAN {statement}", values)]


def trigger_statements(trigger=statements.COPY_TRIGGER):
    """The statements inside the trigger, with a parameter for each column of the view."""
    body = trigger.split("BEGIN", 1)[1].rsplit("END", 1)[0]
    return [re.sub(r"NEW\.(\w+)", r":\1", text.strip()) for text in body.split(";") if text.strip()]


BY_KEY = "SEARCH m USING PRIMARY KEY"
BY_SESSION = "SEARCH m USING INDEX message_session (queue=? AND session=? AND seq>?"


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("PAGE", f"{BY_KEY} (queue=? AND seq>? AND seq<?)"),
        ("SESSION_PAGE", BY_SESSION),
        ("PEEK", f"{BY_KEY} (queue=? AND seq>?)"),
        ("PEEK_SESSION", BY_SESSION),
        ("BY_NUMBER", f"{BY_KEY} (queue=? AND seq=?)"),
        ("STATES_BY_NUMBER", "SEARCH message USING PRIMARY KEY (queue=? AND seq=?)"),
        ("OLD_ACTIVE", "SEARCH message USING PRIMARY KEY (queue=?)"),
        ("EXPIRED", "SEARCH message USING INDEX message_expiry (expires_at<?)"),
        ("ACTIVATED", "SEARCH message USING INDEX message_due (due_at<?)"),
        ("NEXT_EXPIRY", "SEARCH message USING COVERING INDEX message_expiry (expires_at>?)"),
        ("NEXT_ACTIVATION", "SEARCH message USING COVERING INDEX message_due"),
        ("FREE_SESSION", "SEARCH message USING PRIMARY KEY (queue=? AND seq>?)"),
        ("KNOWN_DUPLICATES", "SEARCH d USING PRIMARY KEY (queue=? AND message_id=?)"),
        ("OLDEST_DUPLICATE", "SEARCH duplicate USING COVERING INDEX duplicate_age (queue=?)"),
        ("OLD_DUPLICATES", "SEARCH duplicate USING COVERING INDEX duplicate_age (queue=? AND at_ms<?)"),
        ("OLD_MESSAGES", "SEARCH message USING PRIMARY KEY (queue=?)"),
        ("KNOWN_TRANSFERS", "SEARCH t USING PRIMARY KEY (queue=? AND seq=?)"),
        ("FORGET_TRANSFERS", "SEARCH transfer USING PRIMARY KEY (queue=? AND seq=?)"),
        ("OLD_TRANSFERS", "SEARCH transfer USING COVERING INDEX transfer_age (at_ms<?)"),
        ("OLDEST_TRANSFER", "SEARCH transfer USING COVERING INDEX transfer_age"),
        ("JOURNAL_AFTER", "SEARCH journal USING INTEGER PRIMARY KEY (rowid>?)"),
        ("DROPPED_MESSAGES", "SEARCH message USING PRIMARY KEY (queue=?)"),
        ("DROPPED", "SEARCH message USING PRIMARY KEY (queue=?)"),
        ("FIRST_AFTER", "SEARCH journal USING INTEGER PRIMARY KEY (rowid>?)"),
        ("OLDEST_WAITING", "SEARCH journal USING INTEGER PRIMARY KEY (rowid>?)"),
        ("NEXT_RANGE", "SEARCH journal USING INTEGER PRIMARY KEY (rowid>?)"),
        ("RANGE_ROWS", "SEARCH journal USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)"),
        ("STREAM", "SEARCH export USING PRIMARY KEY (writer=?)"),
        ("OLDEST_EXPORT", "USING INDEX export_age"),
        ("TRIM_JOURNAL", "SEARCH journal USING INTEGER PRIMARY KEY (rowid<?)"),
        ("FINISH_RANGE", "SEARCH export USING PRIMARY KEY (writer=? AND first=?)"),
        ("NAMES", "SEARCH name USING INTEGER PRIMARY KEY (rowid=?)"),
    ],
)
def test_a_statement_goes_by_its_key_or_index(database, name, step):
    steps = plan(database, getattr(statements, name))
    assert any(step in line for line in steps), steps
    assert not [line for line in steps if re.match(r"SCAN (message|body|duplicate|transfer|journal)\b", line)], steps


@pytest.mark.parametrize("statement", trigger_statements(), ids=lambda text: " ".join(text.split()[:3]))
def test_a_commit_scans_nothing_but_what_it_was_handed(database, statement):
    scans = [line for line in plan(database, statement) if line.startswith("SCAN")]
    assert all("VIRTUAL TABLE" in line or re.match(r"SCAN (run|alike|now|CONSTANT ROW)", line) for line in scans), scans


def test_a_shared_body_is_judged_by_the_index_of_its_copies(database):
    [release] = [statement for statement in trigger_statements() if ":released" in statement]
    steps = plan(database, release)
    assert any("SEARCH message USING COVERING INDEX message_shared (body=?)" in line for line in steps), steps


def test_the_trigger_has_a_statement_for_each_kind_of_change():
    assert len(trigger_statements()) == 14


def test_a_commit_without_copies_is_spared_their_statements():
    plain = trigger_statements(statements.CHANGE_TRIGGER)
    assert [text for text in trigger_statements() if text in plain] == plain
    assert len(plain) == 11
