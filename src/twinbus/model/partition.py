"""Which fragment of a partitioned entity a key leads to: the same for brokers and for clients that watch fragments.

How fragments are stored and numbered is `entities`' business.
"""

from __future__ import annotations

from hashlib import sha256

FRAGMENTS = 16
NUMBER_BITS = 48  # A client's sequence number: the fragment in the top 16 bits, the store's own number below.


def fragment_of(key: str) -> int:
    """The fragment of a key: the low four bits of the first byte of SHA-256 over its UTF-8.

    For ever, since what is stored by this rule must be found by it again.
    """
    return sha256(key.encode()).digest()[0] & (FRAGMENTS - 1)
