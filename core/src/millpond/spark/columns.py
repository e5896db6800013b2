"""The columns that the operator adds to a user's."""

__all__ = ["GROUP_COLUMN", "LABEL_COLUMN"]

GROUP_COLUMN = "millpond_group"
"""The key group of a row."""

LABEL_COLUMN = "millpond_label"
"""The label of the subtask that owns the key group; what Spark groups by."""
