"""The settings of entities and rules as options, in one table for creating and updating.

Which kinds of entities have a setting follows from their descriptions in `model`; which values are allowed is for the
namespace to say.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import fields, replace
from typing import Annotated, Any, NamedTuple, TypeVar

import typer

from twinbus.cli.documents import kind_of
from twinbus.cli.running import PromptError
from twinbus.cli.values import Duration, parse_duration, parse_properties
from twinbus.client.descriptions import Description
from twinbus.model.entity import EntityStatus
from twinbus.model.rule import SYSTEM_CONDITIONS, CorrelationFilter, Filter, RuleDescription, SqlAction, SqlFilter

D = TypeVar("D", bound=Description)
Work = Callable[..., Coroutine[Any, Any, None]]

_SYSTEM = "sys."


class Setting(NamedTuple):
    """An option: its name as a parameter, the attribute that it sets, and what typer needs to know."""

    parameter: str
    attribute: str
    annotation: Any
    fixed: bool = False  # When the entity is created.

    @property
    def option(self) -> str:
        return "--" + self.parameter.replace("_", "-")


def _duration(text: str) -> Any:
    return Annotated[Duration | None, typer.Option(parser=parse_duration, metavar="DURATION", help=text)]


def _number(text: str) -> Any:
    return Annotated[int | None, typer.Option(min=1, help=text)]


def _flag(option: str, text: str) -> Any:
    return Annotated[bool | None, typer.Option(option, help=text, show_default=False)]


def _switch(text: str) -> Any:
    return Annotated[bool | None, typer.Option(help=text, show_default=False)]


def _text(text: str) -> Any:
    return Annotated[str | None, typer.Option(help=text)]


# What is not given stays as it is, or gets the service's default.
SETTINGS = (
    Setting("lock_duration", "lock_duration_ms", _duration("How long a message is locked: 5s to 5m.")),
    Setting("max_delivery_count", "max_delivery_count", _number("Deliveries before a message is dead.")),
    Setting("ttl", "default_ttl_ms", _duration("Longest time to live of a message.")),
    Setting(
        "dead_letter_on_expiration",
        "dead_letter_on_expiration",
        _switch("Whether expired messages become dead letters or vanish."),
    ),
    Setting(
        "dead_letter_on_filter_errors",
        "dead_letter_on_filter_errors",
        _switch("Whether a message becomes a dead letter when a rule fails on it."),
    ),
    Setting("max_size_mb", "max_size_mb", _number("Quota in megabytes, such as 1024.")),
    Setting("max_message_size_kb", "max_message_size_kb", _number("Largest message in KiB; Azure's Premium tier.")),
    Setting("sessions", "requires_session", _flag("--sessions", "Messages belong to sessions."), fixed=True),
    Setting(
        "duplicate_detection",
        "requires_duplicate_detection",
        _flag("--duplicate-detection", "Drop a message whose id was seen within the window."),
        fixed=True,
    ),
    Setting("duplicate_window", "duplicate_window_ms", _duration("How long message ids are remembered: 20s to 7d.")),
    Setting("partitioned", "partitioned", _flag("--partitioned", "Spread the entity over stores."), fixed=True),
    Setting("ordering", "support_ordering", _switch("Whether a topic keeps the order of messages.")),
    Setting("batched_operations", "batched_operations", _switch("Kept for clients that ask; Twinbus always does.")),
    Setting("express", "express", _switch("Kept for clients that ask; Twinbus always writes to disk.")),
    Setting(
        "status",
        "status",
        Annotated[
            EntityStatus | None,
            typer.Option(case_sensitive=False, help="Whether the entity accepts sends and receives."),
        ],
    ),
    Setting("auto_delete_on_idle", "auto_delete_on_idle_ms", _duration("Delete it when it was not used for so long.")),
    Setting("forward_to", "forward_to", _text("Forward messages to this entity; empty for no longer.")),
    Setting("forward_dead_letters_to", "forward_dead_letters_to", _text("Forward dead letters; empty for no longer.")),
    Setting("metadata", "user_metadata", _text("A remark that is kept with the entity.")),
)

_RULE = (
    Setting("filter", "", _text("The messages of a rule, in SQL, such as \"size > 5 AND sys.Label = 'x'\".")),
    Setting(
        "correlation",
        "",
        Annotated[
            list[str] | None,
            typer.Option(metavar="NAME=TEXT", help="The messages of a rule, by equality; sys.Label=x, or NAME:=5."),
        ],
    ),
    Setting("action", "", _text('What a rule does with its copy, such as "SET size = 1"; empty for no longer.')),
    Setting(
        "parameter",
        "",
        Annotated[
            list[str] | None,
            typer.Option(metavar="@NAME=TEXT", help="A parameter of the filter and the action; @NAME:=5 for numbers."),
        ],
    ),
)


def takes_settings(*, creating: bool) -> Callable[[Work], Work]:
    """Gives a command all of these options; it gets what was given as one dictionary, `settings`."""
    offered = [setting for setting in (*SETTINGS, *_RULE) if creating or not setting.fixed]

    def decorate(work: Work) -> Work:
        parameters: list[inspect.Parameter] = []
        for parameter in inspect.signature(work, eval_str=True).parameters.values():
            if parameter.name != "settings":
                parameters.append(parameter)
                continue
            for setting in offered:
                kind = inspect.Parameter.KEYWORD_ONLY
                added = inspect.Parameter(setting.parameter, kind, default=None, annotation=setting.annotation)
                parameters.append(added)

        @functools.wraps(work)
        async def run(**options: Any) -> None:
            settings = {setting.parameter: options.pop(setting.parameter) for setting in offered}
            await work(settings={name: value for name, value in settings.items() if value is not None}, **options)

        ordered = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in parameters]
        run.__signature__ = inspect.Signature(ordered)  # type: ignore[attr-defined]
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in ordered}
        return run

    return decorate


def changed(entity: D, settings: Mapping[str, Any]) -> D:
    """The description with the settings that were given; an empty text takes one away."""
    possible = {field.name for field in fields(entity)}
    values: dict[str, Any] = {}
    for setting in SETTINGS:
        if setting.parameter not in settings:
            continue
        if setting.attribute not in possible:
            raise PromptError(f"{setting.option} is no setting of a {kind_of(entity)}.")
        value = settings[setting.parameter]
        values[setting.attribute] = None if value == "" else value
    return replace(entity, **values)


def refuse_rule_options(settings: Mapping[str, Any], what: str) -> None:
    """Filters and actions belong to rules."""
    for setting in _RULE:
        if setting.parameter in settings:
            raise PromptError(f"{setting.option} belongs to rules and new subscriptions, not to a {what}.")


def changed_rule(rule: RuleDescription, settings: Mapping[str, Any]) -> RuleDescription:
    """The rule with the filter and the action that were given; an empty action takes it away."""
    for setting in SETTINGS:
        if setting.parameter in settings:
            raise PromptError(f"{setting.option} is no setting of a rule.")
    parameters = {f"@{name.removeprefix('@')}": value for name, value in _pairs(settings, "parameter").items()}
    action = rule.action
    if "action" in settings:
        action = SqlAction(settings["action"], parameters) if settings["action"] else None
    return replace(rule, filter=_filter(rule.filter, settings, parameters), action=action)


def _filter(old: Filter, settings: Mapping[str, Any], parameters: dict[str, Any]) -> Filter:
    if "filter" in settings and "correlation" in settings:
        raise PromptError("A rule has one filter: --filter or --correlation, not both.")
    if "filter" in settings:
        return SqlFilter(settings["filter"], parameters)
    if "correlation" not in settings:
        return old
    conditions: dict[str, str] = {}
    properties: dict[str, Any] = {}
    names = {name.lower(): attribute for name, attribute in (SYSTEM_CONDITIONS | {"Subject": "subject"}).items()}
    for name, value in _pairs(settings, "correlation").items():
        if not name.lower().startswith(_SYSTEM):
            properties[name] = value
            continue
        attribute = names.get(name[len(_SYSTEM) :].lower())
        if attribute is None:
            raise PromptError(f"'{name}' is none of sys.{', sys.'.join(SYSTEM_CONDITIONS)}.")
        conditions[attribute] = str(value)
    return CorrelationFilter(**conditions, properties=properties)


def _pairs(settings: Mapping[str, Any], option: str) -> dict[str, Any]:
    return parse_properties(settings.get(option, []))
