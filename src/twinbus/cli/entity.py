"""`twinbus entity`: queues, topics, subscriptions and rules listed, shown, created, changed and deleted.

The kind follows from the name (`address`), options are in `settings`, documents in `documents`. Whether a setting is
allowed is for the namespace to say.
"""

from __future__ import annotations

import json as json_format
import sys
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from twinbus.cli.address import Address, parse_address
from twinbus.cli.connection import (
    CaOption,
    ConnectionOption,
    HttpPortOption,
    JsonOption,
    complete_entity,
    namespace,
)
from twinbus.cli.describing import Listed, show_entity, show_list, show_rule
from twinbus.cli.documents import Wanted, address_of, document, kind_of, read_entity, rule_document
from twinbus.cli.nearest import finding
from twinbus.cli.output import Output, progress_bar
from twinbus.cli.pairing import both
from twinbus.cli.running import PromptError, command, confirm
from twinbus.cli.settings import changed, changed_rule, refuse_rule_options, takes_settings
from twinbus.cli.showing import counted
from twinbus.client import ClientError
from twinbus.client.descriptions import Description, Entry
from twinbus.model.entity import QueueDescription
from twinbus.model.rule import DEFAULT_RULE_NAME, RuleDescription, TrueFilter
from twinbus.model.topic import SubscriptionDescription, TopicDescription

if TYPE_CHECKING:
    from twinbus.client.atom import Administration
    from twinbus.pair.replication.policy import Names

EXISTS = "com.microsoft:entity-already-exists"

entity = typer.Typer(
    no_args_is_help=True, help="List, show, create, change and delete queues, topics, subscriptions and rules."
)

NameArgument = Annotated[
    str,
    typer.Argument(
        metavar="NAME",
        help="QUEUE, TOPIC, TOPIC:SUBSCRIPTION or TOPIC:SUBSCRIPTION:RULE.",
        show_default=False,
        autocompletion=complete_entity,
    ),
]
NewNameArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="NAME", help="QUEUE, TOPIC, TOPIC:SUBSCRIPTION or TOPIC:SUBSCRIPTION:RULE.", show_default=False
    ),
]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
TopicOption = Annotated[bool, typer.Option("--topic", help="Create a topic rather than a queue.")]
FromOption = Annotated[
    Path | None,
    typer.Option("--from", allow_dash=True, help="Create what JSON describes, as `entity list --json` prints it."),
]
BothOption = Annotated[
    Path | None,
    typer.Option(
        "--pair", show_default=False, help="Create it in both namespaces of the pair that this TOML describes."
    ),
]


@entity.command("list")
@command
async def list_entities(
    rules: Annotated[bool, typer.Option("--rules", help="Show the rules of subscriptions, too.")] = False,
    json: JsonOption = False,
    connection_string: ConnectionOption = None,
    ca: CaOption = None,
    http_port: HttpPortOption = None,
) -> None:
    """List queues, and topics with their subscriptions, and how many messages they hold."""
    output = Output(json)
    found: list[Listed] = []
    async with namespace(connection_string, ca, http_port).administer() as administration:
        with progress_bar("asking", None) as progress:

            def add(entry: Entry[Description], rules: list[RuleDescription] | None = None) -> None:
                progress.advance(progress.task_ids[0])
                found.append(Listed(entry, rules))
                if json:
                    output.record(document(entry, rules))

            async for queue in administration.queues():
                add(queue)
            async for topic in administration.topics():
                add(topic)
                if topic.subscriptions:
                    async for entry in administration.subscriptions(topic.description.name):
                        add(entry, await _rules(administration, entry.description) if rules else None)
    if not json:
        show_list(output, found)


@entity.command("show")
@command
async def show(
    name: NameArgument,
    json: JsonOption = False,
    connection_string: ConnectionOption = None,
    ca: CaOption = None,
    http_port: HttpPortOption = None,
) -> None:
    """Show all settings and counts of an entity, or a rule."""
    address, output = parse_address(name), Output(json)
    place = namespace(connection_string, ca, http_port)
    async with finding(place, name), place.administer() as administration:
        if address.rule:
            show_rule(output, await administration.rule(address.path, address.rule))
            return
        entry = await administration.entity(address.path)
        show_entity(output, entry, await _rules(administration, entry.description))


async def _rules(administration: Administration, described: Description) -> list[RuleDescription] | None:
    if not isinstance(described, SubscriptionDescription):
        return None
    return [rule async for rule in administration.rules(described.path)]


@entity.command("create")
@command
@takes_settings(creating=True)
async def create(
    settings: dict[str, Any],
    name: NewNameArgument = None,
    topic: TopicOption = False,
    if_missing: Annotated[bool, typer.Option("--if-missing", help="Leave what is there as it is.")] = False,
    documents: FromOption = None,
    pair: BothOption = None,
    json: JsonOption = False,
    connection_string: ConnectionOption = None,
    ca: CaOption = None,
    http_port: HttpPortOption = None,
) -> None:
    """Create a queue, a topic, a subscription or a rule."""
    output = Output(json)
    names: Names | None = None
    if pair is None:
        places = [namespace(connection_string, ca, http_port)]
    else:
        places, names = await both(pair)
    if (name is None) == (documents is None):
        raise PromptError("Name what is to be created, or say where it is described with --from.")
    if documents is not None:
        if settings or topic:
            raise PromptError("With --from, all settings come from there.")
        wanted = list(described_in(documents))
        for number, place in enumerate(places):
            async with place.administer() as administration:
                with progress_bar("creating", len(wanted)) as progress:
                    for one in wanted:
                        await _create(administration, output, _renamed(one, names, number), if_missing)
                        progress.advance(progress.task_ids[0])
        return
    address = parse_address(name or "")
    if topic and address.subscription:
        raise PromptError(f"--topic: '{name}' is no name of a topic, but of what is below one.")
    for number, place in enumerate(places):
        there = _called(address, names, number)
        async with finding(place, there.entity), place.administer() as administration:
            if there.rule:
                await _create_rule(administration, output, there, settings, if_missing)
            else:
                await _create(administration, output, _wanted(there, topic, settings), if_missing)


def _called(address: Address, names: Names | None, number: int) -> Address:
    """What is called so in the first namespace of a pair, as it is called in one of them."""
    if names is None:
        return address
    if not address.subscription:
        return address._replace(entity=names.entity(address.entity, number))
    topic, subscription = names.subscription(address.entity, address.subscription, number)
    return address._replace(entity=topic, subscription=subscription)


def _renamed(wanted: Wanted, names: Names | None, number: int) -> Wanted:
    described = wanted.description
    there = _called(address_of(described), names, number)
    if isinstance(described, SubscriptionDescription):
        return wanted._replace(description=replace(described, topic=there.entity, name=there.subscription))
    return wanted._replace(description=replace(described, name=there.entity))


def _wanted(address: Address, topic: bool, settings: Mapping[str, Any]) -> Wanted:
    """What the command line asks for; a subscription may come with a rule of its own."""
    if not address.subscription:
        new = TopicDescription(name=address.entity) if topic else QueueDescription(name=address.entity)
        refuse_rule_options(settings, kind_of(new))
        return Wanted(changed(new, settings))
    about_rule = {key: settings[key] for key in ("filter", "correlation", "action", "parameter") if key in settings}
    about_entity = {key: value for key, value in settings.items() if key not in about_rule}
    subscription = SubscriptionDescription(topic=address.entity, name=address.subscription)
    rules = [changed_rule(RuleDescription(DEFAULT_RULE_NAME), about_rule)] if about_rule else None
    return Wanted(changed(subscription, about_entity), rules)


async def _create(administration: Administration, output: Output, wanted: Wanted, if_missing: bool) -> None:
    """Creates an entity, and for a subscription exactly the rules that are wanted."""
    described, rules = wanted
    try:
        made = await administration.create(described, rules[0] if rules else None)
    except ClientError as error:
        if error.condition != EXISTS or not if_missing:
            raise
        output.remark(f"'{address_of(described).short}' exists already and was left as it is.")
        return
    if rules is not None and isinstance(described, SubscriptionDescription):
        for rule in rules[1:]:
            await administration.create_rule(described.path, rule)
        if not rules:
            await administration.delete_rule(described.path, DEFAULT_RULE_NAME)
    _done(output, f"Created '{address_of(made.description).short}'.", document(made, rules))


async def _create_rule(
    administration: Administration, output: Output, address: Address, settings: Mapping[str, Any], if_missing: bool
) -> None:
    if not settings.keys() & {"filter", "correlation", "action"}:
        raise PromptError("Say which messages the rule is about: --filter SQL, or --correlation NAME=TEXT.")
    rule = changed_rule(RuleDescription(address.rule, TrueFilter()), settings)
    try:
        made = await administration.create_rule(address.path, rule)
    except ClientError as error:
        if error.condition != EXISTS or not if_missing:
            raise
        output.remark(f"'{address.short}' exists already and was left as it is.")
        return
    _done(output, f"Created '{address.short}'.", rule_document(made))


def described_in(source: Path) -> Iterable[Wanted]:
    """The entities that a file or standard input describes: one object on each line, or a list."""
    try:
        text = sys.stdin.read() if str(source) == "-" else source.read_text()
        if text.lstrip().startswith("["):
            found = json_format.loads(text)
        else:
            found = [json_format.loads(line) for line in text.splitlines() if line.strip()]
    except OSError as problem:
        raise PromptError(f"'{source}' cannot be read: {problem.strerror}.") from None
    except ValueError as problem:
        raise PromptError(f"'{source}' is no JSON, one object on each line: {problem}.") from None
    return [read_entity(told) for told in found]


@entity.command("update")
@command
@takes_settings(creating=False)
async def update(
    name: NameArgument,
    settings: dict[str, Any],
    json: JsonOption = False,
    connection_string: ConnectionOption = None,
    ca: CaOption = None,
    http_port: HttpPortOption = None,
) -> None:
    """Change settings of an entity, or a rule; what is not named stays as it is."""
    address, output = parse_address(name), Output(json)
    place = namespace(connection_string, ca, http_port)
    async with finding(place, name), place.administer() as administration:
        if address.rule:
            old_rule = await administration.rule(address.path, address.rule)
            new_rule = changed_rule(old_rule, settings)
            _refuse_idle(new_rule == old_rule)
            told = rule_document(await administration.update_rule(address.path, new_rule))
        else:
            old = (await administration.entity(address.path)).description
            refuse_rule_options(settings, kind_of(old))
            new = changed(old, settings)
            _refuse_idle(new == old)
            told = document(await administration.update(new))
    _done(output, f"Updated '{address.short}'.", told)


def _refuse_idle(nothing: bool) -> None:
    if nothing:
        raise PromptError("Nothing would change: name a setting and a new value for it.")


@entity.command("delete")
@command
async def delete(
    name: NameArgument,
    yes: YesOption = False,
    json: JsonOption = False,
    connection_string: ConnectionOption = None,
    ca: CaOption = None,
    http_port: HttpPortOption = None,
) -> None:
    """Delete an entity with all that is in it, or a rule."""
    address = parse_address(name)
    place = namespace(connection_string, ca, http_port)
    async with finding(place, name), place.administer() as administration:
        if address.rule:
            told = rule_document(await administration.rule(address.path, address.rule))
            contents = ""
            confirm(f"Delete the rule '{address.short}'?", yes)
            await administration.delete_rule(address.path, address.rule)
        else:
            entry = await administration.entity(address.path)
            told, contents = document(entry), f" with {_contents(entry)}"
            confirm(f"Delete '{address.short}'{contents} in it?", yes)
            await administration.delete(address.path)
    _done(Output(json), f"Deleted '{address.short}'{contents}.", told)


def _contents(entry: Entry[Description]) -> str:
    counts = entry.counts
    total = counts.active + counts.scheduled + counts.dead_letter + counts.transfer_dead_letter
    if isinstance(entry.description, TopicDescription):
        return f"{counted(entry.subscriptions, 'subscription')} and all their messages"
    return counted(total)


def _done(output: Output, sentence: str, told: Mapping[str, Any]) -> None:
    if output.as_json:
        output.record(told)
    else:
        output.line(sentence)
