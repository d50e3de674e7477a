"""The policies of a namespace: where each came from, and what becomes of them at a start and at an operator's word.

Decides only: keeping them is `entities.policies`' business, and keys are made by whoever asks.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import NamedTuple

from twinbus.model import limits
from twinbus.model.entity import check_rules
from twinbus.model.errors import BusError, Fault
from twinbus.model.security import KEY_CHARS_MAX, KEY_CHARS_MIN, ROOT_POLICY, AuthorizationRule, Rights

PRIMARY, SECONDARY = "primary_key", "secondary_key"

# The service's own rule for the names of policies. Files that have others were accepted before, and still are.
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,48}[A-Za-z0-9])?\Z")
_ROOT = ROOT_POLICY.lower()

Rules = tuple[AuthorizationRule, ...]
NewKey = Callable[[], str]


class CameFrom(Enum):
    """Who made a policy."""

    FILE = "file"
    API = "api"
    FIRST_START = "first-start"


class PolicyOrigin(NamedTuple):
    """Where a policy came from, and which of its keys the settings give: these are changed there and nowhere else."""

    came_from: CameFrom
    given: tuple[str, ...] = ()


Origins = Mapping[str, PolicyOrigin]  # By name in lower case; whoever is not in it was made through the API.
_MADE_BY_API = PolicyOrigin(CameFrom.API)


@dataclass(slots=True, frozen=True)
class DeclaredPolicy:
    """A policy as a configuration file gives it; a missing key is generated once and kept."""

    name: str
    rights: Rights
    primary_key: str | None = field(default=None, repr=False)
    secondary_key: str | None = field(default=None, repr=False)

    @property
    def given(self) -> tuple[str, ...]:
        """Which keys it gives."""
        return tuple(part for part in (PRIMARY, SECONDARY) if getattr(self, part) is not None)


class Happened(Enum):
    """What a start did to a policy."""

    ADDED = "added"
    CHANGED = "changed"
    REMOVED = "removed"
    TAKEN_OVER = "taken over"  # It was made through the API, and the file names it now.
    KEPT = "kept"  # Nobody knows where it came from.


class Decision(NamedTuple):
    """Policies and their origins as they are to be, and what happened to which."""

    rules: Rules
    origins: Origins
    happened: tuple[tuple[Happened, str], ...]


def origin_of(origins: Origins | None, name: str) -> PolicyOrigin:
    """Where the policy of this name came from."""
    return (origins or {}).get(name.lower(), _MADE_BY_API)


def write_origins(origins: Origins) -> str:
    """As the catalog keeps them."""
    return json.dumps(
        {name: {"came_from": each.came_from.value, "given": each.given} for name, each in origins.items()}
    )


def read_origins(text: str) -> dict[str, PolicyOrigin]:
    """The inverse of `write_origins`."""
    found = json.loads(text)
    return {name: PolicyOrigin(CameFrom(each["came_from"]), tuple(each["given"])) for name, each in found.items()}


# At a start


def at_start(
    known: Sequence[AuthorizationRule],
    origins: Origins | None,
    declared: Sequence[DeclaredPolicy] | None,
    root_key: str | None,
    new_key: NewKey,
) -> Decision:
    """What the settings make of the policies that the catalog knows.

    `origins` is None for a catalog of before they were remembered, and `declared` is None for a start whose settings
    cannot name policies: then those of an earlier file stay.
    """
    named = {policy.name.lower(): policy for policy in declared or ()}
    in_file = named.pop(_ROOT, None)
    root = _root(in_file, root_key)
    start = _Start(known, origins, new_key)
    if declared is not None:
        start.remove_unnamed(named)
    if not known or root_key or in_file:
        start.follow(root, CameFrom.FIRST_START)
    else:
        start.leave_open(_ROOT)
    for policy in named.values():
        start.follow(policy, CameFrom.FILE)
    if not _is_managed(start.rules.values()):
        start.follow(root, CameFrom.FIRST_START)  # Nobody could get in to make another.
    return start.decision()


def _root(declared: DeclaredPolicy | None, key: str | None) -> DeclaredPolicy:
    """The root policy as the settings give it; a key that is given by itself counts more than the one in the list."""
    found = declared or DeclaredPolicy(ROOT_POLICY, Rights.ALL)
    return DeclaredPolicy(ROOT_POLICY, Rights.ALL, key or found.primary_key, found.secondary_key)


class _Start:
    """The policies while a start changes them."""

    def __init__(self, known: Sequence[AuthorizationRule], origins: Origins | None, new_key: NewKey) -> None:
        self.rules = {rule.name.lower(): rule for rule in known}
        self._is_old = origins is None
        self._origins = {name: each for name, each in (origins or {}).items() if name in self.rules}
        if origins is None and _ROOT in self.rules:
            self._origins[_ROOT] = PolicyOrigin(CameFrom.FIRST_START)
        self._new_key = new_key
        self._happened: list[tuple[Happened, str]] = []

    def remove_unnamed(self, named: Mapping[str, DeclaredPolicy]) -> None:
        """What came from a file, and is not in it any more, is gone."""
        of_file = [name for name, each in self._origins.items() if each.came_from is CameFrom.FILE]
        for name in of_file:
            if name not in named:
                self._happened.append((Happened.REMOVED, self.rules.pop(name).name))
                del self._origins[name]

    def follow(self, policy: DeclaredPolicy, came_from: CameFrom) -> None:
        """Be as the settings say; keys that they leave open stay as they are, or are made."""
        name = policy.name.lower()
        known, origin = self.rules.get(name), self._origins.get(name, _MADE_BY_API)
        followed = AuthorizationRule(
            policy.name,
            policy.primary_key or (known.primary_key if known else self._new_key()),
            policy.secondary_key or (known.secondary_key if known else self._new_key()),
            policy.rights,
        )
        self.rules[name], self._origins[name] = followed, PolicyOrigin(came_from, policy.given)
        if known is None:
            self._happened.append((Happened.ADDED, policy.name))
        elif origin.came_from is CameFrom.API and not self._is_old:
            self._happened.append((Happened.TAKEN_OVER, policy.name))
        elif known != followed:
            self._happened.append((Happened.CHANGED, policy.name))

    def leave_open(self, name: str) -> None:
        """The settings of this start give no key of it."""
        if name in self._origins:
            self._origins[name] = PolicyOrigin(self._origins[name].came_from)

    def decision(self) -> Decision:
        """How it ended."""
        if len(self.rules) > limits.AUTHORIZATION_RULES_MAX:
            raise BusError(Fault.ARGUMENT, self._too_many())
        if self._is_old:
            unknown = [rule.name for name, rule in self.rules.items() if name not in self._origins]
            self._happened += [(Happened.KEPT, name) for name in unknown]
        return Decision(tuple(self.rules.values()), self._origins, tuple(self._happened))

    def _too_many(self) -> str:
        made = [rule.name for name, rule in self.rules.items() if name not in self._origins]
        others = f", of which {', '.join(made)} were made through the API" if made else ""
        return (
            f"The namespace would have {len(self.rules)} policies{others}; at most {limits.AUTHORIZATION_RULES_MAX} are"
            " possible. Name fewer in the configuration file, or start with the file as it was and remove some with"
            " `twinbus policy remove`."
        )


# At an operator's word


class Rotation(Enum):
    """Which keys are renewed."""

    SHIFT = "shift"  # A new primary key; the old one becomes the secondary key, and that one is gone.
    PRIMARY = "primary"
    SECONDARY = "secondary"


def named(rules: Rules, name: str) -> AuthorizationRule:
    """The policy of this name, whatever its case."""
    for rule in rules:
        if rule.name.lower() == name.lower():
            return rule
    raise BusError(Fault.ENTITY_NOT_FOUND, f"The namespace has no policy '{name[:100]}'.")


def added(rules: Rules, new: AuthorizationRule) -> Rules:
    """With one more."""
    if not _NAME.match(new.name):
        raise BusError(
            Fault.ARGUMENT,
            "A policy's name has 1 to 50 letters, digits, '.', '-' and '_', with a letter or digit at both ends.",
        )
    if not all(KEY_CHARS_MIN <= len(key) <= KEY_CHARS_MAX and key.isprintable() for key in new.keys):
        raise BusError(Fault.ARGUMENT, f"A key has {KEY_CHARS_MIN} to {KEY_CHARS_MAX} printable characters.")
    if any(rule.name.lower() == new.name.lower() for rule in rules):
        raise BusError(Fault.ENTITY_EXISTS, f"The namespace has a policy '{new.name}' already.")
    check_rules((*rules, new))
    return (*rules, new)


def with_rights(rules: Rules, origins: Origins | None, name: str, rights: Rights) -> Rules:
    """With other rights for one of them."""
    old = named(rules, name)
    if origin_of(origins, name).came_from is CameFrom.FILE:
        raise _refused(f"The rights of '{old.name}' are in the configuration file: change them there and start again.")
    if old.name.lower() == _ROOT and rights != Rights.ALL:
        raise _refused(f"'{ROOT_POLICY}' always manages.")
    return _managed(_replaced(rules, old, replace(old, rights=rights)), old)


def rotated(rules: Rules, origins: Origins | None, name: str, rotation: Rotation, new_key: NewKey) -> Rules:
    """With new keys for one of them."""
    old = named(rules, name)
    primary, secondary = old.keys
    new_primary, new_secondary = {
        Rotation.SHIFT: (new_key(), primary),
        Rotation.PRIMARY: (new_key(), secondary),
        Rotation.SECONDARY: (primary, new_key()),
    }[rotation]
    new = replace(old, primary_key=new_primary, secondary_key=new_secondary)
    for part in origin_of(origins, name).given:
        if getattr(new, part) != getattr(old, part):
            which = part.replace("_", " ")
            raise _refused(
                f"The {which} of '{old.name}' is given by the broker's settings: change it there and start again."
            )
    return _replaced(rules, old, new)


def removed(rules: Rules, origins: Origins | None, name: str) -> Rules:
    """Without one of them."""
    old, origin = named(rules, name), origin_of(origins, name)
    if origin.came_from is CameFrom.FILE:
        raise _refused(f"'{old.name}' is in the configuration file: take it out there and start again.")
    if origin.given:
        raise _refused(f"The broker's settings give a key of '{old.name}' and would make it again at the next start.")
    return _managed(tuple(rule for rule in rules if rule is not old), old)


def _replaced(rules: Rules, old: AuthorizationRule, new: AuthorizationRule) -> Rules:
    return tuple(new if rule is old else rule for rule in rules)


def _managed(rules: Rules, changed: AuthorizationRule) -> Rules:
    if not _is_managed(rules):
        raise _refused(f"'{changed.name}' is the last policy that manages: without it nobody could get in.")
    return rules


def _is_managed(rules: Iterable[AuthorizationRule]) -> bool:
    return any(Rights.MANAGE in rule.rights for rule in rules)


def _refused(text: str) -> BusError:
    return BusError(Fault.NOT_ALLOWED, text)
