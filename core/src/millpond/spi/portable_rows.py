"""Portable rows, which are the form of entries in snapshots and between different backends."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import countOf
from typing import Any, Self, overload

import attrs
from typing_extensions import override

from millpond.keygroups import KeyGroupRange
from millpond.safe_decoding import unreadable
from millpond.spi.parameters import KeyedBackendParameters
from millpond.state.descriptors import StateDescriptor, StateKind
from millpond.state.state_meta import StateMeta
from millpond.state.ttl.expiry_rule import STAMP, as_timestamp, last_expired, lives_on
from millpond.types import KeyCodec, SerializerSnapshot, TypeSerializer

Change = tuple[bytes, bytes | None]
"""A portable row: a physical key and a serialized value, or None if the entry was removed.

For a list state, the value is the whole list, or the prefix ``APPENDED`` and the elements to append
to the list. A whole list cannot begin with ``APPENDED``, because it begins with the length of its
first element.
"""


ChangeListener = Callable[[Mapping[str, Sequence[Change]]], None]
"""A function that is called at each flush with the changed rows by state name."""


class Changes(Sequence[Change]):
    """Portable rows of a state: a sequence of pairs, which is stored as two columns.

    Values are encoded and written to files as columns. Building pairs in between would take a fifth
    of the time of a snapshot.

    Attributes:
        keys, values: the two columns, which have the same length.
    """

    def __init__(self, keys: list[bytes], values: list[bytes | None]) -> None:
        self.keys = keys
        self.values = values

    @classmethod
    def from_rows(cls, rows: Iterable[Change]) -> Self:
        """Return `rows` as an instance of this class."""
        if isinstance(rows, cls):
            return rows
        rows = list(rows)
        return cls([key for key, _ in rows], [value for _, value in rows])

    @property
    def size(self) -> int:
        """The total number of bytes of all keys and values."""
        return sum(map(len, self.keys)) + sum(map(len, filter(None, self.values)))

    def in_order(self) -> Changes:
        """Return the rows sorted by key. The keys must be distinct."""
        # Most rows are sorted already. Sorting the keys and looking up their values takes half the
        # time of sorting pairs.
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
    """Return the bytes of each value, or None for each value that is None.

    None means that the entry was removed.
    """
    if countOf(map(type, values), type(None)):
        serialize = serializer.serialize
        return [None if value is None else serialize(value) for value in values]
    return list(map(serializer.serialize, values))


APPENDED = b"\xff\xff\xff\xff"
"""The prefix of a row's value that appends elements to a list."""


def join_cells(elements: Iterable[bytes]) -> bytes:
    """Return the bytes of a list: for each element, its length (4 bytes, big-endian) and bytes."""
    parts: list[bytes] = []
    for data in elements:
        parts += (len(data).to_bytes(4, "big"), data)
    return b"".join(parts)


def split_cells(data: bytes) -> list[bytes]:
    """Return the bytes of each element of a list, given the bytes of the list."""
    cells, end = [], 0
    while end < len(data):
        start = end + 4
        end = start + int.from_bytes(data[end:start], "big")
        cells.append(data[start:end])
    return cells


def apply_to_lists(lists: dict[bytes, bytes], key: bytes, value: bytes) -> None:
    """Apply a portable row of a list state to `lists`: replace a list, or append to a list.

    Args:
        lists: the bytes of each list, by physical key.
        key: the physical key of the row.
        value: the value of the row.
    """
    start = len(APPENDED)
    lists[key] = lists.get(key, b"") + value[start:] if value[:start] == APPENDED else value


class ListSerializer(TypeSerializer[list[Any]]):
    """The serializer of whole lists, which joins the bytes of the elements."""

    type_name = "list"

    def __init__(self, element: TypeSerializer[Any]) -> None:
        self.element = element

    @override
    def check(self, value: Any) -> list[Any]:
        return [self.element.check(item) for item in value]

    @override
    def serialize(self, value: list[Any]) -> bytes:
        return join_cells(map(self.element.serialize, value))

    @override
    def deserialize(self, data: bytes) -> list[Any]:
        return list(map(self.element.deserialize, split_cells(data)))

    @override
    def snapshot(self) -> SerializerSnapshot:
        """Return the description of the elements; the state's metadata says that it is a list."""
        return self.element.snapshot()


def cell_serializer(descriptor: StateDescriptor) -> TypeSerializer[Any]:
    """Return the serializer for the stored values of a state, or for the values of its map."""
    serializer = descriptor.value_serializer()
    return ListSerializer(serializer) if descriptor.kind is StateKind.LIST else serializer


class Expiry:
    """A filter that removes expired values, or expired elements of lists, as of one moment.

    Attributes:
        oldest: the oldest timestamp in ms of the values that have not expired; None before the
            first such value. A value with its own time to live counts with the timestamp with
            which it would expire at the same time by the state's time to live.
    """

    def __init__(self, meta: StateMeta, now: int) -> None:
        assert meta.ttl_ms is not None
        self._name = meta.name
        self._ttl_ms, self._now = meta.ttl_ms, now
        self._limit = last_expired(meta.ttl_ms, now)
        self._is_list = meta.kind is StateKind.LIST
        self.oldest: int | None = None

    def _live(self, stamp: int) -> bool:
        if stamp <= self._limit:
            if not lives_on(stamp, self._now):
                return False
            stamp = as_timestamp(stamp, self._ttl_ms)
        if self.oldest is None or stamp < self.oldest:
            self.oldest = stamp
        return True

    def of_bytes(self, data: bytes) -> bytes | None:
        """Return the part of a stored value that has not expired, or None if nothing remains.

        A part can expire only in a list, whose elements expire separately.
        """
        try:
            return self._kept(data)
        except Exception as error:
            raise unreadable("", self._name, b"", error) from error

    def _kept(self, data: bytes) -> bytes | None:
        if not self._is_list:
            return data if self._live(STAMP.unpack_from(data)[0]) else None
        cells = split_cells(data)
        live = [cell for cell in cells if self._live(STAMP.unpack_from(cell)[0])]
        if len(live) == len(cells):
            return data
        return join_cells(live) if live else None

    def of_object(self, value: Any) -> Any:
        """Return the part of a stored object that has not expired, or None if nothing remains.

        A part can expire only in a list, whose elements expire separately.
        """
        if not self._is_list:
            return value if self._live(value[1]) else None
        live = [element for element in value if self._live(element[1])]
        if len(live) == len(value):
            return value
        return live or None


def live_rows(meta: StateMeta, rows: Sequence[Change], now: int) -> Sequence[Change]:
    """Return the rows of a state that have not expired, for a full snapshot.

    If the state expires by processing time, `now` is the time, else it is the snapshot's watermark.
    """
    if meta.ttl_ms is None:
        return rows
    expiry = Expiry(meta, now if meta.watermark is None else meta.watermark)
    kept = ((key, expiry.of_bytes(data or b"")) for key, data in rows)
    return [(key, data) for key, data in kept if data is not None]


@attrs.frozen
class StateShape:
    """The description of a backend's states at one moment.

    Attributes:
        metas: the description of each requested or restored state.
        key: the type of the keys.
        now: the processing time in ms.
    """

    metas: tuple[StateMeta, ...]
    key_group_range: KeyGroupRange
    max_parallelism: int
    key: SerializerSnapshot
    now: int

    @classmethod
    def of_states(
        cls, parameters: KeyedBackendParameters, key_codec: KeyCodec, metas: Iterable[StateMeta]
    ) -> StateShape:
        """Return the description of these states as of now."""
        return cls(
            metas=tuple(metas),
            key_group_range=parameters.key_group_range,
            max_parallelism=parameters.max_parallelism,
            key=key_codec.snapshot(),
            now=parameters.clock.now_ms,
        )


class StateView(ABC):
    """The rows of a backend as of one moment. One thread reads the view and then closes it.

    Attributes:
        metas: the description of each requested or restored state.
    """

    def __init__(self, shape: StateShape) -> None:
        self.metas: tuple[StateMeta, ...] = shape.metas
        self.key_group_range = shape.key_group_range
        self.max_parallelism = shape.max_parallelism
        self.key = shape.key
        self._now = shape.now

    @abstractmethod
    def rows(self, key_group: int) -> Iterator[tuple[str, Sequence[Change]]]:
        """Iterate over the rows of a key group, in pairs of a state's name and a list of rows."""

    def live_rows(self, key_group: int) -> Iterator[tuple[str, Sequence[Change]]]:
        """Iterate over the rows of a key group like ``rows``, but without expired entries."""
        metas = {meta.name: meta for meta in self.metas}
        for state, rows in self.rows(key_group):
            yield state, live_rows(metas[state], rows, self._now)

    def close(self) -> None:
        """Release the resources of the view. Any thread may call this, also a second time."""


class EmptyView(StateView):
    """A view without rows, for a snapshot that stores the backend's own files instead of rows."""

    @override
    def rows(self, key_group: int) -> Iterator[tuple[str, list[Change]]]:
        return iter(())
