"""The key group of a key; ``millpond.keygroups`` has the ranges of key groups and the formula."""

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
        key: the key; a Python ``int`` is a ``bigint``.
        max_parallelism: the number of key groups.
        key_type: the declared type; None infers it from the key.
        find: looks up the serializers of the job's plugins.

    Raises:
        KeyGroupRangeError: ``max_parallelism`` is out of range.
        NullValueError: the key is None.
        StateTypeError: the key does not fit the type.
    """
    check_parallelism(max_parallelism)
    if key is None:
        raise NullValueError("a key")
    codec = key_codec_for(infer_key_type(key) if key_type is None else key_type, find)
    return codec.check_with_group(key, max_parallelism)[1]
