"""What a start and an operator make of the policies of a namespace: calls and equalities."""

from __future__ import annotations

from dataclasses import replace
from itertools import count

import pytest

from twinbus.model import policies
from twinbus.model.errors import BusError, Fault
from twinbus.model.policies import (
    PRIMARY,
    SECONDARY,
    CameFrom,
    Decision,
    DeclaredPolicy,
    Happened,
    Origins,
    PolicyOrigin,
    Rotation,
    at_start,
)
from twinbus.model.security import ROOT_POLICY, AuthorizationRule, Rights

ROOT = AuthorizationRule(ROOT_POLICY, "root-1", "root-2", Rights.ALL)
READER = AuthorizationRule("reader", "read-1", "read-2", Rights.LISTEN)
SENDER = AuthorizationRule("sender", "send-1", "send-2", Rights.SEND)
ADMIN = AuthorizationRule("admin", "adm-1", "adm-2", Rights.ALL)
NEW = AuthorizationRule("new", "a-key-of-length", "another-key", Rights.ALL)
BY_START = PolicyOrigin(CameFrom.FIRST_START)
BY_FILE = PolicyOrigin(CameFrom.FILE)
OF_ROOT = {ROOT_POLICY.lower(): BY_START}
KNOWN = (ROOT, READER, SENDER)
ORIGINS: Origins = {**OF_ROOT, "reader": BY_FILE}  # The sender was made through the API.
IN_FILE = DeclaredPolicy("reader", Rights.LISTEN)


def start(
    known: tuple[AuthorizationRule, ...] = KNOWN,
    origins: Origins | None = ORIGINS,
    declared: list[DeclaredPolicy] | None = None,
    key: str | None = None,
) -> Decision:
    keys = count(1)
    return at_start(known, origins, declared, key, lambda: f"new-{next(keys)}")


class TestFirstStart:
    def test_the_root_policy_is_made(self) -> None:
        made = AuthorizationRule(ROOT_POLICY, "new-1", "new-2", Rights.ALL)
        assert start((), None) == Decision((made,), OF_ROOT, ((Happened.ADDED, ROOT_POLICY),))

    def test_also_beside_one_of_the_file_that_manages(self) -> None:
        decided = start((), None, [DeclaredPolicy("admin", Rights.ALL, "adm-1")], "root-1")
        assert [rule.name for rule in decided.rules] == [ROOT_POLICY, "admin"]
        assert decided.rules[0].keys == ("root-1", "new-1")
        assert decided.origins == {
            ROOT_POLICY.lower(): PolicyOrigin(CameFrom.FIRST_START, (PRIMARY,)),
            "admin": PolicyOrigin(CameFrom.FILE, (PRIMARY,)),
        }


class TestTheFile:
    def test_the_next_start_with_the_same_file_changes_nothing(self) -> None:
        first = start((), None, [IN_FILE])
        assert start(first.rules, first.origins, [IN_FILE]) == Decision(first.rules, first.origins, ())

    def test_what_it_no_longer_names_is_gone_and_what_the_api_made_stays(self) -> None:
        assert start(declared=[]) == Decision((ROOT, SENDER), OF_ROOT, ((Happened.REMOVED, "reader"),))

    def test_rights_and_keys_follow_and_open_keys_stay(self) -> None:
        decided = start(declared=[DeclaredPolicy("reader", Rights.SEND, secondary_key="other")])
        changed = replace(READER, rights=Rights.SEND, secondary_key="other")
        assert decided.rules == (ROOT, changed, SENDER)
        assert decided.origins["reader"] == PolicyOrigin(CameFrom.FILE, (SECONDARY,))
        assert decided.happened == ((Happened.CHANGED, "reader"),)

    def test_a_key_that_it_no_longer_gives_stays_and_may_be_rotated(self) -> None:
        given = {**OF_ROOT, "reader": PolicyOrigin(CameFrom.FILE, (PRIMARY,))}
        decided = start((ROOT, READER), given, [IN_FILE])
        assert decided == Decision((ROOT, READER), {**OF_ROOT, "reader": BY_FILE}, ())

    def test_one_that_the_api_made_is_taken_over_with_its_keys(self) -> None:
        decided = start(declared=[IN_FILE, DeclaredPolicy("Sender", Rights.ALL)])
        assert decided.rules == (ROOT, READER, replace(SENDER, name="Sender", rights=Rights.ALL))
        assert decided.origins["sender"] == BY_FILE
        assert decided.happened == ((Happened.TAKEN_OVER, "Sender"),)
        assert start(decided.rules, decided.origins, [IN_FILE]).happened == ((Happened.REMOVED, "Sender"),)

    def test_without_a_file_nothing_is_lost(self) -> None:
        assert start(declared=None) == Decision(KNOWN, ORIGINS, ())

    def test_names_are_one_whatever_their_case(self) -> None:
        decided = start(declared=[DeclaredPolicy("READER", Rights.LISTEN)])
        assert decided.rules == (ROOT, replace(READER, name="READER"), SENDER)

    def test_too_many_are_told_with_those_of_the_api(self) -> None:
        declared = [DeclaredPolicy(f"p{n}", Rights.SEND) for n in range(11)]
        with pytest.raises(BusError, match="would have 13 policies, of which sender were made through the API"):
            start(declared=declared)


class TestTheRootPolicy:
    def test_its_key_follows_the_settings_and_stays_when_they_are_silent_again(self) -> None:
        decided = start(key="given-key")
        assert decided.rules[0] == replace(ROOT, primary_key="given-key")
        assert decided.origins[ROOT_POLICY.lower()] == PolicyOrigin(CameFrom.FIRST_START, (PRIMARY,))
        assert start(decided.rules, decided.origins) == Decision(decided.rules, ORIGINS, ())

    def test_a_file_may_give_both_keys_and_an_option_counts_more(self) -> None:
        in_file = DeclaredPolicy(ROOT_POLICY.lower(), Rights.ALL, "file-1", "file-2")
        assert start(declared=[in_file], key="option-1").rules[0] == replace(
            ROOT, primary_key="option-1", secondary_key="file-2"
        )

    def test_it_is_not_of_the_file_even_when_that_names_it(self) -> None:
        decided = start(declared=[DeclaredPolicy(ROOT_POLICY, Rights.ALL, "file-1")])
        again = start(decided.rules, decided.origins, [])
        assert again.rules[0] == replace(ROOT, primary_key="file-1")

    def test_one_that_was_removed_stays_away(self) -> None:
        assert start((ADMIN,), {}, []) == Decision((ADMIN,), {}, ())

    def test_until_the_settings_give_its_key(self) -> None:
        assert [rule.name for rule in start((ADMIN,), {}, [], "given-key").rules] == ["admin", ROOT_POLICY]

    def test_or_nobody_would_manage(self) -> None:
        decided = start((ADMIN, SENDER), {"admin": BY_FILE}, [])
        assert decided.rules == (SENDER, AuthorizationRule(ROOT_POLICY, "new-1", "new-2", Rights.ALL))
        assert decided.happened == ((Happened.REMOVED, "admin"), (Happened.ADDED, ROOT_POLICY))


class TestACatalogOfBefore:
    def test_those_of_the_file_are_the_files_and_the_others_are_kept(self) -> None:
        decided = start(origins=None, declared=[IN_FILE])
        assert decided == Decision(KNOWN, ORIGINS, ((Happened.KEPT, "sender"),))
        assert start(decided.rules, decided.origins, [IN_FILE]).happened == ()

    def test_without_a_file_nobody_is_locked_out(self) -> None:
        decided = start(origins=None, declared=None)
        assert (decided.rules, decided.origins) == (KNOWN, OF_ROOT)
        assert decided.happened == ((Happened.KEPT, "reader"), (Happened.KEPT, "sender"))


def test_origins_are_read_as_they_were_written() -> None:
    origins = {**ORIGINS, "x": PolicyOrigin(CameFrom.FILE, (PRIMARY, SECONDARY))}
    assert policies.read_origins(policies.write_origins(origins)) == origins


class TestAdding:
    def test_it_comes_last(self) -> None:
        assert policies.added(KNOWN, NEW) == (*KNOWN, NEW)

    @pytest.mark.parametrize("name", ["-a", "a.", "a b", "", "ä", "a/b", "a" * 51])
    def test_a_name_that_the_service_would_refuse(self, name: str) -> None:
        with pytest.raises(BusError, match="name") as refused:
            policies.added(KNOWN, replace(NEW, name=name))
        assert refused.value.fault is Fault.ARGUMENT

    @pytest.mark.parametrize("name", ["a", "a.b-c_d", "a" * 50, "0"])
    def test_a_name_that_it_would_take(self, name: str) -> None:
        assert policies.added(KNOWN, replace(NEW, name=name))[-1].name == name

    @pytest.mark.parametrize("key", ["short", "x" * 257, "a\nkey-of-length"])
    def test_a_key_that_is_none(self, key: str) -> None:
        with pytest.raises(BusError, match="A key has 8 to 256"):
            policies.added(KNOWN, replace(NEW, secondary_key=key))

    def test_a_name_that_is_taken(self) -> None:
        with pytest.raises(BusError, match="already") as refused:
            policies.added(KNOWN, replace(NEW, name="READER"))
        assert refused.value.fault is Fault.ENTITY_EXISTS

    def test_a_thirteenth(self) -> None:
        rules = tuple(replace(SENDER, name=f"p{n}") for n in range(12))
        with pytest.raises(BusError, match="At most 12"):
            policies.added(rules, NEW)


class TestRights:
    def test_they_are_changed(self) -> None:
        changed = policies.with_rights(KNOWN, ORIGINS, "SENDER", Rights.ALL)
        assert changed == (ROOT, READER, replace(SENDER, rights=Rights.ALL))

    @pytest.mark.parametrize(
        ("name", "fault", "words"),
        [
            ("reader", Fault.NOT_ALLOWED, "in the configuration file"),
            (ROOT_POLICY, Fault.NOT_ALLOWED, "always manages"),
            ("nobody", Fault.ENTITY_NOT_FOUND, "no policy 'nobody'"),
        ],
    )
    def test_or_not(self, name: str, fault: Fault, words: str) -> None:
        with pytest.raises(BusError, match=words) as refused:
            policies.with_rights(KNOWN, ORIGINS, name, Rights.SEND)
        assert refused.value.fault is fault

    def test_the_last_that_manages_goes_on_managing(self) -> None:
        with pytest.raises(BusError, match="the last policy that manages"):
            policies.with_rights((ADMIN, SENDER), {}, "admin", Rights.SEND)


class TestRotating:
    @pytest.mark.parametrize(
        ("rotation", "keys"),
        [
            (Rotation.SHIFT, ("new", "read-1")),
            (Rotation.PRIMARY, ("new", "read-2")),
            (Rotation.SECONDARY, ("read-1", "new")),
        ],
    )
    def test_keys_are_renewed_also_of_a_policy_of_the_file(self, rotation: Rotation, keys: tuple[str, str]) -> None:
        rotated = policies.rotated(KNOWN, ORIGINS, "Reader", rotation, lambda: "new")
        assert rotated == (ROOT, replace(READER, primary_key=keys[0], secondary_key=keys[1]), SENDER)

    @pytest.mark.parametrize(
        ("given", "refused"),
        [
            ((PRIMARY,), {Rotation.SHIFT, Rotation.PRIMARY}),
            ((SECONDARY,), {Rotation.SHIFT, Rotation.SECONDARY}),
            ((PRIMARY, SECONDARY), set(Rotation)),
            ((), set()),
        ],
    )
    def test_a_key_that_the_settings_give_is_changed_there(
        self, given: tuple[str, ...], refused: set[Rotation]
    ) -> None:
        origins = {"reader": PolicyOrigin(CameFrom.FILE, given)}
        for rotation in Rotation:
            if rotation in refused:
                with pytest.raises(BusError, match="is given by the broker's settings"):
                    policies.rotated(KNOWN, origins, "reader", rotation, lambda: "new")
            else:
                assert policies.rotated(KNOWN, origins, "reader", rotation, lambda: "new") != KNOWN


class TestRemoving:
    def test_one_of_the_api(self) -> None:
        assert policies.removed(KNOWN, ORIGINS, "SENDER") == (ROOT, READER)

    def test_the_root_policy_if_another_manages(self) -> None:
        assert policies.removed((*KNOWN, ADMIN), ORIGINS, ROOT_POLICY) == (READER, SENDER, ADMIN)

    @pytest.mark.parametrize(
        ("name", "fault", "words"),
        [
            ("reader", Fault.NOT_ALLOWED, "take it out there"),
            (ROOT_POLICY, Fault.NOT_ALLOWED, "the last policy that manages"),
            ("nobody", Fault.ENTITY_NOT_FOUND, "no policy 'nobody'"),
        ],
    )
    def test_or_not(self, name: str, fault: Fault, words: str) -> None:
        with pytest.raises(BusError, match=words) as refused:
            policies.removed(KNOWN, ORIGINS, name)
        assert refused.value.fault is fault

    def test_not_one_that_the_settings_would_make_again(self) -> None:
        origins = {ROOT_POLICY.lower(): PolicyOrigin(CameFrom.FIRST_START, (PRIMARY,))}
        with pytest.raises(BusError, match="would make it again"):
            policies.removed((ROOT, ADMIN), origins, ROOT_POLICY)
