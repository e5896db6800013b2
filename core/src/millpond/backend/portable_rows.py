"""How entries leave a backend and come back: as portable rows, whatever it stores them as."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable

from millpond.backend.changes import Change
from millpond.backend.state_view import StateView

__all__ = ["PortableRows"]


class PortableRows(ABC):
    """What a backend does for snapshots and restores."""

    @abstractmethod
    def flush(self, version: str | None = None) -> None:
        """End a bundle: buffered changes reach the store and the change listeners.

        What fails before anything was stored, a serializer or the store's write, leaves all
        changes in the buffer: they are read as before, and the next flush takes them along.

        Args:
            version: what the state is called from now on, unless nothing has changed since
                it got its present name; a store that survives the process keeps the name in
                the same atomic write. None: the state is at no named version.

        Raises:
            BackendFailedError: a change listener, or a flush in the middle of an operation, has
                failed before. Every other call raises it too; only closing is left.
        """

    @abstractmethod
    def freeze(self) -> StateView:
        """A picture of all flushed entries, which later changes do not touch."""

    def expect_states(self, names: Iterable[str]) -> None:
        """Learn, before ``load_rows``, of which states there may be rows.

        Nothing by default; for stores that make room for all of them sooner than for each.
        """

    @abstractmethod
    def load_rows(self, state_name: str, rows: Iterable[Change]) -> None:
        """Put portable rows of a state into the store; None as a value removes."""
