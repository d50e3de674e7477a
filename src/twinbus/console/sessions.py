"""Who is signed in: kept in this process's memory for a time, found by a cookie that scripts cannot read.

Checks no key; the namespace does. Wrong attempts are counted, so that keys cannot be tried out quickly.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field

from twinbus.console.signing import Credential

IDLE_S = 3600.0
LONGEST_S = 12 * 3600.0
SESSIONS_MAX = 500
ATTEMPTS_MAX = 10  # Wrong ones from one address within a minute.
ATTEMPTS_S = 60.0
ADDRESSES_MAX = 1_000


@dataclass(slots=True, eq=False)
class Session:
    """Somebody who is signed in."""

    credential: Credential
    manages: bool  # Whether the policy has the Manage right; others only look.
    namespace: str
    began_at_s: float
    used_at_s: float
    form_token: str = field(default_factory=lambda: secrets.token_urlsafe(24), repr=False)

    def is_own(self, token: str) -> bool:
        """Whether a form came from a page of this session."""
        return hmac.compare_digest(self.form_token.encode(), token.encode("utf-8", "replace"))


class Sessions:
    """All who are signed in at one console."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._by_cookie: dict[str, Session] = {}
        self._wrong: dict[str, list[float]] = {}  # By address, when.

    def begin(self, credential: Credential, manages: bool, namespace: str) -> tuple[str, Session]:
        """A new session and the value of its cookie."""
        self._forget()
        if len(self._by_cookie) >= SESSIONS_MAX:
            del self._by_cookie[min(self._by_cookie, key=lambda cookie: self._by_cookie[cookie].used_at_s)]
        now = self._now_s()
        cookie, session = secrets.token_urlsafe(32), Session(credential, manages, namespace, now, now)
        self._by_cookie[cookie] = session
        return cookie, session

    def find(self, cookie: str | None) -> Session | None:
        """The session of a cookie, if its time is not over."""
        session = self._by_cookie.get(cookie or "")
        if session is None or not self._is_alive(session):
            return None
        session.used_at_s = self._now_s()
        return session

    def end(self, cookie: str | None) -> None:
        """Sign out."""
        self._by_cookie.pop(cookie or "", None)

    def _is_alive(self, session: Session) -> bool:
        now = self._now_s()
        return now - session.used_at_s < IDLE_S and now - session.began_at_s < LONGEST_S

    def _forget(self) -> None:
        self._by_cookie = {cookie: kept for cookie, kept in self._by_cookie.items() if self._is_alive(kept)}

    # Wrong attempts

    def may_try(self, address: str) -> bool:
        """Whether one more attempt is allowed from an address."""
        return len(self._lately(address)) < ATTEMPTS_MAX

    def was_wrong(self, address: str) -> None:
        """An attempt failed."""
        if len(self._wrong) >= ADDRESSES_MAX:
            self._wrong.clear()
        self._wrong[address] = [*self._lately(address), self._now_s()]

    def _lately(self, address: str) -> list[float]:
        return [at for at in self._wrong.get(address, []) if self._now_s() - at < ATTEMPTS_S]
