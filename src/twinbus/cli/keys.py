"""`twinbus keys`: the shared access policies of queues, looked at and changed.

A policy belongs to its queue's description, so that a change is an update of the queue. Policies of the namespace
itself are not part of the administration API: `twinbus serve` and the Azure portal have them.
"""

from __future__ import annotations

import base64
import secrets
from dataclasses import replace
from enum import Enum
from typing import Annotated, Any

import typer

from twinbus.cli.connection import CaOption, ConnectionOption, HttpPortOption, JsonOption, Namespace, namespace
from twinbus.cli.entity import YesOption
from twinbus.cli.output import Output, Table
from twinbus.cli.running import PromptError, command, confirm
from twinbus.cli.showing import clean
from twinbus.client.descriptions import rights_named
from twinbus.model.entity import QueueDescription
from twinbus.model.security import AuthorizationRule, Rights

KEY_BYTES = 32


class Right(Enum):
    """Rights as people type them."""

    LISTEN = "listen"
    SEND = "send"
    MANAGE = "manage"


QueueOrAllArgument = Annotated[
    str | None, typer.Argument(metavar="QUEUE", help="The queue; without it, every queue that has policies.")
]
RightOption = Annotated[
    list[Right] | None,
    typer.Option("--right", case_sensitive=False, help="A right of the new policy; repeatable."),
]
RotateOption = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Give a policy a new primary key; the old one becomes its secondary key."),
]


@command
async def keys(
    queue: QueueOrAllArgument = None,
    add: Annotated[str | None, typer.Option(metavar="NAME", help="Add a policy with two new keys.")] = None,
    right: RightOption = None,
    rotate: RotateOption = None,
    remove: Annotated[str | None, typer.Option(metavar="NAME", help="Remove a policy.")] = None,
    show: Annotated[bool, typer.Option("--show", help="Show keys and connection strings, too.")] = False,
    yes: YesOption = False,
    json: JsonOption = False,
    connection_string: ConnectionOption = None,
    ca: CaOption = None,
    http_port: HttpPortOption = None,
) -> None:
    """Show the policies of a queue, add one, renew its keys, or remove it."""
    changes = [name for name in (add, rotate, remove) if name is not None]
    if len(changes) > 1:
        raise PromptError("One change at a time: --add, --rotate or --remove.")
    if changes and queue is None:
        raise PromptError("Name the queue whose policies are to be changed.")
    if bool(right) != (add is not None):
        raise PromptError("--add and --right belong together: --add app --right send --right listen.")
    place = namespace(connection_string, ca, http_port)
    output = Output(json)
    async with place.administer() as administration:
        if queue is None:
            found = [entry.description async for entry in administration.queues()]
        else:
            found = [(await administration.queue(queue)).description]
        if add is not None:
            found = [(await administration.update_queue(_added(found[0], add, right or []))).description]
        elif rotate is not None:
            renewed = _rotated(found[0], rotate)
            confirm(f"Renew the keys of '{rotate}'? Its present secondary key will no longer be valid.", yes)
            found = [(await administration.update_queue(renewed)).description]
        elif remove is not None:
            rest = _without(found[0], remove)
            confirm(f"Remove '{remove}'? Whoever uses its keys will be refused.", yes)
            found = [(await administration.update_queue(rest)).description]
    _show(output, place, found, show)


def _show(output: Output, place: Namespace, queues: list[QueueDescription], with_keys: bool) -> None:
    rules = [(queue, rule) for queue in queues for rule in queue.authorization_rules]
    if output.as_json:
        for queue, rule in rules:
            output.record(_document(place, queue, rule, with_keys))
        return
    rows: list[list[str]] = []
    table = Table(output, ("QUEUE", "POLICY", "RIGHTS", *(("PRIMARY KEY", "SECONDARY KEY") if with_keys else ())))
    for queue, rule in rules:
        shown = [clean(queue.name), clean(rule.name), ", ".join(rights_named(rule.rights))]
        rows.append([*shown, *(rule.keys if with_keys else ())])
    table.rows(rows)
    if with_keys:
        for queue, rule in rules:
            output.line(f"\nConnection string of {clean(rule.name)} for '{clean(queue.name)}':")
            output.line(f"  {place.connection_string(rule.name, rule.primary_key, queue.name)}")
    if not rules:
        output.remark("No policies of queues; those of the namespace hold.")


def _document(place: Namespace, queue: QueueDescription, rule: AuthorizationRule, with_keys: bool) -> dict[str, Any]:
    told: dict[str, Any] = {"queue": queue.name, "name": rule.name, "rights": rights_named(rule.rights)}
    if with_keys:
        told |= {"primary_key": rule.primary_key, "secondary_key": rule.secondary_key}
        told["connection_string"] = place.connection_string(rule.name, rule.primary_key, queue.name)
    return told


def _added(queue: QueueDescription, name: str, rights: list[Right]) -> QueueDescription:
    if any(rule.name.lower() == name.lower() for rule in queue.authorization_rules):
        raise PromptError(f"'{queue.name}' has a policy '{name}' already.")
    granted = Rights(0)
    for right in rights:
        # Manage does not stand without the other two.
        granted |= Rights.ALL if right is Right.MANAGE else Rights[right.name]
    added = AuthorizationRule(name, _new_key(), _new_key(), granted)
    return replace(queue, authorization_rules=(*queue.authorization_rules, added))


def _rotated(queue: QueueDescription, name: str) -> QueueDescription:
    old = _named(queue, name)
    new = replace(old, primary_key=_new_key(), secondary_key=old.primary_key)
    rules = tuple(new if rule is old else rule for rule in queue.authorization_rules)
    return replace(queue, authorization_rules=rules)


def _without(queue: QueueDescription, name: str) -> QueueDescription:
    gone = _named(queue, name)
    return replace(queue, authorization_rules=tuple(rule for rule in queue.authorization_rules if rule is not gone))


def _named(queue: QueueDescription, name: str) -> AuthorizationRule:
    for rule in queue.authorization_rules:
        if rule.name.lower() == name.lower():
            return rule
    raise PromptError(f"'{queue.name}' has no policy '{name}'.")


def _new_key() -> str:
    return base64.b64encode(secrets.token_bytes(KEY_BYTES)).decode()
