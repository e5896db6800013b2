"""Tables: how a backend stores the entries of one state, or the timers of one time domain."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, TypeAlias

from typing_extensions import override

from millpond.spi.keys import SubtaskKeys
from millpond.spi.rows import Expiry


class _Absent:
    @override
    def __repr__(self) -> str:
        return "ABSENT"


ABSENT: Any = _Absent()
"""What a map table returns for a missing entry, since None may be a value."""


Held: TypeAlias = dict[int | None, tuple[dict[Any, Any], dict[Any, Any] | None]]
"""By key group: values by address, and a dictionary with the changed addresses as keys, or None."""


class _Table(ABC):
    """The methods of both kinds of table that the backend calls.

    Attributes:
        current: the current key of the backend, which all methods work on.
    """

    current: Any  # a CurrentKey; each backend derives its own

    @abstractmethod
    def prepare_namespace(self, namespace: Any) -> Any:
        """A checked namespace in the form that the other methods take."""

    @abstractmethod
    def sweep(self, limit: int, expiry: Expiry) -> tuple[int, int, bool]:
        """Look at up to so many stored values, from where the last call ended.

        What has expired is removed as any other change: part of the flush to come.

        Returns:
            How many were looked at, how many were removed, and whether this was the end, so
            that the next call begins anew.
        """

    @abstractmethod
    def changed_entries(self) -> int:
        """How many entries the bundle has changed, as far as that is known."""


class CellTable(_Table):
    """One value per key and namespace; None where there is none."""

    @abstractmethod
    def get(self, namespace: Any) -> Any:
        """The stored object itself (callers copy), or None."""

    def append(self, namespace: Any, values: list[Any]) -> None:
        """Append checked elements, at least one, which the caller gives away, to a list.

        Override it where that can be had for less than the whole list, or where a snapshot may
        still read the stored one.
        """
        stored = self.get(namespace)
        if stored is not None:
            stored.extend(values)
        self.put(namespace, values if stored is None else stored)

    @abstractmethod
    def put(self, namespace: Any, value: Any) -> None:
        """Store a checked object, which the caller gives away."""

    def hold(self, namespace: Any) -> Held:
        """Share the dictionaries of the current key's group and a namespace with a value state.

        The state reads values that are in them, and overwrites values whose addresses are in them.
        A table that cannot allow this at some later moment, such as after a flush, empties what it
        has returned; the state then asks again.

        Returns:
            Nothing by default: the state calls ``get`` and ``put``.
        """
        return {}

    @abstractmethod
    def remove(self, namespace: Any) -> None:
        """Remove the value, if there is one."""

    def get_many(self, namespace: Any, keys: SubtaskKeys) -> list[Any]:
        """What ``get`` gives for each of the keys. Override it where that can be had quicker."""
        return [self.get(namespace) for _ in keys]

    def put_many(self, namespace: Any, keys: SubtaskKeys, values: list[Any]) -> None:
        """``put`` for each of the keys, or ``remove`` for None; override it as ``get_many``."""
        for _, value in zip(keys, values, strict=True):
            if value is None:
                self.remove(namespace)
            else:
                self.put(namespace, value)


class MapTable(_Table):
    """A map of entries per key and namespace."""

    @abstractmethod
    def prepare_key(self, key: Any) -> Any:
        """A checked map key in the form that the other methods take."""

    @abstractmethod
    def get(self, namespace: Any, key: Any) -> Any:
        """The stored object itself (callers copy), or ABSENT."""

    @abstractmethod
    def put(self, namespace: Any, key: Any, value: Any) -> None:
        """Store a checked object, which the caller gives away."""

    @abstractmethod
    def remove(self, namespace: Any, key: Any) -> None:
        """Remove an entry, if there is one."""

    @abstractmethod
    def place(self, namespace: Any) -> Any:
        """Where the current key's map is: what the following methods take, whatever the key."""

    @abstractmethod
    def items_at(self, place: Any) -> Iterator[tuple[Any, Any]]:
        """Map keys (as the user gave them) and stored objects, each once.

        Entries removed meanwhile are skipped, overwritten ones come with their new value.
        """

    @abstractmethod
    def put_at(self, place: Any, key: Any, value: Any) -> None:
        """As ``put``, in the map of a place."""

    @abstractmethod
    def remove_at(self, place: Any, key: Any) -> None:
        """As ``remove``, in the map of a place."""

    @abstractmethod
    def is_empty(self, namespace: Any) -> bool:
        """Whether there is no entry."""

    @abstractmethod
    def clear(self, namespace: Any) -> None:
        """Remove all entries."""


TIMESTAMP_BYTES = 8
_OFFSET = 1 << 63


def timestamp_bytes(timestamp: int) -> bytes:
    """A timestamp in ms as bytes that sort as the numbers do."""
    return (timestamp + _OFFSET).to_bytes(TIMESTAMP_BYTES, "big")


def timestamp_from(data: bytes) -> int:
    """The inverse of :func:`timestamp_bytes`."""
    return int.from_bytes(data, "big") - _OFFSET


class TimerRows(ABC):
    """Keeps the rows of one timer queue; takes part in flushes as tables do."""

    @abstractmethod
    def add(self, row: bytes) -> None:
        """Add a row; nothing happens where it is there."""

    @abstractmethod
    def discard(self, row: bytes) -> None:
        """Remove a row; nothing happens where there is none."""

    @abstractmethod
    def until(self, timestamp: int) -> list[bytes]:
        """All rows up to a timestamp, of all key groups, in no order."""

    @abstractmethod
    def earliest(self) -> int | None:
        """The smallest timestamp, or None."""
