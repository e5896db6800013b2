"""A user-defined window type for tests."""

from typing import NamedTuple


class Shift(NamedTuple):
    """Window of the rows of one kind up to a time."""

    kind: str
    until: int

    def max_timestamp(self):
        return self.until - 1
