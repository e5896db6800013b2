"""A consistent picture of a backend at one moment, for snapshots that run while work goes on."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator

import attrs
from typing_extensions import override

from millpond.backend.changes import Change
from millpond.backend.expiry import live_rows
from millpond.backend.parameters import KeyedBackendParameters
from millpond.keygroups import KeyGroupRange
from millpond.state.state_meta import StateMeta
from millpond.types import KeyCodec, SerializerSnapshot


@attrs.frozen
class StateShape:
    """What a backend's state was like at one moment, without its rows.

    Attributes:
        metas: all states, registered or only restored.
        key: the type of the keys.
        now: the time in ms.
    """

    metas: tuple[StateMeta, ...]
    key_group_range: KeyGroupRange
    max_parallelism: int
    key: SerializerSnapshot
    now: int

    @classmethod
    def of(
        cls, parameters: KeyedBackendParameters, key_codec: KeyCodec, metas: Iterable[StateMeta]
    ) -> StateShape:
        """That of the states of a backend, now."""
        return cls(
            metas=tuple(metas),
            key_group_range=parameters.key_group_range,
            max_parallelism=parameters.max_parallelism,
            key=key_codec.snapshot(),
            now=parameters.clock.now_ms,
        )


class StateView(ABC):
    """What a backend held when it was frozen; read by one thread, then closed.

    Attributes:
        metas: all states, registered or only restored.
    """

    def __init__(self, shape: StateShape) -> None:
        self.metas: tuple[StateMeta, ...] = shape.metas
        self.key_group_range = shape.key_group_range
        self.max_parallelism = shape.max_parallelism
        self.key = shape.key
        self._now = shape.now

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
