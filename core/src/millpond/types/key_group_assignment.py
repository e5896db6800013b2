"""A function that returns the key group of a key. ``millpond.keygroups`` defines the ranges."""

from __future__ import annotations

from typing import Any

from millpond.errors import NullValueError
from millpond.keygroups import check_parallelism
from millpond.types.base import FindSerializer, no_serializer
from millpond.types.key_codecs import DeclaredKeyType
from millpond.types.serializer_lookup import infer_key_type, key_codec_for


def assign_to_key_group(
    key: object,
    max_parallelism: int,
    key_type: DeclaredKeyType[Any] | None = None,
    find: FindSerializer = no_serializer,
) -> int:
    """Return the key group of a key: ``pmod(xxhash64(key), max_parallelism)``, as in Spark.

    Args:
        key: the key. Like Spark's ``bigint``, a Python ``int`` is hashed as 64 bits.
        max_parallelism: the number of key groups.
        key_type: the declared type of the key, or None to infer the type from `key`.
        find: a function that returns a plugin's serializer for a type.

    Raises:
        KeyGroupRangeError: `max_parallelism` is out of range.
        NullValueError: `key` is None.
        StateTypeError: `key` is not of type `key_type`.
    """
    check_parallelism(max_parallelism)
    if key is None:
        raise NullValueError("a key")
    codec = key_codec_for(infer_key_type(key) if key_type is None else key_type, find)
    return codec.check_with_group(key, max_parallelism)[1]
