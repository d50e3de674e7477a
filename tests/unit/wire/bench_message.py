"""How long reading and stamping one message takes; run by hand: `python tests/unit/wire/bench_message.py`."""

from __future__ import annotations

import timeit
from collections.abc import Callable
from uuid import UUID

from twinbus.amqp.types import Int
from twinbus.model.message import Delivered
from twinbus.wire.message import read, stamp
from twinbus.wire.outgoing import build

BODY = b"x" * 1024
ROUNDS, NUMBER = 7, 20_000

# As python-qpid-proton and azure-servicebus write them.
MESSAGES = {
    "durable, id": b"\x00\x53\x70\xc0\x02\x01\x41" + build(BODY, message_id="abc-0123456"),
    "sdk, id only": b"\x00\x53\x73\xc0\x33\x0d\xa1\x24" + b"0" * 36 + b"@" * 12 + build(BODY),
    "sdk, 3 properties": b"\x00\x53\x73\xc0\x33\x0d\xa1\x24"
    + b"0" * 36
    + b"@" * 12
    + build(BODY, properties={"kind": "order", "number": Int(7), "urgent": True}),
    "session, key, ttl": build(
        BODY, message_id="0" * 36, session_id="s-1", partition_key="s-1", ttl_ms=60_000, properties={"a": "b"}
    ),
}


def fastest_us(action: Callable[[], object]) -> float:
    return min(timeit.repeat(action, number=NUMBER, repeat=ROUNDS)) / NUMBER * 1e6


def main() -> None:
    print(f"{'message':20} {'read':>8} {'locked':>8} {'removed':>8}   microseconds, best of {ROUNDS}")
    for name, payload in MESSAGES.items():
        (incoming,) = read(payload, 0, ttl_ceiling_ms=None, new_id=str)
        token = UUID(int=1).bytes_le
        message = Delivered(5, incoming.record, incoming.message_id, 0, 1, token=token, locked_until_ms=2)
        timings = (
            fastest_us(lambda payload=payload: read(payload, 0, ttl_ceiling_ms=None, new_id=str)),  # type: ignore[misc]
            fastest_us(lambda message=message: stamp(message, locked=True)),  # type: ignore[misc]
            fastest_us(lambda message=message: stamp(message, locked=False)),  # type: ignore[misc]
        )
        print(f"{name:20} " + " ".join(f"{timing:8.2f}" for timing in timings))


if __name__ == "__main__":
    main()
