"""What a broker process is told at start, with its defaults, and which settings cannot be together.

Files are read by `config`, options by the command line; what is done with the settings is `process`' business.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from ipaddress import ip_address
from pathlib import Path

from twinbus.broker.declared import DeclaredTopic
from twinbus.broker.schema import DATACENTER_CHARS_MAX, STORES_MAX
from twinbus.model.entity import QueueDescription
from twinbus.model.hybrid import HybridConnectionDescription
from twinbus.model.policies import DeclaredPolicy
from twinbus.model.security import KEY_CHARS_MAX, KEY_CHARS_MIN

DEFAULT_JOURNAL = "default"
# The service's own rule for namespace names; shorter ones are allowed here, since nobody else's are in the way.
_NAMESPACE = re.compile(r"[A-Za-z](?:[A-Za-z0-9-]{0,48}[A-Za-z0-9])?\Z")


class SettingsError(Exception):
    """A setting that cannot be; the text says which and why."""


@dataclass(slots=True, kw_only=True)
class JournalSettings:
    """Whether and how a namespace's journal becomes files."""

    export: bool = False
    directory: Path | None = None  # None: `journal` in the namespace's data directory.
    rows: int = 100_000
    interval_ms: int = 300_000
    keep_in_store_ms: int = 24 * 3600 * 1000
    keep_in_store_mb: int = 256
    keep_files_ms: int = 90 * 24 * 3600 * 1000
    keep_files_mb: int = 64 * 1024

    @property
    def keep_in_store_bytes(self) -> int:
        """How much of what is in files stays in each messaging store."""
        return self.keep_in_store_mb * 1024 * 1024

    @property
    def keep_files_bytes(self) -> int:
        """How much stays in files."""
        return self.keep_files_mb * 1024 * 1024


@dataclass(slots=True, kw_only=True)
class NamespaceSettings:
    """One namespace of the process."""

    name: str = "twinbus"
    data: Path | None = None
    key: str | None = field(default=None, repr=False)
    stores: int | None = None  # None: what the data directory has, four for a new one.
    store: list[str] = field(default_factory=list, repr=False)  # Addresses of databases, with their passwords.
    datacenter: str = ""
    namespace_id: str | None = None  # What is found must have this id; None: it may be anybody.
    queues: list[QueueDescription] = field(default_factory=list)
    topics: list[DeclaredTopic] = field(default_factory=list)
    hybrid_connections: list[HybridConnectionDescription] = field(default_factory=list)
    policies: list[DeclaredPolicy] | None = None  # None: nothing was said of them, and they stay as they are.
    journal: JournalSettings = field(default_factory=JournalSettings)

    @property
    def journal_directory(self) -> Path:
        """Where the journal's files are, if it is exported."""
        return self.journal.directory or self.data_directory / "journal"

    @property
    def data_directory(self) -> Path:
        """Where the namespace is kept: given, or per user and namespace."""
        if self.data is not None:
            return self.data
        root = os.environ.get("XDG_DATA_HOME") or str(Path.home() / ".local" / "share")
        return Path(root) / "twinbus" / self.name

    @property
    def kept_directory(self) -> Path | None:
        """Where something can be kept beside the namespace: its directory, which gateways of databases may not have."""
        return self.data if self.store else self.data_directory

    def check(self) -> None:
        """Refuse what cannot be."""
        if not _NAMESPACE.match(self.name) or self.name.lower() == "localhost":
            raise SettingsError(
                f"'{self.name}' is not a namespace name: 1 to 50 letters, digits and '-', beginning with a letter."
            )
        if self.stores is not None and not 1 <= self.stores <= STORES_MAX:
            raise SettingsError(f"--stores must be between 1 and {STORES_MAX}, not {self.stores}.")
        if self.key is not None and not KEY_CHARS_MIN <= len(self.key) <= KEY_CHARS_MAX:
            raise SettingsError(f"The key must have {KEY_CHARS_MIN} to {KEY_CHARS_MAX} characters.")
        if self.journal.interval_ms <= 0:
            raise SettingsError("The interval of the journal's files must be more than nothing.")
        if len(self.datacenter) > DATACENTER_CHARS_MAX or not self.datacenter.isprintable():
            raise SettingsError(f"A datacenter's name has at most {DATACENTER_CHARS_MAX} printable characters.")


@dataclass(slots=True, kw_only=True)
class Settings:
    """One broker process."""

    host: str = "127.0.0.1"
    amqp_port: int = 5672
    amqps_port: int = 5671
    http_port: int = 5300
    https_port: int = 5301
    certificate: Path | None = None
    certificate_key: Path | None = None
    allow_plain: bool = False
    test_clock: bool = False
    faults: bool = False
    entity_metrics: bool = False
    namespaces: list[NamespaceSettings] = field(default_factory=lambda: [NamespaceSettings()])

    def _check_places(self) -> None:
        """Namespaces that share a directory or a database would share their entities."""
        taken: dict[object, str] = {}
        for namespace in self.namespaces:
            places: Sequence[object] = namespace.store or [namespace.data_directory.absolute()]
            for place in places:
                other = taken.setdefault(place, namespace.name)
                if other != namespace.name:
                    what = "messaging store" if namespace.store else f"data directory {place}"
                    raise SettingsError(f"The namespaces '{other}' and '{namespace.name}' have the same {what}.")

    def choose(self, names: Sequence[str]) -> None:
        """Serve the namespaces of these names: some of the file's several, or else all with the same settings."""
        if not names:
            return
        if len(self.namespaces) == 1:
            (one,) = self.namespaces
            self.namespaces = [replace(one, name=name) for name in names]
            if len(names) > 1:
                self.apply(data=one.data, key=one.key, namespace_id=one.namespace_id)
            return
        known = {namespace.name.lower(): namespace for namespace in self.namespaces}
        unknown = [name for name in names if name.lower() not in known]
        if unknown:
            raise SettingsError(f"The configuration file has no namespace '{unknown[0]}'.")
        self.namespaces = [known[name.lower()] for name in names]

    def apply(
        self,
        *,
        data: Path | None = None,
        key: str | None = None,
        stores: int | None = None,
        store: Sequence[str] = (),
        datacenter: str | None = None,
        namespace_id: str | None = None,
        queues: Sequence[str] = (),
        journal: str | None = None,
        journal_seconds: float | None = None,
    ) -> None:
        """Settings for all namespaces; each of several has its own directory below `data`.

        `journal` is a directory for files of all their journals, or `default` for one in each data directory.
        """
        several = len(self.namespaces) > 1
        if several and key is not None:
            raise SettingsError("One key cannot be for several namespaces: give each its own in a file, or none.")
        if several and namespace_id is not None:
            raise SettingsError("One id cannot be of several namespaces: give each its own in a file, or none.")
        for namespace in self.namespaces:
            if data is not None:
                namespace.data = data / namespace.name if several else data
            namespace.key = key or namespace.key
            namespace.namespace_id = namespace_id or namespace.namespace_id
            namespace.stores = stores if stores is not None else namespace.stores
            namespace.store = list(store) or namespace.store
            namespace.datacenter = datacenter if datacenter is not None else namespace.datacenter
            namespace.queues = [*namespace.queues, *(QueueDescription(name=name) for name in queues)]
            if journal is not None:
                directory = None if journal == DEFAULT_JOURNAL else Path(journal)
                namespace.journal = replace(namespace.journal, export=True, directory=directory)
            if journal_seconds is not None:
                namespace.journal = replace(namespace.journal, interval_ms=round(journal_seconds * 1000))

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

    @property
    def extra_modules(self) -> list[str]:
        """What a broker with these settings imports and a plain installation does not have: see `model.extras`."""
        needed = {
            "psycopg": any(namespace.store for namespace in self.namespaces),
            "pyarrow": any(namespace.journal.export for namespace in self.namespaces),
        }
        return [module for module, is_needed in needed.items() if is_needed]

    def check(self) -> None:
        """Refuse combinations that cannot work or are not safe."""
        names = [namespace.name.lower() for namespace in self.namespaces]
        for namespace in self.namespaces:
            namespace.check()
            if names.count(namespace.name.lower()) > 1:
                raise SettingsError(f"There are two namespaces with the name '{namespace.name}'.")
        if not names:
            raise SettingsError("There is no namespace to serve.")
        self._check_places()
        if (self.certificate is None) != (self.certificate_key is None):
            raise SettingsError("A certificate needs its key, and a key its certificate.")
        if not self.serves_plain and not self.serves_tls:
            raise SettingsError(
                f"{self.host} is not loopback, and keys and messages would cross the network unencrypted: "
                "give a certificate with --tls, or say --allow-plain."
            )
