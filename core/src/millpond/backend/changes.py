"""Portable rows: the one form in which entries leave a backend and come back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import countOf
from typing import Any, Self, overload

from typing_extensions import override

from millpond.types import TypeSerializer

Change = tuple[bytes, bytes | None]
"""A portable row: physical key and serialized value, None where the entry was removed.

One of a list state may append to what there is; see ``millpond.backend.list_encoding``.
"""

ChangeListener = Callable[[Mapping[str, Sequence[Change]]], None]
"""Called at each flush with the changed rows by state name."""


class Changes(Sequence[Change]):
    """Portable rows of a state as two columns; as a sequence it has them as pairs.

    To make pairs of what was encoded a column at a time, and columns of these again for a file,
    took a fifth of a snapshot's time.

    Attributes:
        keys, values: the columns, of equal length.
    """

    def __init__(self, keys: list[bytes], values: list[bytes | None]) -> None:
        self.keys = keys
        self.values = values

    @classmethod
    def of(cls, rows: Iterable[Change]) -> Self:
        """Rows as columns."""
        if isinstance(rows, cls):
            return rows
        rows = list(rows)
        return cls([key for key, _ in rows], [value for _, value in rows])

    @property
    def size(self) -> int:
        """The bytes of keys and values."""
        return sum(map(len, self.keys)) + sum(map(len, filter(None, self.values)))

    def in_order(self) -> Changes:
        """The same, sorted by key; no key comes twice."""
        # Rows come sorted, so most often this one comparison is all. To sort keys and look their
        # values up takes half of what sorting pairs does.
        ordered = sorted(self.keys)
        if ordered == self.keys:
            return self
        by_key = dict(zip(self.keys, self.values, strict=True))
        return Changes(ordered, list(map(by_key.__getitem__, ordered)))

    @override
    def __len__(self) -> int:
        return len(self.keys)

    @override
    def __iter__(self) -> Iterator[Change]:
        return zip(self.keys, self.values, strict=True)

    @overload
    def __getitem__(self, at: int) -> Change: ...

    @overload
    def __getitem__(self, at: slice) -> Changes: ...

    @override
    def __getitem__(self, at: int | slice) -> Change | Changes:
        if isinstance(at, slice):
            return Changes(self.keys[at], self.values[at])
        return self.keys[at], self.values[at]


def serialized(serializer: TypeSerializer[Any], values: list[Any]) -> list[bytes | None]:
    """Values as bytes, None where one was removed: by loops in C where none was."""
    if countOf(map(type, values), type(None)):
        serialize = serializer.serialize
        return [None if value is None else serialize(value) for value in values]
    data: list[Any] = serializer.serialize_many(values)
    return data


class ChangeListeners:
    """Those whom each flush tells what it has changed.

    Args:
        fail: called with the error where one of them fails: the others may know half a change.
    """

    def __init__(self, fail: Callable[[BaseException], None]) -> None:
        self._fail = fail
        self._listeners: list[ChangeListener] = []

    def __bool__(self) -> bool:
        return bool(self._listeners)

    def add(self, listener: ChangeListener) -> None:
        """Have a listener told from now on."""
        self._listeners.append(listener)

    def tell(self, batch: Mapping[str, Sequence[Change]]) -> None:
        """Call all of them, with the changed rows by state name."""
        try:
            for listener in self._listeners:
                listener(batch)
        except BaseException as error:
            self._fail(error)
            raise
