"""Snapshots of operator state: writing and reading them."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future

import attrs

from millpond.backend.operator_state import (
    RAW_KEYED,
    FrozenState,
    Mode,
    RestoredState,
    StateId,
    key_group_of,
)
from millpond.config import RestoreConfig
from millpond.errors import CorruptSnapshotError, RestoreError, SnapshotTooLargeError
from millpond.operator_id import OperatorId
from millpond.snapshots.handles import (
    FilePart,
    KeyedStateHandle,
    OperatorStateHandle,
    StoredOperatorState,
)
from millpond.snapshots.snapshot_task import SnapshotTask, run_snapshot
from millpond.spi.snapshots import SnapshotResult
from millpond.storage.checkpoint_storage import CheckpointStorage
from millpond.storage.memory import MemoryStorage

_FILLER = b"\0"
"""The first byte of every file. Because of it, a file is not empty even if all elements are."""


def write_operator_state(
    operator: OperatorId,
    checkpoint_id: int,
    storage: CheckpointStorage,
    states: Sequence[FrozenState],
    limits: RestoreConfig = RestoreConfig(),
) -> Future[SnapshotResult]:
    """Write the operator state of an operator without keyed state, in the background.

    Return the future of the snapshot. Its handle is None if there are no states.
    """
    name = f"{checkpoint_id}-{uuid.uuid4().hex}.operator.bin"
    path = f"{operator.folder}/operator/{name}"

    def work(task: SnapshotTask) -> SnapshotResult:
        if not states:
            return SnapshotResult(None)
        handle = describe_states(checkpoint_id, storage, states, path)
        check_readable(handle, states, limits)
        if handle.file is not None:
            storage.write(path, element_chunks(states, task))
        count = sum(len(state.partitions) for state in states)
        return SnapshotResult(handle, handle.file.size if handle.file else 0, count)

    return run_snapshot(work, lambda: None, background=True)


def describe_states(
    checkpoint_id: int,
    storage: CheckpointStorage,
    states: Sequence[FrozenState],
    path: str,
    start: int = 0,
) -> OperatorStateHandle:
    """Return the handle of states whose bytes the caller writes with `element_chunks`.

    Args:
        checkpoint_id: the checkpoint.
        storage: the storage of the file.
        states: the frozen states.
        path: the file into which the caller writes the bytes.
        start: the position of the bytes in the file.
    """
    stored: list[StoredOperatorState] = []
    offsets: list[int] = []
    digest, size = hashlib.sha256(_FILLER), len(_FILLER)
    for state in states:
        numbers = range(len(offsets), len(offsets) + len(state.partitions))
        stored.append(StoredOperatorState(state.meta, tuple(numbers)))
        for data in state.partitions:
            offsets.append(size)
            size += len(data)
            digest.update(data)
    file = FilePart(path, size, digest.hexdigest(), offset=start) if offsets else None
    return OperatorStateHandle(checkpoint_id, file, tuple(offsets), tuple(stored), storage=storage)


def element_chunks(states: Sequence[FrozenState], task: SnapshotTask) -> Iterator[bytes]:
    """Yield the bytes that the caller must write for a handle from `describe_states`.

    Raises:
        CancelledError: `task` was cancelled.
    """
    yield _FILLER
    for state in states:
        for data in state.partitions:
            task.check()
            yield data


def check_readable(
    handle: OperatorStateHandle, states: Sequence[FrozenState], limits: RestoreConfig
) -> None:
    """Raise SnapshotTooLargeError if a restore would refuse the elements because of their size."""
    most = _limit_of_reads(handle.storage, limits)
    size = 0 if handle.file is None else handle.file.size
    if most is not None and size > most.max_file_bytes:
        largest = max(states, key=lambda state: state.size)
        path, cure = f"snapshot {handle.checkpoint_id}", "raise restore.max-file-bytes"
        raise SnapshotTooLargeError(path, most.max_file_bytes, largest.meta.name, cure)


def have_same_content(first: OperatorStateHandle, second: OperatorStateHandle) -> bool:
    """Return whether two handles hold the same states with the same elements."""
    if (first.states, first.offsets) != (second.states, second.offsets):
        return False
    if first.file is None or second.file is None:
        return first.file is second.file
    return first.file.digest == second.file.digest


def read_operator_state(
    handles: Iterable[OperatorStateHandle | None], limits: RestoreConfig | None = None
) -> dict[StateId, RestoredState]:
    """Read the states of several handles, and join each state's elements in the handles' order.

    A broadcast state is read only from the first handle with elements of this state. Handles that
    are None are skipped.

    Raises:
        CorruptSnapshotError: a file is damaged or missing, or exceeds `limits`.
        RestoreError: a state has different modes or types in two handles.
    """
    found: dict[StateId, RestoredState] = {}
    for handle in handles:
        if handle is None:
            continue
        partitions = read_partitions(handle, limits)
        for stored in handle.states:
            known = found.setdefault(stored.meta.id, FrozenState(stored.meta, ()))
            if known.meta != stored.meta:
                cause = f"state {stored.meta.name!r} has two types or modes in its snapshots"
                raise RestoreError("operator state", (cause,))
            if stored.meta.mode is Mode.BROADCAST and known.partitions:
                continue
            parts = tuple(partitions[number] for number in stored.partitions)
            found[stored.meta.id] = FrozenState(stored.meta, (*known.partitions, *parts))
    return found


def read_partitions(
    handle: OperatorStateHandle, limits: RestoreConfig | None = None
) -> dict[int, bytes]:
    """Return the bytes of each element in the handle's states, by the number of the element.

    Raises:
        CorruptSnapshotError: the file is damaged or missing, or exceeds `limits`.
        RestoreError: the handle has no storage.
    """
    wanted = sorted({number for state in handle.states for number in state.partitions})
    if not wanted:
        return {}
    if handle.file is None:
        raise CorruptSnapshotError("operator state", "its handle has elements, but no file")
    if handle.storage is None:
        raise RestoreError("operator state", ("its handle has no storage",))
    path, offsets = handle.file.path, handle.offsets
    data = handle.file.read_all(handle.storage, _limit_of_reads(handle.storage, limits))
    ends = (*offsets, len(data))
    if list(ends) != sorted(ends) or ends[0] < 0:
        raise CorruptSnapshotError(path, "its offsets are not ascending, or beyond its end")
    if wanted[0] < 0 or wanted[-1] >= len(offsets):
        raise CorruptSnapshotError(path, f"it has no partition {wanted[-1]}")
    return {number: data[ends[number] : ends[number + 1]] for number in wanted}


def _limit_of_reads(
    storage: CheckpointStorage | None, limits: RestoreConfig | None
) -> RestoreConfig | None:
    """Return `limits`, or None if `storage` is in memory.

    Limits protect from files that need much memory. Elements of a storage in memory are already in
    memory. A restore from a savepoint copies the savepoint's elements to such a storage.
    """
    return None if isinstance(storage, MemoryStorage) else limits


def operator_state_parts(
    handles: Iterable[KeyedStateHandle], limits: RestoreConfig
) -> list[list[OperatorStateHandle]]:
    """Return the operator state of each subtask, sorted by the subtasks' key groups.

    If several subtasks have the same element, for example of a union list, only the first of these
    subtasks gets the element in the result. Broadcast states are an exception: each subtask keeps
    its copy. The raw keyed state of a subtask is limited to the subtask's key groups.

    Args:
        handles: the snapshots of the subtasks, in any order. For a subtask without a snapshot of
            its own, these are the parts of earlier snapshots from which the subtask starts.
        limits: the maximum size of a file.

    Returns:
        A list of handles for each subtask, empty if it has no operator state.

    Raises:
        CorruptSnapshotError: a file with raw keyed state is damaged or missing, or exceeds
            `limits`.
    """
    seen: dict[tuple[str, int, StateId], set[int]] = {}  # element numbers by file, offset and state
    found: list[list[OperatorStateHandle]] = []
    for handle in _subtasks(list(handles)):
        parts = []
        for part in handle.operator_state:
            states = []
            for state in part.states:
                numbers = state.partitions
                if state.meta == RAW_KEYED and numbers:  # each subtask's handle names all elements
                    data = read_partitions(attrs.evolve(part, states=(state,)), limits)
                    groups = handle.key_group_range
                    numbers = tuple(n for n in numbers if key_group_of(data[n]) in groups)
                if part.file is not None and state.meta.mode is not Mode.BROADCAST:
                    source = part.file.path, part.file.offset, state.meta.id
                    known = seen.setdefault(source, set())
                    numbers = tuple(n for n in numbers if n not in known)
                    known.update(numbers)
                states.append(attrs.evolve(state, partitions=numbers))
            parts.append(attrs.evolve(part, states=tuple(states)))
        found.append(parts)
    return found


def frozen_operator_states(
    handles: Iterable[KeyedStateHandle], limits: RestoreConfig
) -> list[list[FrozenState]]:
    """Return the operator state of each subtask with the bytes of the elements.

    See `operator_state_parts` for the arguments, the order and the division of the states.
    """
    parts = operator_state_parts(handles, limits)
    return [list(read_operator_state(each, limits).values()) for each in parts]


def _subtasks(handles: Sequence[KeyedStateHandle]) -> list[KeyedStateHandle]:
    """Return the handles sorted by their key groups, with one handle for each subtask.

    A handle without operator state is left out if another handle has operator state for the same
    key groups.
    """
    having = [handle for handle in handles if handle.operator_state]
    known = {group for handle in having for group in handle.key_group_range}
    others = [
        handle
        for handle in handles
        if not handle.operator_state and handle.key_group_range.start not in known
    ]
    return sorted([*having, *others], key=lambda handle: handle.key_group_range.start)
