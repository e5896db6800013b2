"""Whether the entries of coming keys are worth reading together, by what was read before."""

from __future__ import annotations

from millpond.backend.bytestore.write_buffer import WriteBuffer

_MOST = 0.75
_AT_ONCE = 4096
_BYTES_AT_ONCE = 1 << 20
_AGAIN = 16
"""Each so many times nothing is read ahead, to see what the function reads by itself."""


class ReadingHabit:
    """Learns how many of the announced keys' entries a function reads.

    To read entries together takes less than to read them by themselves, and is for nothing where
    the function does not ask for them: so only where it has asked for most.

    Attributes:
        singly: how many entries were read by themselves since keys were announced.
        largest: the size of the largest value of late, in bytes; 0 where sizes do not vary. It is
            halved where none since keys were announced was as large: a single one is forgotten.
    """

    def __init__(self) -> None:
        self.singly = 0
        self.largest = 0
        self._recent = 0  # the largest since keys were announced
        self._announced = 0
        self._ahead = 0  # how many times in a row entries were read ahead

    def at_once(self, buffer: WriteBuffer) -> int:
        """How many entries to read before the buffer is asked again, none where it is full."""
        size = buffer.entry_cost + self.largest
        return min(_AT_ONCE, max(1, _BYTES_AT_ONCE // size), max(0, buffer.room // size))

    def saw(self, size: int) -> None:
        """Note the size of a value, in bytes."""
        if size > self._recent:
            self._recent = size
            self.largest = max(self.largest, size)

    def reads_ahead(self, keys: int) -> bool:
        """Whether to read so many keys' entries, which come next, ahead."""
        asked_for = 0 < self._announced * _MOST <= self.singly
        wanted = self._ahead < _AGAIN if self._ahead else asked_for
        self._ahead = self._ahead + 1 if wanted else 0
        self.singly, self._announced = 0, keys
        self.largest, self._recent = max(self._recent, self.largest // 2), 0
        return wanted
