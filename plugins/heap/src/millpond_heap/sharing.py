"""Copy-on-write of the dictionaries that a table shares with running snapshots."""

from __future__ import annotations

from typing import Any


class Sharing:
    """The dictionaries and objects of a table that a running snapshot may still read.

    Each freeze gives the table a new Sharing: everything counts as shared again, copies included.
    """

    def __init__(self, groups: dict[int | None, dict[Any, dict[Any, Any]]]) -> None:
        self._shared = {(g, namespace) for g, entries in groups.items() for namespace in entries}
        self._owned: set[tuple[Any, ...]] = set()

    def part(self, entries: dict[Any, dict[Any, Any]], group: int | None, namespace: Any) -> None:
        """Copy the entries of a namespace before the first write to them."""
        place = (group, namespace)
        if place in self._shared:
            self._shared.discard(place)
            if namespace in entries:
                entries[namespace] = entries[namespace].copy()

    def take(self, address: tuple[Any, ...]) -> bool:
        """Return whether the table already owns the mutable object at an address; now it does."""
        if address in self._owned:
            return True
        self._owned.add(address)
        return False
