"""Rows without keys: which subtask each goes to."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql.types import ArrayType, AtomicType, DataType, StructType

__all__ = ["dealt_group"]


def dealt_group(columns: Sequence[str], types: Sequence[DataType], max_parallelism: int) -> str:
    """The key group of a row without a key, in SQL: by its values, and by its partition.

    A task that Spark repeats has the same partition and deals the same rows as before, in
    whatever order they come; numbers of rows would not do.
    """
    hashed = [name for name, kind in zip(columns, types, strict=True) if _has_hash(kind)]
    digest = f"xxhash64({', '.join([*hashed, 'spark_partition_id()'])})"
    return f"CAST(pmod({digest}, {max_parallelism}) AS INT)"


def _has_hash(declared: DataType) -> bool:
    """Whether Spark hashes values of a type; of maps and variants it does not."""
    if isinstance(declared, ArrayType):
        return _has_hash(declared.elementType)
    if isinstance(declared, StructType):
        return all(_has_hash(field.dataType) for field in declared)
    return isinstance(declared, AtomicType) and declared.typeName() != "variant"
