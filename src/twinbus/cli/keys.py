"""`twinbus keys`: the shared access policies of queues and topics, looked at and changed, and tokens signed with them.

A policy belongs to its entity's description, so that a change is an update of the entity. Policies of the namespace
itself are not part of the administration API: `policy` has them, and the Azure portal.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from twinbus.cli.address import parse_address
from twinbus.cli.connection import (
    CaOption,
    ConnectionOption,
    HttpPortOption,
    JsonOption,
    Namespace,
    complete_entity,
    namespace,
)
from twinbus.cli.documents import kind_of, new_key
from twinbus.cli.entity import YesOption
from twinbus.cli.nearest import finding
from twinbus.cli.output import Output, Table
from twinbus.cli.running import PromptError, command, confirm
from twinbus.cli.showing import clean, iso
from twinbus.cli.values import Duration, parse_duration
from twinbus.client.descriptions import rights_named
from twinbus.model.entity import QueueDescription
from twinbus.model.security import AuthorizationRule, Rights
from twinbus.model.topic import SubscriptionDescription, TopicDescription

if TYPE_CHECKING:
    from twinbus.client.atom import Administration

HOUR_MS = 3_600_000

Guarded = QueueDescription | TopicDescription
Change = Callable[[Guarded], Guarded]

keys = typer.Typer(no_args_is_help=True, help="Show, add, rotate and remove policies of queues and topics.")


class Right(Enum):
    """Rights as people type them."""

    LISTEN = "listen"
    SEND = "send"
    MANAGE = "manage"


EntityArgument = Annotated[
    str, typer.Argument(metavar="ENTITY", help="The queue or topic.", autocompletion=complete_entity)
]
EntityOrAllArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="ENTITY",
        help="The queue or topic; without it, all that have policies.",
        autocompletion=complete_entity,
    ),
]
PolicyArgument = Annotated[str, typer.Argument(metavar="POLICY", help="The name of the policy.", show_default=False)]
RightOption = Annotated[
    list[Right], typer.Option("--right", case_sensitive=False, help="A right of the new policy; repeatable.")
]
NeededOption = Annotated[
    list[Right] | None,
    typer.Option("--right", case_sensitive=False, help="Sign with the entity's policy that has just this."),
]
ShowOption = Annotated[bool, typer.Option("--show", help="Show keys and connection strings, too.")]
ForOption = Annotated[
    Duration | None, typer.Option("--for", parser=parse_duration, metavar="DURATION", help="How long it holds; 1h.")
]


@keys.command("list")
@command
async def list_policies(
    entity: EntityOrAllArgument = None,
    show: ShowOption = False,
    json: JsonOption = False,
    connection_string: ConnectionOption = None,
    ca: CaOption = None,
    http_port: HttpPortOption = None,
) -> None:
    """Show the policies of a queue or topic, or of all."""
    place = namespace(connection_string, ca, http_port)
    if entity is not None:
        async with _described(place, entity) as (_, found):
            _show(Output(json), place, [found], show)
        return
    async with place.administer() as administration:
        every: list[Guarded] = [entry.description async for entry in administration.queues()]
        every += [entry.description async for entry in administration.topics()]
    _show(Output(json), place, every, show)


@keys.command("add")
@command
async def add_policy(
    entity: EntityArgument,
    policy: PolicyArgument,
    right: RightOption,
    show: ShowOption = False,
    json: JsonOption = False,
    connection_string: ConnectionOption = None,
    ca: CaOption = None,
    http_port: HttpPortOption = None,
) -> None:
    """Add a policy with two new keys."""
    place = namespace(connection_string, ca, http_port)
    changed = await _change(place, entity, lambda found: _added(found, policy, right))
    _show(Output(json), place, [changed], show)


@keys.command("rotate")
@command
async def rotate_policy(
    entity: EntityArgument,
    policy: PolicyArgument,
    show: ShowOption = False,
    yes: YesOption = False,
    json: JsonOption = False,
    connection_string: ConnectionOption = None,
    ca: CaOption = None,
    http_port: HttpPortOption = None,
) -> None:
    """Give a policy a new primary key; the old one becomes its secondary key."""
    place = namespace(connection_string, ca, http_port)

    def change(found: Guarded) -> Guarded:
        renewed = _rotated(found, policy)
        confirm(f"Renew the keys of '{policy}'? Its present secondary key will no longer be valid.", yes)
        return renewed

    _show(Output(json), place, [await _change(place, entity, change)], show)


@keys.command("remove")
@command
async def remove_policy(
    entity: EntityArgument,
    policy: PolicyArgument,
    yes: YesOption = False,
    json: JsonOption = False,
    connection_string: ConnectionOption = None,
    ca: CaOption = None,
    http_port: HttpPortOption = None,
) -> None:
    """Remove a policy."""
    place = namespace(connection_string, ca, http_port)

    def change(found: Guarded) -> Guarded:
        rest = _without(found, policy)
        confirm(f"Remove '{policy}'? Whoever uses its keys will be refused.", yes)
        return rest

    _show(Output(json), place, [await _change(place, entity, change)], False)


@keys.command("token")
@command
async def sign_token(
    entity: EntityArgument,
    right: NeededOption = None,
    duration: ForOption = None,
    json: JsonOption = False,
    connection_string: ConnectionOption = None,
    ca: CaOption = None,
    http_port: HttpPortOption = None,
) -> None:
    """Print a shared access signature for an entity, such as curl sends in its Authorization header."""
    place = namespace(connection_string, ca, http_port)
    policy, key = place.target.policy, place.target.key
    if right:
        async with _described(place, parse_address(entity).entity) as (_, found):
            chosen = _least(found, _granted(right))
        policy, key = chosen.name, chosen.primary_key
    if policy is None or key is None:
        raise PromptError("The connection string has a signature and no key: it signs nothing else.")
    expires_at_s = int(time.time()) + (HOUR_MS if duration is None else duration) // 1000
    resource, token = await place.sign(parse_address(entity).path, policy, key, expires_at_s)
    output = Output(json)
    if json:
        told = {"token": token, "resource": resource, "policy": policy, "expires_at": iso(expires_at_s * 1000)}
        output.record(told)
    else:
        output.line(token)


@asynccontextmanager
async def _described(place: Namespace, entity: str) -> AsyncIterator[tuple[Administration, Guarded]]:
    """The queue or topic of that name, and the administration while it is looked at."""
    async with finding(place, entity), place.administer() as administration:
        found = (await administration.entity(parse_address(entity).path)).description
        if isinstance(found, SubscriptionDescription):
            raise PromptError(f"A subscription has no policies of its own: those of its topic '{found.topic}' hold.")
        yield administration, found


async def _change(place: Namespace, entity: str, change: Change) -> Guarded:
    async with _described(place, entity) as (administration, found):
        updated = (await administration.update(change(found))).description
        assert not isinstance(updated, SubscriptionDescription)
        return updated


def _show(output: Output, place: Namespace, entities: Sequence[Guarded], with_keys: bool) -> None:
    rules = [(entity, rule) for entity in entities for rule in entity.authorization_rules]
    if output.as_json:
        for entity, rule in rules:
            output.record(_document(place, entity, rule, with_keys))
        return
    rows: list[list[str]] = []
    table = Table(output, ("ENTITY", "POLICY", "RIGHTS", *(("PRIMARY KEY", "SECONDARY KEY") if with_keys else ())))
    for entity, rule in rules:
        shown = [clean(entity.name), clean(rule.name), ", ".join(rights_named(rule.rights))]
        rows.append([*shown, *(rule.keys if with_keys else ())])
    table.rows(rows)
    if with_keys:
        for entity, rule in rules:
            output.line(f"\nConnection string of {clean(rule.name)} for '{clean(entity.name)}':")
            output.line(f"  {place.connection_string(rule.name, rule.primary_key, entity.name)}")
    if not rules:
        output.remark("No policies of queues or topics; those of the namespace hold.")


def _document(place: Namespace, entity: Guarded, rule: AuthorizationRule, with_keys: bool) -> dict[str, Any]:
    told: dict[str, Any] = {"kind": kind_of(entity), "entity": entity.name, "name": rule.name}
    told["rights"] = rights_named(rule.rights)
    if with_keys:
        told |= {"primary_key": rule.primary_key, "secondary_key": rule.secondary_key}
        told["connection_string"] = place.connection_string(rule.name, rule.primary_key, entity.name)
    return told


def _granted(rights: Sequence[Right]) -> Rights:
    granted = Rights(0)
    for right in rights:
        # Manage does not stand without the other two.
        granted |= Rights.ALL if right is Right.MANAGE else Rights[right.name]
    return granted


def _least(entity: Guarded, needed: Rights) -> AuthorizationRule:
    """The policy that grants what is needed, and nothing else: a token cannot take away what its policy grants."""
    for rule in entity.authorization_rules:
        if rule.rights == needed:
            return rule
    words = " ".join(f"--right {name.lower()}" for name in rights_named(needed))
    raise PromptError(
        f"'{entity.name}' has no policy with exactly these rights, and a token has all rights of its policy.\n"
        f"  `twinbus keys add {entity.name} NAME {words}` makes one."
    )


def _added(entity: Guarded, name: str, rights: Sequence[Right]) -> Guarded:
    if any(rule.name.lower() == name.lower() for rule in entity.authorization_rules):
        raise PromptError(f"'{entity.name}' has a policy '{name}' already.")
    added = AuthorizationRule(name, new_key(), new_key(), _granted(rights))
    return replace(entity, authorization_rules=(*entity.authorization_rules, added))


def _rotated(entity: Guarded, name: str) -> Guarded:
    old = _named(entity, name)
    new = replace(old, primary_key=new_key(), secondary_key=old.primary_key)
    rules = tuple(new if rule is old else rule for rule in entity.authorization_rules)
    return replace(entity, authorization_rules=rules)


def _without(entity: Guarded, name: str) -> Guarded:
    gone = _named(entity, name)
    return replace(entity, authorization_rules=tuple(rule for rule in entity.authorization_rules if rule is not gone))


def _named(entity: Guarded, name: str) -> AuthorizationRule:
    for rule in entity.authorization_rules:
        if rule.name.lower() == name.lower():
            return rule
    raise PromptError(f"'{entity.name}' has no policy '{name}'.")
