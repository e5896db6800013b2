"""What snapshots are read into: a backend, or the rows in memory that tools look at."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from millpond.backend.changes import Change
from millpond.backend.parameters import KeyedBackendParameters
from millpond.keygroups import KeyGroupRange
from millpond.state.state_meta import StateMeta
from millpond.types import KeyCodec

__all__ = ["RestoreTarget"]


class RestoreTarget(Protocol):
    """Takes the portable rows of snapshots, after it was told which states they may be of."""

    @property
    def parameters(self) -> KeyedBackendParameters:
        """What it was opened with: its place, its limits, the plugins."""

    @property
    def max_parallelism(self) -> int:
        """The number of key groups of the whole operator."""

    @property
    def key_group_range(self) -> KeyGroupRange:
        """The key groups that it takes."""

    @property
    def key_codec(self) -> KeyCodec:
        """How keys are encoded."""

    @property
    def restored(self) -> dict[str, StateMeta]:
        """What snapshots say of states; restoring adds to it."""

    def expect_outside_bytes(self) -> None:
        """Bytes of a snapshot come in: no pickle is trusted."""

    def expect_states(self, names: Iterable[str], /) -> None:
        """Learn, before ``load_rows``, of which states there may be rows."""

    def load_rows(self, state_name: str, rows: Iterable[Change], /) -> None:
        """Take portable rows of a state; None as a value removes."""
