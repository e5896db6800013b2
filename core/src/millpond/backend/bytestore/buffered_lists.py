"""List tables over a byte store: what is appended is buffered and stored by itself."""

from __future__ import annotations

from contextlib import closing
from itertools import islice
from operator import itemgetter
from typing import Any

from typing_extensions import override

from millpond.backend.bytestore.buffered_tables import UNREAD, BufferedTable
from millpond.backend.bytestore.encoded_key import EncodedKey
from millpond.backend.bytestore.list_pieces import ListPieces, cells_of
from millpond.backend.bytestore.write_buffer import WriteBuffer
from millpond.spi.rows import APPENDED, Change, Expiry, ListSerializer
from millpond.spi.tables import CellTable
from millpond.types import KeyCodec


class _Entry:
    """A list that the bundle has touched.

    Attributes:
        value: the list as reads see it, None where there is none, or ``UNREAD``.
        replaced: whether the bundle has put or removed it, so that the stored one is of no use.
        appended: what the bundle has appended to the stored one; empty where it is replaced.
        weight: the bytes that the buffer accounts for its elements.
    """

    __slots__ = ("appended", "replaced", "value", "weight")

    def __init__(self) -> None:
        self.value: Any = UNREAD
        self.replaced = False
        self.appended: list[Any] = []
        self.weight = 0


class BufferedListTable(BufferedTable, CellTable):
    """Lists over a byte store: an append reads nothing but, at the flush, a short row.

    The buffer weighs each list that is read or put, and each element that is appended.
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
        """Empty the buffer: the changes are stored."""
        self._entries: dict[bytes, _Entry] = {}
        self._heads: dict[bytes, bytes | None] = {}

    def _entry(self, address: bytes) -> _Entry:
        """The entry of an address; making one may flush."""
        entry = self._entries.get(address)
        if entry is None:
            self._buffer.make_room(0)
            entry = self._entries[address] = _Entry()
        return entry

    def _grown(self, address: bytes, weight: int) -> _Entry:
        """The entry of an address, with so many bytes more accounted for it; this may flush."""
        entry = self._entry(address)
        if self._buffer.room < weight:
            self._buffer.flush()
            entry = self._entry(address)
        self._buffer.room -= weight
        entry.weight += weight
        return entry

    @override
    def get(self, namespace: Any) -> Any:
        address = self._address(namespace)
        value = self._entry(address).value
        if value is UNREAD:
            data = self._whole(address)
            appended = self._entry(address).appended
            value = self._joined(address, data, appended)
            self._grown(address, self._weight_read(data, value, appended)).value = value
        return value

    def _weight_read(self, data: bytes | None, value: Any, appended: list[Any]) -> int:
        """The weight of the stored part of a list; what was appended is accounted for."""
        if not data:
            return 0
        weigh = self._serializer.elements_weight
        return max(len(data), weigh(value) - (weigh(appended) if appended else 0))

    def _whole(self, address: bytes) -> bytes | None:
        """The stored list's bytes."""
        buffer = self._buffer
        buffer.reads += 1
        head = buffer.store.get(self._family, address)
        self._heads[address] = head
        try:
            return ListPieces(buffer.store, self._family).whole(address, head)
        except ValueError as error:
            raise self._unreadable(address, error) from error

    def _joined(self, address: bytes, data: bytes | None, appended: list[Any]) -> list[Any] | None:
        try:
            stored = None if data is None else self._serializer.deserialize(data)
        except Exception as error:
            raise self._unreadable(address, error) from error
        if not appended:
            return stored
        return [*(stored or ()), *appended]

    @override
    def put(self, namespace: Any, value: Any) -> None:
        address = self._address(namespace)
        weight = self._serializer.weight(value)
        entry = self._entry(address)
        self._buffer.room += entry.weight  # what was there goes
        entry.weight = 0
        self._replace(self._grown(address, weight), value)

    @override
    def remove(self, namespace: Any) -> None:
        self._replace(self._entry(self._address(namespace)), None)

    def _replace(self, entry: _Entry, value: Any) -> None:
        entry.value, entry.replaced, entry.appended = value, True, []

    @override
    def append(self, namespace: Any, values: list[Any]) -> None:
        address = self._address(namespace)
        entry = self._grown(address, self._serializer.elements_weight(values))
        if not entry.replaced:
            entry.appended += values
        if entry.value is None:
            entry.value = values
        elif entry.value is not UNREAD:
            entry.value += values

    @override
    def load(self, key: bytes, value: bytes | None) -> None:
        loaded = None if value is None else self._serializer.deserialize(value)
        self._replace(self._entries.setdefault(key, _Entry()), loaded)

    @override
    def sweep(self, limit: int, expiry: Expiry) -> tuple[int, int, bool]:
        """A list of which a piece has expired elements is put without any such."""
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
        return entry is not None and (entry.replaced or bool(entry.appended))

    @override
    def changed_entries(self) -> int:
        return sum(map(self._is_dirty, self._entries))

    def changes(self) -> list[Change]:
        """The lists that were put, and what was appended to others; serialized and sorted."""
        serialize = self._serializer.serialize
        changes: list[Change] = []
        for address, entry in sorted(self._entries.items(), key=itemgetter(0)):
            if entry.replaced:
                value = entry.value
                changes.append((address, None if value is None else serialize(value)))
            elif entry.appended:
                changes.append((address, APPENDED + serialize(entry.appended)))
        return changes

    def stored(self, changes: list[Change]) -> list[Change]:
        """The rows of the store for these changes."""
        return ListPieces(self._buffer.store, self._family).stored(changes, self._heads)

    def settle(self) -> None:
        """After a failed write: take what it may have appended all the same as the list's own.

        Written once more, an append would be there twice, but a whole list only once.
        """
        for address, entry in self._entries.items():
            before = self._heads.get(address, UNREAD)
            if entry.appended and before is not UNREAD:
                data = self._whole(address)
                if self._heads[address] != before:
                    self._replace(entry, self._joined(address, data, []))
