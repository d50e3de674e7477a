"""A namespace for tests: what an application connects to, and what a test does to it.

Everything goes through the public HTTP doors of a broker process, which `running` starts and ends.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote

from twinbus.broker import schema
from twinbus.broker.schema import Key, Kind
from twinbus.client import descriptions
from twinbus.model.duration import format_duration
from twinbus.model.entity import EntityStatus, QueueDescription
from twinbus.model.rule import CorrelationFilter, Filter, RuleDescription, SqlAction, SqlFilter, TrueFilter
from twinbus.model.topic import SubscriptionDescription, TopicDescription
from twinbus.testing.running import BrokerError, BrokerRun
from twinbus.wire.sas import make_token

__all__ = ["BrokerError", "LocalNamespace", "Pair", "Store", "namespace", "pair"]

ROOT_POLICY = "RootManageSharedAccessKey"
API_VERSION = "api-version=2021-05"
REQUEST_S = 30.0
Setting = str | int | bool | timedelta
D = TypeVar("D", QueueDescription, TopicDescription, SubscriptionDescription)


class Store(NamedTuple):
    """One messaging store of a namespace."""

    owner: LocalNamespace
    number: int

    @property
    def state(self) -> str:
        """`up`, `down`, `failed` or `hanging`."""
        found: str = self.owner.call("GET", "stores")["stores"][self.number]["state"]
        return found

    def down(self, reason: str = "A test took it down.") -> None:
        """Take it away: what lies on it cannot be reached until it is `up` again."""
        self.owner.call("POST", f"stores/{self.number}/down", {"reason": reason})

    def up(self) -> None:
        """Bring it back, with everything that was in it."""
        self.owner.call("POST", f"stores/{self.number}/up")


class LocalNamespace:
    """A namespace in a process of its own. All methods block, none for longer than the broker needs."""

    def __init__(
        self, name: str = "twinbus", *, datacenter: str = "", stores: int = 4, config: str | Path | None = None
    ) -> None:
        """`config` is a file of `twinbus serve` that declares entities and policies; a reset makes them again."""
        self.name = name
        self.datacenter = datacenter
        self._run = BrokerRun(name, datacenter, stores, None if config is None else Path(config))
        self._stores = stores

    # What an application needs

    @property
    def connection_string(self) -> str:
        """For everything: the policy `RootManageSharedAccessKey`."""
        return self.connection_strings[ROOT_POLICY]

    @property
    def connection_strings(self) -> Mapping[str, str]:
        """By policy."""
        return self._run.connection_strings

    @property
    def amqp_port(self) -> int:
        """Where AMQP is spoken, on 127.0.0.1."""
        return self._run.ports["amqp"]

    @property
    def http_port(self) -> int:
        """Where HTTP is spoken, on 127.0.0.1."""
        return self._run.ports["http"]

    @property
    def log(self) -> str:
        """What the broker has logged."""
        return self._run.log

    # Outages

    @property
    def is_running(self) -> bool:
        """Whether its process is there."""
        return self._run.is_running

    def start(self) -> None:
        """Start it, on the data and ports that it had before."""
        self.launch()
        self.await_ready()

    def launch(self) -> None:
        """Start it without waiting; `await_ready` must follow."""
        self._run.launch()

    def await_ready(self) -> None:
        """Wait until clients can connect."""
        self._run.await_ready()

    def stop(self) -> None:
        """An outage with notice: clients are told, everything is finished. Nothing is lost."""
        self._run.stop()

    def kill(self) -> None:
        """An outage without notice, as by `kill -9`. What was accepted is there after the next start."""
        self._run.kill()

    @property
    def stores(self) -> Sequence[Store]:
        """Its messaging stores, which can be taken down and brought up."""
        return [Store(self, number) for number in range(self._stores)]

    # Entities

    def create_queue(self, name: str, **settings: Setting) -> str:
        """Create a queue, its settings named as the official administration client names them; returns its name."""
        self._put(name, descriptions.write(_described(QueueDescription, schema.QUEUE.keys, settings, name=name)))
        return name

    def create_topic(self, name: str, **settings: Setting) -> str:
        """Create a topic; returns its name."""
        self._put(name, descriptions.write(_described(TopicDescription, schema.TOPIC.keys, settings, name=name)))
        return name

    def create_subscription(
        self,
        topic: str,
        name: str,
        *,
        sql_filter: str | None = None,
        correlation_filter: Mapping[str, Any] | None = None,
        sql_action: str | None = None,
        **settings: Setting,
    ) -> str:
        """Create a subscription with one rule, which without a filter takes everything; returns its name.

        A correlation filter has the names of `CorrelationRuleFilter`, such as `label`, and `properties`.
        """
        keys = schema.SUBSCRIPTION.keys
        described = _described(SubscriptionDescription, keys, settings, topic=topic, name=name)
        action = None if sql_action is None else SqlAction(sql_action)
        rule = RuleDescription("$Default", _filter(sql_filter, correlation_filter), action)
        self._put(f"{topic}/Subscriptions/{name}", descriptions.write(described, rule))
        return name

    def delete(self, path: str) -> None:
        """Delete a queue, a topic, or a subscription (`topic/Subscriptions/name`)."""
        self._ask("DELETE", f"/{quote(path)}?{API_VERSION}")

    def counts(self, path: str) -> dict[str, int]:
        """How many messages are `active`, `dead_letter`, `scheduled`… in a queue or subscription."""
        text = self._ask("GET", f"/{quote(path)}?{API_VERSION}")
        found = re.findall(r"<(?:\w+:)?(\w+)MessageCount>(\d+)<", text)
        return {re.sub(r"(?<!^)([A-Z])", r"_\1", name).lower(): int(count) for name, count in found}

    def purge(self, entity: str, sub_queue: str = "main") -> int:
        """Remove the messages of a queue or subscription, or of its `dead-letter` queue; returns how many."""
        removed: int = self.call("POST", "purge", {"entity": entity, "sub_queue": sub_queue})["removed"]
        return removed

    def reset(self) -> None:
        """Delete all entities, make again what the configuration file declares, and set the clock right."""
        self.call("POST", "reset", {"confirm": self.name})

    # Time

    def advance(self, by: timedelta) -> None:
        """Set its clock forward: locks, times to live, schedules, windows and idle times obey it."""
        self.call("POST", "clock", {"advance": format_duration(by // timedelta(milliseconds=1))})

    # Its beginning and end

    def renew(self) -> None:
        """Make it as good as new, in the quickest way that does."""
        renew_all([self])

    def begin_renewal(self) -> bool:
        """Make it as good as new; whether it was started anew for that, and `await_ready` must follow."""
        if self.is_running and self._is_as_it_started():
            self.reset()
            return False
        self._run.kill()
        self._run.forget()
        self.launch()
        return True

    def _is_as_it_started(self) -> bool:
        """Whether a reset is enough: a store that is down would keep what it has."""
        return all(store["state"] == "up" for store in self.call("GET", "stores")["stores"])

    def close(self) -> None:
        """End it and delete its data."""
        self._run.remove()

    def __enter__(self) -> LocalNamespace:
        try:
            if not self.is_running:
                self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> LocalNamespace:
        return await asyncio.to_thread(self.__enter__)

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.close)

    # The HTTP door

    def call(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Ask the JSON API, `/$api/` and the path."""
        answer = self._ask(method, f"/$api/{path}", None if body is None else json.dumps(body), "application/json")
        document: dict[str, Any] = json.loads(answer)
        return document

    def _put(self, path: str, entry: str) -> None:
        self._ask("PUT", f"/{quote(path)}?{API_VERSION}", entry)

    def _ask(self, method: str, path: str, body: str | None = None, kind: str = "application/atom+xml") -> str:
        if not self.is_running:
            raise BrokerError(f"The namespace '{self.name}' is not running.")
        host = f"127.0.0.1:{self.http_port}"
        key = re.findall(";SharedAccessKey=([^;]+)", self.connection_string)[0]
        token = make_token(f"http://{host}/", ROOT_POLICY, key, int(time.time()) + 300)
        connection = http.client.HTTPConnection(host, timeout=REQUEST_S)
        try:
            headers = {"Authorization": token, "Content-Type": kind}
            connection.request(method, path, None if body is None else body.encode(), headers)
            answer = connection.getresponse()
            text = answer.read().decode()
        finally:
            connection.close()
        if answer.status >= 400:
            raise BrokerError(f"{method} {path.partition('?')[0]}: {answer.status}: {text}")
        return text


def _described(kind: type[D], keys: Mapping[str, Key], settings: Mapping[str, Setting], **names: str) -> D:
    """A description from settings in the official client's words: `lock_duration` is LockDuration, and so on."""
    known = {re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower(): key for name, key in keys.items() if key.attribute}
    values: dict[str, Any] = dict(names)
    for name, value in settings.items():
        key = known.get(name)
        if key is None or name == "name":
            raise TypeError(f"There is no setting '{name}'; there are {', '.join(sorted(known.keys() - {'name'}))}.")
        if key.kind is Kind.DURATION:
            if not isinstance(value, timedelta):
                raise TypeError(f"'{name}' must be a timedelta, not {value!r}.")
            value = value // timedelta(milliseconds=1)
        values[key.attribute] = EntityStatus(value) if key.attribute == "status" else value
    return kind(**values)


_CONDITIONS = {"label": "subject"}  # Service Bus has two names for it.


def _filter(sql: str | None, correlation: Mapping[str, Any] | None) -> Filter:
    if sql is not None and correlation is not None:
        raise TypeError("A rule has one filter.")
    if sql is not None:
        return SqlFilter(sql)
    if correlation is not None:
        return CorrelationFilter(**{_CONDITIONS.get(name, name): value for name, value in correlation.items()})
    return TrueFilter()


class Pair(NamedTuple):
    """Two namespaces in different datacenters."""

    primary: LocalNamespace
    secondary: LocalNamespace


def namespace(
    name: str = "twinbus", *, datacenter: str = "", stores: int = 4, config: str | Path | None = None
) -> LocalNamespace:
    """A namespace for a `with` or an `async with`."""
    return LocalNamespace(name, datacenter=datacenter, stores=stores, config=config)


@contextmanager
def pair(*, stores: int = 4, config: str | Path | None = None) -> Iterator[Pair]:
    """Two namespaces, `primary` in the datacenter `east` and `secondary` in `west`."""
    made = new_pair(stores=stores, config=config)
    try:
        renew_all(made)
        yield made
    finally:
        for one in made:
            one.close()


def new_pair(*, stores: int = 4, config: str | Path | None = None) -> Pair:
    """A pair that is not started yet."""
    return Pair(
        LocalNamespace("primary", datacenter="east", stores=stores, config=config),
        LocalNamespace("secondary", datacenter="west", stores=stores, config=config),
    )


def renew_all(namespaces: Sequence[LocalNamespace]) -> None:
    """Make several as good as new at the same time."""
    for one in [one for one in namespaces if one.begin_renewal()]:
        one.await_ready()
