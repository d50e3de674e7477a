"""`twinbus policy`: the shared access policies of the namespace itself, looked at and changed while it runs.

The broker does it, through its JSON API; policies of queues and topics are `keys`' business, and Azure's the portal's.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Annotated, Any

import typer

from twinbus.cli.connection import CaOption, ConnectionOption, HttpPortOption, JsonOption, Namespace, namespace
from twinbus.cli.entity import YesOption
from twinbus.cli.keys import Right, ShowOption
from twinbus.cli.output import Output, Table
from twinbus.cli.running import PromptError, command, confirm
from twinbus.cli.showing import clean

policy = typer.Typer(no_args_is_help=True, help="Show, add, rotate and remove policies of the namespace itself.")

_CAME_FROM = {"file": "configuration file", "api": "API", "first-start": "first start"}


class Key(Enum):
    """The keys of a policy."""

    PRIMARY = "primary"
    SECONDARY = "secondary"


_LOST = {
    None: "Its present secondary key will no longer be valid, and its primary key becomes the secondary key",
    Key.PRIMARY: "Its present primary key will no longer be valid",
    Key.SECONDARY: "Its present secondary key will no longer be valid",
}

NameArgument = Annotated[str, typer.Argument(metavar="POLICY", help="The name of the policy.", show_default=False)]
RightsOption = Annotated[
    list[Right], typer.Option("--right", case_sensitive=False, help="A right that it has; repeatable.")
]


@policy.command("list")
@command
async def list_policies(
    show: ShowOption = False,
    json: JsonOption = False,
    connection_string: ConnectionOption = None,
    ca: CaOption = None,
    http_port: HttpPortOption = None,
) -> None:
    """Show the policies of the namespace, and where each came from."""
    from twinbus.client import upkeep  # aiohttp takes a quarter of a second, and few commands need it.

    place = namespace(connection_string, ca, http_port)
    async with place.administer() as administration:
        found = await upkeep.policies(administration, with_keys=show)
    _show(Output(json), place, found, show)


@policy.command("add")
@command
async def add(
    name: NameArgument,
    right: RightsOption,
    show: ShowOption = False,
    json: JsonOption = False,
    connection_string: ConnectionOption = None,
    ca: CaOption = None,
    http_port: HttpPortOption = None,
) -> None:
    """Add a policy with two new keys."""
    from twinbus.client import upkeep

    place = namespace(connection_string, ca, http_port)
    async with place.administer() as administration:
        made = await upkeep.add_policy(administration, name, _named(right))
    _show(Output(json), place, [made], show)


@policy.command("update")
@command
async def update(
    name: NameArgument,
    right: RightsOption,
    yes: YesOption = False,
    json: JsonOption = False,
    connection_string: ConnectionOption = None,
    ca: CaOption = None,
    http_port: HttpPortOption = None,
) -> None:
    """Give a policy other rights; its keys stay."""
    from twinbus.client import upkeep

    place = namespace(connection_string, ca, http_port)
    rights = _named(right)
    async with place.administer() as administration:
        before = (await upkeep.policy(administration, name))["rights"]
        lost = [each for each in before if each not in rights and "Manage" not in rights]
        if lost:
            confirm(f"Take {' and '.join(lost)} away from '{name}'? Whoever needs it will be refused.", yes)
        changed = await upkeep.set_policy_rights(administration, name, rights)
    _show(Output(json), place, [changed], False)


@policy.command("rotate")
@command
async def rotate(
    name: NameArgument,
    key: Annotated[
        Key | None, typer.Option("--key", help="Renew this key alone; else the old primary becomes the secondary.")
    ] = None,
    show: ShowOption = False,
    yes: YesOption = False,
    json: JsonOption = False,
    connection_string: ConnectionOption = None,
    ca: CaOption = None,
    http_port: HttpPortOption = None,
) -> None:
    """Give a policy a new primary key; the old one becomes its secondary key."""
    from twinbus.client import upkeep

    place = namespace(connection_string, ca, http_port)
    async with place.administer() as administration:
        before = await upkeep.policy(administration, name)
        lost = before["primary_key" if key is Key.PRIMARY else "secondary_key"]
        if not show and (place.target.policy, place.target.key) == (before["name"], lost):
            raise PromptError("This command uses the very key that would go: with --show it tells you the new one.")
        confirm(f"Renew the keys of '{name}'? {_LOST[key]}.", yes)
        renewed = await upkeep.rotate_policy(administration, name, None if key is None else key.value)
    _show(Output(json), place, [renewed], show)


@policy.command("remove")
@command
async def remove(
    name: NameArgument,
    yes: YesOption = False,
    json: JsonOption = False,
    connection_string: ConnectionOption = None,
    ca: CaOption = None,
    http_port: HttpPortOption = None,
) -> None:
    """Remove a policy: whoever uses its keys is refused at once."""
    from twinbus.client import upkeep

    place = namespace(connection_string, ca, http_port)
    async with place.administer() as administration:
        await upkeep.policy(administration, name)  # Nobody is asked about what is not there.
        confirm(f"Remove '{name}'? Whoever uses its keys will be refused at once.", yes)
        removed = await upkeep.remove_policy(administration, name)
    output = Output(json)
    if json:
        output.record({"removed": removed})
    else:
        output.line(f"'{clean(removed)}' is removed.")


def _named(rights: Sequence[Right]) -> list[str]:
    return [right.value.capitalize() for right in dict.fromkeys(rights)]


def _keys(found: dict[str, Any]) -> tuple[str, str]:
    return found["primary_key"], found["secondary_key"]


def _show(output: Output, place: Namespace, policies: Sequence[dict[str, Any]], with_keys: bool) -> None:
    if output.as_json:
        for found in policies:
            output.record(_document(place, found, with_keys))
        return
    headings = ("POLICY", "RIGHTS", "CAME FROM", *(("PRIMARY KEY", "SECONDARY KEY") if with_keys else ()))
    rows = []
    for found in policies:
        came_from = _CAME_FROM.get(found["came_from"], clean(found["came_from"]))
        shown = [clean(found["name"]), ", ".join(map(clean, found["rights"])), came_from]
        rows.append([*shown, *(map(clean, _keys(found)) if with_keys else ())])
    Table(output, headings).rows(rows)
    if with_keys:
        for found in policies:
            output.line(f"\nConnection string of {clean(found['name'])}:")
            output.line(f"  {clean(place.connection_string(found['name'], found['primary_key']))}")


def _document(place: Namespace, found: dict[str, Any], with_keys: bool) -> dict[str, Any]:
    told = {name: found[name] for name in ("name", "rights", "came_from", "given")}
    if with_keys:
        told |= dict(zip(("primary_key", "secondary_key"), _keys(found), strict=True))
        told["connection_string"] = place.connection_string(found["name"], found["primary_key"])
    return told
