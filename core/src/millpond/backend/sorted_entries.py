"""The entries of a sorted map in memory, and an iteration over its keys."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Any

from sortedcontainers import SortedList
from typing_extensions import override

from millpond.spi.tables import KeySpan

_FEW, _MANY = 16, 1024
"""The number of keys that a cursor reads at once. It is small at first, because many callers need
only the first entry."""


class SortedEntries(dict[bytes, Any]):
    """A dictionary with encoded map keys that also knows the order of its keys.

    Only ``[key] = value``, ``pop``, ``clear`` and ``copy`` may be used to change or copy it.

    Attributes:
        additions: the number of keys that were ever added.
    """

    __slots__ = ("_order", "additions")

    def __init__(self, entries: Iterable[Any] = ()) -> None:
        super().__init__(entries)
        self.additions = 0
        self._order: Any = None  # created at the first use: sorting many keys at once is faster

    @override
    def __setitem__(self, key: bytes, value: Any) -> None:
        if key not in self:
            self.additions += 1
            if self._order is not None:
                self._order.add(key)
        super().__setitem__(key, value)

    @override
    def pop(self, key: bytes, *default: Any) -> Any:
        if self._order is not None and key in self:
            self._order.remove(key)
        return super().pop(key, *default)

    @override
    def clear(self) -> None:
        super().clear()
        self._order = None

    @override
    def copy(self) -> SortedEntries:
        return SortedEntries(self)

    def first_keys(self, span: KeySpan, most: int) -> list[bytes]:
        """Return up to `most` keys in the range `span`, in the direction of the span."""
        if self._order is None:
            self._order = SortedList(self)
        keys = self._order.irange(span.start, span.stop, (True, False), span.reverse)
        return list(islice(keys, most))


class SortedCursor:
    """A position in a range of keys, which moves in order while entries are added and removed."""

    def __init__(self, span: KeySpan) -> None:
        self._span = span
        self._passed: bytes | None = None
        self._entries: SortedEntries | None = None
        self._additions = -1
        self._ahead: list[bytes] = []  # the next keys, in reverse order
        self._most = _FEW
        self._ended = False

    def peek(self, entries: SortedEntries | None) -> bytes | None:
        """Return the next key in `entries`, or None if there is none now."""
        if entries is None:
            return None
        if entries is not self._entries or entries.additions != self._additions:
            self._entries, self._additions = entries, entries.additions
            self._ahead, self._most, self._ended = [], _FEW, False
        ahead = self._ahead
        while True:
            while ahead:
                if ahead[-1] in entries:
                    return ahead[-1]
                ahead.pop()
            if self._ended:
                return None
            ahead += reversed(entries.first_keys(self._span.after(self._passed), self._most))
            self._ended = len(ahead) < self._most
            self._most = min(2 * self._most, _MANY)

    def pass_by(self, key: bytes) -> None:
        """Move the cursor behind `key`.

        `key` is the next key of the cursor, or a key before it that comes from another source.
        """
        self._passed = key
        if self._ahead and self._ahead[-1] == key:
            self._ahead.pop()
