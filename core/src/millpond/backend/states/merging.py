"""How states of one cell merge their namespaces."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from typing_extensions import override

from millpond.arguments import check_elements, check_type
from millpond.backend.tables import CellTable
from millpond.errors import NullValueError
from millpond.state.interfaces import MergingState

__all__ = ["MergesNamespaces"]


class MergesNamespaces(MergingState[Any, Any]):
    """Merges namespaces by combining stored values; a mixin for subclasses of ``RawState``."""

    _table: CellTable
    _place: str
    _prepare: Callable[[Any], Any]

    def _combine(self, stored: list[Any]) -> Any:
        """Combine stored values into one; None if, with TTL, all of them have expired.

        The table owns the values, and a running snapshot may read them. Users' functions may
        change both their arguments, so they get copies.
        """
        raise NotImplementedError

    def _moved(self, stored: Any) -> Any:
        """The form of a stored value in which another namespace takes it over."""
        return stored

    @override
    def merge_namespaces(self, target: Any, sources: Iterable[Any]) -> None:
        """Merge namespaces; change nothing before the users' functions have returned."""
        if sources is None:
            raise NullValueError("the source namespaces", self._place)
        check_type("sources", sources, Iterable)
        check_elements("sources", sources)
        table, into = self._table, self._prepare(target)
        places = dict.fromkeys((into, *[self._prepare(source) for source in sources]))
        found = {place: each for place in places if (each := table.get(place)) is not None}
        if found.keys() <= {into}:
            return
        held = list(found.values())
        merged = self._moved(held[0]) if len(held) == 1 else self._combine(held)
        for place in found:
            table.remove(place)
        if merged is not None:
            table.put(into, merged)
