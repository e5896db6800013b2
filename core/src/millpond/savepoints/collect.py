"""The rows of snapshots and savepoints in memory, and savepoints collected from snapshots."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType

import attrs

from millpond.clock import ManualClock, SystemClock
from millpond.config import Config, RestoreConfig
from millpond.errors import RestoreError
from millpond.keygroups import KeyGroupRange
from millpond.operator_id import OperatorId
from millpond.safe_decoding import decoding
from millpond.savepoints.operator_tables import save_operator_states
from millpond.savepoints.savepoint_file import (
    SavedOperator,
    SavedState,
    Savepoint,
    reserved,
    write_savepoint,
)
from millpond.savepoints.tables import RowsView, save_operator
from millpond.snapshots.handles import KeyedStateHandle, SavepointHandle
from millpond.snapshots.operator_state import frozen_operator_states
from millpond.snapshots.restore import joined_states, newest_first, restore_keyed
from millpond.snapshots.snapshot_task import SnapshotTask
from millpond.spi.backend import RestoredBytes
from millpond.spi.keys import KeyLayout
from millpond.spi.parameters import KeyedBackendParameters, PluginHooks
from millpond.spi.rows import Change, StateShape, StateView, apply_to_lists
from millpond.state.descriptors import StateKind
from millpond.state.state_meta import StateMeta
from millpond.types import PicklePermission
from millpond.types.evolution import KeyNotCompatibleError, key_change
from millpond.types.key_columns import codec_from_snapshot


class RowsInMemory:
    """A target of restores that keeps stored rows as they are, by key group.

    Attributes:
        restored: the metadata of the restored states.
        restored_bytes: the number of bytes that were read.
    """

    def __init__(self, parameters: KeyedBackendParameters) -> None:
        self.parameters = parameters
        self.max_parallelism = parameters.max_parallelism
        self.key_group_range = parameters.key_group_range
        self.restored: dict[str, StateMeta] = {}
        self.restored_bytes = RestoredBytes()
        pickles = PicklePermission(parameters.config.serialization.allow_pickle, outside=True)
        self.key_codec = parameters.key_codec.bind(pickles)
        self._layout = KeyLayout(self.max_parallelism)
        self._rows: dict[str, dict[bytes, dict[bytes, bytes]]] = {}

    def expect_outside_bytes(self) -> None:
        """Do nothing: all bytes here come from outside."""

    def expect_states(self, names: Iterable[str]) -> None:
        """Do nothing: rows of any state are accepted."""

    def load_rows(self, state_name: str, rows: Iterable[Change]) -> None:
        """Add rows of a state; a value of None removes the row."""
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
        """Yield the rows of a state for each key group, sorted."""
        for _, rows in sorted(self._rows.get(state_name, {}).items()):
            if rows:
                yield sorted(rows.items())

    def rows(self, state_name: str, key_group: int) -> list[Change]:
        """Return the rows of a state in a key group, sorted."""
        prefix = self._layout.group_prefix(key_group)
        return sorted(self._rows.get(state_name, {}).get(prefix, {}).items())

    def freeze(self) -> StateView:
        """Return a view of all rows, as a backend gives it to a snapshot."""
        metas = [self.restored[name] for name in sorted(self.restored)]
        shape = StateShape.of_states(self.parameters, self.key_codec, metas)
        return RowsView(
            shape,
            lambda key_group: ((meta.name, self.rows(meta.name, key_group)) for meta in metas),
        )


def read_contents(
    parts: Sequence[KeyedStateHandle | SavepointHandle],
    shape: KeyedStateHandle | SavedOperator,
    uid: str,
    registry: PluginHooks,
    groups: KeyGroupRange | None = None,
    limits: RestoreConfig = RestoreConfig(),
    joined: Mapping[str, StateMeta] = MappingProxyType({}),
) -> RowsInMemory:
    """Read snapshots or savepoints of one operator into memory.

    Args:
        parts: the snapshots or savepoints; together they may cover any key groups.
        shape: has the key type and the number of key groups.
        uid: the operator.
        registry: the plugins that may restore.
        groups: the key groups to read; all by default.
        limits: how much memory the files may need.
        joined: the metadata of the states if there are further parts; see ``joined_states``.

    Raises:
        CorruptSnapshotError, RestoreError: a part cannot be read.
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
    clock.set(0)  # so that no entry counts as expired
    return contents


Report = Callable[[str, int, int], None]


def collect_savepoint(
    operators: Mapping[str, Sequence[KeyedStateHandle]],
    target: SavepointHandle,
    registry: PluginHooks,
    report: Report = lambda uid, done, total: None,  # noqa: ARG005 - the default reports nothing
) -> Savepoint:
    """Write one savepoint of several operators.

    The target's limits also say how much memory the snapshots may need.

    Args:
        operators: the snapshots of each operator's subtasks, by uid.
        target: the place of the savepoint.
        registry: the plugins that may restore.
        report: called with the operator, the number of finished subtasks and their total.

    Raises:
        CorruptSnapshotError: a snapshot is damaged.
        DirectoryNotEmptyError: the target holds files.
        RestoreError: there is no snapshot, or the snapshots are not of one checkpoint.
    """
    given = {uid: handles for uid, handles in operators.items() if handles}
    if not given:
        raise RestoreError("a savepoint", ("the checkpoint holds no state",))
    for uid, handles in given.items():
        _check_parts(uid, handles)
    with reserved(target, given):
        saved = tuple(
            _collect(uid, handles, target, registry, report) for uid, handles in given.items()
        )
        number = max(handle.checkpoint_id for handles in given.values() for handle in handles)
        savepoint = Savepoint(number, saved)
        write_savepoint(target, savepoint)
        return savepoint


def _check_parts(uid: str, handles: Sequence[KeyedStateHandle]) -> None:
    """Raise RestoreError if parts belong to different operators, or share key groups.

    A part without files is a share of operator state, and may overlap parts with keyed state.
    """
    held = [group for handle in handles if handle.files for group in handle.key_group_range]
    if len(held) != len(set(held)):
        raise RestoreError(f"operator {uid!r}", ("its snapshots hold key groups more than once",))
    if len({handle.max_parallelism for handle in handles}) > 1:
        cause = "its snapshots have different numbers of key groups"
        raise RestoreError(f"operator {uid!r}", (cause,))
    newest = newest_first(handles)[0]
    for handle in handles:
        try:
            key_change(handle.key, codec_from_snapshot(newest.key))
        except KeyNotCompatibleError:
            cause = f"its snapshots have different types of keys, {handle.key} and {newest.key}"
            raise RestoreError(f"operator {uid!r}", (cause,)) from None


def _collect(
    uid: str,
    handles: Sequence[KeyedStateHandle],
    target: SavepointHandle,
    registry: PluginHooks,
    report: Report,
) -> SavedOperator:
    """Write all subtasks' tables; write them again if a state is exact in only one part."""
    newest, joined = newest_first(handles)[0], joined_states(f"operator {uid!r}", handles)
    exact: frozenset[str] = frozenset()
    while True:
        parts = []
        for done, handle in enumerate(handles):
            report(uid, done, len(handles))
            groups = handle.key_group_range
            mine = {meta.name: joined[meta.name] for meta in handle.states}
            contents = read_contents([handle], newest, uid, registry, groups, target.limits, mine)
            parts.append(save_operator(contents.freeze(), target, uid, SnapshotTask(), exact))
        wanted = frozenset(s.meta.name for part in parts for s in part.states if s.exact)
        if wanted == exact or len(parts) == 1:
            report(uid, len(handles), len(handles))
            own = frozen_operator_states(handles, target.limits)
            saved = save_operator_states(target, uid, own)
            return attrs.evolve(merged_operator(uid, parts), operator_states=saved)
        exact = wanted


def merged_operator(uid: str, parts: Sequence[SavedOperator]) -> SavedOperator:
    """Return the parts as one operator of all key groups; missing key groups are empty."""
    states: dict[str, SavedState] = {}
    for part in parts:
        if part.key != parts[0].key:
            cause = "its keys have two types; run all subtasks once before"
            raise RestoreError(f"operator {uid!r}", (cause,))
        for state in part.states:
            known = states.setdefault(state.meta.name, attrs.evolve(state, files=()))
            if known.meta != state.meta:
                cause = f"state {state.meta.name!r} has two types; run all subtasks once before"
                raise RestoreError(f"operator {uid!r}", (cause,))
            states[state.meta.name] = attrs.evolve(known, files=(*known.files, *state.files))
    first = parts[0]
    return SavedOperator(
        uid=uid,
        max_parallelism=first.max_parallelism,
        key_group_range=KeyGroupRange(0, first.max_parallelism - 1),
        key=first.key,
        states=tuple(states[name] for name in sorted(states)),
    )
