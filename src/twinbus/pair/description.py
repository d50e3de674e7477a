"""A pair described once, in a small TOML or by the environment, for applications, commands and pipelines alike.

Reads and checks; what the options mean is in `options`, and a client is made of it by `sync` and `aio`. Secrets
may stand elsewhere: in a variable or in a file that is named.
"""

from __future__ import annotations

import os
import ssl
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple

from twinbus.client import ConnectionString
from twinbus.model.duration import parse_duration_ms
from twinbus.model.errors import BusError
from twinbus.pair.ledger.tags import Tag
from twinbus.pair.namespace.own_client import OwnClientNamespace
from twinbus.pair.namespace.port import refuse_same
from twinbus.pair.options import SendAvailabilityOptions

FILE_VARIABLE = "TWINBUS_PAIR"
SECONDARY_VARIABLE = "TWINBUS_SECONDARY"
OPTION_PREFIX = "TWINBUS_PAIR_"
ROLES = ("primary", "secondary")
SECRET = "connection_string"
_SECRET_KEYS = (SECRET, f"{SECRET}_env", f"{SECRET}_file")
_NAMESPACE_KEYS = (*_SECRET_KEYS, "name", "http", "ca", "datacenter")
_BY_ENVIRONMENT = ("name", "http", "ca", "datacenter")
_OPTIONS = {option.name: str(option.type).removesuffix(" | None") for option in fields(SendAvailabilityOptions)}
_FLAGS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


class Problem(NamedTuple):
    """Something that cannot be, and the key that it is about; with an index of lines one can say where it is."""

    path: tuple[str, ...]
    text: str


class DescriptionError(ValueError):
    """A pair is not described as it should be."""

    def __init__(self, where: str, problems: list[Problem]) -> None:
        super().__init__("\n".join(f"{where}: {problem.text}" for problem in problems))
        self.problems = problems


@dataclass(frozen=True, slots=True)
class NamespaceDescription:
    """One namespace of a pair."""

    connection_string: str = field(repr=False)
    name: str | None = None  # The namespace's name; the primary's is needed where it cannot be asked.
    http: str | None = None  # Where it is administered, if not at the usual place.
    ca: Path | None = None  # Authorities to trust.
    datacenter: str | None = None  # Where it is, for namespaces that do not say.

    def namespace(self, role: str, timeout_s: float, tls: ssl.SSLContext | None = None) -> OwnClientNamespace:
        """The namespace, for our own client; `tls` is for one that names no authorities."""
        tls = tls if self.ca is None else ssl.create_default_context(cafile=self.ca)
        target = ConnectionString.parse(self.connection_string)
        return OwnClientNamespace(role, target, tls=tls, http_address=self.http, timeout_s=timeout_s)


@dataclass(frozen=True, slots=True)
class PairDescription:
    """Two namespaces and the options of their pair."""

    primary: NamespaceDescription
    secondary: NamespaceDescription
    options: SendAvailabilityOptions = field(default_factory=SendAvailabilityOptions)
    # Entities of replicated namespaces that are called otherwise in the secondary.
    entities: Mapping[str, str] = field(default_factory=dict)
    tag: Tag = field(default_factory=Tag)  # What the copies of a message share.

    @classmethod
    def read(
        cls, source: PairDescription | Path | str | None = None, environment: Mapping[str, str] | None = None
    ) -> PairDescription:
        """From a file, or from the environment alone; what the environment says goes before what a file says."""
        if isinstance(source, PairDescription):
            return source
        environment = os.environ if environment is None else environment
        file = source or environment.get(FILE_VARIABLE)
        if not file:
            return _Reading("the environment", {}, environment, Path()).pair()
        path = Path(file)
        try:
            document = tomllib.loads(path.read_text(encoding="utf-8"))
        except OSError as problem:
            raise DescriptionError(str(path), [Problem((), f"cannot be read: {problem.strerror}")]) from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as problem:
            raise DescriptionError(str(path), [Problem((), f"is not TOML: {problem}")]) from None
        return _Reading(str(path), document, environment, path.parent).pair()

    def namespaces(self, tls: ssl.SSLContext | None = None) -> tuple[OwnClientNamespace, OwnClientNamespace]:
        """Both namespaces, for our own client; `tls` is for those that name no authorities."""
        timeout_s = self.options.seconds("attempt_timeout")
        first = self.primary.namespace("primary", timeout_s, tls)
        second = self.secondary.namespace("secondary", timeout_s, tls)
        refuse_same(first.target, second.target)
        return first, second


def second_string(given: str | None, kind: str) -> str:
    """The connection string of the secondary, for who names only the first; a TypeError if it is nowhere."""
    found = given or os.environ.get(SECONDARY_VARIABLE)
    if not found:
        raise TypeError(
            f"A {kind} is of two namespaces: give secondary=, set {SECONDARY_VARIABLE}, or use"
            " from_connection_strings(primary, secondary)."
        )
    return found


class _Reading:
    """One description being read; all problems are found in one go."""

    def __init__(self, where: str, document: dict[str, Any], environment: Mapping[str, str], folder: Path) -> None:
        self._where = where
        self._document = document
        self._environment = environment
        self._folder = folder
        self._problems: list[Problem] = []

    def pair(self) -> PairDescription:
        self._check_keys((), self._document, (*ROLES, "options", "entities", "tag"))
        namespaces = [self._namespace(role) for role in ROLES]
        options = self._options()
        entities = self._entities()
        tag = self._tag()
        if self._problems:
            raise DescriptionError(self._where, self._problems)
        assert options is not None
        return PairDescription(namespaces[0], namespaces[1], options, entities, tag)

    def _table(self, name: str) -> dict[str, Any]:
        found = self._document.get(name, {})
        if isinstance(found, dict):
            return found
        self._say((name,), f"[{name}] must be a table")
        return {}

    def _namespace(self, role: str) -> NamespaceDescription:
        table = dict(self._table(role))
        self._check_keys((role,), table, _NAMESPACE_KEYS)
        texts: dict[str, str] = {}
        for key in _NAMESPACE_KEYS:
            value = table.get(key)
            if isinstance(value, str) and value:
                texts[key] = value
            elif value is not None:
                self._say((role, key), f"[{role}] {key} must be a text")
        if "ca" in texts:
            texts["ca"] = str(self._folder / texts["ca"])
        for key in _BY_ENVIRONMENT:
            texts[key] = self._environment.get(f"TWINBUS_{role.upper()}_{key.upper()}") or texts.get(key, "")
        secret = self._secret(role, texts)
        if secret:
            try:
                ConnectionString.parse(secret)
            except ValueError as problem:
                self._say((role, SECRET), f"[{role}] {problem}")
        return NamespaceDescription(
            secret,
            name=texts["name"] or None,
            http=self._http(role, texts["http"]),
            ca=self._ca(role, texts["ca"]),
            datacenter=texts["datacenter"] or None,
        )

    def _secret(self, role: str, texts: dict[str, str]) -> str:
        """The connection string, from wherever it is kept."""
        given = self._environment.get(f"TWINBUS_{role.upper()}")
        if given:
            return given
        named = [key for key in _SECRET_KEYS if key in texts]
        if len(named) > 1:
            self._say((role, named[1]), f"[{role}] has {' and '.join(named)}: one is enough")
            return ""
        if not named:
            variable = f"TWINBUS_{role.upper()}"
            self._say((role,), f"no {role} namespace: give [{role}] connection_string, or set {variable}")
            return ""
        key = named[0]
        if key == SECRET:
            return texts[key]
        if key.endswith("_env"):
            found = self._environment.get(texts[key], "")
            if not found:
                self._say((role, key), f"[{role}] {key}: the variable {texts[key]} is not set")
            return found
        try:
            return (self._folder / texts[key]).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError):
            self._say((role, key), f"[{role}] {key}: '{texts[key]}' cannot be read")
            return ""

    def _http(self, role: str, text: str) -> str | None:
        if text and not text.startswith(("http://", "https://")):
            self._say((role, "http"), f"[{role}] http must be an address such as http://localhost:5300, not '{text}'")
        return text.rstrip("/") or None

    def _ca(self, role: str, text: str) -> Path | None:
        if not text:
            return None
        try:
            ssl.create_default_context(cafile=text)
        except OSError:
            self._say((role, "ca"), f"[{role}] ca: the authorities in '{text}' cannot be read")
        return Path(text)

    def _entities(self) -> dict[str, str]:
        entities = self._table("entities")
        for name, other in entities.items():
            if not isinstance(other, str) or not other:
                self._say(("entities", name), f"[entities] {name} must be the name that it has in the secondary")
        return entities

    def _tag(self) -> Tag:
        try:
            return Tag.parse(self._document.get("tag", Tag()))
        except (ValueError, AttributeError):
            self._say(("tag",), "tag must be message_id, subject or property:NAME")
            return Tag()

    # Options

    def _options(self) -> SendAvailabilityOptions | None:
        table = dict(self._table("options"))
        self._check_keys(("options",), table, tuple(_OPTIONS))
        given = {name: value for name, value in table.items() if name in _OPTIONS}
        variables: dict[str, str] = {}  # Options that the environment gives.
        for variable, text in self._environment.items():
            if variable.startswith(OPTION_PREFIX):
                name = variable.removeprefix(OPTION_PREFIX).lower()
                if name in _OPTIONS:
                    given[name] = _from_text(_OPTIONS[name], text)
                    variables[name] = variable
                else:
                    self._say((), f"{variable} is no option{_hint(name, tuple(_OPTIONS))}")
        chosen = {}
        for name, value in given.items():
            try:
                chosen[name] = _checked(name, _OPTIONS[name], value)
                SendAvailabilityOptions(**{name: chosen[name]})
            except ValueError as problem:
                path = () if name in variables else ("options", name)
                self._say(path, f"{variables.get(name, '[options]')} {problem}")
        return None if self._problems else SendAvailabilityOptions(**chosen)

    def _check_keys(self, path: tuple[str, ...], table: dict[str, Any], known: tuple[str, ...]) -> None:
        for key in table:
            if key not in known:
                place = f"[{path[0]}]" if path else "a pair"
                self._say((*path, key), f"{place} has no '{key}'{_hint(key, known)}")

    def _say(self, path: tuple[str, ...], text: str) -> None:
        self._problems.append(Problem(path, text))


def _hint(key: str, known: tuple[str, ...]) -> str:
    near = get_close_matches(key, known, 1)
    return f"; did you mean '{near[0]}'?" if near else f"; it may have {', '.join(known)}"


def _from_text(kind: str, text: str) -> Any:
    """A variable's value as a file would have it."""
    if kind.startswith("bool"):
        return _FLAGS.get(text.lower(), text)
    if kind in ("int", "Duration"):
        try:
            return int(text) if kind == "int" else float(text)
        except ValueError:
            return text
    return text


def _checked(name: str, kind: str, value: Any) -> Any:
    """A value of the right kind; durations in seconds."""
    if kind == "Duration" and isinstance(value, str):
        try:
            return parse_duration_ms(value) / 1000
        except BusError:
            raise ValueError(f"{name} must be seconds or a duration such as PT30S, not '{value}'") from None
    wanted = {"int": int, "str": str, "Duration": int | float}.get(kind, bool)
    if not isinstance(value, wanted) or (isinstance(value, bool) and wanted is not bool):
        words = {"int": "a whole number", "str": "a text", "Duration": "seconds or a duration such as PT30S"}
        raise ValueError(f"{name} must be {words.get(kind, 'true or false')}, not {value!r}")
    return value
