"""Tables: how a backend stores the entries of one state, or the timers of one time domain."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, NamedTuple, TypeAlias

from typing_extensions import override

from millpond.spi.keys import SubtaskKeys
from millpond.spi.portable_rows import Expiry


class _Absent:
    @override
    def __repr__(self) -> str:
        return "ABSENT"


ABSENT: Any = _Absent()
"""The value of a missing entry in a map table, since None may be a value."""


Held: TypeAlias = dict[int | None, tuple[dict[Any, Any], dict[Any, Any] | None]]
"""Dictionaries that a cell table shares with a value state, by key group.

The first dictionary of a pair has the values by address. The keys of the second one are the changed
addresses. The second one is None if changes are not tracked.
"""


class _Table(ABC):
    """The methods that the backend calls on both kinds of table.

    Attributes:
        current: the current key of the backend, which all methods work on.
    """

    current: Any  # a CurrentKey; each backend derives its own

    @abstractmethod
    def prepare_namespace(self, namespace: Any) -> Any:
        """Check a namespace, and return it in the form that the other methods take."""

    @abstractmethod
    def sweep(self, limit: int, expiry: Expiry) -> tuple[int, int, bool]:
        """Visit up to ``limit`` stored values, after those that the last call visited.

        Expired values are removed like any other change, as part of the next flush.

        Returns:
            The number of visited values, the number of removed values, and whether this was the
            end, so that the next call begins at the first value.
        """

    @abstractmethod
    def changed_entries(self) -> int:
        """Return the number of entries that have changed since the last flush, as far as known."""


class CellTable(_Table):
    """A table with at most one value per key and namespace."""

    @abstractmethod
    def get(self, namespace: Any) -> Any:
        """Return the stored object, or None. The caller must not change it without a copy."""

    def append(self, namespace: Any, values: list[Any]) -> None:
        """Append checked elements, at least one, to a list. The table may keep ``values``.

        Override it if the table can append without the whole list, or if a snapshot may still read
        the stored list.
        """
        stored = self.get(namespace)
        if stored is not None:
            stored.extend(values)
        self.put(namespace, values if stored is None else stored)

    @abstractmethod
    def put(self, namespace: Any, value: Any) -> None:
        """Store a checked object, which the caller does not use again."""

    def hold(self, namespace: Any) -> Held:
        """Share the dictionaries of the current key's group and a namespace with a value state.

        The state reads values in them, and overwrites values whose addresses are in them.
        A table ends this, for instance in a flush, by emptying the returned dictionary; the state
        then asks again.

        Returns:
            An empty dictionary by default, so that the state calls ``get`` and ``put``.
        """
        return {}

    @abstractmethod
    def remove(self, namespace: Any) -> None:
        """Remove the value, if there is one."""

    def get_many(self, namespace: Any, keys: SubtaskKeys) -> list[Any]:
        """Return ``get`` for each of the keys. Override it if the table has a faster way."""
        return [self.get(namespace) for _ in keys]

    def put_many(self, namespace: Any, keys: SubtaskKeys, values: list[Any]) -> None:
        """Call ``put`` for each key, or ``remove`` if its value is None; see ``get_many``."""
        for _, value in zip(keys, values, strict=True):
            if value is None:
                self.remove(namespace)
            else:
                self.put(namespace, value)


class MapTable(_Table):
    """A table with a map of entries per key and namespace."""

    @abstractmethod
    def prepare_key(self, key: Any) -> Any:
        """Check a map key, and return it in the form that the other methods take."""

    @abstractmethod
    def get(self, namespace: Any, key: Any) -> Any:
        """Return the stored object, or ABSENT. The caller must not change it without a copy."""

    @abstractmethod
    def put(self, namespace: Any, key: Any, value: Any) -> None:
        """Store a checked object, which the caller does not use again."""

    @abstractmethod
    def remove(self, namespace: Any, key: Any) -> None:
        """Remove an entry, if there is one."""

    @abstractmethod
    def place(self, namespace: Any) -> Any:
        """Return the location of the current key's map, which the following methods take."""

    @abstractmethod
    def items_at(self, place: Any) -> Iterator[tuple[Any, Any]]:
        """Iterate over map keys (as the user gave them) and stored objects, each once.

        Entries that are removed during the iteration are skipped; overwritten entries have their
        new value.
        """

    @abstractmethod
    def put_at(self, place: Any, key: Any, value: Any) -> None:
        """Call ``put`` for the map at a location."""

    @abstractmethod
    def remove_at(self, place: Any, key: Any) -> None:
        """Call ``remove`` for the map at a location."""

    @abstractmethod
    def is_empty(self, namespace: Any) -> bool:
        """Return whether the current key's map has no entry."""

    @abstractmethod
    def clear(self, namespace: Any) -> None:
        """Remove all entries of the current key's map."""


class KeySpan(NamedTuple):
    """A range of encoded map keys, and the direction in which to visit it.

    Attributes:
        start: the least key of the range.
        stop: the least key after the range; None if it has no end.
        reverse: whether to begin with the greatest key.
    """

    start: bytes = b""
    stop: bytes | None = None
    reverse: bool = False

    def after(self, key: bytes | None) -> KeySpan:
        """Return the part of the range that remains to visit after a key; all of it for None."""
        if key is None:
            return self
        return self._replace(stop=key) if self.reverse else self._replace(start=key + b"\0")


class SortedMapTable(MapTable):
    """A map table for sorted map states: its iterations follow the order of the encoded keys."""

    @abstractmethod
    def range_at(self, place: Any, span: KeySpan) -> Iterator[tuple[Any, Any]]:
        """Iterate over the entries of a range like ``items_at``, in the order of the span.

        Each step returns the next entry of the map as it is then, also if the entry was added
        during the iteration. ``items_at`` does the same for the whole map.
        """


TIMESTAMP_BYTES = 8
_OFFSET = 1 << 63


def timestamp_bytes(timestamp: int) -> bytes:
    """Return a timestamp in ms as bytes that sort in the order of the timestamps."""
    return (timestamp + _OFFSET).to_bytes(TIMESTAMP_BYTES, "big")


def timestamp_from(data: bytes) -> int:
    """Decode the bytes of :func:`timestamp_bytes`."""
    return int.from_bytes(data, "big") - _OFFSET


class TimerRows(ABC):
    """The rows of one timer queue; flushed together with the tables."""

    @abstractmethod
    def add(self, row: bytes) -> None:
        """Add a row, unless it is there."""

    @abstractmethod
    def discard(self, row: bytes) -> None:
        """Remove a row, if it is there."""

    @abstractmethod
    def until(self, timestamp: int) -> list[bytes]:
        """Return all rows up to a timestamp, of all key groups, in any order."""

    @abstractmethod
    def earliest(self) -> int | None:
        """Return the smallest timestamp, or None."""
