"""What states need to work on many keys at once; a backend has it made for each of its states."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeAlias

__all__ = ["ChosenKeys", "Column", "Columns", "ManyKeys"]

Column: TypeAlias = Any
"""What callers may give: an Arrow or NumPy array, a pandas Series, a list or another iterable."""

Columns: TypeAlias = Any
"""What they get: an Arrow array, or a list."""


class ChosenKeys(Protocol):
    """Checked keys of the subtask, in the order in which the caller gave them."""

    def __len__(self) -> int:
        """How many."""

    def __iter__(self) -> Iterator[Any]:
        """Make each the current key in turn; at the end the one before is current again."""

    def only(self, indices: Sequence[int]) -> ChosenKeys:
        """Those at some indices; an index may come again."""


class ManyKeys(Protocol):
    """How the keys of bulk calls are chosen, and their values brought into columns and back."""

    def chosen(self, keys: Column) -> AbstractContextManager[ChosenKeys]:
        """Check keys; while a frame of rows is processed, they must be of that frame.

        At the end of the ``with`` block the current key is the one before, whatever happened.
        """

    def select(self, key: Any) -> None:
        """Check a key in the same way, and make it the current one."""

    def column(self, values: list[Any]) -> Columns:
        """Values as a column of the state's type, a list where it has none."""

    def checked(self, values: Column, keys: ChosenKeys) -> list[Any]:
        """A value of the state's type for each key, None for null, isolated from the caller's."""

    def contributions(
        self, keys: ChosenKeys, values: Column | None, positions: Column | None
    ) -> tuple[ChosenKeys, list[Any]]:
        """Elements to add, with the key of each; reduced to one a key where that may be."""
