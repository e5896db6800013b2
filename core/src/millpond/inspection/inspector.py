"""Opening a stored operator from a checkpoint directory or a savepoint."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress

from millpond.backend.operator_state import RAW_KEYED, Mode, StateId
from millpond.config import RestoreConfig
from millpond.errors import CorruptSnapshotError, MillpondError, RestoreError
from millpond.inspection.catalog import (
    ALL_OPERATORS,
    Catalog,
    OperatorChoice,
    complete_parts,
    operator_named,
    read_catalog,
)
from millpond.inspection.stored_operator import StoredOperator
from millpond.inspection.subtask import Subtask
from millpond.keygroups import key_group_range
from millpond.operator_id import OperatorId
from millpond.savepoints.savepoint_file import is_savepoint, read_savepoint, unfinished
from millpond.snapshots.handles import KeyedStateHandle, SavepointHandle
from millpond.snapshots.restore import joined_states
from millpond.spi.parameters import PluginHooks
from millpond.storage.checkpoint_storage import public_uri


def undivided_states(
    subtasks: Sequence[Subtask],
    parts: Sequence[KeyedStateHandle],
    checkpoint_id: int | None = None,
) -> frozenset[StateId]:
    """The lists of an operator of which nobody can tell which elements count.

    Args:
        subtasks: all of the operator.
        parts: what ``newest_parts`` gives of them.
        checkpoint_id: up to which.
    """
    newest = [known[-1] for each in subtasks if (known := each.at(checkpoint_id))]
    whole = [each for each in newest if each in parts]
    replaced = [each for each in newest if each not in whole]
    if not replaced:
        return frozenset()
    # Subtasks of before may divide the key groups with new ones: those that have run are newer.
    are_newer = min(each.checkpoint_id for each in parts) > max(h.checkpoint_id for h in replaced)
    if are_newer and len(whole) == len(parts) and _is_division(parts):
        return frozenset()
    since = [each for each in newest if each not in replaced and _follows(each, replaced)]
    earlier = (each for each in newest if each not in since)
    return frozenset(known for each in earlier for known in _lists_of(each))


def _is_division(parts: Sequence[KeyedStateHandle]) -> bool:
    """Whether the parts are all subtasks of one parallelism, so that each has run."""
    found = sorted(part.key_group_range.start for part in parts)
    total, count = parts[0].max_parallelism, len(parts)
    if sum(len(part.key_group_range) for part in parts) != total:
        return False
    return found == [key_group_range(total, count, index).start for index in range(count)]


def _follows(handle: KeyedStateHandle, replaced: Sequence[KeyedStateHandle]) -> bool:
    """Whether a snapshot is newer than others of some of its key groups."""
    groups, number = handle.key_group_range, handle.checkpoint_id
    return any(
        each.checkpoint_id < number and each.key_group_range.intersection(groups)
        for each in replaced
    )


def _lists_of(handle: KeyedStateHandle) -> Iterator[StateId]:
    """The split and union lists that are not empty, but for raw keyed state."""
    for share in handle.operator_state:
        for state in share.states:
            is_list = state.meta.mode is not Mode.BROADCAST and state.meta != RAW_KEYED
            if is_list and state.partitions:
                yield state.meta.id


IN_POINTERS = (
    "; what Spark's pointers carry is read by naming the query's checkpointLocation, and this "
    "directory with --snapshots"
)
"""The end of what tools say of a directory that need not hold the newest snapshots."""


def open_stored(
    where: SavepointHandle,
    registry: PluginHooks,
    checkpoint_id: int | None = None,
    limits: RestoreConfig = RestoreConfig(),
    wanted: OperatorChoice = ALL_OPERATORS,
    refused: list[MillpondError] | None = None,
) -> list[StoredOperator]:
    """The operators in a savepoint or a checkpoint directory.

    Args:
        where: its root.
        registry: the plugins that may restore.
        checkpoint_id: of a checkpoint directory, the snapshots up to this one.
        limits: what the files may ask for.
        wanted: which operators of a checkpoint directory are meant; no other is looked at.
        refused: takes the errors of operators that cannot be read beside others that can; without
            it the first one is raised.

    Raises:
        CorruptSnapshotError: the metadata of a snapshot, or of the savepoint, is damaged.
        RestoreError: the directory holds no checkpoint or savepoint, or an incomplete one, or none
            of the operators that are meant.
    """
    if is_savepoint(where):
        return list(_from_savepoint(where, registry, limits))
    place = public_uri(where.storage.uri)
    catalog = read_catalog(where.storage)
    if reason := catalog.no_root(place):
        raise RestoreError(place, (reason,))
    operators = sorted({subtask.operator for subtask in catalog.subtasks})
    chosen = list(filter(wanted, operators))
    if operators and not chosen:
        raise RestoreError(place, (wanted.none_of(operators),))
    errors: list[MillpondError] = []
    found = list(_from_checkpoint(catalog, chosen, registry, checkpoint_id, limits, errors))
    if errors and (refused is None or not found):
        raise errors[0]
    if not found:
        cause = unfinished(where) or f"it holds neither a savepoint nor snapshots{IN_POINTERS}"
        raise RestoreError(place, (cause,))
    if refused is not None:
        refused += errors
    return found


def _from_savepoint(
    where: SavepointHandle, registry: PluginHooks, limits: RestoreConfig
) -> Iterator[StoredOperator]:
    savepoint = read_savepoint(where)
    for operator in savepoint.operators:
        yield StoredOperator(
            operator=OperatorId(uid=operator.uid),
            checkpoint_id=savepoint.checkpoint_id,
            max_parallelism=operator.max_parallelism,
            key=operator.key,
            states=operator.metas,
            parts=(where,),
            registry=registry,
            shape=operator,
            limits=limits,
        )


def _from_checkpoint(
    catalog: Catalog,
    operators: Sequence[OperatorId],
    registry: PluginHooks,
    checkpoint_id: int | None,
    limits: RestoreConfig,
    refused: list[MillpondError],
) -> Iterator[StoredOperator]:
    """Those that can be read; why others cannot is added to ``refused``."""
    for operator in operators:
        try:
            mine = [each for each in catalog.subtasks if each.operator == operator]
            for subtask in mine:
                _refuse_rivals(subtask, checkpoint_id)
            parts = complete_parts(catalog, operator, checkpoint_id)
            if parts:
                undivided = undivided_states(mine, parts, checkpoint_id)
                yield operator_of_parts(operator, parts, registry, limits, undivided)
        except (RestoreError, CorruptSnapshotError) as error:
            refused.append(error)


def operator_of_parts(
    operator: OperatorId,
    parts: Sequence[KeyedStateHandle],
    registry: PluginHooks,
    limits: RestoreConfig = RestoreConfig(),
    undivided: frozenset[StateId] = frozenset(),
) -> StoredOperator:
    """An operator as snapshots hold it, of which there is one at least, the newest first.

    Args:
        operator: whose they are.
        parts: the snapshots.
        registry: the plugins that may restore.
        limits: what the files may ask for.
        undivided: the lists of which the snapshots do not say which elements count.
    """
    newest = parts[0]
    metas = {meta.name: meta for part in reversed(parts) for meta in part.states}
    with suppress(RestoreError):  # of other types, the newest are told, and no row is read
        metas = joined_states(operator.label, parts)
    return StoredOperator(
        operator=operator,
        checkpoint_id=newest.checkpoint_id,
        max_parallelism=newest.max_parallelism,
        key=newest.key,
        states=tuple(metas[name] for name in sorted(metas)),
        parts=tuple(parts),
        registry=registry,
        shape=newest,
        limits=limits,
        undivided=undivided,
    )


def _refuse_rivals(subtask: Subtask, checkpoint_id: int | None) -> None:
    """Two attempts of one batch: only Spark's pointers say which was committed."""
    rivals = subtask.at(checkpoint_id)
    if len({handle.version for handle in rivals}) > 1:
        number = rivals[0].checkpoint_id
        cause = (
            f"{len(rivals)} attempts have written checkpoint {number} of {subtask.folder}; read "
            "an earlier one, or create a savepoint with Spark, which knows the one that counts"
        )
        raise RestoreError(f"checkpoint {number}", (cause,))


def pick_operator(
    operators: Sequence[StoredOperator], name: str | None, where: str
) -> StoredOperator:
    """The operator of that uid, or ``query/uid``, or the only one there is.

    Raises:
        RestoreError: no operator fits, or several do.
    """
    found = [each for each in operators if operator_named(name)(each.operator)]
    if len(found) == 1:
        return found[0]
    known = ", ".join(str(each.operator) for each in operators)
    cause = "several operators match" if found else f"there is no operator {name!r}"
    raise RestoreError(where, (f"{cause}; name one with --operator: {known}",))
