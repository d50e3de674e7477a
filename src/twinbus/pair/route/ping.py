"""The ping: a real send to an entity of the primary that shows that it takes messages again, and that nobody receives.

Our broker checks and stores it and never delivers it, as the service once did. Azure delivers it today; there a probe
is used instead, a message scheduled far ahead and cancelled at once.
"""

from __future__ import annotations

import asyncio
from uuid import uuid4

from twinbus.client import messages
from twinbus.client.errors import TIMED_OUT, ClientError
from twinbus.pair.namespace.port import RemoteNamespace

CONTENT_TYPE = "application/vnd.ms-servicebus-ping"
TTL_MS = 1_000
# A broker of ours would swallow a scheduled ping, and a probe shows that a message can be stored and taken back.
PROBE_CONTENT_TYPE = "application/vnd.twinbus-probe"
PROBE_AHEAD_MS = 10 * 365 * 24 * 3_600_000
TIMEOUT_S = 120.0


def payload(key: str | None = None, due_at_ms: int | None = None) -> bytes:
    """A ping: empty, short-lived, and with a session of its own so that session entities accept it.

    With a key it goes to the fragment of a partitioned entity that the key leads to; with a due time it is a probe.
    """
    return messages.build(
        b"",
        message_id=uuid4().hex,
        session_id=key or uuid4().hex,
        partition_key=key,
        content_type=CONTENT_TYPE if due_at_ms is None else PROBE_CONTENT_TYPE,
        ttl_ms=None if due_at_ms is not None else TTL_MS,
        due_at_ms=due_at_ms,
    )


async def ping(primary: RemoteNamespace, path: str, key: str | None, with_probe: bool | None, now_ms: int) -> None:
    """Try an entity; raises a ClientError if it does not take a message."""
    try:
        async with asyncio.timeout(TIMEOUT_S):
            facts = await primary.ask_together()  # One that is gone is dialled once for all entities, not for each.
            if with_probe is None:
                with_probe = not facts.is_twinbus
            if with_probe:
                await primary.probe(path, payload(key, now_ms + PROBE_AHEAD_MS))
            else:
                await primary.ping(path, payload(key))
    except TimeoutError:
        raise ClientError(TIMED_OUT, f"a ping to '{path}' took longer than {TIMEOUT_S:g} s") from None
