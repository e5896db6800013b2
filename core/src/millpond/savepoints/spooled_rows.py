"""Rows of new state on their way into a savepoint: in a file of one task, by key group.

They come by ascending key group, in any number. A table is written from them after the last has
come, and again where a value turns out not to fit its natural column type.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

import attrs
import msgspec
from typing_extensions import override

from millpond.backend.changes import Change, Changes
from millpond.backend.key_layout import KeyLayout
from millpond.backend.state_view import StateShape, StateView
from millpond.closing import Closeable

__all__ = ["SpooledRows", "SpooledView"]

_CHUNK_BYTES = 4 << 20
_Rows = list[tuple[str, list[tuple[bytes, bytes]]]]


@attrs.frozen
class _Chunk:
    offset: int
    size: int


class SpooledRows(Closeable):
    """A file of rows; a context manager.

    Args:
        layout: of the rows' keys.
        directory: where the file lies, without a name; the system's temporary one by default.
    """

    def __init__(self, layout: KeyLayout, directory: Path | None = None) -> None:
        self._layout = layout
        file: IO[bytes] = tempfile.TemporaryFile(dir=directory, buffering=0)  # noqa: SIM115 - closed with this
        self._file = file
        self._chunks: dict[int, list[_Chunk]] = {}
        self._held: dict[str, list[Change]] = {}
        self._bytes = 0
        self._group = -1

    def add(self, state: str, rows: list[Change]) -> None:
        """Take rows of a state and of one key group, which is not below those before."""
        group = self._layout.group_of(rows[0][0])
        if group != self._group or self._bytes > _CHUNK_BYTES:
            self._write()
            self._group = group
        self._held.setdefault(state, []).extend(rows)
        self._bytes += Changes.of(rows).size

    def _write(self) -> None:
        if not self._held:
            return
        data = memoryview(msgspec.msgpack.encode(list(self._held.items())))
        chunk = _Chunk(self._file.tell(), len(data))
        while data:
            data = data[self._file.write(data) :]
        self._chunks.setdefault(self._group, []).append(chunk)
        self._held, self._bytes = {}, 0

    def rows(self, key_group: int) -> Iterator[tuple[str, Sequence[Change]]]:
        """The rows of a key group: names of states, each with some of its rows."""
        self._write()
        for chunk in self._chunks.get(key_group, ()):
            data = os.pread(self._file.fileno(), chunk.size, chunk.offset)
            yield from msgspec.msgpack.decode(data, type=_Rows)

    @override
    def close(self) -> None:
        self._file.close()


class SpooledView(StateView):
    """Spooled rows as a backend gives its own to a savepoint."""

    def __init__(self, shape: StateShape, spooled: SpooledRows) -> None:
        super().__init__(shape)
        self._spooled = spooled

    @override
    def rows(self, key_group: int) -> Iterator[tuple[str, list[Change]]]:
        for name, rows in self._spooled.rows(key_group):
            yield name, list(rows)
