"""The restore of backends from snapshots: checking the metadata, and loading the rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import attrs

from millpond.backend.keyed_backend import KeyedStateBackend
from millpond.backend.migration import KeyRewrite, key_rewrite, retiming
from millpond.errors import MaxParallelismError, RestoreError
from millpond.keygroups import KeyGroupRange
from millpond.snapshots.handles import KeyedStateHandle, SavepointHandle, SnapshotFile
from millpond.snapshots.progress import ProgressLog
from millpond.snapshots.row_files import read_rows
from millpond.spi.backend import Place, RestoreTarget
from millpond.spi.keys import KeyLayout
from millpond.spi.portable_rows import APPENDED, Change, Changes
from millpond.state.descriptors import StateKind
from millpond.state.state_meta import StateMeta
from millpond.types import SerializerSnapshot
from millpond.types.key_codecs import VoidKeyCodec


def adopt_metadata(
    backend: RestoreTarget,
    max_parallelism: int,
    key: SerializerSnapshot,
    states: Iterable[StateMeta],
) -> KeyRewrite | None:
    """Add the states of a snapshot to the backend's restored states, and adopt its watermark.

    Args:
        backend: the backend to which the snapshot will be restored.
        max_parallelism: the snapshot's number of key groups.
        key: the description of the snapshot's key type.
        states: the metadata of the snapshot's states.

    Returns:
        The conversion that the snapshot's rows need because the backend has a newer key type; None
        if the key types are equal.

    Raises:
        MaxParallelismError: the backend has another number of key groups.
        StateMigrationError: the snapshot's key type cannot become the backend's key type.
        RestoreError: another restored snapshot has a state with this name but another type, or
            there are more states than ``restore.max-states``.
    """
    if max_parallelism != backend.max_parallelism:
        raise MaxParallelismError(max_parallelism, backend.max_parallelism)
    label = backend.parameters.operator.label
    rewrite = key_rewrite(label, key, backend.key_codec, KeyLayout(max_parallelism))
    most = backend.parameters.config.restore.max_states
    states = tuple(states)
    _adopt_watermark(backend, states)
    for meta in states:
        known = backend.restored.setdefault(meta.name, meta)
        _check_types(label, known, meta)
        if len(backend.restored) > most:
            cause = f"there are more than {most:,} states in it; if that is right, raise "
            raise RestoreError(label, (f"{cause}restore.max-states",))
    backend.expect_states(backend.restored)
    return rewrite


def _adopt_watermark(backend: RestoreTarget, states: Iterable[StateMeta]) -> None:
    """Raise the event time of TTL to the watermark of a snapshot, if the snapshot has one.

    Some expired entries are still stored. Without this they would come back after the restore.
    """
    for meta in states:
        if meta.watermark is not None:
            backend.parameters.event_time.advance(meta.watermark)


def joined_states(label: str, handles: Iterable[KeyedStateHandle]) -> dict[str, StateMeta]:
    """Return the metadata of an operator's states by name, each from the newest snapshot with it.

    Snapshots may differ in the time to live of a state, because some subtasks may have received no
    row since the time to live was changed. If only the newest metadata has a time to live, a
    restore gives the older rows the time of the restore as their TTL timestamp. If only older
    metadata has one, a restore drops the expired rows, and the TTL timestamps of the other rows.

    Args:
        label: the operator, for errors.
        handles: the snapshots of the operator's subtasks.

    Raises:
        RestoreError: a state has different types in two snapshots.
    """
    found: dict[str, StateMeta] = {}
    for handle in newest_first(handles):
        for meta in handle.states:
            _check_types(label, found.setdefault(meta.name, meta), meta)
    return found


def newest_first(handles: Iterable[KeyedStateHandle]) -> list[KeyedStateHandle]:
    """Return the snapshots sorted by descending checkpoint id."""
    return sorted(handles, key=lambda handle: handle.checkpoint_id, reverse=True)


def newest_states(label: str, parts: Sequence[KeyedStateHandle]) -> dict[str, StateMeta]:
    """Return the metadata of an operator's states by name.

    If a state has different types in two snapshots, return its newest type.

    Args:
        label: the operator, for errors.
        parts: the snapshots of the operator's subtasks, the newest first.
    """
    try:
        return joined_states(label, parts)
    except RestoreError:
        return {meta.name: meta for part in reversed(parts) for meta in part.states}


def _check_types(label: str, known: StateMeta, meta: StateMeta) -> None:
    """Raise RestoreError if `known` and `meta`, both of one state, differ in more than the TTL."""
    if attrs.evolve(known, ttl_ms=meta.ttl_ms) == meta:
        return
    cause = (
        f"state {meta.name!r} has type {_type_text(known)} in one snapshot and "
        f"{_type_text(meta)} in another, for some subtask has had no row since the type "
        "changed: run all subtasks once before, by a row for each, or take the state of a batch "
        "before the change"
    )
    raise RestoreError(label, (cause,))


def _type_text(meta: StateMeta) -> str:
    """Return the kind and the types of a state as text for an error message."""
    parts = [str(meta.value)]
    if meta.map_key is not None:
        parts.append(f"map key {meta.map_key}")
    if meta.namespace.id != VoidKeyCodec.id:
        parts.append(f"namespace {meta.namespace}")
    return f"{meta.kind.value} of {' with '.join(parts)}"


def has_keys_of(backend: RestoreTarget, key: SerializerSnapshot) -> bool:
    """Return whether the backend's key type is `key`, the key type of a restored snapshot.

    If the types differ, the restore has rewritten the rows, and later snapshots cannot refer to the
    files of the restored snapshot.
    """
    return key == backend.key_codec.snapshot()


def has_times_of(backend: RestoreTarget, states: Iterable[StateMeta]) -> bool:
    """Return whether each state has TTL timestamps in both backend and snapshot, or in neither.

    Args:
        backend: the backend, with its restored states.
        states: the states of the snapshot.
    """
    return all(backend.restored[meta.name].ttl == meta.ttl for meta in states)


def load_adopted(
    backend: RestoreTarget,
    place: Place,
    meta: StateMeta,
    rows: Iterable[Change],
    rewrite: KeyRewrite | None,
) -> int:
    """Load rows of a state into the backend, and return their size in bytes.

    Keys and TTL timestamps are rewritten if needed. `adopt_metadata` must have added the state.

    Args:
        backend: the backend.
        place: the source of the rows, for the backend's metrics.
        meta: the metadata of the state in the snapshot.
        rows: the rows.
        rewrite: the result of `adopt_metadata`.
    """
    rows = Changes.from_rows(rows)
    size = rows.size
    backend.restored_bytes.add_rows(place, meta.name, size)
    retimed = retiming(meta, backend.restored[meta.name], backend.parameters)
    if retimed is not None:
        values = (data if data is None else retimed(data) for data in rows.values)
        pairs = list(zip(rows.keys, values, strict=True))
        if meta.kind is StateKind.LIST:  # such a row would create an empty list
            pairs = [(address, data) for address, data in pairs if data != APPENDED]
        rows = Changes.from_rows(pairs)
    backend.load_rows(meta.name, rows if rewrite is None else rewrite(meta, rows))
    return size


@attrs.frozen
class RestoreOperation:
    """A restore of a backend from portable snapshots."""

    backend: RestoreTarget
    handles: Sequence[KeyedStateHandle]

    def run(self) -> None:
        """Load the rows of the backend's key groups.

        Raises:
            CorruptSnapshotError: a file is damaged or missing.
            MaxParallelismError, StateMigrationError: a snapshot does not fit the backend.
        """
        total = sum(handle.size for handle in self.handles) / 1e6
        what = f"{self.backend.parameters.operator.label}: restored"
        progress = ProgressLog(lambda done: f"{what} {done / 1e6:.0f} of about {total:.0f} MB")
        for handle in self.handles:
            adopted = adopt_metadata(
                self.backend, handle.max_parallelism, handle.key, handle.states
            )
            groups = handle.key_group_range.intersection(self.backend.key_group_range)
            if groups is not None:
                load_files(self.backend, handle, handle.files, groups, adopted, progress.add)


def load_files(
    backend: RestoreTarget,
    handle: KeyedStateHandle,
    files: Iterable[SnapshotFile],
    groups: KeyGroupRange,
    rewrite: KeyRewrite | None = None,
    report: Callable[[int], object] = int,
) -> None:
    """Load the rows of some files of a snapshot into the backend, in the order of the files.

    Args:
        backend: the backend.
        handle: the snapshot.
        files: the files to load.
        groups: the key groups to load.
        rewrite: the result of `adopt_metadata`.
        report: a function that is called with the size in bytes of each batch of loaded rows.
    """
    if handle.storage is None:
        raise RestoreError(f"checkpoint {handle.checkpoint_id}", ("its handle has no storage",))
    layout = KeyLayout(backend.max_parallelism)
    metas = {meta.name: meta for meta in handle.states}
    limits = backend.parameters.config.restore
    for file in files:
        for state, rows in read_rows(handle.storage, file, groups, layout, set(metas), limits):
            report(load_adopted(backend, "checkpoint", metas[state], rows, rewrite))


def restore_keyed(
    backend: RestoreTarget, handles: Sequence[KeyedStateHandle | SavepointHandle]
) -> None:
    """Fill a new, empty backend from snapshots and savepoints.

    For each format, the plugin that knows this format restores the handles. Native formats come
    first, because the backend may use the files of a native snapshot as its own store.

    Raises:
        RestoreError: no plugin knows the format of a handle.
    """
    backend.expect_outside_bytes()
    parts = [handle for handle in handles if isinstance(handle, KeyedStateHandle)]
    for part in parts:  # before any timestamp is added
        _adopt_watermark(backend, part.states)
    for name, meta in joined_states(backend.parameters.operator.label, parts).items():
        backend.restored.setdefault(name, meta)
    kinds: dict[str, list[KeyedStateHandle | SavepointHandle]] = {}
    for handle in handles:
        kinds.setdefault(handle.format, []).append(handle)
    hook = backend.parameters.registry.hook
    for kind in sorted(kinds, key=lambda kind: kind in ("rows", "savepoint")):
        operation = hook.millpond_restore_operation(backend=backend, handles=kinds[kind])
        if operation is None:
            cause = f"no installed plugin reads snapshots of the format {kind!r}"
            raise RestoreError(backend.parameters.operator.label, (cause,))
        operation.run()


def catch_up(backend: KeyedStateBackend, handle: KeyedStateHandle) -> bool:
    """Advance a backend to a newer snapshot by loading only the changes since its version.

    Returns:
        Whether the backend now has the state of the snapshot. If the result is False, the rows of
        the backend are unchanged. This is the case if the snapshot does not name the files with all
        changes, if it has an older key type, or if a state has TTL timestamps in only one of
        snapshot and backend.

    Raises:
        CorruptSnapshotError: a delta is damaged or missing; the backend must be discarded.
    """
    missing = [] if backend.version == handle.version else handle.files_after(backend.version)
    held = backend.restored
    if missing is None or any(held.get(meta.name, meta).ttl != meta.ttl for meta in handle.states):
        return False
    backend.expect_outside_bytes()
    if adopt_metadata(backend, handle.max_parallelism, handle.key, handle.states) is not None:
        return False
    if backend.version != handle.version:
        backend.flush(None)
        load_files(backend, handle, missing, backend.key_group_range)
        backend.flush(handle.version)
    return True
