"""List tables over a byte store, in which an append does not rewrite the whole list.

A list of up to ``SHORT`` bytes is one row at the list's address, as in portable rows. For a longer
list, the row at the address contains the number of appends. The list itself consists of pieces,
which are rows whose keys begin with the address.

Pieces have levels. An append adds a piece of the lowest level. When there are sixteen pieces of a
level, they are joined into one piece of the next level, like the carry in hexadecimal counting. So
the number of appends says which pieces exist, and no search needs a scan. The highest level has any
number of pieces, and these never change. An append therefore writes at most the elements of the
last 4096 appends. On average, each element is written three more times.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from itertools import islice
from typing import Any

from typing_extensions import override

from millpond.backend.bytestore.buffered_cells import BufferedTable
from millpond.backend.bytestore.write_buffer import EncodedKey, WriteBuffer
from millpond.spi.byte_store import ByteStore
from millpond.spi.portable_rows import APPENDED, Change, Expiry, ListSerializer
from millpond.spi.tables import CellTable
from millpond.types import KeyCodec

SHORT = 4096
"""The maximum number of bytes of a list that is stored as one row."""

PIECE = APPENDED
"""The prefix of the value of a row that contains a piece of a list."""

_COUNT = b"\xff\xff\xff\xfe"
"""The prefix of the value of a row that contains the number of appends."""

_BITS = 4
_TOP = 3
_MARK = len(PIECE)
_SUFFIX = 5
_WHOLE = 1 << _BITS * _TOP
"""The number of appends that describes a list with one piece of the highest level."""


def is_piece(value: bytes) -> bool:
    """Return whether the value of a stored row is a piece of a list."""
    return value[:_MARK] == PIECE


def cells_of(key: bytes, value: bytes) -> tuple[bytes, bytes]:
    """Return the address of the list to which a stored row belongs, and the elements in the row."""
    if is_piece(value):
        return key[:-_SUFFIX], value[_MARK:]
    return key, b"" if _count(value) else value


def _suffix(level: int, index: int) -> bytes:
    """Return the bytes after the address in a piece's key.

    Pieces of higher levels sort first, because they contain older elements.
    """
    return bytes([_TOP - level]) + index.to_bytes(_SUFFIX - 1, "big")


def _pieces(count: int) -> Iterator[bytes]:
    """Iterate over the key suffixes of a list's pieces, in order, given the number of appends."""
    for index in range(count >> _BITS * _TOP):
        yield _suffix(_TOP, index)
    for level in reversed(range(_TOP)):
        for index in range(count >> _BITS * level & (1 << _BITS) - 1):
            yield _suffix(level, index)


def _count(value: bytes | None) -> int:
    """Return the number of appends in the row at a list's address; 0 for a short list or none."""
    if value is None or value[:_MARK] != _COUNT:
        return 0
    return int.from_bytes(value[_MARK:], "big")


def _count_row(count: int) -> bytes:
    return _COUNT + count.to_bytes(8, "big")


def whole_lists(rows: Iterator[tuple[bytes, bytes]]) -> Iterator[tuple[bytes, bytes]]:
    """Iterate over sorted rows of a store, but with one row for each whole list."""
    address, pieces = b"", list[bytes]()
    for key, value in rows:
        if is_piece(value):
            address, cells = cells_of(key, value)
            pieces.append(cells)
            continue
        if pieces:
            yield address, b"".join(pieces)
            pieces = []
        if not _count(value):
            yield key, value
    if pieces:
        yield address, b"".join(pieces)


class ListPieces:
    """The lists in one family of a store."""

    def __init__(self, store: ByteStore, family: str) -> None:
        self._store = store
        self._family = family

    def whole(self, address: bytes, head: bytes | None) -> bytes | None:
        """Return the bytes of the list at `address`, or None if there is no list.

        `head` is the value of the row at the address.

        Raises:
            ValueError: a piece is missing.
        """
        count = _count(head)
        if not count:
            return head
        return b"".join(self._read(address, _pieces(count)))

    def _read(self, address: bytes, suffixes: Iterator[bytes]) -> Iterator[bytes]:
        keys = [address + suffix for suffix in suffixes]
        for value in self._store.get_many(self._family, keys):
            if value is None or not is_piece(value):
                raise ValueError("a piece of the list is missing")
            yield value[_MARK:]

    def stored(self, changes: Sequence[Change], heads: dict[bytes, bytes | None]) -> list[Change]:
        """Return the rows to write to the store for portable rows, in the order of the rows.

        Args:
            changes: the portable rows, at most one for each list.
            heads: the known values of rows at the addresses of lists. Missing ones are added here.
        """
        unknown = [address for address, _ in changes if address not in heads]
        heads.update(zip(unknown, self._store.get_many(self._family, unknown), strict=True))
        rows: list[Change] = []
        for address, value in changes:
            before = _count(heads[address])
            if value is not None and is_piece(value):
                rows += self._appended(address, heads[address], value[_MARK:])
            elif before or (value is not None and len(value) > SHORT):
                rows += self._replaced(address, before, value)
            else:
                rows.append((address, value))
        return rows

    def _replaced(self, address: bytes, before: int, value: bytes | None) -> list[Change]:
        outdated = dict[bytes, bytes | None].fromkeys(_pieces(before))
        if value is not None and len(value) > SHORT:
            outdated[_suffix(_TOP, 0)] = PIECE + value
            value = _count_row(_WHOLE)
        return _rows(address, value, outdated)

    def _appended(self, address: bytes, head: bytes | None, cells: bytes) -> list[Change]:
        count = _count(head)
        if count:
            return self._grown(address, count, cells)
        whole = (head or b"") + cells
        if len(whole) <= SHORT:
            return [(address, whole)]
        if not head:
            return self._replaced(address, 0, whole)
        pieces = {_suffix(_TOP, 0): PIECE + head, _suffix(0, 0): PIECE + cells}
        return _rows(address, _count_row(_WHOLE + 1), pieces)

    def _grown(self, address: bytes, count: int, cells: bytes) -> list[Change]:
        """Return the rows that add a piece to the list at `address`.

        If the level of the piece is now complete, the rows join the pieces of the level.
        """
        after, level = count + 1, 0
        pieces: dict[bytes, bytes | None] = {}
        while level < _TOP and not after >> _BITS * level & (1 << _BITS) - 1:
            full = [_suffix(level, index) for index in range((1 << _BITS) - 1)]
            cells = b"".join([*self._read(address, iter(full)), cells])
            pieces.update(dict.fromkeys(full))
            level += 1
        index = (after >> _BITS * level) - 1
        if level < _TOP:
            index &= (1 << _BITS) - 1
        pieces[_suffix(level, index)] = PIECE + cells
        return _rows(address, _count_row(after), pieces)


def _rows(address: bytes, head: bytes | None, pieces: Mapping[bytes, bytes | None]) -> list[Change]:
    """Return the rows of one list, sorted by key."""
    return [(address, head), *((address + suffix, pieces[suffix]) for suffix in sorted(pieces))]


_UNREAD: Any = object()
_ELEMENTS = 64
"""The number of bytes that each append counts in the buffer in addition to its row."""


class _Entry:
    """A list that was read or changed since the last flush.

    Attributes:
        value: the list that reads return; None if there is no list, or ``_UNREAD``.
        replaced: whether the list was put or removed since then, so that the stored list does not
            count.
        cells: the serialized elements that were put, and the elements that were appended.
        cost: the number of bytes that the buffer counts for the elements.
    """

    __slots__ = ("cells", "cost", "replaced", "value")

    def __init__(self) -> None:
        self.value: Any = _UNREAD
        self.replaced = False
        self.cells: list[bytes] = []
        self.cost = 0


class BufferedListTable(BufferedTable, CellTable):
    """A list table over a byte store.

    An append reads nothing from the store until the flush, which reads only a short row.
    """

    def __init__(
        self,
        current: EncodedKey,
        buffer: WriteBuffer,
        family: str,
        namespaces: KeyCodec,
        serializer: ListSerializer,
    ) -> None:
        super().__init__(current, buffer, family, namespaces)
        self._serializer = serializer
        self.flushed()

    def flushed(self) -> None:
        """Empty the buffer, because the changes are stored."""
        self._entries: dict[bytes, _Entry] = {}
        self._heads: dict[bytes, bytes | None] = {}

    def _entry(self, address: bytes) -> _Entry:
        """Return the entry of an address. To create a new entry may flush the buffer first."""
        entry = self._entries.get(address)
        if entry is None:
            self._buffer.make_room(0)
            entry = self._entries[address] = _Entry()
        return entry

    def _grown(self, address: bytes, data: bytes) -> _Entry:
        """Return the entry of an address, and count the bytes `data` of new elements.

        This may flush the buffer first.
        """
        entry = self._entry(address)
        cost = _ELEMENTS + self._buffer.cost_of(data) - self._buffer.entry_cost
        if self._buffer.room < cost:
            self._buffer.flush()
            entry = self._entry(address)
        self._buffer.room -= cost
        entry.cost += cost
        return entry

    @override
    def get(self, namespace: Any) -> Any:
        address = self._address(namespace)
        entry = self._entries.get(address)
        if entry is None or entry.value is _UNREAD:
            stored = self._whole(address)
            value = self._decoded(address, stored, [] if entry is None else entry.cells)
            entry = self._grown(address, stored or b"")
            entry.value = value
        return entry.value

    def _whole(self, address: bytes) -> bytes | None:
        """Return the bytes of the stored list at `address`."""
        buffer = self._buffer
        buffer.reads += 1
        head = buffer.store.get(self._family, address)
        self._heads[address] = head
        try:
            return ListPieces(buffer.store, self._family).whole(address, head)
        except ValueError as error:
            raise self._unreadable(address, error) from error

    def _decoded(self, address: bytes, stored: bytes | None, cells: list[bytes]) -> Any:
        """Return the list of stored and appended elements, or None if there are none."""
        if stored is None and not cells:
            return None
        try:
            return self._serializer.deserialize(b"".join([stored or b"", *cells]))
        except Exception as error:
            raise self._unreadable(address, error) from error

    @override
    def put(self, namespace: Any, value: Any) -> None:
        address = self._address(namespace)
        data = self._serializer.serialize(value)
        entry = self._entry(address)
        self._buffer.room += entry.cost  # the old elements no longer count
        entry.cost = 0
        self._replace(self._grown(address, data), value, data)

    @override
    def remove(self, namespace: Any) -> None:
        self._replace(self._entry(self._address(namespace)), None, None)

    def _replace(self, entry: _Entry, value: Any, data: bytes | None) -> None:
        entry.value, entry.replaced = value, True
        entry.cells = [] if data is None else [data]

    @override
    def append(self, namespace: Any, values: list[Any]) -> None:
        address = self._address(namespace)
        data = self._serializer.serialize(values)
        entry = self._grown(address, data)
        entry.cells.append(data)
        if entry.value is None:
            entry.value = values
        elif entry.value is not _UNREAD:
            entry.value += values

    @override
    def load(self, key: bytes, value: bytes | None) -> None:
        loaded = None if value is None else self._serializer.deserialize(value)
        self._replace(self._entries.setdefault(key, _Entry()), loaded, value)

    @override
    def sweep(self, limit: int, expiry: Expiry) -> tuple[int, int, bool]:
        """Visit up to `limit` stored rows; rewrite each list that has an expired element in a row.

        See ``CellTable.sweep``.
        """
        looked, removed, physical = 0, 0, b""
        expired: dict[bytes, None] = {}  # only addresses, because pieces may be large
        with closing(self._buffer.store.scan(self._family, self.swept, None)) as scan:
            for looked, (physical, data) in enumerate(islice(scan, limit), 1):  # noqa: B007
                address, cells = cells_of(physical, data)
                if expiry.of_bytes(cells) is not cells:
                    expired[address] = None
        for address in expired:
            if not self._is_dirty(address):
                kept = expiry.of_bytes(self._whole(address) or b"")
                self.load(address, kept)
                removed += kept is None
        ended = looked < limit
        self.swept = b"" if ended else physical + b"\0"
        return looked, removed, ended

    @override
    def _is_dirty(self, physical: bytes) -> bool:
        entry = self._entries.get(physical)
        return entry is not None and (entry.replaced or bool(entry.cells))

    @override
    def changed_entries(self) -> int:
        return sum(map(self._is_dirty, self._entries))

    def changes(self) -> list[Change]:
        """Return portable rows of the changed lists, sorted: new lists, or appended elements."""
        changes: list[Change] = []
        for address in sorted(self._entries):
            entry = self._entries[address]
            if entry.replaced:
                changes.append((address, b"".join(entry.cells) if entry.cells else None))
            elif entry.cells:
                changes.append((address, APPENDED + b"".join(entry.cells)))
        return changes

    def stored(self, changes: list[Change]) -> list[Change]:
        """Return the rows to write to the store for the portable rows `changes`."""
        return ListPieces(self._buffer.store, self._family).stored(changes, self._heads)

    def settle(self) -> None:
        """After a failed write, find out which appended elements were stored nevertheless.

        These lists are then written as a whole by the next flush. Appending the elements again
        would store them twice.
        """
        for address, entry in self._entries.items():
            before = self._heads.get(address, _UNREAD)
            if entry.cells and not entry.replaced and before is not _UNREAD:
                data = self._whole(address)
                if self._heads[address] != before:
                    self._replace(entry, self._decoded(address, data, []), data)
