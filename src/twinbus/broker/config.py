"""Configuration files: our TOML and the official emulator's `Config.json`, read into settings.

A file with a problem is refused whole, with every problem and its line. The schema is `schema`'s, what an entity may be
is `declared`'s.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from twinbus.broker import declared, schema
from twinbus.broker.declared import names_once
from twinbus.broker.lines import Lines, json_lines, toml_lines
from twinbus.broker.reading import Findings, Problem, Section, read
from twinbus.broker.settings import JournalSettings, NamespaceSettings, Settings, SettingsError
from twinbus.entities.hybrid import overlap
from twinbus.model import limits
from twinbus.model.entity import target_path
from twinbus.model.security import ROOT_POLICY

T = TypeVar("T")
_PATHS = ("certificate", "certificate_key")
_LINE = re.compile(r"at line (\d+)")


class ConfigError(SettingsError):
    """A configuration file that cannot be; its text lists every problem as `file:line: what`."""

    def __init__(self, path: Path, problems: Sequence[Problem]) -> None:
        super().__init__("\n".join(f"{path}:{problem.line}: {problem.text}" for problem in problems))
        self.problems = tuple(problems)


def from_file(path: Path) -> Settings:
    """Read a configuration file; its suffix tells which kind it is."""
    is_json = path.suffix.lower() == ".json"
    try:
        text = path.read_text("utf-8-sig")
    except OSError as problem:
        raise SettingsError(f"The configuration file {path} cannot be read: {problem.strerror}.") from None
    except UnicodeDecodeError as problem:
        line = problem.object.count(b"\n", 0, problem.start) + 1
        raise ConfigError(path, [Problem(line, "this is not UTF-8")]) from None
    document, lines = _parsed(path, text, is_json)
    findings = Findings(lines)
    for repeated, line in lines.repeated:
        findings.add_at(line, f"'{repeated[-1]}' is there twice")
    settings = _emulated(document, findings) if is_json else _own(document, findings)
    if len(findings):
        raise ConfigError(path, findings.problems)
    return settings


def _parsed(path: Path, text: str, is_json: bool) -> tuple[Any, Lines]:
    try:
        if is_json:
            return json.loads(text), json_lines(text)
        return tomllib.loads(text), toml_lines(text)
    except json.JSONDecodeError as problem:
        raise ConfigError(path, [Problem(problem.lineno, f"this is not JSON: {problem.msg}")]) from None
    except tomllib.TOMLDecodeError as problem:
        found = _LINE.search(str(problem))
        line = int(found[1]) if found else max(len(text.splitlines()), 1)
        raise ConfigError(path, [Problem(line, f"this is not TOML: {problem}")]) from None
    except RecursionError:
        raise ConfigError(path, [Problem(1, "it is nested too deeply")]) from None


# Our TOML


def _own(document: Any, findings: Findings) -> Settings:
    file = read(document, schema.FILE, findings)
    settings = Settings()
    for name in schema.PROCESS:
        if name in file.given:
            setattr(settings, name, Path(file.given[name]) if name in _PATHS else file.given[name])
    several = file.sections("namespaces")
    if "namespaces" not in file.given:
        settings.namespaces = [_namespace(file, "namespace", findings)]
        return settings
    for key in schema.ONLY_ONE:
        if key in file.paths:
            findings.add(file.path_of(key), f"'{key}' belongs into one of the [[namespaces]]")
    if not several:
        findings.add(file.path_of("namespaces"), "there is no namespace in it")
    names_once(several, "namespace", findings, "name")
    settings.namespaces = [_namespace(section, "name", findings) for section in several]
    for namespace in settings.namespaces:
        _inherit(namespace, file)
    return settings


def _inherit(namespace: NamespaceSettings, file: Section) -> None:
    """What stands at the top of a file of several namespaces holds for those that do not say otherwise."""
    if namespace.data is None and "data" in file.given:
        namespace.data = Path(file.given["data"]) / namespace.name
    if namespace.stores is None:
        namespace.stores = file.given.get("stores")
    namespace.store = namespace.store or file.given.get("store", [])
    namespace.datacenter = namespace.datacenter or file.given.get("datacenter", "")
    if namespace.journal == JournalSettings():
        namespace.journal = _journal(file)


def _namespace(section: Section, name_key: str, findings: Findings) -> NamespaceSettings:
    given = section.given
    settings = NamespaceSettings(
        name=given.get(name_key, NamespaceSettings().name),
        data=Path(given["data"]) if "data" in given else None,
        key=given.get("key"),
        stores=given.get("stores"),
        store=given.get("store", []),
        datacenter=given.get("datacenter", ""),
        namespace_id=given.get("namespace_id"),
        journal=_journal(section),
    )
    _fill(settings, section.sections("queues"), section.sections("topics"), findings)
    hybrids = section.sections("hybrid_connections")
    settings.hybrid_connections = _made(hybrids, declared.hybrid_connection, findings)
    names_once(hybrids, "hybrid connection", findings)
    _check_hybrids(hybrids, [*section.sections("queues"), *section.sections("topics")], findings)
    policies = section.sections("policies")
    names_once(policies, "policy", findings)
    settings.policies = _made(policies, declared.policy, findings)
    most = limits.AUTHORIZATION_RULES_MAX
    if len({ROOT_POLICY.lower(), *(policy.name.lower() for policy in settings.policies)}) > most:
        findings.add(section.path_of("policies"), f"a namespace has at most {most} policies, {ROOT_POLICY} among them")
    _check(settings, section, name_key, findings)
    return settings


def _journal(section: Section) -> JournalSettings:
    table: Section | None = section.given.get("journal")
    settings = JournalSettings()
    for name, value in ({} if table is None else table.given).items():
        if name == "directory":
            settings.directory = Path(value)
        else:
            setattr(settings, schema.JOURNAL.keys[name].attribute, value)
    return settings


def _check(settings: NamespaceSettings, section: Section, name_key: str, findings: Findings) -> None:
    try:
        settings.check()
    except SettingsError as problem:
        about = next((key for key in ("key", "datacenter", "journal") if key in str(problem)), name_key)
        findings.add(section.path_of(about), str(problem))


def _made(sections: Sequence[Section], make: Callable[[Section, Findings], T | None], findings: Findings) -> list[T]:
    made = [make(section, findings) for section in sections]
    return [one for one in made if one is not None]


def _fill(
    settings: NamespaceSettings, queues: Sequence[Section], topics: Sequence[Section], findings: Findings
) -> None:
    """Queues and topics, with the questions that only all of them together answer."""
    settings.queues = _made(queues, declared.queue, findings)
    settings.topics = _made(topics, declared.topic, findings)
    names_once([*queues, *topics], "queue or topic", findings)
    forwards = [(_name_of(queue), queue) for queue in queues]
    forwards += [(_name_of(topic), inner) for topic in topics for inner in topic.sections("subscriptions")]
    _check_forwards(forwards, {_name_of(section) for section in (*queues, *topics)}, findings)


def _check_hybrids(hybrids: Sequence[Section], entities: Sequence[Section], findings: Findings) -> None:
    """What lies below a hybrid connection is relayed, so that no queue or topic can be there."""
    for section in hybrids:
        other = next((entity for entity in entities if overlap(_name_of(section), _name_of(entity))), None)
        if other is not None:
            text = f"{section.where}the queue or topic '{_name_of(other)}' lies in the same place"
            findings.add(section.path_of("Name"), text)


def _name_of(section: Section) -> str:
    return str(section.given.get("Name", "")).lower()


def _destination(section: Section, key: str) -> str:
    return (target_path(section.given.get(key)) or "").lower()


def _check_forwards(forwards: Sequence[tuple[str, Section]], names: set[str], findings: Findings) -> None:
    """Each is a queue, or a topic and one of its subscriptions. What is forwarded needs a place, and no way back."""
    onward: dict[str, list[str]] = {}
    for name, section in forwards:
        onward.setdefault(name, []).append(_destination(section, "ForwardTo"))
        for key in ("ForwardTo", "ForwardDeadLetteredMessagesTo"):
            destination = _destination(section, key)
            if destination and destination not in names:
                text = f"{section.where}{key}: no queue or topic '{section.given[key]}' is declared"
                findings.add(section.path_of(key), text)
    for name, section in forwards:
        reached = {_destination(section, "ForwardTo")} - {""}
        waiting = list(reached)
        while waiting:
            new = {further for further in onward.get(waiting.pop(), []) if further} - reached
            reached |= new
            waiting += new
        if name in reached:
            findings.add(section.path_of("ForwardTo"), f"{section.where}ForwardTo: this leads back to where it began")


# The official emulator's file


def _emulated(document: Any, findings: Findings) -> Settings:
    file = read(document, schema.EMULATOR_FILE, findings)
    user: Section | None = file.given.get("UserConfig")
    namespaces = [] if user is None else user.sections("Namespaces")
    if user is not None and not namespaces:
        findings.add(user.path_of("Namespaces"), "there is no namespace in it")
    names_once(namespaces, "namespace", findings)
    return Settings(namespaces=[_emulated_namespace(section, findings) for section in namespaces])


def _emulated_namespace(section: Section, findings: Findings) -> NamespaceSettings:
    settings = NamespaceSettings(name=section.given.get("Name", NamespaceSettings().name))
    queues = [queue.joined("Properties") for queue in section.sections("Queues")]
    topics = [_flat_topic(topic) for topic in section.sections("Topics")]
    _fill(settings, queues, topics, findings)
    _check(settings, section, "Name", findings)
    return settings


def _flat_topic(section: Section) -> Section:
    flat = section.joined("Properties")
    flat.given["subscriptions"] = [_flat_subscription(inner) for inner in section.sections("Subscriptions")]
    return flat


def _flat_subscription(section: Section) -> Section:
    flat = section.joined("Properties")
    flat.given["rules"] = [_flat_rule(inner) for inner in section.sections("Rules")]
    return flat


def _flat_rule(section: Section) -> Section:
    """As our own rules are: the filter that its type names, its text without a table around it."""
    flat = section.joined("Properties")
    kind = flat.given.pop("FilterType", "Sql")
    flat.given.pop("SqlFilter" if kind == "Correlation" else "CorrelationFilter", None)
    for key in ("SqlFilter", "Action"):
        inner = flat.given.pop(key, None)
        if inner is not None and "SqlExpression" in inner.given:
            flat.given[key] = inner.given["SqlExpression"]
            flat.paths[key] = inner.paths["SqlExpression"]
    return flat
