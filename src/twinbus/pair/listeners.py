"""Calls of what an application gave us to hear of things: what it raises is its own, and changes nothing.

A message that is stored stays stored, whatever a listener makes of the news.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twinbus.model.logged import EventLog

_log = EventLog(__name__)


def call(listener: Callable[..., object] | None, *news: Any) -> None:
    """Call it, if there is one; what it raises is logged."""
    if listener is None:
        return
    try:
        listener(*news)
    except Exception:
        _log.exception("pair.listener.failed", "a listener failed")
