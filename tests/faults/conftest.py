"""A seed for everything that is left to chance; `TWINBUS_SEED` repeats a run. And clients that close quickly."""

from __future__ import annotations

import os
from random import Random, SystemRandom

import pytest

from support.quick_client import quick_client

__all__ = ["quick_client", "random"]

SEED = int(os.environ.get("TWINBUS_SEED", SystemRandom().randrange(2**32)))


def pytest_report_header() -> str:
    return f"faults: TWINBUS_SEED={SEED}"


@pytest.fixture
def random(request: pytest.FixtureRequest) -> Random:
    """Another source of randomness for each test, from one seed."""
    seed = f"{SEED} {request.node.name}"
    print(f"TWINBUS_SEED={SEED}")
    return Random(seed)
