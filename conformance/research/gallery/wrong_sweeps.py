"""Second gallery: mistakes with timers, and with TTL in combination with other features."""

from __future__ import annotations

from contextlib import closing
from datetime import timedelta
from itertools import islice
from typing import Any

import millpond as mp
from millpond.backend.bytestore.buffered_maps import BufferedMapTable
from millpond.backend.bytestore.buffered_timers import BufferedTimerRows
from millpond.spi.keys import end_of_prefix
from millpond.spi.tables import TIMESTAMP_BYTES, timestamp_bytes, timestamp_from
from millpond_heap.cells import HeapCellTable
from millpond_heap.maps import HeapMapTable

from conformance.research.gallery.gallery import Opener, Wrong
from conformance.research.gallery.wrong_tools import at, tables

SHORT = timedelta(seconds=10)


class _PutsAtCurrentKey(HeapMapTable):
    def put_at(self, place: Any, key: Any, value: Any) -> None:
        self.current.require_open()
        self.put(place[1], key, value)


class PutsAtCurrentKey(Wrong):
    """An iteration that renews entries writes them to the key that is current at that time."""

    def spoil(self, backend: Any) -> None:
        tables(backend, HeapMapTable, _PutsAtCurrentKey)

    def show(self, opened: Opener) -> None:
        ttl = mp.StateTtlConfig(SHORT, mp.UpdateType.ON_READ_AND_WRITE)
        descriptor = mp.MapStateDescriptor("m", str, int).enable_time_to_live(ttl)
        backend = opened(clock=mp.ManualClock(0))
        for key in "ab":
            at(backend, key, descriptor).put_all({f"{key}1": 1, f"{key}2": 1})
        for _ in at(backend, "a", descriptor).items():
            backend.set_current_key("b")
        assert sorted(at(backend, "b", descriptor).keys()) == ["b1", "b2"]


class _SweepMovesKey(HeapCellTable):
    def sweep(self, limit: int, expiry: Any) -> tuple[int, int, bool]:
        found = super().sweep(limit, expiry)
        last = list(self._all_places())[-1:] if found[1] else []
        for group, _, key in last:
            self.current.set_place(group, key)
        return found


class SweepMovesKey(Wrong):
    """After a clean-up, tables still have the last key that the clean-up looked at."""

    def spoil(self, backend: Any) -> None:
        tables(backend, HeapCellTable, _SweepMovesKey)

    def show(self, opened: Opener) -> None:
        clock = mp.ManualClock(0)
        backend, ttl = opened(clock=clock), mp.StateTtlConfig(SHORT)
        seen = mp.ValueStateDescriptor("v", int).enable_time_to_live(ttl)
        at(backend, "old", seen).update(0)
        clock.advance(20_000)
        for number, key in enumerate("ab"):
            at(backend, key, seen).update(number)
        state = at(backend, "a", seen)
        backend.flush()
        state.update(7)
        assert [at(backend, key, seen).value() for key in "ab"] == [7, 1]


class _SweepsDirty(BufferedMapTable):
    def _is_dirty(self, physical: bytes) -> bool:
        return False


class SweepsDirty(Wrong):
    """The clean-up removes an expired map entry that the same bundle has renewed."""

    base = "sqlite"

    def spoil(self, backend: Any) -> None:
        tables(backend, BufferedMapTable, _SweepsDirty)

    def show(self, opened: Opener) -> None:
        clock = mp.ManualClock(0)
        backend, ttl = opened(clock=clock), mp.StateTtlConfig(SHORT)
        descriptor = mp.MapStateDescriptor("m", str, int).enable_time_to_live(ttl)
        state = at(backend, "k", descriptor)
        for number in (1, 2):
            state.put("e", number)
            backend.flush()
            clock.advance(20_000 * (number == 1))
        assert state.get("e") == 2


class _FirstRowOrNone(BufferedTimerRows):
    def earliest(self) -> int | None:
        start = len(self._prefixes[0])
        rows = [row for row, there in self._changed.items() if there]
        for prefix in self._prefixes:
            end = end_of_prefix(prefix)
            with closing(self._buffer.store.scan(self._family, prefix, end)) as scan:
                rows += [row for row, _ in islice(scan, 1) if self._changed.get(row, True)]
        stamps = [row[start : start + TIMESTAMP_BYTES] for row in rows]
        return timestamp_from(min(stamps)) if stamps else None


class FirstRowOrNone(Wrong):
    """If a bundle deletes the first stored timer of a key group, the group's other timers are not found."""

    base = "lmdb"

    def spoil(self, backend: Any) -> None:
        tables(backend, BufferedTimerRows, _FirstRowOrNone)

    def show(self, opened: Opener) -> None:
        backend = opened()
        timers = backend.timer_queue("event-time")
        backend.set_current_key("k")
        for when in (10, 20):
            timers.register(when, mp.VOID_NAMESPACE)
        backend.flush()
        timers.delete(10, mp.VOID_NAMESPACE)
        assert timers.earliest() == 20


class _Cancels(BufferedTimerRows):
    def discard(self, row: bytes) -> None:
        if self._changed.get(row):
            del self._changed[row]
        else:
            super().discard(row)


class Cancels(Wrong):
    """If a bundle sets and deletes a timer, an older stored timer remains."""

    base = "rocksdb"

    def spoil(self, backend: Any) -> None:
        tables(backend, BufferedTimerRows, _Cancels)

    def show(self, opened: Opener) -> None:
        backend = opened()
        timers = backend.timer_queue("event-time")
        backend.set_current_key("k")
        timers.register(10, mp.VOID_NAMESPACE)
        backend.flush()
        timers.register(10, mp.VOID_NAMESPACE)
        timers.delete(10, mp.VOID_NAMESPACE)
        assert list(timers.due(100)) == []


class _BeforeTheNext(BufferedTimerRows):
    def until(self, timestamp: int) -> list[bytes]:
        limit = timestamp_bytes(min(timestamp + 1, (1 << 63) - 1))
        rows: set[bytes] = set()
        for prefix in self._prefixes:
            with closing(self._buffer.store.scan(self._family, prefix, prefix + limit)) as scan:
                rows.update(row for row, _ in scan)
        start = len(self._prefixes[0])
        for row, present in self._changed.items():
            if present and row[start : start + TIMESTAMP_BYTES] < limit:
                rows.add(row)
            elif not present:
                rows.discard(row)
        return list(rows)


class BeforeTheNext(Wrong):
    """A timer is due if it comes before the next millisecond, which does not exist at the largest time."""

    base = "sqlite"

    def spoil(self, backend: Any) -> None:
        tables(backend, BufferedTimerRows, _BeforeTheNext)

    def show(self, opened: Opener) -> None:
        backend = opened()
        timers = backend.timer_queue("event-time")
        backend.set_current_key("k")
        timers.register(mp.MAX_TIMESTAMP, mp.VOID_NAMESPACE)
        assert len(list(timers.due(mp.MAX_TIMESTAMP))) == 1
