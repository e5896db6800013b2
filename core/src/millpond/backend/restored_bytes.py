"""How many bytes a restore has read: by the place they came from, and by state where known."""

from __future__ import annotations

from collections import Counter
from typing import Literal

import attrs

Place = Literal["checkpoint", "savepoint", "local"]
"""Where a restore reads."""


@attrs.frozen
class RestoredBytes:
    """What was read to fill a backend, since ``clear``.

    Attributes:
        by_place: ``checkpoint`` is the storage of snapshots. ``local`` is a local copy: the size
            of its files, which mix all states, as RocksDB's own files in a snapshot do. Of all
            else the bytes of the rows: keys and values as they are stored, not compressed.
        by_state: the bytes of rows alone.
    """

    by_place: Counter[str] = attrs.field(factory=Counter)
    by_state: Counter[str] = attrs.field(factory=Counter)

    def add_rows(self, place: Place, state: str, size: int) -> None:
        """Count rows of a state."""
        self.by_place[place] += size
        self.by_state[state] += size

    def add_files(self, place: Place, size: int) -> None:
        """Count files that mix states."""
        self.by_place[place] += size

    def clear(self) -> None:
        """Forget what was counted."""
        self.by_place.clear()
        self.by_state.clear()

    def figures(self) -> dict[str, int]:
        """As metrics: ``restored_bytes.<place>`` and ``<state>.restored_bytes``."""
        places = {f"restored_bytes.{place}": size for place, size in self.by_place.items()}
        return places | {f"{state}.restored_bytes": n for state, n in self.by_state.items()}
