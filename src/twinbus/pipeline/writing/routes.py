"""The ways of a sink to its destinations, to one namespace or through a pair; a worker process has one of each.

They stay open between the tasks of a worker, and a pair's health is the worker's own opinion. Sending again and giving
up is `delivery`'s business.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import replace

from twinbus.client.errors import ClientError
from twinbus.model.topic import SubscriptionDescription
from twinbus.pair.core import PairCore
from twinbus.pair.description import PairDescription
from twinbus.pair.errors import PairingError
from twinbus.pair.loop_thread import LoopThread
from twinbus.pair.namespace.own_client import OwnClientNamespace
from twinbus.pair.namespace.port import RemoteNamespace
from twinbus.pair.outbox.behind_pair import Way
from twinbus.pair.route.failures import Failure, kind_of
from twinbus.pipeline.errors import PipelineError
from twinbus.pipeline.options import Target
from twinbus.pipeline.writing.delivery import NotReadyError, Route
from twinbus.pipeline.writing.sink_options import FAIL, IGNORE, SinkOptions

_log = logging.getLogger(__name__)

ATTEMPT_S = 20.0

# Of this worker process.
LOOP = LoopThread()
_open: list[tuple[SinkOptions, Route]] = []


def route_for(options: SinkOptions) -> Route:
    """The way that the options name, as an earlier task of this worker left it."""
    for known, route in _open:
        if known == options:
            return route
    if options.pair is not None:
        made: Route = ThroughPair(options.pair, options.duplicate_detection)
    else:
        assert options.target is not None
        attempt_s = min(ATTEMPT_S, options.send_timeout_s)
        made = ToNamespace(namespace_of(options.target), options.duplicate_detection, attempt_s)
    _open.append((options, made))
    return made


def namespace_of(target: Target) -> RemoteNamespace:
    """A namespace that our own client talks to, opened when it is needed and reopened when it was lost."""
    where = target.resolve()
    address = None
    if target.http_port is not None:
        host = f"[{where.host}]" if ":" in where.host else where.host
        address = f"{'https' if where.tls else 'http'}://{host}:{target.http_port}"
    return OwnClientNamespace("sink", where, tls=target.tls(), http_address=address)


class Detection:
    """Whether destinations drop what comes twice, asked once for each."""

    def __init__(self, namespace: RemoteNamespace, wanted: str) -> None:
        self._namespace = namespace
        self._wanted = wanted
        self._asked: set[str] = set()

    async def check(self, path: str) -> None:
        """Warn, or fail, if a destination would keep a second copy of what a second attempt sends."""
        if self._wanted == IGNORE or path in self._asked:
            return
        try:
            async with await self._namespace.administer() as administration:
                found = (await administration.entity(path)).description
        except ClientError as problem:
            if self._wanted == FAIL and problem.transient:
                raise NotReadyError(f"whether '{path}' detects duplicates cannot be asked: {problem.text}") from problem
            self._say(f"Whether '{path}' detects duplicates cannot be asked ({problem.text}).")
        else:
            if isinstance(found, SubscriptionDescription) or not found.requires_duplicate_detection:
                self._say(f"'{path}' does not detect duplicates.")
        self._asked.add(path)

    def _say(self, what: str) -> None:
        text = f"{what} A task that is run again sends its messages again, under the same ids."
        if self._wanted == FAIL:
            raise PipelineError(f"{text} (requireDuplicateDetection=fail)")
        _log.warning("%s requireDuplicateDetection=ignore silences this.", text)


class ToNamespace:
    """The way to one namespace, ours or Azure's."""

    def __init__(self, namespace: RemoteNamespace, duplicate_detection: str, attempt_s: float = ATTEMPT_S) -> None:
        self._namespace = namespace
        self._attempt_s = attempt_s
        self._detection = Detection(namespace, duplicate_detection)

    async def ready(self, path: str) -> int | None:
        """The largest message that the entity takes."""
        try:
            largest = await self._namespace.message_bytes_max(path)
        except ClientError as problem:
            if kind_of(problem) is Failure.UNAUTHORIZED:
                raise PipelineError(f"The namespace does not let us send to '{path}': {problem.text}") from problem
            if problem.transient:
                raise NotReadyError(problem.text) from problem
            return None  # It is refused for good; sending tells why.
        await self._detection.check(path)
        return largest

    async def send(self, path: str, payloads: Sequence[bytes]) -> None:
        """Send once."""
        await self._namespace.send(path, payloads, timeout_s=self._attempt_s)


class ThroughPair:
    """The way through a pair: to the primary while it is healthy, else to a backlog queue."""

    def __init__(self, description: PairDescription, duplicate_detection: str) -> None:
        primary, secondary = description.namespaces()
        # Workers come and go: bringing messages home is left to a syphon with a process of its own.
        options = replace(description.options, enable_syphon=False)
        self._core = PairCore(primary, secondary, options, primary_name=description.primary.name)
        self._opening = asyncio.Lock()
        self._way = Way(self._core.carrier)
        self._detection = Detection(primary, duplicate_detection)
        self._largest: dict[str, int | None] = {}

    async def ready(self, path: str) -> int | None:
        """The largest message that the primary takes, as it last told."""
        core = self._core
        try:
            async with self._opening:
                await core.open()
        except PairingError as problem:
            raise NotReadyError(str(problem)) from problem
        core.background.look_up(path)
        if path not in self._largest and core.carrier.goes_to_primary(path):
            try:
                self._largest[path] = await core.primary.message_bytes_max(path)
                await self._detection.check(path)
            except ClientError:
                return None  # Sending finds out what is the matter, and whether the messages are diverted.
        return self._largest.get(path)

    async def send(self, path: str, payloads: Sequence[bytes]) -> None:
        """Send once, as the health of the entity says."""
        await self._way.send(path, payloads)
