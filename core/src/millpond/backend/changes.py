"""Portable rows: the one form in which entries leave a backend and come back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from millpond.spi.rows import Change, ChangeListener


class ChangeListeners:
    """Those whom each flush tells what it has changed.

    Args:
        fail: called with the error where one of them fails: the others may know half a change.
    """

    def __init__(self, fail: Callable[[BaseException], None]) -> None:
        self._fail = fail
        self._listeners: list[ChangeListener] = []

    def __bool__(self) -> bool:
        return bool(self._listeners)

    def add(self, listener: ChangeListener) -> None:
        """Have a listener told from now on."""
        self._listeners.append(listener)

    def tell(self, batch: Mapping[str, Sequence[Change]]) -> None:
        """Call all of them, with the changed rows by state name."""
        try:
            for listener in self._listeners:
                listener(batch)
        except BaseException as error:
            self._fail(error)
            raise
