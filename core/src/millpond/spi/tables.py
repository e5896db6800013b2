"""The interfaces of tables, which store the entries of a state or the timers of a time domain."""

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
"""The value of a missing entry in a map table. None cannot be used, because it may be a value."""


Held: TypeAlias = dict[int | None, tuple[dict[Any, Any], dict[Any, Any] | None]]
"""Dictionaries that a cell table shares with a value state, by key group.

Each pair consists of a dictionary of values by address, and a dictionary whose keys are the changed
addresses. The second dictionary is None if changes are not tracked.
"""


class _Table(ABC):
    """The methods that the backend calls on both kinds of table.

    Attributes:
        current: the current key of the backend, whose entries all methods read and write.
    """

    current: Any  # an instance of CurrentKey or of a backend's subclass

    @abstractmethod
    def prepare_namespace(self, namespace: Any) -> Any:
        """Return a checked namespace in the form that the other methods take."""

    @abstractmethod
    def sweep(self, limit: int, expiry: Expiry) -> tuple[int, int, bool]:
        """Visit up to `limit` stored values and remove the expired ones among them.

        Each call continues after the values that the last call visited. A removal is a change like
        any other and is part of the next flush.

        Args:
            limit: the maximum number of values.
            expiry: the filter that removes expired values.

        Returns:
            The number of visited values, the number of removed values, and whether the call has
            reached the last value, so that the next call begins with the first one.
        """

    @abstractmethod
    def changed_entries(self) -> int:
        """Return the number of entries that changed since the last flush, possibly an estimate."""


class CellTable(_Table):
    """A table with at most one value for each key and namespace."""

    @abstractmethod
    def get(self, namespace: Any) -> Any:
        """Return the stored object, or None. The caller must copy the object before changing it."""

    def append(self, namespace: Any, values: list[Any]) -> None:
        """Append at least one checked element to a list. The table may keep the list `values`.

        Override this method if the table can append without reading the whole list, or if a
        snapshot may still read the stored list.
        """
        stored = self.get(namespace)
        if stored is not None:
            stored.extend(values)
        self.put(namespace, values if stored is None else stored)

    @abstractmethod
    def put(self, namespace: Any, value: Any) -> None:
        """Store a checked object. The caller must not use the object afterwards."""

    def hold(self, namespace: Any) -> Held:
        """Share dictionaries for the current key's group and a namespace with a value state.

        The value state reads values in the dictionaries directly. It also overwrites values, but
        only if their addresses are already there. To end the sharing, for example in a flush, the
        table empties the returned dictionary. The value state then calls ``hold`` again.

        Returns:
            The shared dictionaries. By default there are none, so the value state calls ``get`` and
            ``put``.
        """
        return {}

    @abstractmethod
    def remove(self, namespace: Any) -> None:
        """Remove the value if it exists."""

    def get_many(self, namespace: Any, keys: SubtaskKeys) -> list[Any]:
        """Return the result of ``get`` for each key.

        Override this method if the table has a faster way.
        """
        return [self.get(namespace) for _ in keys]

    def put_many(self, namespace: Any, keys: SubtaskKeys, values: list[Any]) -> None:
        """Call ``put`` for each key and value, or ``remove`` if the value is None.

        Override this method if the table has a faster way.
        """
        for _, value in zip(keys, values, strict=True):
            if value is None:
                self.remove(namespace)
            else:
                self.put(namespace, value)


class MapTable(_Table):
    """A table with a map for each key and namespace."""

    @abstractmethod
    def prepare_key(self, key: Any) -> Any:
        """Return a checked map key in the form that the other methods take."""

    @abstractmethod
    def get(self, namespace: Any, key: Any) -> Any:
        """Return the stored object, or ``ABSENT``. The caller must copy the object to change it."""

    @abstractmethod
    def put(self, namespace: Any, key: Any, value: Any) -> None:
        """Store a checked object. The caller must not use the object afterwards."""

    @abstractmethod
    def remove(self, namespace: Any, key: Any) -> None:
        """Remove an entry if it exists."""

    @abstractmethod
    def place(self, namespace: Any) -> Any:
        """Return the location of the current key's map, for methods such as ``items_at``."""

    @abstractmethod
    def items_at(self, place: Any) -> Iterator[tuple[Any, Any]]:
        """Iterate over the map keys, as the user gave them, and the stored objects at a location.

        If an entry is removed during the iteration, it is skipped. If an entry is overwritten, the
        iteration returns its new value.
        """

    @abstractmethod
    def put_at(self, place: Any, key: Any, value: Any) -> None:
        """Store a checked object in the map at a location."""

    @abstractmethod
    def remove_at(self, place: Any, key: Any) -> None:
        """Remove an entry from the map at a location if it exists."""

    @abstractmethod
    def is_empty(self, namespace: Any) -> bool:
        """Return whether the map of the current key is empty."""

    @abstractmethod
    def clear(self, namespace: Any) -> None:
        """Remove all entries from the map of the current key."""


class KeySpan(NamedTuple):
    """A range of encoded map keys, and the direction of an iteration over it.

    Attributes:
        start: the least key of the range.
        stop: the least key after the range; None if the range has no end.
        reverse: whether the iteration begins at the end of the range.
    """

    start: bytes = b""
    stop: bytes | None = None
    reverse: bool = False

    def after(self, key: bytes | None) -> KeySpan:
        """Return the part of the range that comes after `key` in the direction of the iteration.

        If `key` is None, return the whole range.
        """
        if key is None:
            return self
        return self._replace(stop=key) if self.reverse else self._replace(start=key + b"\0")


class SortedMapTable(MapTable):
    """A map table for sorted map states, which iterates in the order of the encoded map keys."""

    @abstractmethod
    def range_at(self, place: Any, span: KeySpan) -> Iterator[tuple[Any, Any]]:
        """Iterate over the entries in a range of the map at a location, in the direction of `span`.

        Each step returns the next entry that the map contains at that time, including entries that
        were added during the iteration. ``items_at`` does the same for the whole map.
        """


TIMESTAMP_BYTES = 8
_OFFSET = 1 << 63


def timestamp_bytes(timestamp: int) -> bytes:
    """Return a timestamp in ms as bytes that sort as the timestamps do."""
    return (timestamp + _OFFSET).to_bytes(TIMESTAMP_BYTES, "big")


def timestamp_from(data: bytes) -> int:
    """Return the timestamp that ``timestamp_bytes`` has encoded."""
    return int.from_bytes(data, "big") - _OFFSET


class TimerRows(ABC):
    """The stored rows of one timer queue. Each flush of the tables also writes these rows."""

    @abstractmethod
    def add(self, row: bytes) -> None:
        """Add a row if it does not exist."""

    @abstractmethod
    def discard(self, row: bytes) -> None:
        """Remove a row if it exists."""

    @abstractmethod
    def until(self, timestamp: int) -> list[bytes]:
        """Return the rows of all key groups with timestamps up to `timestamp`, in any order."""

    @abstractmethod
    def earliest(self) -> int | None:
        """Return the smallest timestamp, or None if there are no rows."""
