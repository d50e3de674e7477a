"""When a client is broken in a way that no retry mends: the rule, sign by sign."""

from __future__ import annotations

import pytest

from twinbus.pair.namespace.soundness import FORGOTTEN_S, Breach, Sign, Soundness

TAKEN, REFUSED, GARBLED, REPLACED, SILENT = Sign.TAKEN, Sign.REFUSED, Sign.GARBLED, Sign.REPLACED, Sign.SILENT

CASES = [
    # What was heard, and when; what the client is broken by after the last of it.
    ("refused once", [(0, REFUSED)], None),
    ("refused for good", [(0, REFUSED), (1, REFUSED), (2, REFUSED), (3, REFUSED)], Breach.CREDENTIAL),
    ("often, in too short a time", [(0.1 * at, REFUSED) for at in range(20)], None),
    ("long enough, not often enough", [(0, REFUSED), (3, REFUSED)], None),
    ("a key that was being changed", [(0, REFUSED), (1, REFUSED), (2, TAKEN), (3, REFUSED), (4, REFUSED)], None),
    ("a broker that starts", [(0, REFUSED), (1, REFUSED), (2, SILENT), (3, REFUSED), (4, REFUSED)], None),
    ("one that hangs, or is away", [(at, SILENT) for at in range(20)], None),
    ("lost for good, and another has its place", [(at, REPLACED) for at in range(20)], None),
    ("replaced while it was refused", [(0, REFUSED), (1, REFUSED), (2, REPLACED), (3, REFUSED)], None),
    ("the protocol, for good", [(0, GARBLED), (1, GARBLED), (3, GARBLED)], Breach.PROTOCOL),
    (
        "the token is taken each time",
        [(0, GARBLED), (1, TAKEN), (1, GARBLED), (3, TAKEN), (3, GARBLED)],
        Breach.PROTOCOL,
    ),
    ("the protocol, and away between", [(0, GARBLED), (1, GARBLED), (2, SILENT), (3, GARBLED)], None),
    ("one of each", [(0, GARBLED), (1, REFUSED), (3, GARBLED), (4, REFUSED)], None),
    ("now and then", [(at * (FORGOTTEN_S + 1), GARBLED) for at in range(9)], None),
]


@pytest.mark.parametrize(("heard", "breach"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_the_rule(heard: list[tuple[float, Sign]], breach: Breach | None) -> None:
    soundness = Soundness()
    found = [soundness.heard(sign, at) for at, sign in heard]

    assert found[-1] is breach
    assert set(found[:-1]) <= {None}
