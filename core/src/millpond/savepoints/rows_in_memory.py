"""The rows of snapshots and savepoints in memory, for tools: no state backend is needed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType

from typing_extensions import override

from millpond.clock import ManualClock, SystemClock
from millpond.config import Config, RestoreConfig
from millpond.keygroups import KeyGroupRange
from millpond.operator_id import OperatorId
from millpond.safe_decoding import decoding
from millpond.savepoints.savepoint_file import SavedOperator
from millpond.snapshots.handles import KeyedStateHandle, SavepointHandle
from millpond.snapshots.restore import restore_keyed
from millpond.spi.backend import RestoredBytes
from millpond.spi.keys import KeyLayout
from millpond.spi.parameters import KeyedBackendParameters, PluginHooks
from millpond.spi.rows import Change, StateShape, StateView, apply_to_lists
from millpond.state.descriptors import StateKind
from millpond.state.state_meta import StateMeta
from millpond.types import PicklePermission
from millpond.types.key_columns import codec_from_snapshot


class RowsInMemory:
    """A target of restores that holds stored rows as they are, by key group.

    Attributes:
        restored: what the snapshots say of their states.
        restored_bytes: what was read of them.
    """

    def __init__(self, parameters: KeyedBackendParameters) -> None:
        self.parameters = parameters
        self.max_parallelism = parameters.max_parallelism
        self.key_group_range = parameters.key_group_range
        self.restored: dict[str, StateMeta] = {}
        self.restored_bytes = RestoredBytes()
        pickles = PicklePermission(parameters.config.serialization.allow_pickle, outside=True)
        self.key_codec = parameters.key_codec.bound(pickles)
        self._layout = KeyLayout(self.max_parallelism)
        self._rows: dict[str, dict[bytes, dict[bytes, bytes]]] = {}

    def expect_outside_bytes(self) -> None:
        """All bytes here come from outside."""

    def expect_states(self, names: Iterable[str]) -> None:
        """Rows of any state are taken."""

    def load_rows(self, state_name: str, rows: Iterable[Change]) -> None:
        """Take rows of a state; None as a value removes."""
        groups = self._rows.setdefault(state_name, {})
        meta = self.restored.get(state_name)
        lists = meta is not None and meta.kind is StateKind.LIST
        for key, value in rows:
            group = groups.setdefault(key[: self._layout.group_bytes], {})
            if value is None:
                group.pop(key, None)
            elif lists:
                apply_to_lists(group, key, value)
            else:
                group[key] = value

    def state_rows(self, state_name: str) -> Iterator[list[Change]]:
        """All rows of a state, by key group and sorted."""
        for _, rows in sorted(self._rows.get(state_name, {}).items()):
            if rows:
                yield sorted(rows.items())

    def rows(self, state_name: str, key_group: int) -> list[Change]:
        """The rows of a state in a key group, sorted."""
        prefix = self._layout.group_prefix(key_group)
        return sorted(self._rows.get(state_name, {}).get(prefix, {}).items())

    def freeze(self) -> StateView:
        """All rows, as a backend gives them to a snapshot."""
        return _RowsView(self)


class _RowsView(StateView):
    def __init__(self, rows: RowsInMemory) -> None:
        super().__init__(
            StateShape.of(
                rows.parameters,
                rows.key_codec,
                [rows.restored[name] for name in sorted(rows.restored)],
            )
        )
        self._held = rows

    @override
    def rows(self, key_group: int) -> Iterator[tuple[str, list[Change]]]:
        for meta in self.metas:
            yield meta.name, self._held.rows(meta.name, key_group)


def read_contents(
    parts: Sequence[KeyedStateHandle | SavepointHandle],
    shape: KeyedStateHandle | SavedOperator,
    uid: str,
    registry: PluginHooks,
    groups: KeyGroupRange | None = None,
    limits: RestoreConfig = RestoreConfig(),
    joined: Mapping[str, StateMeta] = MappingProxyType({}),
) -> RowsInMemory:
    """Read snapshots or savepoints of one operator.

    Args:
        parts: what to read; together they may cover any key groups.
        shape: what says the key type and the number of key groups.
        uid: the operator.
        registry: the plugins that may restore.
        groups: the key groups to read; all by default.
        limits: what the files may ask for.
        joined: what states are read as, where there are other parts; see ``joined_states``.

    Raises:
        CorruptSnapshotError, RestoreError: something cannot be read.
    """
    with decoding(uid, "the type of its keys cannot be read"):
        key_codec = codec_from_snapshot(shape.key)
    clock = ManualClock(SystemClock().now_ms)
    contents = RowsInMemory(
        KeyedBackendParameters(
            key_codec=key_codec,
            max_parallelism=shape.max_parallelism,
            key_group_range=groups or KeyGroupRange(0, shape.max_parallelism - 1),
            clock=clock,
            config=Config(restore=limits),
            registry=registry,
            operator=OperatorId(uid=uid),
        )
    )
    contents.restored.update(joined)
    restore_keyed(contents, parts)
    clock.set(0)  # by which nothing counts as expired: what is read is all that there is
    return contents
