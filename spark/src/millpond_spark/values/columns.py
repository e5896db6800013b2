"""The columns that the operator adds to a user's."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column
from pyspark.sql import functions as F

__all__ = ["BATCH_COLUMN", "GROUP_COLUMN", "LABEL_COLUMN", "column_named", "quoted", "told_apart"]

GROUP_COLUMN = "millpond_group"
"""The key group of a row."""

LABEL_COLUMN = "millpond_label"
"""The label of the subtask that owns the key group; what Spark groups by."""

BATCH_COLUMN = "millpond_batch"
"""Over Spark Connect, in rows that wake subtasks: the batch that the row belongs to."""


def column_named(name: str) -> Column:
    """A column by its name, whatever characters that has."""
    return F.col(quoted(name))


def quoted(name: str) -> str:
    """A column's name as SQL has it, whatever characters it has."""
    return "`" + name.replace("`", "``") + "`"


def told_apart(names: Sequence[str]) -> bool:
    """Whether SQL tells columns apart by their names beyond doubt, however it compares letters.

    Which letters outside of ASCII are one but for their case, Spark and Python see differently.
    """
    return all(map(str.isascii, names)) and len({name.lower() for name in names}) == len(names)
