"""The raw state of lists."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from typing_extensions import override

from millpond.arguments import check_elements, check_type
from millpond.backend.states.merging import MergesNamespaces
from millpond.backend.states.raw_state import RawState
from millpond.backend.tables import CellTable
from millpond.errors import NullValueError
from millpond.state.interfaces import ListState

__all__ = ["RawListState"]


class RawListState(RawState, MergesNamespaces, ListState[Any]):
    """A list; the table may keep what is appended apart."""

    _table: CellTable

    @override
    def get(self) -> list[Any]:
        stored = self._table.get(self._namespace)
        if stored is None:
            return []
        return list(stored) if self._immutable else [self._copy(value) for value in stored]

    @override
    def add(self, value: Any) -> None:
        self._append([self._check(value)])

    @override
    def add_all(self, values: Iterable[Any]) -> None:
        self._append(self._check_all(values))

    @override
    def update(self, values: Iterable[Any]) -> None:
        checked = self._check_all(values)
        if checked:
            self._table.put(self._namespace, checked)
        else:
            self._table.remove(self._namespace)

    def _check_all(self, values: Iterable[Any]) -> list[Any]:
        if values is None:
            raise NullValueError("the list of elements", self._place)
        check_elements("values", values)
        try:
            return [self._check(value) for value in values]
        except TypeError:
            check_type("values", values, Iterable)
            raise

    def _append(self, values: list[Any]) -> None:
        if values:
            self._table.append(self._namespace, values)

    @override
    def _combine(self, stored: list[Any]) -> Any:
        return [element for elements in stored for element in elements]

    @override
    def _moved(self, stored: Any) -> Any:
        return list(stored)  # a copy: lists grow in place
