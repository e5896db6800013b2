"""Finds the part of a stored value with a time to live that has not expired at a moment."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from millpond.backend.changes import Change
from millpond.backend.list_encoding import join_cells, split_cells
from millpond.state.state_kinds import StateKind
from millpond.state.state_meta import StateMeta
from millpond.state.ttl.stamp import STAMP, last_expired
from millpond.untrusted import unreadable

__all__ = ["Expiry", "live_rows"]


class Expiry:
    """Removes from stored values what has expired at a moment.

    Attributes:
        oldest: the oldest stamp of a live value so far, in ms; None before the first value.
    """

    def __init__(self, meta: StateMeta, now: int) -> None:
        assert meta.ttl_ms is not None
        self._name = meta.name
        self._limit = last_expired(meta.ttl_ms, now)
        self._is_list = meta.kind is StateKind.LIST
        self.oldest: int | None = None

    def _live(self, stamp: int) -> bool:
        if stamp <= self._limit:
            return False
        if self.oldest is None or stamp < self.oldest:
            self.oldest = stamp
        return True

    def of_bytes(self, data: bytes) -> bytes | None:
        """The same bytes, those of a list's live elements, or None if nothing is live."""
        try:
            return self._kept(data)
        except Exception as error:
            raise unreadable("", self._name, b"", error) from error

    def _kept(self, data: bytes) -> bytes | None:
        if not self._is_list:
            return data if self._live(STAMP.unpack_from(data)[0]) else None
        cells = list(split_cells(data))
        live = [cell for cell in cells if self._live(STAMP.unpack_from(cell)[0])]
        if len(live) == len(cells):
            return data
        return join_cells(live) if live else None

    def of_object(self, value: Any) -> Any:
        """The same for a stamped object, or a list of them."""
        if not self._is_list:
            return value if self._live(value[1]) else None
        live = [element for element in value if self._live(element[1])]
        if len(live) == len(value):
            return value
        return live or None


def live_rows(meta: StateMeta, rows: Iterable[Change], now: int) -> list[Change]:
    """The rows of a state that a full snapshot stores: those that have not expired."""
    if meta.ttl_ms is None:
        return list(rows)
    expiry = Expiry(meta, now)
    kept = ((key, expiry.of_bytes(data or b"")) for key, data in rows)
    return [(key, data) for key, data in kept if data is not None]
