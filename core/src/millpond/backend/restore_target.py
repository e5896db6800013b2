"""The target of a restore: a backend, or rows in memory that tools inspect."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from millpond.backend.changes import Change
from millpond.backend.parameters import KeyedBackendParameters
from millpond.backend.restored_bytes import RestoredBytes
from millpond.keygroups import KeyGroupRange
from millpond.state.state_meta import StateMeta
from millpond.types import KeyCodec


class RestoreTarget(Protocol):
    """Takes the portable rows of snapshots, after learning which states may have rows."""

    @property
    def parameters(self) -> KeyedBackendParameters:
        """The parameters of its opening: its place, its limits, the plugins."""

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

    @property
    def restored_bytes(self) -> RestoredBytes:
        """What restores have read; each adds to it."""

    def expect_outside_bytes(self) -> None:
        """Stop trusting pickles: bytes of a snapshot come in."""

    def expect_states(self, names: Iterable[str], /) -> None:
        """Learn, before ``load_rows``, which states may have rows."""

    def load_rows(self, state_name: str, rows: Iterable[Change], /) -> None:
        """Take portable rows of a state; the value None removes a row."""
