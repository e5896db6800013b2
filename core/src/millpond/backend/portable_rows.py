"""How entries leave and enter a backend: as portable rows, however it stores them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable

from millpond.backend.address_change import AddressChange
from millpond.backend.changes import Change
from millpond.backend.state_compatibility import CellMigration
from millpond.backend.state_view import StateView

__all__ = ["PortableRows"]


class PortableRows(ABC):
    """What a backend provides for snapshots and restores."""

    @abstractmethod
    def flush(self, version: str | None = None) -> None:
        """End a bundle: buffered changes reach the store and the change listeners.

        A failure before anything was stored, in a serializer or the store's write, leaves all
        changes in the buffer: reads still see them, and the next flush includes them.

        Args:
            version: the state's new version name; the present name stays if nothing changed
                since it was given. A store that survives the process records the name in the
                same atomic write. None: the state is at no named version.

        Raises:
            BackendFailedError: a change listener, or a flush in the middle of an operation, has
                failed before. Every call except closing raises it.
        """

    @abstractmethod
    def freeze(self) -> StateView:
        """A view of all flushed entries, which later changes do not touch."""

    def expect_states(self, names: Iterable[str]) -> None:
        """Learn, before ``load_rows``, which states may have rows.

        Does nothing by default; for stores that prepare all states faster together than singly.
        """

    @abstractmethod
    def load_rows(self, state_name: str, rows: Iterable[Change]) -> None:
        """Put portable rows of a state into the store; the value None removes a row.

        They are a few MiB at most: restores come in parts.
        """

    @abstractmethod
    def readdress_rows(self, state_name: str, change: AddressChange) -> None:
        """Give all stored rows of a restored state that was not requested yet other physical keys.

        Each stays in its key group, and no two become one. Afterwards all is as after
        ``migrate_rows``; if ``change`` refuses a row, all stay as they were.
        """

    @abstractmethod
    def migrate_rows(self, state_name: str, migrate: CellMigration) -> None:
        """Rewrite all stored values of a restored state that was not requested yet.

        Afterwards the state is at no named version, and the change listeners know the changes. If
        ``migrate`` refuses a value, all values stay unchanged.
        """
