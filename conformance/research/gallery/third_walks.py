"""Third gallery: mistakes in iterations over maps that change during the iteration."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import millpond as mp
from millpond.backend.bytestore.buffered_maps import BufferedMapTable
from millpond.spi.tables import ABSENT

from conformance.research.gallery.gallery import Opener, Wrong
from conformance.research.gallery.wrong_tools import at, tables

MAP = mp.MapStateDescriptor("m", int, int)
_Entry = tuple[bytes, Any]


class _Shifted(BufferedMapTable):
    """A map table whose iterations notice if an entry that was removed in the bundle is put again."""

    def _note(self, address: bytes, key: bytes, value: Any) -> None:
        if value is not ABSENT and key in self._absent.get(address, ()):
            for walk in self._walks().get(address, ()):
                walk["shifted"] = True
        super()._note(address, key, value)

    def _walks(self) -> dict[bytes, list[dict[str, bool]]]:
        walks: dict[bytes, list[dict[str, bool]]] = self.__dict__.setdefault("walks", {})
        return walks

    def _merged(self, address: bytes) -> Iterator[_Entry]:
        walk: dict[str, bool] = {}
        walks = self._walks().setdefault(address, [])
        walks.append(walk)
        try:
            yield from self._steps(address, super()._merged(address), walk)
        finally:
            walks.remove(walk)

    def _steps(
        self, address: bytes, entries: Iterator[_Entry], walk: dict[str, bool]
    ) -> Iterator[_Entry]:
        raise NotImplementedError


class _Back(_Shifted):
    def _steps(
        self, address: bytes, entries: Iterator[_Entry], walk: dict[str, bool]
    ) -> Iterator[_Entry]:
        for key, value in entries:
            yield key, value
            by_now = self._value(address, key)
            if walk.pop("shifted", False) and by_now is not ABSENT:
                yield key, by_now


class _Ahead(_Shifted):
    def _steps(
        self, address: bytes, entries: Iterator[_Entry], walk: dict[str, bool]
    ) -> Iterator[_Entry]:
        for key, value in entries:
            yield key, value
            if walk.pop("shifted", False):
                next(entries, None)


def _shown(opened: Opener) -> list[int]:
    """Return the keys of an iteration during which a removed entry is put again."""
    state = at(opened(), "k", MAP)
    state.put_all({1: 1, 2: 2, 3: 3, 4: 4})
    state.remove(4)
    seen = []
    for key in state:
        seen.append(key)
        state.put(4, 4)
    return seen


class WalksBack(Wrong):
    """An iteration repeats an entry if a removed entry is put again during it."""

    base = "lmdb"

    def spoil(self, backend: Any) -> None:
        tables(backend, BufferedMapTable, _Back)

    def show(self, opened: Opener) -> None:
        seen = _shown(opened)
        assert len(seen) == len(set(seen))


class WalksAhead(Wrong):
    """An iteration skips an entry if a removed entry is put again during it."""

    base = "rocksdb"

    def spoil(self, backend: Any) -> None:
        tables(backend, BufferedMapTable, _Ahead)

    def show(self, opened: Opener) -> None:
        assert set(_shown(opened)) >= {1, 2, 3}
