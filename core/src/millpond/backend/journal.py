"""The journal of a row, which undoes the changes of state and timers if the row fails.

It is needed if failed rows become dead letters. The function then works on journaled tables, which
wrap the backend's tables and need only the methods that every table has. Other functions use the
backend's tables directly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from typing_extensions import override

from millpond.backend.timer_queue import TimerQueue
from millpond.spi.keys import CurrentKey, SubtaskKeys
from millpond.spi.portable_rows import Expiry
from millpond.spi.tables import ABSENT, CellTable, KeySpan, MapTable, SortedMapTable, TimerRows
from millpond.types import KeyCodec

_Undo = tuple[Any, int | None, Callable[..., object], tuple[Any, ...]]
"""A changed key, its key group, and a function that undoes the change, with its arguments."""

_TimerChange = tuple[Callable[[bytes], None], bytes]
"""A function that sets or deletes a timer, and the timer's row."""


class RowChanges(NamedTuple):
    """The changes of a row whose processing is suspended."""

    undo: list[_Undo]
    timers: list[_TimerChange]


class Journal:
    """A record of how to undo each change of a row. It also delays changes of timers.

    Setting and deleting timers is delayed until the row is committed, because a timer queue does
    not report whether a timer existed before.

    Attributes:
        is_open: whether a row is being processed. Changes at other times, for example in
            ``on_timer``, are not recorded.
        store_failure: the exception that the backend's table raised while this row was processed,
            or None.
    """

    def __init__(self, current: CurrentKey) -> None:
        self._current = current
        self.is_open = False
        self.store_failure: BaseException | None = None
        self._undo: list[_Undo] = []
        self._timers: list[_TimerChange] = []

    def begin(self) -> None:
        """Begin to record the changes of a row."""
        self._undo.clear()
        self._timers.clear()
        self.store_failure = None
        self.is_open = True

    def commit(self) -> None:
        """Keep the row's changes of state, and carry out its changes of timers."""
        self.is_open = False
        for change, timer in self._timers:
            change(timer)

    def suspend(self) -> RowChanges:
        """Stop recording the changes of a row, and return those so far, for ``resume``."""
        self.is_open = False
        changes = RowChanges(self._undo, self._timers)
        self._undo, self._timers = [], []
        return changes

    def resume(self, changes: RowChanges) -> None:
        """Continue to record the changes of a row after ``suspend``."""
        self._undo, self._timers = changes
        self.store_failure = None
        self.is_open = True

    def changes_only(self, key: Any) -> bool:
        """Return whether all changes of the row are changes of the keyed state of `key`."""
        return all(
            (changed is key or changed == key)
            and isinstance(getattr(undo, "__self__", None), _JournaledTable)
            for changed, _, undo, _ in self._undo
        )

    def roll_back(self) -> None:
        """Undo the changes of the row, the last one first.

        Afterwards any key may be the current key.
        """
        self.is_open = False
        while self._undo:
            key, group, undo, arguments = self._undo.pop()
            self._current.return_to(key, group)
            undo(*arguments)

    def record(self, undo: Callable[..., object], *arguments: Any) -> None:
        """Record a function, and its arguments, that undoes a change for the current key."""
        current = self._current
        self._undo.append((current.key_or_none, current.key_group, undo, arguments))

    def hold_back(self, change: Callable[[bytes], None], timer: bytes) -> None:
        """Delay the call ``change(timer)``, which sets or deletes a timer, until ``commit``."""
        self._timers.append((change, timer))

    def table(self, table: CellTable | MapTable | TimerRows) -> Any:
        """Return the journaled table that wraps `table`."""
        if isinstance(table, SortedMapTable):
            return JournaledSortedMapTable(table, self)
        if isinstance(table, MapTable):
            return JournaledMapTable(table, self)
        assert isinstance(table, CellTable)
        return JournaledCellTable(table, self)


class _JournaledTable:
    """The base class of journaled tables."""

    _table: Any

    def __init__(self, table: Any, journal: Journal) -> None:
        self._table = table
        self._journal = journal
        self.current = table.current

    def prepare_namespace(self, namespace: Any) -> Any:
        return self._table.prepare_namespace(namespace)

    def sweep(self, limit: int, expiry: Expiry) -> tuple[int, int, bool]:
        swept: tuple[int, int, bool] = self._table.sweep(limit, expiry)
        return swept

    def changed_entries(self) -> int:
        changed: int = self._table.changed_entries()
        return changed

    def _call(self, method: Callable[..., Any], *arguments: Any) -> Any:
        """Call a method of the backend's table, and note if the call fails."""
        try:
            return method(*arguments)
        except Exception as error:
            self._journal.store_failure = error
            raise


class JournaledCellTable(_JournaledTable, CellTable):
    """A cell table that records how to undo its changes."""

    @override
    def get(self, namespace: Any) -> Any:
        return self._call(self._table.get, namespace)

    @override
    def append(self, namespace: Any, values: list[Any]) -> None:
        added = len(values)  # now, because the table may keep the list and append to it
        self._call(self._table.append, namespace, values)
        if self._journal.is_open:
            self._journal.record(self._shorten, namespace, added)

    def _shorten(self, namespace: Any, added: int) -> None:
        """Remove the last `added` elements of a list."""
        kept = self._table.get(namespace)[:-added]
        self._put_back(namespace, kept or None)

    @override
    def put(self, namespace: Any, value: Any) -> None:
        self._record(namespace)
        self._call(self._table.put, namespace, value)

    @override
    def remove(self, namespace: Any) -> None:
        self._record(namespace)
        self._call(self._table.remove, namespace)

    def _record(self, namespace: Any) -> None:
        if self._journal.is_open:
            self._journal.record(self._put_back, namespace, self.get(namespace))

    def _put_back(self, namespace: Any, value: Any) -> None:
        if value is None:
            self._table.remove(namespace)
        else:
            # Store a copy of a list: it may grow later, while a running snapshot reads it.
            self._table.put(namespace, list(value) if type(value) is list else value)

    @override
    def get_many(self, namespace: Any, keys: SubtaskKeys) -> list[Any]:
        found: list[Any] = self._call(self._table.get_many, namespace, keys)
        return found


class JournaledMapTable(_JournaledTable, MapTable):
    """A map table that records how to undo its changes.

    The location of a map consists of the key, the key group, the namespace and the location in the
    backend's table.
    """

    @override
    def prepare_key(self, key: Any) -> Any:
        return self._table.prepare_key(key)

    @override
    def get(self, namespace: Any, key: Any) -> Any:
        return self._call(self._table.get, namespace, key)

    @override
    def put(self, namespace: Any, key: Any, value: Any) -> None:
        self._record(namespace, key)
        self._call(self._table.put, namespace, key, value)

    @override
    def remove(self, namespace: Any, key: Any) -> None:
        self._record(namespace, key)
        self._call(self._table.remove, namespace, key)

    def _record(self, namespace: Any, key: Any) -> None:
        if self._journal.is_open:
            self._journal.record(self._put_back, namespace, key, self.get(namespace, key))

    def _put_back(self, namespace: Any, key: Any, value: Any) -> None:
        if value is ABSENT:
            self._table.remove(namespace, key)
        else:
            self._table.put(namespace, key, value)

    @override
    def place(self, namespace: Any) -> Any:
        current = self.current
        inner = self._call(self._table.place, namespace)
        return current.key_or_none, current.key_group, namespace, inner

    @override
    def items_at(self, place: Any) -> Iterator[tuple[Any, Any]]:
        return self._entries(self._table.items_at(place[3]))

    def _entries(self, entries: Iterator[tuple[Any, Any]]) -> Iterator[tuple[Any, Any]]:
        """Iterate over `entries` of the backend's table, and note if that fails."""
        try:
            yield from entries
        except Exception as error:
            self._journal.store_failure = error
            raise

    @override
    def put_at(self, place: Any, key: Any, value: Any) -> None:
        self._record_at(place, key)
        self._call(self._table.put_at, place[3], key, value)

    @override
    def remove_at(self, place: Any, key: Any) -> None:
        self._record_at(place, key)
        self._call(self._table.remove_at, place[3], key)

    def _record_at(self, place: Any, key: Any) -> None:
        if self._journal.is_open:
            with self.current.restoring():
                self.current.return_to(place[0], place[1])
                self._record(place[2], key)

    @override
    def is_empty(self, namespace: Any) -> bool:
        return bool(self._call(self._table.is_empty, namespace))

    @override
    def clear(self, namespace: Any) -> None:
        if self._journal.is_open:
            for key, value in self.items_at(self.place(namespace)):
                prepared = self._table.prepare_key(key)
                self._journal.record(self._put_back, namespace, prepared, value)
        self._call(self._table.clear, namespace)


class JournaledSortedMapTable(JournaledMapTable, SortedMapTable):
    """A sorted map table that records how to undo its changes."""

    @override
    def range_at(self, place: Any, span: KeySpan) -> Iterator[tuple[Any, Any]]:
        return self._entries(self._table.range_at(place[3], span))


class JournaledTimerQueue(TimerQueue):
    """A timer queue that sets and deletes timers only when the row is committed."""

    def __init__(
        self, current: CurrentKey, namespaces: KeyCodec, rows: TimerRows, journal: Journal
    ) -> None:
        super().__init__(current, namespaces, rows)
        self._journal = journal

    @override
    def register(self, timestamp: int, namespace: Any) -> None:
        if self._journal.is_open:
            self._journal.hold_back(self._rows.add, self._row(timestamp, namespace))
        else:
            super().register(timestamp, namespace)

    @override
    def delete(self, timestamp: int, namespace: Any) -> None:
        if self._journal.is_open:
            self._journal.hold_back(self._rows.discard, self._row(timestamp, namespace))
        else:
            super().delete(timestamp, namespace)
