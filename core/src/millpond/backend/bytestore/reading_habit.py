"""Whether the entries of coming keys are worth reading together, by what was read before."""

from __future__ import annotations

__all__ = ["ReadingHabit"]

_MOST = 0.75
_AGAIN = 16
"""Each so many times nothing is read ahead, to see what the function reads by itself."""


class ReadingHabit:
    """Learns how many of the announced keys' entries a function reads.

    To read entries together takes less than to read them by themselves, and is for nothing where
    the function does not ask for them: so only where it has asked for most.

    Attributes:
        singly: how many entries were read by themselves since keys were announced.
    """

    def __init__(self) -> None:
        self.singly = 0
        self._announced = 0
        self._ahead = 0  # how many times in a row entries were read ahead

    def reads_ahead(self, keys: int) -> bool:
        """Whether to read so many keys' entries, which come next, ahead."""
        asked_for = 0 < self._announced * _MOST <= self.singly
        wanted = self._ahead < _AGAIN if self._ahead else asked_for
        self._ahead = self._ahead + 1 if wanted else 0
        self.singly, self._announced = 0, keys
        return wanted
