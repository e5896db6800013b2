"""Group labels: the values that Spark groups by, chosen to spread subtasks over its partitions.

``groupBy`` sends a group to partition ``pmod(murmur3(label), n)``. Subtask *i* gets the first
non-negative int whose hash is *i* modulo SPREAD, so it falls on partition ``i % n`` for every
``n`` that divides SPREAD, which are all numbers up to 10 and most round ones beyond. A label
depends on nothing but *i*: Spark's state is stored under it, so it must not change when the
session's number of partitions or the parallelism does.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pyspark.sql import types as T

SPREAD = 2**6 * 3**2 * 5**2 * 7
_SEED = np.uint32(42)
_CHUNK = 1 << 17


def spark_hash(numbers: NDArray[np.int32]) -> NDArray[np.int32]:
    """Return Spark's ``hash`` of an int column: Murmur3 x86 32-bit with seed 42."""
    with np.errstate(over="ignore"):
        k: NDArray[Any] = numbers.astype(np.uint32) * np.uint32(0xCC9E2D51)
        k = ((k << 15) | (k >> 17)) * np.uint32(0x1B873593)
        h: NDArray[Any] = k ^ _SEED
        h = ((h << 13) | (h >> 19)) * np.uint32(5) + np.uint32(0xE6546B64)
        h ^= np.uint32(4)
        h = (h ^ (h >> 16)) * np.uint32(0x85EBCA6B)
        h = (h ^ (h >> 13)) * np.uint32(0xC2B2AE35)
        return (h ^ (h >> 16)).astype(np.int32)


@cache
def group_labels(count: int) -> tuple[int, ...]:
    """Return the labels of the first ``count`` subtasks, which do not depend on the parallelism."""
    labels: dict[int, int] = {}
    start = 0
    while len(labels) < count:
        numbers = np.arange(start, start + _CHUNK, dtype=np.int32)
        residues = spark_hash(numbers).astype(np.int64) % SPREAD
        for number in numbers[residues < count]:
            labels.setdefault(int(residues[number - start]), int(number))
        start += _CHUNK
    return tuple(labels[index] for index in range(count))


def spreading(count: int) -> int:
    """Return the least number of partitions, at least ``count``, over which labels spread.

    So each of ``count`` subtasks has a partition of its own.
    """
    return next(n for n in range(count, SPREAD + 1) if SPREAD % n == 0)


def keyless_group(columns: Sequence[str], types: Sequence[T.DataType], max_parallelism: int) -> str:
    """Return SQL for the key group of a row without a key, by its values and its partition.

    A task that Spark repeats gives each row the same key group again, as it has the same partition
    and rows. Numbers of rows would not do, as their order may differ.
    """
    hashed = [name for name, kind in zip(columns, types, strict=True) if _has_hash(kind)]
    digest = f"xxhash64({', '.join([*hashed, 'spark_partition_id()'])})"
    return f"CAST(pmod({digest}, {max_parallelism}) AS INT)"


def _has_hash(declared: T.DataType) -> bool:
    """Return whether Spark hashes values of a type: it does not hash maps and variants."""
    if isinstance(declared, T.ArrayType):
        return _has_hash(declared.elementType)
    if isinstance(declared, T.StructType):
        return all(_has_hash(field.dataType) for field in declared)
    return isinstance(declared, T.AtomicType) and declared.typeName() != "variant"
