"""The columns that the operator adds to a user's."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

__all__ = ["GROUP_COLUMN", "LABEL_COLUMN", "column_named"]

GROUP_COLUMN = "millpond_group"
"""The key group of a row."""

LABEL_COLUMN = "millpond_label"
"""The label of the subtask that owns the key group; what Spark groups by."""


def column_named(name: str) -> Column:
    """A column by its name, whatever characters that has."""
    return F.col("`" + name.replace("`", "``") + "`")
