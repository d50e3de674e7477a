"""Fragments by key, and their marks in numbers and tokens: the same for ever, even, and undone exactly."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinbus.entities import partitions as p
from twinbus.model.errors import BusError, Fault
from twinbus.model.message import Incoming
from twinbus.store.work import TokenSource

FRAGMENTS = st.integers(0, p.FRAGMENTS - 1)


@pytest.mark.parametrize(
    ("key", "fragment"), [("", 3), ("a", 10), ("b", 14), ("customer 17", 2), ("Straße", 8), ("x" * 128, 4)]
)
def test_a_key_has_the_fragment_that_it_always_had(key: str, fragment: int) -> None:
    assert p.fragment_of(key) == fragment


@given(st.text(max_size=128))
def test_a_key_has_one_fragment(key: str) -> None:
    assert 0 <= p.fragment_of(key) < p.FRAGMENTS
    assert p.fragment_of(key) == p.fragment_of(str(key.encode(), "utf-8"))


@given(st.text(max_size=100), st.sampled_from(["{p}{n}", "{n}{p}", "{p}{n:08d}", "{n:x}/{p}"]))
def test_keys_are_spread_evenly_whatever_they_have_in_common(prefix: str, form: str) -> None:
    found = Counter(p.fragment_of(form.format(p=prefix, n=n)) for n in range(3200))
    # 200 are expected of each, with a deviation of 14; five times that is chance in a million.
    assert len(found) == p.FRAGMENTS
    assert all(abs(count - 200) < 75 for count in found.values()), found


@given(FRAGMENTS, st.integers(1, p.NUMBER_MASK))
def test_a_number_tells_its_fragment_in_the_top_sixteen_bits(fragment: int, number: int) -> None:
    outside = p.outer_number(fragment, number)
    assert outside >> 48 == fragment
    assert (p.fragment_of_number(outside), outside & p.NUMBER_MASK) == (fragment, number)
    assert outside < 2**63


def test_the_number_of_a_dropped_duplicate_is_zero_in_every_fragment() -> None:
    assert p.outer_number(7, 0) == 0


@pytest.mark.parametrize("number", [-1, 16 << 48, 2**63 - 1])
def test_a_number_of_no_fragment_is_told_apart(number: int) -> None:
    assert p.fragment_of_number(number) is None


@given(FRAGMENTS, st.binary(min_size=8, max_size=8))
def test_a_token_tells_its_fragment_and_is_the_stores_own_again(fragment: int, epoch: bytes) -> None:
    (token,) = TokenSource(epoch).take(1)
    outside = p.outer_token(p.mark_of(fragment), token)
    assert (len(outside), p.fragment_of_token(outside), p.inner_token(outside)) == (16, fragment, token)
    assert p.fragment_of_token(token) is None


@pytest.mark.parametrize("token", [b"", b"short", bytes(16), bytes(8) + b"\x11" + bytes(7), bytes(17)])
def test_a_token_that_no_partitioned_entity_gave_out_has_no_fragment(token: bytes) -> None:
    assert p.fragment_of_token(token) is None


class TestKey:
    @pytest.mark.parametrize(
        ("session", "key", "by_id", "expected"),
        [
            ("s", None, False, "s"),
            ("s", "s", False, "s"),
            (None, "k", True, "k"),
            (None, None, True, "id"),
            (None, None, False, None),
            ("", None, False, ""),
        ],
    )
    def test_session_then_partition_key_then_id(
        self, session: str | None, key: str | None, by_id: bool, expected: str | None
    ) -> None:
        assert p.key_of(Incoming(b"", "id", session, partition_key=key), by_id) == expected

    def test_a_session_and_another_key_are_refused(self) -> None:
        with pytest.raises(BusError) as refused:
            p.key_of(Incoming(b"", "id", "s", partition_key="k"), False)
        assert refused.value.fault is Fault.NOT_ALLOWED

    def test_a_batch_has_one_key(self) -> None:
        unit = [Incoming(b"", "1", partition_key="k"), Incoming(b"", "2", partition_key="k")]
        assert p.key_of_unit(unit, True) == "k"
        for other in (Incoming(b"", "3", partition_key="K"), Incoming(b"", "3")):
            with pytest.raises(BusError, match="same SessionId or PartitionKey") as refused:
                p.key_of_unit([*unit, other], False)
            assert refused.value.fault is Fault.NOT_ALLOWED

    def test_ids_are_keys_of_a_batch_under_duplicate_detection(self) -> None:
        unit = [Incoming(b"", "1"), Incoming(b"", "2")]
        assert p.key_of_unit(unit, False) is None
        with pytest.raises(BusError, match="a MessageId counts as key"):
            p.key_of_unit(unit, True)
