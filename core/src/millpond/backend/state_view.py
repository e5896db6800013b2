"""A consistent picture of a backend at one moment, for snapshots that run while work goes on."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import TYPE_CHECKING

from typing_extensions import override

from millpond.backend.cleanup import live_rows
from millpond.backend.spi import StateMeta

if TYPE_CHECKING:
    from millpond.backend.changes import Change
    from millpond.backend.keyed import KeyedStateBackend

__all__ = ["StateView"]


class StateView(ABC):
    """What a backend held when it was frozen; read by one thread, then closed.

    Attributes:
        metas: all states, registered or only restored.
    """

    def __init__(self, backend: KeyedStateBackend) -> None:
        self.metas: tuple[StateMeta, ...] = tuple(backend.state_metas())
        self.key_group_range = backend.key_group_range
        self.max_parallelism = backend.max_parallelism
        self.key = backend.key_codec.snapshot()
        self._now = backend.parameters.clock.now_ms

    @abstractmethod
    def rows(self, key_group: int) -> Iterator[tuple[str, list[Change]]]:
        """All entries of a key group: state names, each with consecutive rows of the state."""

    def live_rows(self, key_group: int) -> Iterator[tuple[str, list[Change]]]:
        """The entries of a key group that had not expired; what full snapshots write."""
        metas = {meta.name: meta for meta in self.metas}
        for state, rows in self.rows(key_group):
            yield state, live_rows(metas[state], rows, self._now)

    def close(self) -> None:
        """Release what keeps the picture; may be called twice, from any thread."""


class EmptyView(StateView):
    """The view of a snapshot that needs nothing of the backend any more."""

    @override
    def rows(self, key_group: int) -> Iterator[tuple[str, list[Change]]]:
        return iter(())
