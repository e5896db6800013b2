"""Group labels: the number by which Spark groups the rows of a subtask.

``groupBy`` sends a group to partition ``pmod(murmur3(label), n)`` of *n* partitions. The labels are
chosen so that subtasks have different partitions. The label of subtask *i* is the first
non-negative int whose hash is *i* modulo SPREAD. The subtask then has partition ``i % n`` if *n*
divides SPREAD. All *n* up to 10 divide SPREAD, and many round numbers above.

Spark stores a subtask's state under the label. Therefore the label depends only on *i*, and not on
the number of partitions or subtasks.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
from millpond.keygroups import SPREAD
from numpy.typing import NDArray
from pyspark.sql import types as T

_SEED = np.uint32(42)
_CHUNK = 1 << 17


def spark_hash(numbers: NDArray[np.int32]) -> NDArray[np.int32]:
    """Return the hash of each of `numbers` as Spark's function ``hash`` computes it for an int.

    The hash is Murmur3 x86 32-bit with seed 42.
    """
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
    """Return the labels of the subtasks 0 to `count` - 1."""
    labels: dict[int, int] = {}
    start = 0
    while len(labels) < count:
        numbers = np.arange(start, start + _CHUNK, dtype=np.int32)
        residues = spark_hash(numbers).astype(np.int64) % SPREAD
        for number in numbers[residues < count]:
            labels.setdefault(int(residues[number - start]), int(number))
        start += _CHUNK
    return tuple(labels[index] for index in range(count))


def keyless_group(columns: Sequence[str], types: Sequence[T.DataType], max_parallelism: int) -> str:
    """Return SQL that computes the key group of a row without a key.

    The key group depends on the row's values and on Spark's number of the row's partition. If Spark
    runs a task again, each row gets the same key group again. A row's number within the partition
    is not used, because the second attempt may read the rows in another order.

    Args:
        columns: the SQL names of the columns.
        types: the types of the columns.
        max_parallelism: the number of key groups.
    """
    hashed = [name for name, kind in zip(columns, types, strict=True) if _has_hash(kind)]
    digest = f"xxhash64({', '.join([*hashed, 'spark_partition_id()'])})"
    return f"CAST(pmod({digest}, {max_parallelism}) AS INT)"


def _has_hash(declared: T.DataType) -> bool:
    """Return whether Spark can hash values of a type. It cannot hash maps and variants."""
    if isinstance(declared, T.ArrayType):
        return _has_hash(declared.elementType)
    if isinstance(declared, T.StructType):
        return all(_has_hash(field.dataType) for field in declared)
    return isinstance(declared, T.AtomicType) and declared.typeName() != "variant"
