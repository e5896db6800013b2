"""The catalog of a checkpoint directory, and the complete checkpoints that the directory holds."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet

import attrs

from millpond.errors import (
    CorruptSnapshotError,
    IncompleteCheckpointError,
    MillpondError,
    RestoreError,
)
from millpond.keygroups import KeyGroupRange
from millpond.operator_id import OperatorId
from millpond.snapshots.handles import KeyedStateHandle
from millpond.snapshots.layouts import OperatorSettings, read_layouts, read_settings
from millpond.snapshots.paths import SnapshotPath, owner_of
from millpond.snapshots.retention import LayoutHistory, temporary_files, without_cut_off
from millpond.snapshots.subtasks import (
    Subtask,
    gone_groups,
    read_subtask,
    without_outlived,
)
from millpond.storage.checkpoint_storage import CheckpointStorage, public_uri


@attrs.frozen
class OperatorChoice:
    """A condition for operators. Calling it with an operator returns whether the operator fits.

    Attributes:
        name: the uid, or ``query/uid``, that an operator must have; None if any operator fits.
        queries: the queries to which an operator may belong; None if any query fits.
    """

    name: str | None = None
    queries: frozenset[str] | None = None

    def __call__(self, known: OperatorId) -> bool:
        """Return whether the operator `known` is chosen."""
        named = self.name in (None, known.uid, str(known))
        return named and (self.queries is None or known.query in self.queries)

    def none_of(self, known: Iterable[OperatorId]) -> str:
        """Return the error message for a directory in which no operator is chosen.

        Args:
            known: the operators in the directory; the message lists them.
        """
        wanted = "" if self.name is None else f" {self.name!r}"
        if self.queries is not None:
            wanted += f" of the query {', '.join(sorted(self.queries))}"
        there = ", ".join(map(str, sorted(known)))
        return f"there is no operator{wanted} with snapshots in it; there are: {there}"


ALL_OPERATORS = OperatorChoice()


def operator_named(name: str | None, query: str | None = None) -> OperatorChoice:
    """Return the choice of the operators called `name` (uid or ``query/uid``) in `query`.

    If `name` or `query` is None, any name or query fits.
    """
    return OperatorChoice(name, None if query is None else frozenset({query}))


def only_operator(known: Iterable[OperatorId], name: str | None, where: str) -> OperatorId:
    """Return the operator among `known` whose uid, or ``query/uid``, is `name`.

    If `name` is None, return the only operator.

    Args:
        known: the operators to search.
        name: the uid, ``query/uid``, or None.
        where: the directory of the operators, for errors.

    Raises:
        RestoreError: no operator fits, or several do.
    """
    operators = list(known)
    found = list(filter(operator_named(name), operators))
    if len(found) == 1:
        return found[0]
    cause = "several operators match" if found else f"there is no operator {name!r}"
    there = ", ".join(map(str, operators))
    raise RestoreError(where, (f"{cause}; name one with --operator: {there}",))


_LOG = logging.getLogger("millpond.restore")


@attrs.frozen
class Catalog:
    """The subtasks, layouts and settings in a checkpoint directory.

    A layout is the division of an operator's key groups among its subtasks; see
    ``millpond.snapshots.layouts``.

    Attributes:
        storage: the directory.
        subtasks: the subtasks of all operators.
        layouts: the path of the file of each operator's newest layout, with the paths of the
            snapshot files from which the layout's subtasks start. Only operators on Spark have
            layouts.
        broken: metadata files that cannot be read, each with the reason.
        unfinished: incomplete files of snapshots, each with the operator and the checkpoint id. A
            writer is still writing such a file, or was killed.
        outdated: incomplete layout files, left by drivers that were killed.
        histories: the layouts of each operator on Spark.
        settings: the settings of the operators' queries, if they are known.
    """

    storage: CheckpointStorage
    subtasks: tuple[Subtask, ...]
    layouts: dict[str, frozenset[str]]
    broken: dict[str, str]
    unfinished: Mapping[str, tuple[OperatorId, int]] = attrs.field(factory=dict)
    outdated: tuple[str, ...] = ()
    histories: Mapping[OperatorId, LayoutHistory] = attrs.field(factory=dict)
    settings: Mapping[OperatorId, OperatorSettings] = attrs.field(factory=dict)

    @property
    def operators(self) -> list[OperatorId]:
        """The operators that have snapshots or layouts."""
        return sorted({each.operator for each in self.subtasks} | self.histories.keys())


def complete_parts(
    catalog: Catalog, operator: OperatorId, checkpoint_id: int | None = None
) -> list[KeyedStateHandle]:
    """Return the snapshots that together form an operator's checkpoint.

    The checkpoint is the newest one up to `checkpoint_id`; if that is None, the newest of all. On
    Spark, a subtask that has never received a row has no snapshot. It does not count as missing.

    Raises:
        CorruptSnapshotError: metadata of the checkpoint cannot be read.
        IncompleteCheckpointError: the checkpoint has files without metadata.
        RestoreError: the checkpoint does not hold all key groups.
    """
    subtasks = [subtask for subtask in catalog.subtasks if subtask.operator == operator]
    parts = newest_parts(subtasks, checkpoint_id)
    covered = {group: part.checkpoint_id for part in parts for group in part.key_group_range}
    for subtask in subtasks:
        for path in subtask.broken:
            number = subtask.files[path]
            counts = checkpoint_id is None or number <= checkpoint_id
            if counts and any(covered.get(g, -1) <= number for g in subtask.key_group_range):
                raise CorruptSnapshotError(path, subtask.broken[path].rstrip("."))
        number = subtask.unnamed(checkpoint_id)
        if any(covered.get(g, -1) < number for g in subtask.key_group_range):
            what = f"Checkpoint {parts[0].checkpoint_id} of {operator}"
            raise IncompleteCheckpointError(what, folder=subtask.folder, checkpoint_id=number)
    if checkpoint_id is not None and (gone := gone_groups(subtasks, checkpoint_id, covered)):
        reason = (
            f"the key groups {_as_text(gone)} have newer snapshots only: name a newer checkpoint"
        )
        raise RestoreError(f"checkpoint {checkpoint_id} of {operator}", (reason,))
    if parts:
        _check_key_groups(catalog, operator, checkpoint_id, parts, covered.keys())
    return parts


def _check_key_groups(
    catalog: Catalog,
    operator: OperatorId,
    checkpoint_id: int | None,
    parts: Sequence[KeyedStateHandle],
    covered: AbstractSet[int],
) -> None:
    """Raise RestoreError if a key group that must have a snapshot is not among `covered`.

    Without layouts every key group must have a snapshot. With layouts (divisions of the key groups
    among subtasks), a key group must have a snapshot if its subtask has taken one. The savepoint
    from which the newest layout starts may hold the other key groups.
    """
    what = f"checkpoint {parts[0].checkpoint_id} of {operator}"
    totals = sorted({part.max_parallelism for part in parts})
    if len(totals) > 1:
        raise RestoreError(what, (f"its parts have different numbers of key groups: {totals}",))
    everything = set(range(totals[0]))
    history = catalog.histories.get(operator)
    files = {path for each in catalog.subtasks if each.operator == operator for path in each.files}
    layouts = [paths for path, paths in catalog.layouts.items() if owner_of(path) == operator]
    wanted = set[int]() if layouts else everything
    if layouts:  # a subtask that has not received a row has no files
        for file in filter(None, map(SnapshotPath.parse, files.union(*layouts))):
            if checkpoint_id is None or file.checkpoint_id <= checkpoint_id:
                wanted.update(file.key_group_range)
    if missing := _as_text(wanted - covered):
        raise RestoreError(what, (f"no snapshot holds the key groups {missing}",))
    if history is None:
        return
    begun = {group for groups in history.begun(checkpoint_id) for group in groups}
    carries = any(part.carries for part in parts)
    if not carries and (lost := _as_text(begun - covered)):
        cause = f"no snapshot holds the key groups {lost}, though their subtask has taken some: "
        raise RestoreError(what, (f"{cause}bring its folder back, or start from a savepoint",))
    if (savepoint := history.savepoint) and (absent := _as_text(everything - covered)):
        reason = "is still in the savepoint from which the query started"
        _LOG.warning("%s: state of the key groups %s %s: %s", what, absent, reason, savepoint)


def _as_text(groups: set[int]) -> str:
    """Return key groups as text, such as ``0..31, 64..127``."""
    return ", ".join(str(run) for run in _runs(sorted(groups)))


def newest_parts(
    subtasks: Sequence[Subtask], checkpoint_id: int | None = None
) -> list[KeyedStateHandle]:
    """Return the newest snapshots that together cover each key group once, newest first.

    Snapshots after `checkpoint_id`, if given, are ignored. If a newer snapshot has some of the
    key groups of an older snapshot, the older one is limited to its other key groups. Lists of
    operator state cannot be limited to key groups; `undivided_states` of the command line finds
    such lists.
    """
    newest = [subtask.at(checkpoint_id)[-1] for subtask in subtasks if subtask.at(checkpoint_id)]
    newest.sort(key=lambda handle: handle.checkpoint_id, reverse=True)
    taken: set[int] = set()
    parts: list[KeyedStateHandle] = []
    for handle in newest:
        free = [group for group in handle.key_group_range if group not in taken]
        taken.update(free)
        if len(free) == len(handle.key_group_range):
            parts.append(handle)
        else:
            parts += [attrs.evolve(handle, key_group_range=run) for run in _runs(free)]
    return parts


def _runs(groups: Sequence[int]) -> Iterator[KeyGroupRange]:
    """Yield each range of consecutive numbers in `groups`, which must be ascending."""
    start = 0
    for at in range(1, len(groups) + 1):
        if at == len(groups) or groups[at] != groups[at - 1] + 1:
            yield KeyGroupRange(groups[start], groups[at - 1])
            start = at


def read_catalog(storage: CheckpointStorage) -> Catalog:
    """Read the metadata of all snapshots and layouts in a checkpoint directory."""
    listed = storage.list("")
    layouts = read_layouts(storage, listed)
    histories = {
        operator: LayoutHistory.read(storage, operator, known, listed)
        for operator, known in layouts.readable.items()
    }
    settings = {operator: read_settings(storage, operator) for operator in layouts.readable}
    subtasks = without_cut_off(_read_subtasks(storage, listed), layouts.in_force)
    broken = dict(layouts.broken)
    broken |= {path: reason for each in subtasks for path, reason in each.broken.items()}
    return Catalog(
        storage=storage,
        subtasks=subtasks,
        layouts=layouts.in_force,
        broken=broken,
        unfinished=temporary_files(listed),
        outdated=tuple(layouts.outdated),
        histories=histories,
        settings={operator: each for operator, each in settings.items() if each is not None},
    )


def _read_subtasks(storage: CheckpointStorage, listed: Sequence[str]) -> tuple[Subtask, ...]:
    """Return the subtasks whose snapshots are among the files `listed`."""
    folders: dict[str, dict[str, SnapshotPath]] = {}
    for path in listed:
        if file := SnapshotPath.parse(path):
            folders.setdefault(file.folder, {})[path] = file
    subtasks = [read_subtask(storage, files) for files in folders.values()]
    subtasks.sort(key=lambda each: (each.operator, each.key_group_range.start, each.folder))
    if any(each.broken for each in subtasks):
        # A running job may have deleted files since the first listing.
        present = set(storage.list(""))
        subtasks = [
            attrs.evolve(
                each,
                files={path: number for path, number in each.files.items() if path in present},
                broken={path: why for path, why in each.broken.items() if path in present},
            )
            for each in subtasks
        ]
    every = set(listed)
    return tuple(without_outlived(each, every) for each in subtasks)


@attrs.frozen
class OperatorCheckpoint:
    """A complete checkpoint of an operator.

    Attributes:
        operator: the operator.
        subtasks: all subtasks of the operator.
        parts: the snapshots that together are the checkpoint, the newest first.
    """

    operator: OperatorId
    subtasks: tuple[Subtask, ...]
    parts: list[KeyedStateHandle]


def read_checkpoints(
    storage: CheckpointStorage,
    checkpoint_id: int | None = None,
    wanted: OperatorChoice = ALL_OPERATORS,
    refused: list[MillpondError] | None = None,
) -> list[OperatorCheckpoint]:
    """Return the newest complete checkpoint of each wanted operator in a checkpoint directory.

    Args:
        storage: the directory.
        checkpoint_id: the last checkpoint that counts; None if all count.
        wanted: the operators to read.
        refused: a list to which the errors of unreadable operators are appended if at least one
            operator can be read. Without the list, the first error is raised.

    Raises:
        CorruptSnapshotError: the metadata of a snapshot is damaged.
        RestoreError: the directory holds no wanted operator, or an incomplete checkpoint.
    """
    place = public_uri(storage.uri)
    catalog = read_catalog(storage)
    operators = sorted({subtask.operator for subtask in catalog.subtasks})
    chosen = list(filter(wanted, operators))
    if operators and not chosen:
        raise RestoreError(place, (wanted.none_of(operators),))
    found: list[OperatorCheckpoint] = []
    errors: list[MillpondError] = []
    for operator in chosen:
        subtasks = tuple(each for each in catalog.subtasks if each.operator == operator)
        try:
            for subtask in subtasks:
                _refuse_rivals(subtask, checkpoint_id)
            if parts := complete_parts(catalog, operator, checkpoint_id):
                found.append(OperatorCheckpoint(operator, subtasks, parts))
        except (RestoreError, CorruptSnapshotError) as error:
            errors.append(error)
    if errors and (refused is None or not found):
        raise errors[0]
    if refused is not None:
        refused += errors
    return found


def _refuse_rivals(subtask: Subtask, checkpoint_id: int | None) -> None:
    """Raise RestoreError if several attempts have written the subtask's newest snapshot.

    Only snapshots up to `checkpoint_id` count. Only Spark knows which attempt is committed.
    """
    rivals = subtask.at(checkpoint_id)
    if len({handle.version for handle in rivals}) > 1:
        number = rivals[0].checkpoint_id
        cause = (
            f"{len(rivals)} attempts have written checkpoint {number} of {subtask.folder}; read "
            "an earlier one, or create a savepoint with Spark, which knows the one that counts"
        )
        raise RestoreError(f"checkpoint {number}", (cause,))
