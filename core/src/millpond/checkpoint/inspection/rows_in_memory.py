"""The rows of snapshots and savepoints in memory, for tools: no state backend is needed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, ClassVar

from typing_extensions import override

from millpond.backend.changes import Change
from millpond.backend.keyed import KeyedStateBackend, RegisteredState, addresses_of
from millpond.backend.migration import CellMigration
from millpond.backend.parameters import KeyedBackendParameters, PluginHooks
from millpond.backend.state_view import StateView
from millpond.backend.tables import CellTable, MapTable
from millpond.backend.timer_queue import TimerRows
from millpond.checkpoint.handles import KeyedStateHandle
from millpond.checkpoint.restore import restore_keyed
from millpond.checkpoint.savepoint.savepoint_file import SavedOperator, SavepointHandle
from millpond.clock import ManualClock
from millpond.config import Config, RestoreConfig
from millpond.errors import UnsupportedCapabilityError
from millpond.keygroups import KeyGroupRange, key_group_prefix_bytes
from millpond.operator_id import OperatorId
from millpond.types import KeyCodec
from millpond.types.key_columns import codec_from_snapshot
from millpond.untrusted import decoding

__all__ = ["Contents", "read_contents"]


class Contents(KeyedStateBackend):
    """Holds stored rows as they are, by key group; states cannot be requested from it."""

    name: ClassVar[str] = "contents"

    def __init__(self, parameters: KeyedBackendParameters) -> None:
        super().__init__(parameters)
        self._prefix_bytes = key_group_prefix_bytes(self.max_parallelism)
        self._rows: dict[str, dict[bytes, dict[bytes, bytes]]] = {}

    @override
    def load_rows(self, state_name: str, rows: Iterable[Change]) -> None:
        groups = self._rows.setdefault(state_name, {})
        for key, value in rows:
            group = groups.setdefault(key[: self._prefix_bytes], {})
            if value is None:
                group.pop(key, None)
            else:
                group[key] = value

    def state_rows(self, state_name: str) -> Iterator[list[Change]]:
        """All rows of a state, by key group and sorted."""
        for _, rows in sorted(self._rows.get(state_name, {}).items()):
            if rows:
                yield sorted(rows.items())

    @override
    def freeze(self) -> StateView:
        return _ContentsView(self)

    def rows(self, state_name: str, key_group: int) -> list[Change]:
        """The rows of a state in a key group, sorted."""
        prefix = key_group.to_bytes(self._prefix_bytes, "big")
        return sorted(self._rows.get(state_name, {}).get(prefix, {}).items())

    @override
    def flush(self, version: str | None = None) -> None:
        """Nothing is buffered."""
        self.version = version

    @override
    def migrate_rows(self, state_name: str, migrate: CellMigration) -> None:
        raise UnsupportedCapabilityError(self.name, "migrate_rows")

    @override
    def _create_table(self, registered: RegisteredState) -> CellTable | MapTable:
        raise UnsupportedCapabilityError(self.name, "get_partitioned_state")

    @override
    def _create_timer_rows(self, name: str) -> TimerRows:
        raise UnsupportedCapabilityError(self.name, "timer_queue")

    @override
    def _addresses(self, name: str, namespaces: KeyCodec) -> Iterator[tuple[Any, Any]]:
        for rows in self.state_rows(name):
            physical = (key for key, _ in rows)
            yield from addresses_of(physical, self.key_codec, namespaces, self._prefix_bytes)

    @override
    def _count_entries(self) -> int:
        return sum(len(g) for groups in self._rows.values() for g in groups.values())

    @override
    def _select(self, key: Any, key_group: int) -> None:
        raise UnsupportedCapabilityError(self.name, "set_current_key")

    @override
    def _unselect(self) -> None:
        """There is never a current key."""

    @override
    def _close(self) -> None:
        self._rows.clear()


class _ContentsView(StateView):
    def __init__(self, contents: Contents) -> None:
        super().__init__(contents.shape())
        self._contents = contents

    @override
    def rows(self, key_group: int) -> Iterator[tuple[str, list[Change]]]:
        for meta in self.metas:
            yield meta.name, self._contents.rows(meta.name, key_group)


def read_contents(
    parts: Sequence[KeyedStateHandle | SavepointHandle],
    shape: KeyedStateHandle | SavedOperator,
    uid: str,
    registry: PluginHooks,
    groups: KeyGroupRange | None = None,
    limits: RestoreConfig = RestoreConfig(),
) -> Contents:
    """Read snapshots or savepoints of one operator.

    Args:
        parts: what to read; together they may cover any key groups.
        shape: what says the key type and the number of key groups.
        uid: the operator.
        registry: the plugins that may restore.
        groups: the key groups to read; all by default.
        limits: what the files may ask for.

    Raises:
        CorruptSnapshotError, RestoreError: something cannot be read.
    """
    with decoding(uid, "the type of its keys makes no sense"):
        key_codec = codec_from_snapshot(shape.key)
    contents = Contents(
        KeyedBackendParameters(
            key_codec=key_codec,
            max_parallelism=shape.max_parallelism,
            key_group_range=groups or KeyGroupRange(0, shape.max_parallelism - 1),
            clock=ManualClock(0),
            config=Config(restore=limits),
            registry=registry,
            operator=OperatorId(uid=uid),
        )
    )
    restore_keyed(contents, parts)
    return contents
