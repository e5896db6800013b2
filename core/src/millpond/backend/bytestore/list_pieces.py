"""Lists in a byte store: a short list is one row, a long one is in pieces.

A list up to ``SHORT`` bytes stands under its address, as in portable rows. In place of a longer one
stands its count, the number of appends it has taken, and its pieces are rows of their own behind
the address. Sixteen pieces of a level become one of the next, as digits carry when one counts, so
the count says which pieces there are: no look-up needs a scan. The highest level has any number
of pieces, which never change, so an append writes at most what the last 4096 have brought,
and on average each element three times more.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from millpond.spi.byte_store import ByteStore
from millpond.spi.rows import APPENDED, Change

SHORT = 4096
"""The most bytes of a list that is one row."""

PIECE = APPENDED
"""How the row of a piece begins."""

_COUNT = b"\xff\xff\xff\xfe"
"""How a row begins that holds a count."""

_BITS = 4
_TOP = 3
_MARK = len(PIECE)
_SUFFIX = 5
_WHOLE = 1 << _BITS * _TOP
"""The count of a list of which all is in one piece of the highest level."""


def is_piece(value: bytes) -> bool:
    """Whether a stored row is a piece of a list."""
    return value[:_MARK] == PIECE


def cells_of(key: bytes, value: bytes) -> tuple[bytes, bytes]:
    """The address of the list that a row belongs to, and the elements in the row."""
    if is_piece(value):
        return key[:-_SUFFIX], value[_MARK:]
    return key, b"" if _count(value) else value


def _suffix(level: int, index: int) -> bytes:
    """What follows the address; pieces of higher levels are older, and come first."""
    return bytes([_TOP - level]) + index.to_bytes(_SUFFIX - 1, "big")


def _pieces(count: int) -> Iterator[bytes]:
    """The suffixes of the pieces of a list, in its order."""
    for index in range(count >> _BITS * _TOP):
        yield _suffix(_TOP, index)
    for level in reversed(range(_TOP)):
        for index in range(count >> _BITS * level & (1 << _BITS) - 1):
            yield _suffix(level, index)


def _count(value: bytes | None) -> int:
    """The count that a row under an address holds; 0 where it is a short list, or nothing."""
    if value is None or value[:_MARK] != _COUNT:
        return 0
    return int.from_bytes(value[_MARK:], "big")


def _count_row(count: int) -> bytes:
    return _COUNT + count.to_bytes(8, "big")


def whole_lists(rows: Iterator[tuple[bytes, bytes]]) -> Iterator[tuple[bytes, bytes]]:
    """The rows of a store, sorted by key, with each list in one."""
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
        """A list's bytes, whose row under the address is known; None where there is no list.

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
        """What is written for portable rows, sorted as they are.

        Args:
            changes: the rows, one for each list.
            heads: what stands under addresses, as far as the caller knows it; completed here.
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
        """Add a piece; while it completes a level, join it with the others of the level."""
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
    """Rows of one list, sorted."""
    return [(address, head), *((address + suffix, pieces[suffix]) for suffix in sorted(pieces))]
