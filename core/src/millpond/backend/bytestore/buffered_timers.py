"""The rows of timers over a byte store, whose changes are buffered until the next flush."""

from __future__ import annotations

from contextlib import closing
from itertools import islice

from typing_extensions import override

from millpond.backend.bytestore.write_buffer import WriteBuffer
from millpond.spi.keys import end_of_prefix
from millpond.spi.portable_rows import Change
from millpond.spi.tables import TIMESTAMP_BYTES, TimerRows, timestamp_bytes, timestamp_from

_CHANGE_BYTES = 128


class BufferedTimerRows(TimerRows):
    """The rows of a timer queue. The due timers are the first rows of each key group."""

    def __init__(self, buffer: WriteBuffer, family: str, prefixes: list[bytes]) -> None:
        self._buffer = buffer
        self._family = family
        self._prefixes = prefixes
        self._changed: dict[bytes, bool] = {}

    @override
    def add(self, row: bytes) -> None:
        self._note(row, present=True)

    @override
    def discard(self, row: bytes) -> None:
        self._note(row, present=False)

    def _note(self, row: bytes, *, present: bool) -> None:
        if row not in self._changed:  # a second change of a row takes no more room
            self._buffer.make_room(_CHANGE_BYTES)
        self._changed[row] = present

    @override
    def until(self, timestamp: int) -> list[bytes]:
        stop = timestamp_bytes(timestamp)
        rows: set[bytes] = set()
        for prefix in self._prefixes:
            end = end_of_prefix(prefix + stop)
            with closing(self._buffer.store.scan(self._family, prefix, end)) as scan:
                rows.update(row for row, _ in scan)
        start = len(self._prefixes[0])
        for row, present in self._changed.items():
            if present and row[start : start + TIMESTAMP_BYTES] <= stop:
                rows.add(row)
            elif not present:
                rows.discard(row)
        return list(rows)

    @override
    def earliest(self) -> int | None:
        start = len(self._prefixes[0])
        stamps = [
            row[start : start + TIMESTAMP_BYTES] for row, there in self._changed.items() if there
        ]
        for prefix in self._prefixes:
            with closing(
                self._buffer.store.scan(self._family, prefix, end_of_prefix(prefix))
            ) as scan:
                kept = (row for row, _ in scan if self._changed.get(row, True))
                stamps += [row[start : start + TIMESTAMP_BYTES] for row in islice(kept, 1)]
        return timestamp_from(min(stamps)) if stamps else None

    def changes(self) -> list[Change]:
        """Return the changed rows, sorted."""
        changed = self._changed
        return [(row, b"" if changed[row] else None) for row in sorted(changed)]

    def flushed(self) -> None:
        """Empty the buffer, because the changes are stored."""
        self._changed = {}
