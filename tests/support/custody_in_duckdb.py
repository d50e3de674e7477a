"""Reconciliation in DuckDB: the product's own SQL on another engine, and beside it an oracle that was written apart.

The first shows that the text is portable and tries variants without a JVM; the second shows that it is right.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb

from twinbus.pipeline.proof import custody, judgement, sendlog
from twinbus.pipeline.proof.evidence import Evidence, Window
from twinbus.pipeline.proof.versions import journal_files

_LEDGER = {
    "scope": "VARCHAR", "tag": "VARCHAR", "state": "VARCHAR", "namespace": "VARCHAR", "sequence_number": "BIGINT",
    "suppressed": "BIGINT",
}  # fmt: skip


def _names(paths: Sequence[Path]) -> str:
    return ", ".join(f"'{path}'" for path in paths)


def opened(evidence: Evidence, threads: int = 2, by_tag: bool = False) -> duckdb.DuckDBPyConnection:
    """A database over the evidence's files."""
    database = duckdb.connect()
    database.execute(f"SET TimeZone = 'UTC'; SET threads = {threads}")
    database.execute(
        f"""CREATE VIEW journal AS SELECT *, epoch_us("at") AS at_us
        FROM read_parquet([{_names(journal_files(evidence.journals))}])"""
    )
    instants = ", ".join(
        f"epoch_us({column}) AS {name}_us"
        for column, name in (("began", "began"), ("ended", "ended"), ("enqueued_at", "enqueued"))
    )
    if evidence.residents is not None:
        database.execute(
            f"CREATE VIEW residents AS SELECT *, {instants} FROM read_parquet([{_names([evidence.residents])}])"
        )
    else:
        texts = ", ".join(f"'' AS {name}" for name in ("namespace", "entity", "sub_queue", "message_id", "session_id"))
        numbers = ", ".join(f"0 AS {name}" for name in ("sequence_number", "began_us", "ended_us", "enqueued_us"))
        database.execute(
            f"CREATE VIEW residents AS SELECT {texts}, '' AS state, '' AS destination, {numbers} WHERE false"
        )
    columns = ", ".join(f"{name} {kind}" for name, kind in _LEDGER.items())
    database.execute(f"CREATE TABLE ledger ({columns})")
    if evidence.ledgers and any(path.stat().st_size for path in evidence.ledgers):
        types = ", ".join(f"{name}: '{kind}'" for name, kind in _LEDGER.items())
        database.execute(
            f"INSERT INTO ledger SELECT * FROM read_json([{_names(evidence.ledgers)}], columns = {{{types}}})"
        )
    database.register("sent_of_log", sendlog.told_by(sendlog.read(evidence.send_logs).table, by_tag))
    database.execute("CREATE TABLE sent AS SELECT * FROM sent_of_log")
    return database


class Reconciled:
    """The product's SQL, run by DuckDB."""

    def __init__(self, evidence: Evidence, window: Window | None = None, memory: str | None = None) -> None:
        window = window or Window()
        self._database = opened(evidence, by_tag=window.by_tag)
        if memory:
            self._database.execute(f"SET memory_limit = '{memory}'")
        slack_us = window.slack_ms * 1000
        for name, text in (custody.views(slack_us) | judgement.views(window.by_tag)).items():
            kept = "TABLE" if name in judgement.KEPT else "VIEW"
            self._database.execute(f"CREATE {kept} {name} AS {text}")
        (end_us,) = self.rows("SELECT greatest(max(at_us), (SELECT max(looked_us) FROM looked)) FROM journal")[0]
        known = {row[0] for row in self.rows("SELECT DISTINCT namespace FROM streams")}
        browsed = {row[0] for row in self.rows("SELECT DISTINCT namespace FROM residents")}
        self.without = (browsed - known) | set(evidence.without_journal)
        self._tables = judgement.tables(window, slack_us, end_us or 0, all_have_journals=not self.without)

    def rows(self, text: str) -> list[tuple[Any, ...]]:
        """What a query answers."""
        return self._database.execute(text).fetchall()

    def table(self, name: str) -> str:
        """The query of a result table."""
        return self._tables[name]

    def ids(self, name: str) -> list[str]:
        """The messages of a result table, in order; one that is there twice is told twice."""
        return sorted(row[0] for row in self.rows(f"SELECT message_id FROM ({self._tables[name]}) AS found"))

    def why(self, name: str) -> dict[str, str]:
        """The messages of a result table, and why they are in it."""
        return dict(self.rows(f"SELECT message_id, why FROM ({self._tables[name]}) AS found"))

    def balance(self) -> dict[str, tuple[int, int, int]]:
        """Created, ended and resident copies, by namespace."""
        from twinbus.pipeline.proof.balancing import balances

        found = self._database.execute(judgement.BALANCE)
        names = [column[0] for column in found.description]
        told = balances([dict(zip(names, row, strict=True)) for row in found.fetchall()])
        return {
            each.namespace: (sum(each.created.values()), sum(each.ended.values()), sum(each.resident.values()))
            for each in told
        }


class Oracle:
    """The same questions, asked in another way: by what is said of each number, without any of the product's SQL."""

    _ENDS = "('receive_delete', 'forward', 'delete', 'cancel', 'drop', 'damaged', 'complete')"

    def __init__(self, evidence: Evidence, slack_us: int = 2_000_000) -> None:
        self._database = opened(evidence)
        self._slack_us = slack_us
        self._database.execute(
            f"""CREATE TABLE life AS
            SELECT namespace, queue // 4 AS thing, number, any_value(entity) AS entity,
                any_value(message_id) AS message_id, list(word ORDER BY at_us) AS words, min(at_us) AS born_us,
                max(at_us) AS last_us
            FROM (
                SELECT *, sequence_number AS number, CASE
                    WHEN operation = 'activate' THEN 'made'
                    WHEN operation = 'send' AND kind = 'topic' THEN 'else'
                    WHEN operation IN ('send', 'schedule', 'copy') THEN 'made'
                    WHEN operation = 'ttl_expire' AND outcome = 'removed' THEN 'gone'
                    WHEN operation = 'complete' AND sub_queue = '' AND client NOT IN ('forward', 'topic') THEN 'done'
                    WHEN operation = 'receive_delete' AND sub_queue = '' THEN 'done'
                    WHEN operation IN {self._ENDS} THEN 'gone'
                    WHEN operation = 'receive' AND sub_queue = '' THEN 'out'
                    ELSE 'else' END AS word
                FROM journal WHERE sequence_number > 0
                UNION ALL
                SELECT *, CAST(outcome AS BIGINT), 'gone' FROM journal WHERE operation = 'activate'
            )
            GROUP BY ALL"""
        )

    def rows(self, text: str) -> list[tuple[Any, ...]]:
        """What a query answers."""
        return self._database.execute(text).fetchall()

    def ids(self, text: str) -> set[str]:
        """The first column of an answer."""
        return {row[0] for row in self.rows(text)}

    def traceless(self) -> set[str]:
        """Acknowledged, and heard of nowhere."""
        return self.ids(
            """SELECT message_id FROM sent WHERE acknowledgements > 0
            EXCEPT SELECT message_id FROM journal EXCEPT SELECT message_id FROM residents
            EXCEPT SELECT tag FROM ledger"""
        )

    def vanished(self) -> set[str]:
        """Made, not ended, and not seen by a browse that began later."""
        return self.ids(
            f"""SELECT message_id FROM life WHERE list_contains(words, 'made')
            AND NOT list_has_any(words, ['gone', 'done'])
            AND EXISTS (FROM residents r WHERE r.namespace = life.namespace AND r.entity = life.entity
                AND r.began_us > life.born_us + {self._slack_us})
            AND (namespace, entity, number) NOT IN (SELECT namespace, entity, sequence_number FROM residents)"""
        )

    def gone_astray(self) -> set[str]:
        """Completed in a backlog queue, and stored nowhere else."""
        return self.ids(
            """SELECT message_id FROM life WHERE entity LIKE '%x-servicebus-transfer%' AND list_contains(words, 'done')
            EXCEPT SELECT message_id FROM journal
            WHERE operation IN ('send', 'schedule') AND outcome NOT IN ('ping')
            AND entity NOT LIKE '%x-servicebus-transfer%'"""
        )

    def unbalanced(self) -> set[str]:
        """Numbers whose lives do not go from one making to one end, or that are where they should not be."""
        odd = self.ids(
            """SELECT message_id FROM life WHERE len(list_filter(words, lambda x: x = 'made')) > 1
            OR len(list_filter(words, lambda x: x IN ('gone', 'done'))) > 1
            OR (NOT list_contains(words, 'made') AND list_has_any(words, ['gone', 'done']))"""
        )
        seen = self.ids(
            f"""SELECT r.message_id FROM residents r LEFT JOIN life ON life.namespace = r.namespace
                AND life.entity = r.entity AND life.number = r.sequence_number
            WHERE r.sequence_number > 0 AND (life.number IS NULL OR NOT list_contains(words, 'made')
                OR (list_has_any(words, ['gone', 'done']) AND life.last_us < r.began_us - {self._slack_us}))"""
        )
        return odd | seen | self.vanished()

    def worked_on_twice(self) -> set[str]:
        """Two numbers of one entity completed for one id, and the ledger says nothing of it."""
        return self.ids(
            """SELECT message_id FROM (
                SELECT message_id, entity, count(*) AS times FROM life
                WHERE list_contains(words, 'done') AND entity NOT LIKE '%x-servicebus-transfer%' GROUP BY ALL
            ) WHERE times - coalesce(
                (SELECT sum(suppressed) FROM ledger WHERE tag = message_id AND lower(scope) = lower(entity)), 0
            ) > 1"""
        )

    def overtakers(self) -> set[str]:
        """Pairs of a session, compared one with one: sent later, and handed out earlier."""
        return self.ids(
            """WITH first AS (
                SELECT message_id, entity, min(at_us) AS at_us, min_by(batch * 1000000 + place, at_us) AS turn
                FROM journal WHERE operation = 'receive' AND sequence_number > 0 GROUP BY ALL
            ), told AS (
                SELECT DISTINCT j.entity, j.session_id, j.message_id, s.attempted_line, s.acknowledged_line, f.at_us,
                    f.turn
                FROM journal j JOIN sent s USING (message_id)
                JOIN first f ON f.message_id = j.message_id AND f.entity = j.entity
                WHERE j.session_id <> ''
            )
            SELECT b.message_id FROM told a JOIN told b USING (entity, session_id)
            WHERE a.acknowledged_line < b.attempted_line AND (b.at_us, b.turn) < (a.at_us, a.turn)"""
        )

    def balance(self) -> dict[str, tuple[int, int, int]]:
        """Made, ended and not ended but seen or too young to be seen, without renumbering, by namespace."""
        found = self.rows(
            f"""SELECT namespace,
                sum(len(list_filter(words, lambda x: x = 'made'))),
                sum(len(list_filter(words, lambda x: x IN ('gone', 'done')))),
                count(*) FILTER (WHERE list_contains(words, 'made') AND NOT list_has_any(words, ['gone', 'done']) AND (
                    (namespace, entity, number) IN (SELECT namespace, entity, sequence_number FROM residents)
                    OR NOT EXISTS (FROM residents r WHERE r.namespace = life.namespace AND r.entity = life.entity
                        AND r.began_us > life.born_us + {self._slack_us})
                )) + (SELECT count(*) FROM residents r WHERE r.namespace = life.namespace AND r.sequence_number > 0
                    AND (r.namespace, r.entity, r.sequence_number) NOT IN
                        (SELECT namespace, entity, number FROM life WHERE list_contains(words, 'made'))),
                (SELECT count(*) FROM journal j WHERE j.namespace = life.namespace AND j.operation = 'activate')
            FROM life GROUP BY namespace"""
        )
        return {name: (made - again, ended - again, there) for name, made, ended, there, again in found}
