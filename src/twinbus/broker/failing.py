"""Arms failpoints in a broker process, as an environment variable says: what a test of crashes needs, and nobody else.

Only a broker that may be disturbed on purpose obeys it, any other refuses to start with it. Which places there are is
told in `model.failpoints`.
"""

from __future__ import annotations

import errno
import os
import re
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import apsw

from twinbus.broker.settings import SettingsError
from twinbus.model import failpoints
from twinbus.model.failpoints import Action
from twinbus.model.logged import EventLog

VARIABLE = "TWINBUS_FAILPOINTS"
PAUSE_S = 0.005
SHAPE = "NAME=kill, full, broken, oserror:ERRNO, sleep:SECONDS or pause:FILE, each with @N for the N-th time only"

_log = EventLog(__name__)
_ORDER = re.compile(r"(?P<name>[\w.]+)=(?P<action>[a-z]+)(?::(?P<detail>[^@;]+))?(?:@(?P<nth>[1-9]\d*))?\Z")


def arm_as_told(environment: Mapping[str, str], allowed: bool) -> None:
    """Arm what the variable orders, one order after another, separated by semicolons."""
    orders = [order.strip() for order in environment.get(VARIABLE, "").split(";") if order.strip()]
    if orders and not allowed:
        raise SettingsError(f"{VARIABLE} is set, which makes a broker fail: only one with --faults may be told so.")
    for order in orders:
        _arm(order)
        _log.warning("failpoint.armed", "armed to fail on purpose: {order}", order=order)


def _arm(order: str) -> None:
    found = _ORDER.match(order)
    if found is None or found["action"] not in _ACTIONS:
        raise SettingsError(f"{VARIABLE}: '{order}' is not understood. It is {SHAPE}.")
    try:
        action = _ACTIONS[found["action"]](found["detail"] or "")
        failpoints.arm(found["name"], action, int(found["nth"]) if found["nth"] else None)
    except (ValueError, KeyError) as problem:
        raise SettingsError(f"{VARIABLE}: '{order}' cannot be: {problem}.") from None


def _kill(_: str) -> Action:
    return lambda: os.kill(os.getpid(), signal.SIGKILL)


def _full(_: str) -> Action:
    return lambda: _raise(apsw.FullError("a failpoint: the disk is full"))


def _broken(_: str) -> Action:
    return lambda: _raise(apsw.IOError("a failpoint: the disk is broken"))


def _os_error(name: str) -> Action:
    number: int = vars(errno)[name]
    return lambda: _raise(OSError(number, os.strerror(number)))


def _sleep(seconds: str) -> Action:
    length_s = float(seconds)
    return lambda: time.sleep(length_s)


def _pause(path: str) -> Action:
    """The file tells that the place was reached; the process goes on when somebody has removed it."""
    file = Path(path)

    def wait() -> None:
        file.touch()
        while file.exists():
            time.sleep(PAUSE_S)

    return wait


def _raise(error: Exception) -> None:
    raise error


_ACTIONS: dict[str, Callable[[str], Action]] = {
    "kill": _kill,
    "full": _full,
    "broken": _broken,
    "oserror": _os_error,
    "sleep": _sleep,
    "pause": _pause,
}
