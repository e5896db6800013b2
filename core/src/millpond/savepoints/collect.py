"""A savepoint of whole operators, collected from the snapshots of their subtasks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import attrs

from millpond.config import RestoreConfig
from millpond.errors import RestoreError
from millpond.keygroups import KeyGroupRange
from millpond.savepoints.operator_tables import save_operator_states
from millpond.savepoints.rows_in_memory import read_contents
from millpond.savepoints.savepoint_file import (
    SavedOperator,
    SavedState,
    Savepoint,
    reserved,
    write_savepoint,
)
from millpond.savepoints.table_writer import save_operator
from millpond.snapshots.handles import KeyedStateHandle, SavepointHandle
from millpond.snapshots.operator_state import frozen_operator_states
from millpond.snapshots.restore import joined_states
from millpond.snapshots.snapshot_task import SnapshotTask
from millpond.spi.parameters import PluginHooks
from millpond.types.evolution import KeyNotCompatibleError, key_change
from millpond.types.key_columns import codec_from_snapshot

Report = Callable[[str, int, int], None]


def collect_savepoint(
    operators: Mapping[str, Sequence[KeyedStateHandle]],
    target: SavepointHandle,
    registry: PluginHooks,
    report: Report = lambda uid, done, total: None,  # noqa: ARG005 - the default reports nothing
    limits: RestoreConfig = RestoreConfig(),
) -> Savepoint:
    """Write one savepoint of several operators.

    Args:
        operators: the snapshots of each operator's subtasks, by uid.
        target: where to.
        registry: the plugins that may restore.
        report: called with the operator and how many of its subtasks are done.
        limits: what the snapshots may ask for.

    Raises:
        CorruptSnapshotError: a snapshot is damaged.
        DirectoryNotEmptyError: the target holds files.
        RestoreError: there is no snapshot at all, or they are not of one checkpoint.
    """
    given = {uid: handles for uid, handles in operators.items() if handles}
    if not given:
        raise RestoreError("a savepoint", ("the checkpoint holds no state",))
    for uid, handles in given.items():
        _check_parts(uid, handles)
    with reserved(target, given):
        saved = tuple(
            _collect(uid, handles, target, registry, report, limits)
            for uid, handles in given.items()
        )
        number = max(handle.checkpoint_id for handles in given.values() for handle in handles)
        savepoint = Savepoint(number, saved)
        write_savepoint(target, savepoint)
        return savepoint


def _check_parts(uid: str, handles: Sequence[KeyedStateHandle]) -> None:
    """Refuse parts that are of different operators, or hold key groups more than once.

    A part without files is a share of operator state, which lies across those with keyed state.
    """
    held = [group for handle in handles if handle.files for group in handle.key_group_range]
    if len(held) != len(set(held)):
        raise RestoreError(f"operator {uid!r}", ("its snapshots hold key groups more than once",))
    if len({handle.max_parallelism for handle in handles}) > 1:
        cause = "its snapshots have different numbers of key groups"
        raise RestoreError(f"operator {uid!r}", (cause,))
    newest = _newest(handles)
    for handle in handles:
        try:
            key_change(handle.key, codec_from_snapshot(newest.key))
        except KeyNotCompatibleError:
            cause = f"its snapshots have different types of keys, {handle.key} and {newest.key}"
            raise RestoreError(f"operator {uid!r}", (cause,)) from None


def _newest(handles: Sequence[KeyedStateHandle]) -> KeyedStateHandle:
    """The last one, which has the types that were declared last."""
    return max(handles, key=lambda handle: handle.checkpoint_id)


def _collect(
    uid: str,
    handles: Sequence[KeyedStateHandle],
    target: SavepointHandle,
    registry: PluginHooks,
    report: Report,
    limits: RestoreConfig,
) -> SavedOperator:
    """All subtasks' tables; anew where a state is exact in one part and not in another."""
    newest, joined = _newest(handles), joined_states(f"operator {uid!r}", handles)
    exact: frozenset[str] = frozenset()
    while True:
        parts = []
        for done, handle in enumerate(handles):
            report(uid, done, len(handles))
            groups = handle.key_group_range
            mine = {meta.name: joined[meta.name] for meta in handle.states}
            contents = read_contents([handle], newest, uid, registry, groups, limits, mine)
            parts.append(save_operator(contents.freeze(), target, uid, SnapshotTask(), exact))
        wanted = frozenset(s.meta.name for part in parts for s in part.states if s.exact)
        if wanted == exact or len(parts) == 1:
            report(uid, len(handles), len(handles))
            own = frozen_operator_states(handles, limits)
            saved = save_operator_states(target, uid, own)
            return attrs.evolve(merged_operator(uid, parts), operator_states=saved)
        exact = wanted


def merged_operator(uid: str, parts: Sequence[SavedOperator]) -> SavedOperator:
    """The parts as one operator of all key groups: what no part holds is empty."""
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
