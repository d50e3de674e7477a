"""How often something is repeated that is left to chance: a few times for everybody, often with `make test-long`."""

from __future__ import annotations

import os

IS_LONG = "TWINBUS_TEST_LONG" in os.environ


def times(usually: int, long: int) -> int:
    """One of the two numbers."""
    return long if IS_LONG else usually
