"""What a broker process is told at start: from defaults, a configuration file, the environment and the command line.

Reads our TOML and the official emulator's `Config.json`; what is done with it is `broker.process`' business.
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from twinbus.broker import declared
from twinbus.broker.declared import DeclaredTopic, exactly
from twinbus.model.entity import QueueDescription
from twinbus.model.errors import BusError
from twinbus.model.security import Rights

ROOT_POLICY = "RootManageSharedAccessKey"
# The service's own rule for namespace names; shorter ones are allowed here, since nobody else's are in the way.
_NAMESPACE = re.compile(r"[A-Za-z](?:[A-Za-z0-9-]{0,48}[A-Za-z0-9])?\Z")


class SettingsError(Exception):
    """A setting that cannot be; the text says which and why."""


@dataclass(slots=True, frozen=True)
class Policy:
    """A shared access policy of the namespace, as a file gives it; a missing key is generated once and kept."""

    name: str
    rights: Rights
    primary_key: str | None = field(default=None, repr=False)
    secondary_key: str | None = field(default=None, repr=False)


@dataclass(slots=True, kw_only=True)
class Settings:
    """One broker process."""

    namespace: str = "twinbus"
    data: Path | None = None
    host: str = "127.0.0.1"
    amqp_port: int = 5672
    amqps_port: int = 5671
    http_port: int = 5300
    https_port: int = 5301
    key: str | None = field(default=None, repr=False)
    stores: int | None = None  # None: what the data directory has, four for a new one.
    certificate: Path | None = None
    certificate_key: Path | None = None
    allow_plain: bool = False
    queues: list[QueueDescription] = field(default_factory=list)
    topics: list[DeclaredTopic] = field(default_factory=list)
    policies: list[Policy] = field(default_factory=list)

    @property
    def data_directory(self) -> Path:
        """Where the namespace is kept: given, or per user and namespace."""
        if self.data is not None:
            return self.data
        root = os.environ.get("XDG_DATA_HOME") or str(Path.home() / ".local" / "share")
        return Path(root) / "twinbus" / self.namespace

    @property
    def is_loopback(self) -> bool:
        """Whether nobody but this machine can connect."""
        if self.host == "localhost":
            return True
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return False

    @property
    def serves_tls(self) -> bool:
        return self.certificate is not None

    @property
    def serves_plain(self) -> bool:
        """Plain text is for loopback; elsewhere it must be asked for."""
        return self.is_loopback or self.allow_plain

    def check(self) -> None:
        """Refuse combinations that cannot work or are not safe."""
        if not _NAMESPACE.match(self.namespace):
            raise SettingsError(
                f"'{self.namespace}' is not a namespace name: 1 to 50 letters, digits and '-', beginning with a letter."
            )
        if self.stores is not None and not 1 <= self.stores <= 64:
            raise SettingsError(f"--stores must be between 1 and 64, not {self.stores}.")
        if (self.certificate is None) != (self.certificate_key is None):
            raise SettingsError("A certificate needs its key, and a key its certificate.")
        if not self.serves_plain and not self.serves_tls:
            raise SettingsError(
                f"{self.host} is not loopback, and keys and messages would cross the network unencrypted: "
                "give a certificate with --tls, or say --allow-plain."
            )
        if self.key is not None and not 8 <= len(self.key) <= 256:
            raise SettingsError("The key must have 8 to 256 characters.")


def from_file(path: Path) -> Settings:
    """Read a configuration file; its suffix tells which kind it is."""
    try:
        text = path.read_text("utf-8")
    except OSError as problem:
        raise SettingsError(f"The configuration file {path} cannot be read: {problem.strerror}.") from None
    try:
        if path.suffix.lower() == ".json":
            return _from_emulator(json.loads(text))
        return _from_toml(tomllib.loads(text))
    except KeyError as missing:
        raise SettingsError(f"The configuration file {path} is not valid: {missing} is missing.") from None
    except (BusError, ValueError, TypeError, AttributeError) as problem:
        raise SettingsError(f"The configuration file {path} is not valid: {problem}") from None


_TOML_SETTINGS: dict[str, type] = {
    "namespace": str,
    "data": Path,
    "host": str,
    "amqp_port": int,
    "amqps_port": int,
    "http_port": int,
    "https_port": int,
    "key": str,
    "stores": int,
    "certificate": Path,
    "certificate_key": Path,
    "allow_plain": bool,
}


def _from_toml(document: dict[str, Any]) -> Settings:
    settings = Settings()
    for name, value in document.items():
        if name == "queues":
            settings.queues = [declared.queue(dict(item)) for item in value]
        elif name == "topics":
            settings.topics = [declared.topic(dict(item)) for item in value]
        elif name == "policies":
            settings.policies = [_policy(dict(item)) for item in value]
        elif name in _TOML_SETTINGS:
            setattr(settings, name, exactly(_TOML_SETTINGS[name], name, value))
        else:
            raise ValueError(f"unknown setting '{name}'")
    return settings


_RIGHTS = {"Listen": Rights.LISTEN, "Send": Rights.SEND, "Manage": Rights.ALL}


def _policy(item: dict[str, Any]) -> Policy:
    """A policy from Name, Rights and, if given, PrimaryKey and SecondaryKey."""
    name, rights = item.pop("Name"), item.pop("Rights")
    primary_key, secondary_key = item.pop("PrimaryKey", None), item.pop("SecondaryKey", None)
    if item:
        raise ValueError(f"policy '{name}' has the unknown property '{next(iter(item))}'")
    unknown = [right for right in rights if right not in _RIGHTS]
    if unknown or not rights:
        raise ValueError(f"policy '{name}' needs Rights out of {', '.join(_RIGHTS)}")
    granted = Rights(0)
    for right in rights:
        granted |= _RIGHTS[right]
    return Policy(name, granted, primary_key, secondary_key)


def _from_emulator(document: dict[str, Any]) -> Settings:
    """The official emulator's file: one namespace with queues and topics."""
    namespaces = document.get("UserConfig", {}).get("Namespaces", [])
    if len(namespaces) != 1:
        raise ValueError("exactly one namespace is expected")
    namespace = namespaces[0]
    queues = [declared.queue({"Name": q["Name"], **q.get("Properties", {})}) for q in namespace.get("Queues", [])]
    topics = [declared.emulated_topic(item) for item in namespace.get("Topics", [])]
    return Settings(namespace=namespace.get("Name", "twinbus"), queues=queues, topics=topics)
