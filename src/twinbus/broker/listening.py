"""Hears what other gateways tell through a database: a thread on a connection of its own, for as long as it takes.

Waking is a hint: what is missed while the connection is down is found by asking, and each reconnection says so.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from twinbus.broker.addresses import DatabaseAddress
from twinbus.model.errors import BusError
from twinbus.model.extras import needing
from twinbus.model.logged import EventLog
from twinbus.sql.postgres import Listener

with needing("psycopg"):
    import psycopg

_log = EventLog(__name__)

LOOK_UP_S = 0.5  # So often the thread looks whether it is to end.
CHECK_S = 5.0  # So often it asks for a sign of life: a lost connection is silent too.
RETRY_S = 0.5


Heard = Callable[[str], None]


class Listening:
    """Calls `heard(payload)` of a channel, through `post`, for each notification; with "" when some may be missing."""

    def __init__(self, address: DatabaseAddress, channels: dict[str, Heard], post: Callable[..., object]) -> None:
        self._address = address
        self._channels = channels
        self._post = post
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="listen", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Hear nothing more. The thread ends soon and is not waited for."""
        self._ending.set()

    def _run(self) -> None:
        was_deaf = False
        while not self._ending.is_set():
            try:
                listener = Listener(self._address.uri, *self._channels)
                try:
                    for channel in self._channels:
                        self._tell(channel, "")
                    if was_deaf:
                        _log.info(
                            "notifications.heard",
                            "notifications of {database} are heard again",
                            database=self._address.label,
                        )
                    was_deaf = False
                    self._listen(listener)
                finally:
                    listener.close()
            except (psycopg.Error, BusError, OSError) as error:
                if not was_deaf:
                    reason = " ".join(str(error).split())
                    _log.warning(
                        "notifications.lost",
                        "notifications of {database} are not heard for now: {reason}",
                        database=self._address.label,
                        reason=reason,
                    )
                was_deaf = True
                self._ending.wait(RETRY_S)

    def _listen(self, listener: Listener) -> None:
        checked_at_s = time.monotonic()
        while not self._ending.is_set():
            heard = listener.wait(LOOK_UP_S)
            for channel, payload in heard:
                self._tell(channel, payload)
            if not heard and time.monotonic() - checked_at_s > CHECK_S:
                listener.check()
                checked_at_s = time.monotonic()

    def _tell(self, channel: str, payload: str) -> None:
        if self._ending.is_set():
            return
        try:
            self._post(self._channels[channel], payload)
        except RuntimeError:
            self._ending.set()  # The loop is gone, and with it everybody who might listen.
