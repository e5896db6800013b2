"""Write savepoints from a backend or from snapshots, and restore backends from savepoints."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from itertools import pairwise
from types import MappingProxyType
from typing import Any, ClassVar

import attrs
from typing_extensions import override

from millpond.arguments import CHECKPOINT_IDS, check_type, check_within
from millpond.clock import ManualClock, SystemClock
from millpond.config import Config, RestoreConfig
from millpond.errors import RestoreError
from millpond.keygroups import KeyGroupRange
from millpond.operator_id import OperatorId
from millpond.safe_decoding import decoding
from millpond.savepoints.operator_tables import save_operator_states
from millpond.savepoints.savepoint_file import (
    Reservation,
    SavedOperator,
    SavedState,
    Savepoint,
    delete_savepoint,
    read_savepoint,
    reserved,
)
from millpond.savepoints.table_files import RowsView, read_state, save_operator
from millpond.snapshots.handles import KeyedStateHandle, SavepointHandle
from millpond.snapshots.operator_state import frozen_operator_states
from millpond.snapshots.progress import ProgressLog
from millpond.snapshots.restore import (
    adopt_metadata,
    joined_states,
    load_adopted,
    newest_first,
    restore_keyed,
)
from millpond.snapshots.snapshot_task import SnapshotTask
from millpond.snapshots.strategy import SnapshotStrategy
from millpond.spi.backend import RestoredBytes, RestoreTarget
from millpond.spi.keys import KeyLayout
from millpond.spi.parameters import KeyedBackendParameters, PluginHooks
from millpond.spi.portable_rows import Change, Changes, StateShape, StateView, apply_to_lists
from millpond.spi.snapshots import SnapshotResult
from millpond.state.descriptors import StateKind
from millpond.state.state_meta import StateMeta
from millpond.storage.checkpoint_storage import CheckpointStorage
from millpond.types import PicklePermission
from millpond.types.evolution import KeyNotCompatibleError, key_change
from millpond.types.key_columns import codec_from_snapshot


class RowsInMemory:
    """A target of restores that keeps the stored rows in memory, without a backend.

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
        """Do nothing, because this target treats all pickled data as untrusted from the start."""

    def expect_states(self, names: Iterable[str]) -> None:
        """Do nothing, because this target accepts rows of any state."""

    def load_rows(self, state_name: str, rows: Iterable[Change]) -> None:
        """Add rows to the state `state_name`; a value of None removes the row with this key."""
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
        """Yield the rows of the state `state_name`: a sorted list for each key group with rows."""
        for _, rows in sorted(self._rows.get(state_name, {}).items()):
            if rows:
                yield sorted(rows.items())

    def rows(self, state_name: str, key_group: int) -> Changes:
        """Return the rows of a state in one key group, sorted by their keys."""
        found = self._rows.get(state_name, {}).get(self._layout.group_prefix(key_group), {})
        return Changes(list(found), list(found.values())).in_order()

    def freeze(self) -> StateView:
        """Return a view of all rows, from which a savepoint can be written."""
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
        parts: the snapshots or savepoints. They need not cover all key groups.
        shape: a snapshot, or a savepoint's record of the operator, with the operator's key type and
            number of key groups.
        uid: the operator.
        registry: the plugins that can restore snapshots and savepoints.
        groups: the key groups to read; all by default.
        limits: the limits for the memory that files may need.
        joined: the metadata of the states from ``joined_states``. It is needed only if the operator
            has more snapshots than `parts`.

    Raises:
        CorruptSnapshotError, RestoreError: a snapshot or savepoint cannot be read.
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
    """Write one savepoint of several operators, from their snapshots.

    Args:
        operators: the snapshots of each operator's subtasks, by uid.
        target: the location of the savepoint. The limits of `target` also apply to the snapshots.
        registry: the plugins that can restore snapshots.
        report: a function that is called with the operator's uid, the number of its finished
            parts and the number of all its parts. A part has at most one subtask's state.

    Raises:
        CorruptSnapshotError: a snapshot is damaged.
        DirectoryNotEmptyError: the target holds files.
        RestoreError: there is no snapshot, or an operator's snapshots do not fit together.
    """
    given = {uid: handles for uid, handles in operators.items() if handles}
    if not given:
        raise RestoreError("a savepoint", ("the checkpoint holds no state",))
    for uid, handles in given.items():
        _check_parts(uid, handles)
    with reserved(target, given) as reservation:
        saved = tuple(
            _collect(uid, handles, target, registry, report) for uid, handles in given.items()
        )
        number = max(handle.checkpoint_id for handles in given.values() for handle in handles)
        savepoint = Savepoint(number, saved)
        reservation.complete(savepoint)
        return savepoint


def _check_parts(uid: str, handles: Sequence[KeyedStateHandle]) -> None:
    """Raise RestoreError if the snapshots of an operator do not fit together.

    The key groups of the snapshots must not overlap. All snapshots must have the same
    max-parallelism, and key types that can be converted to the newest key type. A snapshot without
    files holds only operator state, so its key groups may overlap with those of other snapshots.
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
    """Write the tables of one operator from the snapshots of its subtasks.

    Return the operator's record for the savepoint's metadata. If a state's value in one subtask
    needs the exact form (see ``SavedState``), the tables of all subtasks are written again, with
    this state in the exact form.
    """
    newest, joined = newest_first(handles)[0], joined_states(f"operator {uid!r}", handles)
    exact: frozenset[str] = frozenset()
    slices = [(handle, groups) for handle in handles for groups in _slices(handle)]
    while True:
        parts = []
        for done, (handle, groups) in enumerate(slices):
            report(uid, done, len(slices))
            mine = {meta.name: joined[meta.name] for meta in handle.states}
            contents = read_contents([handle], newest, uid, registry, groups, target.limits, mine)
            parts.append(save_operator(contents.freeze(), target, uid, SnapshotTask(), exact))
        wanted = frozenset(s.meta.name for part in parts for s in part.states if s.exact)
        if wanted == exact or len(parts) == 1:
            report(uid, len(slices), len(slices))
            own = frozen_operator_states(handles, target.limits)
            saved = save_operator_states(target, uid, own)
            return attrs.evolve(merged_operator(uid, parts), operator_states=saved)
        exact = wanted


_SLICE_BYTES = 8 << 20


def _slices(handle: KeyedStateHandle) -> list[KeyGroupRange]:
    """Divide a snapshot's key groups into ranges that have about 8 MB of its files each.

    So the rows in memory are bounded, except in a very large key group.
    """
    groups = handle.key_group_range
    count = min(len(groups), 1 + handle.size // _SLICE_BYTES)
    cuts = [groups.start + len(groups) * number // count for number in range(count + 1)]
    return [KeyGroupRange(start, end - 1) for start, end in pairwise(cuts)]


def merged_operator(uid: str, parts: Sequence[SavedOperator]) -> SavedOperator:
    """Join the records of an operator's subtasks into one record with all tables.

    The result covers all key groups of the operator. Key groups without a subtask have no rows.

    Raises:
        RestoreError: the records have different key types, or different types of a state.
    """
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


class SavepointStrategy(SnapshotStrategy):
    """The strategy that writes savepoints: Parquet tables, which every backend can restore."""

    name: ClassVar[str] = "savepoint"

    @property
    def _uid(self) -> str:
        """The operator's uid, which names the folder of its tables."""
        return self._backend.parameters.operator.uid or "operator"

    @override
    def snapshot(
        self, checkpoint_id: int, storage: CheckpointStorage, version: str | None
    ) -> Future[SnapshotResult]:
        return self.save(
            checkpoint_id, storage, f"savepoint-{checkpoint_id}-{uuid.uuid4().hex[:12]}"
        )

    def save(
        self, checkpoint_id: int, storage: CheckpointStorage, folder: str
    ) -> Future[SnapshotResult]:
        """Write a savepoint into a folder of a storage, in the background.

        An empty `folder` means the storage's root.

        Raises:
            DirectoryNotEmptyError: the folder holds files.
        """
        check_within("checkpoint_id", checkpoint_id, *CHECKPOINT_IDS)
        check_type("storage", storage, CheckpointStorage)
        limits = self._backend.parameters.config.restore
        handle = SavepointHandle(checkpoint_id, folder, storage, limits=limits)
        reservation = reserved(handle, [self._uid])
        try:
            return self._launch_reserved(reservation)
        except BaseException:
            reservation.abandon()
            raise

    def _launch_reserved(self, reservation: Reservation) -> Future[SnapshotResult]:
        """Freeze the backend, and write its savepoint in the background."""
        backend, handle, uid = self._backend, reservation.handle, self._uid
        backend.flush(uuid.uuid4().hex)
        frozen = backend.operator_state.freeze() if backend.operator_state is not None else []
        # Few callers confirm savepoints, so earlier savepoints are forgotten once they are written.
        self._running = {n: each for n, each in self._running.items() if not each.task.done()}
        view = backend.freeze()

        def work(task: SnapshotTask) -> SnapshotResult:
            with reservation:
                if not view.metas and not frozen:
                    return SnapshotResult(None)
                operator_states = save_operator_states(handle, uid, [frozen])
                keyed = save_operator(view, handle, uid, task)
                operator = attrs.evolve(keyed, operator_states=operator_states)
                reservation.complete(Savepoint(handle.checkpoint_id, (operator,)))
                sizes = (file.size for file in operator.files)
                rows = (file.rows for file in operator.files)
                return SnapshotResult(handle, sum(sizes), sum(rows))

        return self.launch(handle.checkpoint_id, work, view)

    @override
    def notify_complete(self, checkpoint_id: int) -> None:
        self._running.pop(checkpoint_id, None)  # nothing builds on a savepoint

    @override
    def _delete_aborted(self, handle: Any, needed: frozenset[str]) -> None:
        if isinstance(handle, SavepointHandle):
            delete_savepoint(handle, [self._uid])
            handle.storage.delete_empty([handle.folder] if handle.folder else [])


@attrs.frozen
class SavepointRestore:
    """A restore of a backend from savepoints."""

    backend: RestoreTarget
    handles: Sequence[SavepointHandle]

    def run(self) -> None:
        """Load the rows of the backend's key groups.

        Raises:
            CorruptSnapshotError: a file is damaged or missing, or was edited without a call of
                ``seal_savepoint``.
            RestoreError: a savepoint does not contain the backend's operator.
            MaxParallelismError, StateMigrationError: a savepoint does not fit the backend.
        """
        backend = self.backend
        for given in self.handles:
            handle = attrs.evolve(given, limits=backend.parameters.config.restore)
            operator = read_savepoint(handle).operator(backend.parameters.operator)
            rewrite = adopt_metadata(
                backend, operator.max_parallelism, operator.key, operator.metas
            )
            groups = operator.key_group_range.intersection(backend.key_group_range)
            if groups is None:
                continue
            progress = _progress(backend, operator)
            for state in operator.states:
                for rows in read_state(handle, operator, state, groups):
                    load_adopted(backend, "savepoint", state.meta, rows, rewrite)
                    progress.add(len(rows))


def _progress(backend: RestoreTarget, operator: SavedOperator) -> ProgressLog:
    """Return a log of the progress of a restore, in rows."""
    label = backend.parameters.operator.label
    total = sum(file.rows for state in operator.states for file in state.files)
    return ProgressLog(lambda done: f"{label}: restored {done:,} of at most {total:,} rows")
