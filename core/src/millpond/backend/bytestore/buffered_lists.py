"""List tables over a byte store: appended elements are stored without the rest of the list.

A list of up to ``SHORT`` bytes is one row under its address, as in portable rows. For a longer
list, that row holds the number of appends, and the pieces of the list are rows behind the address.
Sixteen pieces of a level become one piece of the next level, like a carry when counting, so the
number says which pieces exist, and no look-up needs a scan. The highest level has any number of
pieces, which never change. So an append writes at most the elements of the last 4096 appends, and
on average each element is written three more times.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from itertools import islice
from operator import itemgetter
from typing import Any

from typing_extensions import override

from millpond.backend.bytestore.buffered_cells import BufferedTable
from millpond.backend.bytestore.write_buffer import EncodedKey, WriteBuffer
from millpond.spi.byte_store import ByteStore
from millpond.spi.portable_rows import APPENDED, Change, Expiry, ListSerializer
from millpond.spi.tables import CellTable
from millpond.types import KeyCodec

SHORT = 4096
"""The largest number of bytes of a list that is one row."""

PIECE = APPENDED
"""The prefix of the row of a piece."""

_COUNT = b"\xff\xff\xff\xfe"
"""The prefix of a row with the number of appends."""

_BITS = 4
_TOP = 3
_MARK = len(PIECE)
_SUFFIX = 5
_WHOLE = 1 << _BITS * _TOP
"""The count of a list that is one piece of the highest level."""


def is_piece(value: bytes) -> bool:
    """Return whether a stored row is a piece of a list."""
    return value[:_MARK] == PIECE


def cells_of(key: bytes, value: bytes) -> tuple[bytes, bytes]:
    """Return the address of the list that a row belongs to, and the elements in the row."""
    if is_piece(value):
        return key[:-_SUFFIX], value[_MARK:]
    return key, b"" if _count(value) else value


def _suffix(level: int, index: int) -> bytes:
    """Return the bytes behind the address; pieces of higher levels are older and come first."""
    return bytes([_TOP - level]) + index.to_bytes(_SUFFIX - 1, "big")


def _pieces(count: int) -> Iterator[bytes]:
    """Iterate over the suffixes of the pieces of a list, in order."""
    for index in range(count >> _BITS * _TOP):
        yield _suffix(_TOP, index)
    for level in reversed(range(_TOP)):
        for index in range(count >> _BITS * level & (1 << _BITS) - 1):
            yield _suffix(level, index)


def _count(value: bytes | None) -> int:
    """Return the count in the row at an address; 0 for a short list, or no list."""
    if value is None or value[:_MARK] != _COUNT:
        return 0
    return int.from_bytes(value[_MARK:], "big")


def _count_row(count: int) -> bytes:
    return _COUNT + count.to_bytes(8, "big")


def whole_lists(rows: Iterator[tuple[bytes, bytes]]) -> Iterator[tuple[bytes, bytes]]:
    """Iterate over sorted rows of a store, with each list as one row."""
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
    """The lists of one family of a store."""

    def __init__(self, store: ByteStore, family: str) -> None:
        self._store = store
        self._family = family

    def whole(self, address: bytes, head: bytes | None) -> bytes | None:
        """Return a list's bytes, given the row at its address; None if there is no list.

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
        """Return the rows of the store for portable rows, in their order.

        Args:
            changes: the rows, one for each list.
            heads: the known rows at addresses; completed here.
        """
        unknown = [address for address, _ in changes if address not in heads]
        heads.update(zip(unknown, self._store.get_many(self._family, unknown), strict=True))
        rows: list[Change] = []
        for address, value in changes:
            if value is not None and is_piece(value):
                rows += self._appended(address, heads[address], value[_MARK:])
            else:
                rows += self._replaced(address, _count(heads[address]), value)
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
        if len(whole) <= SHORT or not head:
            return self._replaced(address, 0, whole)
        pieces = {_suffix(_TOP, 0): PIECE + head, _suffix(0, 0): PIECE + cells}
        return _rows(address, _count_row(_WHOLE + 1), pieces)

    def _grown(self, address: bytes, count: int, cells: bytes) -> list[Change]:
        """Add a piece; join it with the others of a level that it completes."""
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
    """Return the rows of one list, sorted."""
    return [(address, head), *((address + suffix, pieces[suffix]) for suffix in sorted(pieces))]


_UNREAD: Any = object()
_ELEMENTS = 64
"""The bytes that each appended part of a list counts in addition to its row."""


class _Entry:
    """A list that the bundle has touched.

    Attributes:
        value: the list that reads return, None if it is missing, or ``_UNREAD``.
        replaced: whether the bundle has put or removed it, so that the stored list is of no use.
        cells: the serialized elements that were put, and those appended since.
        cost: the bytes that the buffer counts for its elements.
    """

    __slots__ = ("cells", "cost", "replaced", "value")

    def __init__(self) -> None:
        self.value: Any = _UNREAD
        self.replaced = False
        self.cells: list[bytes] = []
        self.cost = 0


class BufferedListTable(BufferedTable, CellTable):
    """Lists over a byte store: an append reads nothing before the flush, and then a short row."""

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
        """Empty the buffer: the changes are stored."""
        self._entries: dict[bytes, _Entry] = {}
        self._heads: dict[bytes, bytes | None] = {}

    def _entry(self, address: bytes) -> _Entry:
        """Return the entry of an address; making one may flush."""
        entry = self._entries.get(address)
        if entry is None:
            self._buffer.make_room(0)
            entry = self._entries[address] = _Entry()
        return entry

    def _grown(self, address: bytes, data: bytes) -> _Entry:
        """Return the entry of an address, and count more elements for it; this may flush."""
        entry = self._entry(address)
        cost = _ELEMENTS + self._buffer.cost_of(data) - self._buffer.cost_of(b"")
        if self._buffer.room < cost:
            self._buffer.flush()
            entry = self._entry(address)
        self._buffer.room -= cost
        entry.cost += cost
        return entry

    @override
    def get(self, namespace: Any) -> Any:
        address = self._address(namespace)
        entry = self._entry(address)
        if entry.value is _UNREAD:
            stored = self._whole(address)
            value = self._decoded(address, stored, entry.cells)
            entry = self._grown(address, stored or b"")
            entry.value = value
        return entry.value

    def _whole(self, address: bytes) -> bytes | None:
        """Read the stored list."""
        buffer = self._buffer
        buffer.reads += 1
        head = buffer.store.get(self._family, address)
        self._heads[address] = head
        try:
            return ListPieces(buffer.store, self._family).whole(address, head)
        except ValueError as error:
            raise self._unreadable(address, error) from error

    def _decoded(self, address: bytes, stored: bytes | None, cells: list[bytes]) -> Any:
        """Decode a stored list and the cells that were appended to it; None if there are none."""
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
        self._buffer.room += entry.cost  # of the elements that are replaced
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
        """Write a list without expired elements if one of its pieces has some."""
        looked, removed, physical = 0, 0, b""
        expired: dict[bytes, None] = {}  # the lists alone: pieces may be large, and are not held
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
        """Return the lists that were put, and the elements appended to others, sorted."""
        changes: list[Change] = []
        for address, entry in sorted(self._entries.items(), key=itemgetter(0)):
            if entry.replaced:
                changes.append((address, b"".join(entry.cells) if entry.cells else None))
            elif entry.cells:
                changes.append((address, APPENDED + b"".join(entry.cells)))
        return changes

    def stored(self, changes: list[Change]) -> list[Change]:
        """Return the rows of the store for these changes."""
        return ListPieces(self._buffer.store, self._family).stored(changes, self._heads)

    def settle(self) -> None:
        """After a failed write, find the lists whose appended elements were stored all the same.

        Written again, an append would be stored twice, but a whole list only once.
        """
        for address, entry in self._entries.items():
            before = self._heads.get(address, _UNREAD)
            if entry.cells and not entry.replaced and before is not _UNREAD:
                data = self._whole(address)
                if self._heads[address] != before:
                    self._replace(entry, self._decoded(address, data, []), data)
