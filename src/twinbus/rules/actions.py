"""What an action does to a message: SET and REMOVE, statement by statement, on a copy of its properties.

The result says what changed; the message itself is not touched. Writing the changes into a message, and giving the
copy its RuleName, is left to `matching` and the entities.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

from twinbus.model.duration import parse_duration_ms
from twinbus.model.errors import BusError
from twinbus.rules.compiler import Parameters, compile_value
from twinbus.rules.errors import ActionError, FilterError
from twinbus.rules.limits import KEY_CHARS_MAX, PROPERTY_BYTES_MAX
from twinbus.rules.operators import Evaluate
from twinbus.rules.tree import Assign, Property, Statement
from twinbus.rules.values import BOOLEAN, ID, INT64_MAX, TEXT, kind_of, plain, text_of
from twinbus.rules.view import Form, MessageView, Properties, SystemProperty, system_property


@dataclass(frozen=True, slots=True)
class Changes:
    """What an action changed.

    `user` are the application properties that are set, under the names they have in the message; `removed` are names
    to leave out; `system` are system properties by the names of the view, None for one that is taken away.
    """

    user: Mapping[str, Any] = field(default_factory=dict)
    removed: frozenset[str] = frozenset()
    system: Mapping[str, Any] = field(default_factory=dict)


class Draft:
    """A message while an action works on it: later statements see what earlier ones changed."""

    def __init__(self, view: MessageView) -> None:
        self.original = view.application_properties
        self.user: dict[str, Any] = {}
        self.removed: set[str] = set()
        self.system: dict[str, Any] = {}
        self.view = MessageView(view.system, {}, view.new_id)
        self.view.user = dict(view.user)

    def spellings(self, name: str) -> list[str]:
        """The names in the message that are this one but for their case."""
        return [spelling for spelling in self.original if spelling.lower() == name.lower()]

    def set_user(self, name: str, value: Any) -> None:
        spelling, *others = self.spellings(name) or [next((s for s in self.user if s.lower() == name.lower()), name)]
        converted = _converted(value, self.view.user.get(name.lower()))
        if isinstance(converted, str | bytes) and _size_bytes(converted) > PROPERTY_BYTES_MAX:
            raise ActionError(f"The property '{name}' would be larger than {PROPERTY_BYTES_MAX} bytes.")
        self.user[spelling] = self.view.user[name.lower()] = converted
        self.removed.discard(spelling)
        self.removed.update(others)

    def remove_user(self, name: str) -> None:
        self.removed.update(self.spellings(name))
        self.user = {spelling: value for spelling, value in self.user.items() if spelling.lower() != name.lower()}
        self.view.user.pop(name.lower(), None)

    def set_system(self, known: SystemProperty, value: Any) -> None:
        converted = None if value is None else _system_value(known, value)
        system: dict[str, Any] = {**self.view.system, known.name: converted}
        if known.name == "TimeToLive" and system.get("EnqueuedTimeUtc") is not None:
            # The expiry is calculated, so a later statement sees the one that follows from the new time to live.
            system["ExpiresAtUtc"] = None if converted is None else plain(system["EnqueuedTimeUtc"]) + converted
        self.system[known.name] = converted
        self.view.system = system

    def changes(self) -> Changes:
        return Changes(self.user, frozenset(self.removed), self.system)


Step = Callable[[Draft], None]


def compile_action(statements: tuple[Statement, ...], parameters: Parameters) -> Callable[[MessageView], Changes]:
    """The function that applies an action to the view of a message."""
    steps = [_step(statement, parameters) for statement in statements]

    def apply(view: MessageView) -> Changes:
        draft = Draft(view)
        try:
            for step in steps:
                step(draft)
        except FilterError as error:
            raise ActionError(str(error)) from error
        return draft.changes()

    return apply


def _step(statement: Statement, parameters: Parameters) -> Step:
    target = statement.target
    if isinstance(statement, Assign):
        evaluate = compile_value(statement.value, parameters)
        return _set_system(target, evaluate) if target.system else _set_user(target.name, evaluate)
    if target.system:
        return _set_system(target, lambda view: None)
    return lambda draft: draft.remove_user(target.name)


def _set_user(name: str, evaluate: Evaluate) -> Step:
    return lambda draft: draft.set_user(name, evaluate(draft.view))


def _set_system(target: Property, evaluate: Evaluate) -> Step:
    known = system_property(target.name)

    def step(draft: Draft) -> None:
        if known is None:
            raise ActionError(f"The system property '{target.name}' does not exist.")
        if not known.settable:
            raise ActionError(f"The system property '{known.name}' cannot be changed.")
        draft.set_system(known, evaluate(draft.view))

    return step


def _size_bytes(value: str | bytes) -> int:
    return len(value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value)


# Conversion to the type that a property has already.

_NUMBER_CHARS_MAX = 40
_NUMBER = re.compile(r"\s*[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?\s*\Z", re.ASCII)


def _converted(value: Any, present: Any) -> Any:
    """The value in the type of the present one if it has an equal there; otherwise as it is."""
    if value is None or present is None:
        return value
    try:
        return _in_type_of(value, present)
    except (ValueError, TypeError, ArithmeticError, FilterError):
        return value


def _in_type_of(value: Any, present: Any) -> Any:
    kind = kind_of(present)
    if kind is kind_of(value) and not isinstance(present, int | float | Decimal):
        return value
    if kind is TEXT:
        return text_of(value)
    if kind is BOOLEAN and isinstance(value, str):
        return {"true": True, "false": False}.get(value.strip().lower(), value)
    if kind is ID and isinstance(value, str):
        return UUID(value.strip())
    if isinstance(value, bool):
        return value
    number = _number(value) if isinstance(value, str) else value
    if isinstance(present, int):
        return int(number) if abs(number) <= INT64_MAX and int(number) == number else value
    if isinstance(present, float) and not isinstance(number, Decimal):
        return float(number)
    if isinstance(present, Decimal) and not isinstance(number, float):
        return Decimal(number)
    return value


def _number(text: str) -> int | float:
    """The number that a text spells, as a literal of the language does but with a sign."""
    if len(text) > _NUMBER_CHARS_MAX or not _NUMBER.match(text):
        raise ValueError("the text is no number")
    return int(text) if text.strip().lstrip("+-").isdecimal() else float(text)


# Conversion to what a system property holds.

_TIMESPAN = re.compile(
    r"(?:(?P<days>\d{1,8})\.)?(?P<hours>\d{1,2}):(?P<minutes>\d{1,2})(?::(?P<seconds>\d{1,2})(?:\.(?P<fraction>\d{1,7}))?)?\Z",
    re.ASCII,
)


def _system_value(known: SystemProperty, value: Any) -> Any:
    if known.form in (Form.TEXT, Form.KEY):
        text = text_of(value)
        limit = KEY_CHARS_MAX if known.form is Form.KEY else PROPERTY_BYTES_MAX
        if len(text) > limit:
            raise ActionError(f"The system property '{known.name}' would be longer than {limit} characters.")
        return text
    try:
        milliseconds = _milliseconds(known.form, value)
    except (ValueError, OverflowError, BusError) as error:
        raise ActionError(f"The system property '{known.name}' cannot hold this value.") from error
    if not 0 < milliseconds <= INT64_MAX:
        raise ActionError(f"The system property '{known.name}' cannot hold this value.")
    return milliseconds


def _milliseconds(form: Form, value: Any) -> int:
    if isinstance(value, str) and form is Form.DURATION:
        return _duration_ms(value.strip())
    number = plain(datetime.fromisoformat(value.strip()) if isinstance(value, str) else value)
    if isinstance(number, int | float) and not isinstance(number, bool):
        return int(number)
    raise ValueError(f"a {kind_of(value)} value is no time")


def _duration_ms(text: str) -> int:
    """As .NET writes a TimeSpan (1.02:03:04.5) or as ISO 8601 does (P1DT2H3M4.5S)."""
    found = _TIMESPAN.match(text)
    if found is None:
        return parse_duration_ms(text)
    days, hours, minutes, seconds = (int(found[part] or 0) for part in ("days", "hours", "minutes", "seconds"))
    if hours > 23 or minutes > 59 or seconds > 59:
        raise ValueError("an hour, minute or second is out of range")
    fraction_ms = int((found["fraction"] or "0").ljust(3, "0")[:3])
    return (((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000 + fraction_ms


def with_rule_name(changes: Changes, name: str, properties: Properties) -> Changes:
    """The changes and the property RuleName, under which a copy says which rule made it."""
    spelled = [spelling for spelling in properties if spelling.lower() == "rulename"]
    user = {key: value for key, value in changes.user.items() if key.lower() != "rulename"}
    user["RuleName"] = name
    removed = (changes.removed | set(spelled)) - {"RuleName"}
    return Changes(user, removed, changes.system)
