"""What an entity's `$management` node does for a client: looking, deferred and scheduled messages, locks, sessions.

Messages stay encoded; `messages` shows what is in them. The links are `requests`', and retrying is the caller's.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any, NamedTuple
from uuid import UUID

from twinbus.amqp.types import Array, Int, Long, Timestamp, UInt
from twinbus.client.errors import ClientError
from twinbus.client.messages import read
from twinbus.client.requests import RequestLinks, refusal
from twinbus.model.limits import PEEK_COUNT_MAX
from twinbus.model.message import Outcome, ReceiveMode

NODE = "$management"
NOT_FOUND = "com.microsoft:message-not-found"
SESSIONS_PAGE = 100

_OK, _ACCEPTED, _NO_CONTENT = 200, 202, 204
_SETTLE_MODES = {ReceiveMode.RECEIVE_AND_DELETE: UInt(0), ReceiveMode.PEEK_LOCK: UInt(1)}
_STATUSES = {
    Outcome.COMPLETE: "completed",
    Outcome.ABANDON: "abandoned",
    Outcome.DEFER: "defered",  # The service's own spelling.
    Outcome.DEAD_LETTER: "suspended",
}
# The official clients' way of saying "whatever the time of the last change".
_ANY_TIME_MS = 253_402_300_800_000
_SEQUENCE_NUMBER_MAX = 2**63 - 1


class HeldMessage(NamedTuple):
    """A deferred message that was received by its number; the token is all zero when nothing is locked."""

    token: UUID
    payload: bytes


class Management:
    """The management node of one queue or dead-letter queue. `Connection.management` makes one."""

    def __init__(self, links: RequestLinks) -> None:
        self._links = links

    # Looking

    async def peek(self, from_sequence_number: int, count: int, session_id: str | None = None) -> list[bytes]:
        """Messages in the order of their numbers; fewer than asked for is no sign that there are no more."""
        asked = {"from-sequence-number": Long(from_sequence_number), "message-count": Int(count)}
        body = await self._found("peek-message", asked | _session(session_id))
        return [bytes(entry["message"]) for entry in _several(body, "messages")]

    async def peek_all(
        self, from_sequence_number: int = 0, count: int | None = None, session_id: str | None = None
    ) -> AsyncIterator[list[bytes]]:
        """Page after page, until there is no more or so many were seen."""
        left = _SEQUENCE_NUMBER_MAX if count is None else count
        while left > 0:
            page = await self.peek(from_sequence_number, min(left, PEEK_COUNT_MAX), session_id)
            if not page:
                return
            yield page
            left -= len(page)
            from_sequence_number = read(page[-1]).sequence_number + 1

    async def last_sequence_number(self) -> int | None:
        """The highest number of a message that is there now; None if there is none.

        Found by halving, since a node shows the first message from a number on and never the last.
        """
        known = await self._first_from(0)
        if known is None:
            return None
        step = 1
        while known + step < _SEQUENCE_NUMBER_MAX:
            found = await self._first_from(known + step)
            if found is None:
                break
            known, step = found, step * 2
        while step > 1:
            step //= 2
            found = await self._first_from(known + step)
            known = known if found is None else found
        return known

    async def _first_from(self, number: int) -> int | None:
        found = await self.peek(number, 1)
        return read(found[0]).sequence_number if found else None

    # Deferred and scheduled messages

    async def receive_deferred(
        self,
        sequence_numbers: Sequence[int],
        mode: ReceiveMode = ReceiveMode.PEEK_LOCK,
        session_id: str | None = None,
    ) -> list[HeldMessage]:
        """Deferred messages by their numbers, all or none."""
        asked = {"sequence-numbers": _numbers(sequence_numbers), "receiver-settle-mode": _SETTLE_MODES[mode]}
        body = await self._ask("receive-by-sequence-number", asked | _session(session_id))
        return [
            HeldMessage(entry.get("lock-token") or UUID(int=0), bytes(entry["message"]))
            for entry in _several(body, "messages")
        ]

    async def settle(
        self,
        tokens: Sequence[UUID],
        outcome: Outcome,
        *,
        reason: str | None = None,
        description: str | None = None,
        session_id: str | None = None,
    ) -> None:
        """Settles messages by their lock tokens; reason and description belong to dead-lettering."""
        asked: dict[str, Any] = {"disposition-status": _STATUSES[outcome], "lock-tokens": _tokens(tokens)}
        if outcome is Outcome.DEAD_LETTER:
            asked |= {"deadletter-reason": reason, "deadletter-description": description}
        await self._ask("update-disposition", asked | _session(session_id))

    async def schedule(self, payloads: Sequence[bytes]) -> list[int]:
        """Sends messages that carry the time at which they are due, all or none; the numbers to cancel them by."""
        entries = []
        for payload in payloads:
            message = read(payload)
            entry: dict[str, Any] = {"message-id": message.message_id, "message": payload}
            if message.partition_key is not None:
                entry["partition-key"] = message.partition_key
            entries.append(entry | _session(message.session_id))
        body = await self._ask("schedule-message", {"messages": entries})
        return [int(number) for number in _several(body, "sequence-numbers")]

    async def cancel(self, sequence_numbers: Sequence[int]) -> None:
        """Removes scheduled messages, all or none."""
        await self._ask("cancel-scheduled-message", {"sequence-numbers": _numbers(sequence_numbers)})

    async def delete(self, count: int, before_ms: int) -> int:
        """Removes at most so many messages that nobody holds and that were enqueued before an instant; how many."""
        asked = {"message-count": Int(count), "enqueued-time-utc": Timestamp(before_ms)}
        body = await self._found("batch-delete-messages", asked)
        return int(body.get("message-count", 0))

    # Locks and sessions

    async def renew_locks(self, tokens: Sequence[UUID]) -> list[int]:
        """Extends the locks of messages; when each of them ends now."""
        body = await self._ask("renew-lock", {"lock-tokens": _tokens(tokens)})
        return [int(instant) for instant in _several(body, "expirations")]

    async def renew_session_lock(self, session_id: str) -> int:
        """Extends the lock of a session; when it ends now."""
        return int((await self._ask("renew-session-lock", _session(session_id)))["expiration"])

    async def sessions(self, updated_after_ms: int | None = None) -> list[str]:
        """Sessions that have messages or state; with an instant, those whose state was changed after it."""
        since = Timestamp(_ANY_TIME_MS if updated_after_ms is None else updated_after_ms)
        found: list[str] = []
        while True:
            asked = {"last-updated-time": since, "skip": Int(len(found)), "top": Int(SESSIONS_PAGE)}
            page = [str(name) for name in _several(await self._found("get-message-sessions", asked), "sessions-ids")]
            found += page
            if len(page) < SESSIONS_PAGE:
                return found

    async def session_state(self, session_id: str) -> bytes | None:
        """A session's state; None if it has none."""
        state = (await self._ask("get-session-state", _session(session_id))).get("session-state")
        return None if state is None else bytes(state)

    async def set_session_state(self, session_id: str, state: bytes | None) -> None:
        """Replaces or clears a session's state."""
        await self._ask("set-session-state", {**_session(session_id), "session-state": state})

    # The envelope

    async def _found(self, operation: str, body: dict[str, Any]) -> dict[str, Any]:
        """The answer to a question that may find nothing."""
        try:
            return await self._ask(operation, body)
        except ClientError as error:
            if error.condition == NOT_FOUND:
                return {}
            raise

    async def _ask(self, operation: str, body: dict[str, Any]) -> dict[str, Any]:
        timeout_ms = UInt(int(self._links.stream.timeout_s * 1000))
        application = {
            "operation": f"com.microsoft:{operation}",
            "type": "entity-mgmt",
            "com.microsoft:server-timeout": timeout_ms,
        }
        told, answer = await self._links.ask(application, body, f"'{operation}' on '{self._links.path}'")
        status = told.get("statusCode")
        if status in (_ACCEPTED, _NO_CONTENT):
            return {}
        if status != _OK:
            text = str(told.get("statusDescription") or f"'{operation}' was refused with status {status}")
            raise refusal(status, text, told.get("errorCondition"))
        return {str(key): value for key, value in answer.items()} if isinstance(answer, dict) else {}

    async def close(self) -> None:
        """Detaches both links."""
        await self._links.close()


def _session(session_id: str | None) -> dict[str, Any]:
    return {} if session_id is None else {"session-id": session_id}


def _numbers(sequence_numbers: Sequence[int]) -> Array:
    return Array(map(Long, sequence_numbers), 0x81)


def _tokens(tokens: Sequence[UUID]) -> Array:
    return Array(tokens, 0x98)


def _several(body: dict[str, Any], key: str) -> list[Any]:
    return list(body.get(key) or ())
