"""Claimed numbers as ranges."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinbus.pipeline.errors import PipelineError
from twinbus.pipeline.reading import claims
from twinbus.pipeline.reading.staging import Key

KEYS = st.sets(
    st.builds(Key, st.sampled_from(["orders", "t/Subscriptions/s"]), st.integers(0, 40) | st.integers(2**50))
)


def test_neighbours_are_one_range() -> None:
    keys = [Key("orders", number) for number in (3, 1, 2, 7)]
    assert claims.told(keys) == {"orders": "1-3,7"}


@given(KEYS)
def test_ranges_are_read_as_they_were_told(keys: set[Key]) -> None:
    assert claims.read(claims.told(keys)) == sorted(keys)


@given(KEYS, st.integers(1, 9))
def test_shares_hold_everything_once(keys: set[Key], parts: int) -> None:
    shares = claims.shares(sorted(keys), parts)
    assert [key for share in shares for key in claims.read(share)] == sorted(keys)
    assert len(shares) <= parts


def test_what_is_no_range_is_refused() -> None:
    with pytest.raises(PipelineError, match="'x' of 'orders'"):
        claims.read({"orders": "1-3,x"})
