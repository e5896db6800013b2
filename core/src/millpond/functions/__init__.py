"""``millpond.functions``: reduce functions that a reducing state applies to many rows at once."""

from millpond.state.reduce_functions import count, last, max, min, sum  # noqa: A004 - their names

__all__ = ["count", "last", "max", "min", "sum"]
