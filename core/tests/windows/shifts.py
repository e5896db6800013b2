"""A type of windows of one's own, which tests assign rows to."""

from typing import NamedTuple


class Shift(NamedTuple):
    """The rows of one kind up to a time."""

    kind: str
    until: int

    def max_timestamp(self):
        return self.until - 1
