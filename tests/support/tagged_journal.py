"""Tags for a generated journal: messages of one tag under two ids, what is to be found of them, and an oracle for it.

The journal itself is `generated_journal`'s; the tags stand in the send log, where `reconcile` reads them.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

from support.custody_in_duckdb import Oracle, opened
from support.generated_journal import Planted, generate
from twinbus.pipeline.proof.evidence import Evidence

FAULTS = {"lost_whole": 6, "lost_message": 2, "lost_in_move": 2, "duplicated": 1}


@dataclass
class Tagged:
    """What is to be found when copies are told by tags, and what is not."""

    planted: Planted
    lost: set[str] = field(default_factory=set)
    spared: set[str] = field(default_factory=set)  # Lost by their ids; but another message of their tag was not.
    doubled: set[str] = field(default_factory=set)  # Tags.
    nameless: int = 0

    @property
    def evidence(self) -> Evidence:
        """All of the files."""
        planted = self.planted
        return Evidence(planted.journals, planted.residents, [planted.send_log], [planted.ledger])


def tagged(directory: Path, seed: int, messages: int = 400) -> Tagged:
    """A journal in which every fault that tags make or mend is there once, and those that they do not touch."""
    planted = generate(directory, seed, messages, FAULTS)
    found = Tagged(planted)
    ordinary, published = iter(planted.fates["ordinary"]), iter(planted.fates["published"])
    whole = planted.faults["lost_whole"]
    tags: dict[str, tuple[str, str]] = {}  # By the MessageId: the tag, and the entity that it was sent to.

    def share(tag: str, *ids: str, entity: str = "orders") -> None:
        tags.update(dict.fromkeys(ids, (tag, entity)))

    share("one-of-two-lost", whole[0], next(ordinary))
    share("both-lost", whole[1], whole[2])
    share("elsewhere", whole[3])
    share("elsewhere", next(published), entity="events")
    share("in-the-ledger", whole[4])
    share("in-another-ledger", whole[5])
    for kind in ("lost_message", "lost_in_move"):
        spared, lost = planted.faults[kind]
        share(f"{kind}-spared", spared, next(ordinary))
        share(f"{kind}-alone", lost)
        found.spared.add(spared)
        found.lost.add(lost)
    share("both-worked-on", next(ordinary), next(ordinary))
    share("one-suppressed", next(ordinary), next(ordinary))
    share("three-times", next(ordinary), next(ordinary), next(ordinary))
    share("apart", next(ordinary))
    share("apart", next(published), entity="events")
    found.lost |= {whole[1], whole[2], whole[3], whole[5]}
    found.spared |= {whole[0], whole[4]}
    found.doubled = {"both-worked-on", "three-times", *planted.ids("duplicated")}
    with planted.ledger.open("a") as ledger:
        known = (("orders", "one-suppressed", 1), ("orders", "three-times", 1), ("orders", "in-the-ledger", 0))
        for scope, tag, suppressed in (*known, ("carts", "in-another-ledger", 0)):
            row = {"scope": scope, "tag": tag, "state": "done", "namespace": "contoso", "sequence_number": 0}
            ledger.write(json.dumps({**row, "suppressed": suppressed}) + "\n")
    _write(planted.send_log, tags)
    found.nameless = messages - len(tags) - len(whole) + sum(one in tags for one in whole)
    return found


def _write(log: Path, tags: dict[str, tuple[str, str]]) -> None:
    lines = []
    for line in log.read_text().splitlines():
        entry = json.loads(line)
        tag = tags.get(entry.get("attempted"))
        lines.append(json.dumps(entry if tag is None else {**entry, "tag": tag[0], "entity": tag[1]}) + "\n")
    log.write_text("".join(lines))


class TagOracle(Oracle):
    """The questions about tags, asked in Python of what each id met with, without any of the product's SQL."""

    def __init__(self, evidence: Evidence) -> None:
        super().__init__(evidence)
        self._logged = opened(evidence, by_tag=True)

    def _families(self) -> dict[str, tuple[str, str]]:
        told = self._logged.execute("SELECT message_id, tag, entity FROM sent").fetchall()
        return {one: (tag, entity) if tag else (one, "") for one, tag, entity in told}

    def lost_by_tag(self) -> set[str]:
        """Lost by its id, no other id of its family is known to have been worked on, and no ledger knows the tag."""
        families = self._families()
        done = self.ids(
            """SELECT message_id FROM life
            WHERE list_contains(words, 'done') AND entity NOT LIKE '%x-servicebus-transfer%'"""
        )
        fine = {families[one] for one in done if one in families}
        fine |= {(tag, scope) for tag, scope in self.rows("SELECT tag, scope FROM ledger WHERE state <> 'claimed'")}
        suspects = self.traceless() | self.vanished() | self.gone_astray()
        return {one for one in suspects if families[one] not in fine}

    def doubled_by_tag(self) -> set[str]:
        """Tags of which more copies were completed in one entity than a ledger kept back, but one."""
        families = self._families()
        worked: dict[tuple[str, str], int] = {}
        for one, entity in self.rows(
            """SELECT message_id, entity FROM life
            WHERE list_contains(words, 'done') AND entity NOT LIKE '%x-servicebus-transfer%'"""
        ):
            key = (families.get(one, (one, ""))[0], entity.lower())
            worked[key] = worked.get(key, 0) + 1
        for tag, scope, times in self.rows("SELECT tag, lower(scope), suppressed FROM ledger"):
            if (tag, scope) in worked:
                worked[tag, scope] -= times
        return {tag for (tag, _), times in worked.items() if times > 1}
