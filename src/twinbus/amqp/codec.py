"""The AMQP 1.0 type system, both ways: `encode`, `decode`, and `skip` over a value.

The two directions live in `encoder` and `decoder`; performatives and frames are left to their own modules.
"""

from twinbus.amqp.decoder import MAX_DEPTH, MAX_EMPTY_ELEMENTS, decode, decode_items, skip
from twinbus.amqp.encoder import (
    encode,
    encode_binary,
    encode_list,
    encode_string,
    encode_symbol,
    encode_uint,
    encode_ulong,
)
from twinbus.amqp.types import DecodeError, EncodeError

__all__ = [
    "MAX_DEPTH",
    "MAX_EMPTY_ELEMENTS",
    "DecodeError",
    "EncodeError",
    "decode",
    "decode_items",
    "encode",
    "encode_binary",
    "encode_list",
    "encode_string",
    "encode_symbol",
    "encode_uint",
    "encode_ulong",
    "skip",
]
