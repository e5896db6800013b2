"""Third gallery: mistakes in timers, their versions in the store, and clean-up."""

from __future__ import annotations

from contextlib import closing
from datetime import timedelta
from typing import Any

import millpond as mp
from millpond.backend.bytestore.buffered_timers import BufferedTimerRows
from millpond.spi.tables import timestamp_bytes, timestamp_from
from millpond_sqlite.backend import SqliteKeyedStateBackend

from conformance.research.gallery.gallery import Opener, Wrong
from conformance.research.gallery.wrong_tools import at, tables
from conformance.research.mutants.mutants_parts import first_ttl_counts

NUMBER = mp.ValueStateDescriptor("n", int)
EVENT = "event"


def _set(backend: Any, key: Any, timestamp: int) -> Any:
    """Set a timer of a key, and return the event-time queue."""
    backend.set_current_key(key)
    queue = backend.timer_queue(EVENT)
    queue.register(timestamp, mp.VOID_NAMESPACE)
    return queue


class _FirstRowOnly(BufferedTimerRows):
    def earliest(self) -> int | None:
        start = len(self._prefixes[0])
        rows = [row for row, there in self._changed.items() if there]
        for prefix in self._prefixes:
            with closing(self._buffer.store.scan(self._family, prefix, None)) as scan:
                first = next((row for row, _ in scan), b"")
            if first.startswith(prefix) and self._changed.get(first, True):
                rows.append(first)
        return min((timestamp_from(row[start : start + 8]) for row in rows), default=None)


class EarliestSkips(Wrong):
    """If a key group's earliest timer was deleted, the group counts as having no timers."""

    base = "rocksdb"

    def spoil(self, backend: Any) -> None:
        tables(backend, BufferedTimerRows, _FirstRowOnly)

    def show(self, opened: Opener) -> None:
        backend = opened()
        _set(backend, "k", 10)
        queue = _set(backend, "k", 20)
        backend.flush()
        queue.delete(10, mp.VOID_NAMESPACE)
        assert queue.earliest() == 20


class _EndsEarly(BufferedTimerRows):
    def until(self, timestamp: int) -> list[bytes]:
        stop, start = timestamp_bytes(timestamp), len(self._prefixes[0])
        rows = {
            row for row, there in self._changed.items() if there and row[start : start + 8] <= stop
        }
        for prefix in self._prefixes:
            end = prefix + stop + b"\xff"
            with closing(self._buffer.store.scan(self._family, prefix, end)) as scan:
                rows.update(row for row, _ in scan if self._changed.get(row, True))
        return list(rows)


class TimerEnd(Wrong):
    """A stored timer is not due at exactly its time if the bytes of its key begin with ff."""

    base = "lmdb"

    def spoil(self, backend: Any) -> None:
        tables(backend, BufferedTimerRows, _EndsEarly)

    def show(self, opened: Opener) -> None:
        backend = opened(key_type=int)
        queue = _set(backend, (1 << 63) - 1, 10)
        backend.flush()
        assert [timer.timestamp for timer in queue.due(10)] == [10]


class _TimersApart(SqliteKeyedStateBackend):
    def flush(self, version: str | None = None) -> None:
        changed = [name for name, table in self.states.tables.items() if table.changes()]
        timers = changed and all(name.startswith("_millpond_timers_") for name in changed)
        super().flush(self.version if version is None and timers else version)


class TimersKeepVersion(Wrong):
    """Timers of an unfinished bundle are stored under the version of the previous bundle."""

    base = "sqlite"

    def spoil(self, backend: Any) -> None:
        backend.__class__ = _TimersApart

    def show(self, opened: Opener) -> None:
        backend = opened()
        directory = backend.parameters.directory
        at(backend, "k", NUMBER).update(1)
        backend.flush("v1")
        _set(backend, "k", 10)
        backend.flush()
        backend.close()
        again = opened(directory=directory, versions={"v1"})
        if again.version == "v1":
            again.set_current_key("k")
            assert again.timer_queue(EVENT).earliest() is None


class SweepsByFirstTtl(Wrong):
    """The clean-up uses the TTL with which a state was first declared."""

    def spoil(self, backend: Any) -> None:
        first_ttl_counts(backend)

    def show(self, opened: Opener) -> None:
        clock = mp.ManualClock(0)
        backend = opened(clock=clock)
        for ttl in (10, 1000):
            descriptor = mp.ValueStateDescriptor("n", int)
            descriptor.enable_time_to_live(mp.StateTtlConfig(timedelta(milliseconds=ttl)))
            at(backend, "k", descriptor).update(1)
        clock.set(500)
        backend.flush()
        backend.flush()
        assert at(backend, "k", descriptor).value() == 1
