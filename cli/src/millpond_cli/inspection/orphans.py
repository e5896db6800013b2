"""Selection of operators in a checkpoint directory, and of files that may be deleted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Self

import attrs
from millpond.errors import CorruptSnapshotError
from millpond.operator_id import OperatorId
from millpond.snapshots.catalog import Catalog, OperatorChoice
from millpond.snapshots.paths import owner_of, parse_layout_path
from millpond.snapshots.retention import LayoutHistory, snapshot_files
from millpond.snapshots.subtasks import Subtask, newest_id
from millpond.storage.checkpoint_storage import CheckpointStorage

RETAINED = 100
"""Number of checkpoints to retain if the number that the query retains is unknown."""


def narrowed(catalog: Catalog, wanted: OperatorChoice, checkpoint_id: int | None) -> Catalog:
    """Return a copy of a catalog with the wanted operators only.

    If `checkpoint_id` is given, the copy lists a broken file only if the file may be the subtask's
    newest snapshot up to this checkpoint.
    """
    subtasks = tuple(each for each in catalog.subtasks if wanted(each.operator))
    others = set[str]()
    if checkpoint_id is not None:  # older and newer broken files do not matter
        for each in subtasks:
            first = max((handle.checkpoint_id for handle in each.at(checkpoint_id)), default=0)
            numbers = ((path, each.files[path]) for path in each.broken)
            others |= {path for path, number in numbers if not first <= number <= checkpoint_id}
    broken = {
        path: reason
        for path, reason in catalog.broken.items()
        if wanted(owner_of(path)) and path not in others
    }
    histories = {each: found for each, found in catalog.histories.items() if wanted(each)}
    return attrs.evolve(catalog, subtasks=subtasks, broken=broken, histories=histories)


def spark_queries(catalog: Catalog) -> list[str]:
    """Return the ids of the Spark queries that have snapshots in a directory."""
    owners = {owner_of(layout) for layout in catalog.layouts}
    with_state = {each.operator for each in catalog.subtasks}
    return sorted({operator.query for operator in owners & with_state})


def orphans(catalog: Catalog, retained: int | None = None, query: str | None = None) -> list[str]:
    """Return the files in a checkpoint directory that no retained checkpoint needs.

    These are files of lost attempts (which Spark did not commit), of old checkpoints, and of old
    layouts (divisions of the key groups among subtasks). Files of an operator's newest checkpoint
    are not returned, because an attempt may still be writing them.

    Args:
        catalog: the directory.
        retained: the number of checkpoints to retain, counted from the newest. By default it is the
            number that the operator's query retains, or `RETAINED` if that is unknown.
        query: the id of a query. If given, only files of this query are returned.

    Raises:
        CorruptSnapshotError: a metadata file cannot be read, so the files that it names are
            unknown.
    """
    for path, reason in catalog.broken.items():
        # A snapshot names files of its own query only. A layout may name files of any query.
        is_other = query not in (None, owner_of(path).query) and not parse_layout_path(path)
        if is_other:
            continue
        cure = "restore it, or delete it if its checkpoint may go; until then nothing is deleted"
        raise CorruptSnapshotError(path, f"{reason.rstrip('.')}; {cure}")
    operators = [
        _OperatorFiles.of_operator(catalog, operator, retained) for operator in catalog.operators
    ]
    needed = frozenset[str]().union(*(each.needed() for each in operators))
    found = [path for each in operators for path in each.unneeded(needed)]
    found += catalog.outdated
    return [path for path in found if query in (None, owner_of(path).query)]


def delete_file(storage: CheckpointStorage, path: str, *, dry_run: bool = False) -> int | None:
    """Delete a file and return its size, or None if the file does not exist any more.

    If `dry_run` is set, only return the size.
    """
    try:
        size = storage.size(path)
    except CorruptSnapshotError:
        return None
    if not dry_run:
        storage.delete(path)
    return size


@attrs.frozen
class _OperatorFiles:
    """The files of an operator, and the data that decide which of them may be deleted.

    Attributes:
        subtasks: the operator's subtasks with all readable snapshots.
        history: the operator's layouts; None if the operator has no layouts.
        unfinished: incomplete files, each with the checkpoint id of its snapshot.
        newest: the newest checkpoint id of the operator or, on Spark, of its query.
        oldest: the oldest retained checkpoint id. One more checkpoint than `retained` is kept,
            because the newest may not be committed.
    """

    subtasks: tuple[Subtask, ...]
    history: LayoutHistory | None
    unfinished: Mapping[str, int]
    newest: int
    oldest: int

    @classmethod
    def of_operator(cls, catalog: Catalog, operator: OperatorId, retained: int | None) -> Self:
        """Return the files of one operator in a checkpoint directory."""
        every = [subtask.with_outlived() for subtask in catalog.subtasks]
        mine = tuple(each for each in every if each.operator == operator)
        history, settings = catalog.histories.get(operator), catalog.settings.get(operator)
        newest = newest_id(mine)
        if history is not None and newest:
            newest = newest_id(each for each in every if each.operator.query == operator.query)
        unfinished = {
            path: number
            for path, (owner, number) in catalog.unfinished.items()
            if owner == operator
        }
        keep = retained or (RETAINED if settings is None else settings.retained)
        return cls(mine, history, unfinished, newest, newest - keep)

    def needed(self) -> frozenset[str]:
        """Return the files that a restore of a retained checkpoint may read."""
        outlived = sources = frozenset[str]()
        if self.history is not None:
            files = snapshot_files(path for each in self.subtasks for path in each.files)
            outlived = self.history.outlived(files, self.oldest)
            sources = self.history.needed_sources(self.oldest)
        found = set(sources)
        for subtask in self.subtasks:
            handles = [each for each in subtask.handles if each.metadata not in outlived]
            ids = (each.checkpoint_id for each in handles)
            start = max((number for number in ids if number <= self.oldest + 1), default=0)
            # If several attempts have written a snapshot, any of them may be committed.
            found.update(*(each.all_paths for each in handles if each.checkpoint_id >= start))
        return frozenset(found)

    def unneeded(self, needed: frozenset[str]) -> Iterator[str]:
        """Yield the operator's files that may be deleted: old snapshots and old layouts.

        Args:
            needed: the files that any operator in the directory needs.
        """
        files = {path: number for each in self.subtasks for path, number in each.files.items()}
        old = (path for path, number in files.items() if number < self.newest)
        yield from sorted(path for path in old if path not in needed)
        yield from sorted(path for path, number in self.unfinished.items() if number < self.newest)
        if self.history is not None:
            yield from self.history.outlived_layouts(self.oldest)
