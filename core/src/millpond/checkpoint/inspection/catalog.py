"""What lies in a checkpoint directory: operators, subtasks, snapshots, and unused files.

A catalog is made from the metadata files beside the snapshots. Which of two attempts of the
same batch Spark has committed, only the pointers in Spark's checkpoint say.

Metadata that cannot be read is never passed over: what it may stand for is neither deleted nor
replaced by something older.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence

import attrs

from millpond.checkpoint.handles import KeyedStateHandle
from millpond.checkpoint.inspection.choice import OperatorChoice
from millpond.checkpoint.inspection.leftovers import temporary_files, without_cut_off
from millpond.checkpoint.inspection.stored_layouts import read_layouts
from millpond.checkpoint.inspection.subtask import (
    Subtask,
    read_subtask,
    still_there,
    without_outlived,
)
from millpond.checkpoint.inspection.whole import as_text, gone_groups, whole_checkpoints
from millpond.checkpoint.paths import (
    SnapshotPath,
    owner_of,
)
from millpond.errors import (
    CorruptSnapshotError,
    IncompleteCheckpointError,
    RestoreError,
)
from millpond.keygroups import KeyGroupRange
from millpond.operator_id import OperatorId
from millpond.storage.checkpoint_storage import CheckpointStorage

__all__ = ["Catalog", "complete_parts", "newest_parts", "read_catalog"]

_LOG = logging.getLogger("millpond.restore")


@attrs.frozen
class Catalog:
    """All subtasks below a checkpoint directory.

    Attributes:
        layouts: the layout files in force: of each operator on Spark the one with the highest
            number, with the paths that its sources need.
        broken: metadata files that cannot be read, with the reason.
        elsewhere: other checkpoint directories, below or above, whose files are here too; they
            are left out.
        odd: what has the name of a snapshot's file and is none: a directory, pipe, device or
            symbolic link.
        unfinished: files that a writer has begun, or left when it was killed, each with the
            operator and the id of its snapshot.
        cut_off: layouts that a killed driver has not written to their end; nobody has begun under
            them, but which batch was the last before, only Spark knows.
        outdated: files of layouts that drivers have left when they were killed.
    """

    storage: CheckpointStorage
    subtasks: tuple[Subtask, ...]
    layouts: dict[str, frozenset[str]]
    broken: dict[str, str]
    elsewhere: tuple[str, ...] = ()
    odd: frozenset[str] = frozenset()
    unfinished: Mapping[str, tuple[OperatorId, int]] = attrs.field(factory=dict)
    cut_off: frozenset[str] = frozenset()
    outdated: tuple[str, ...] = ()

    def no_root(self, where: str) -> str:
        """Why a directory, named as given, is none of snapshots; empty where it may be one."""
        if not self.elsewhere or any(each.handles for each in self.subtasks):
            return ""
        where, root = where.rstrip("/"), self.elsewhere[0]
        if not root.startswith("../"):
            more = f"; there are {len(self.elsewhere)}" if len(self.elsewhere) > 1 else ""
            right = f"{where}/{root.rstrip('/')}{more}"
            return f"it is not a checkpoint directory, but has one in it; name {right}"
        inner = root.removeprefix("..")
        right = where.removesuffix(inner) if where.endswith(inner) else f"the one with {inner[1:]}"
        return f"it is a folder in a checkpoint directory, not one itself; name {right or '/'}"

    def spark_queries(self) -> list[str]:
        """The queries on Spark that have snapshots here: which count, only their pointers say."""
        owners = {owner_of(layout) for layout in self.layouts}
        with_state = {each.operator for each in self.subtasks}
        return sorted({operator.query for operator in owners & with_state})

    def of(self, wanted: OperatorChoice) -> Catalog:
        """The subtasks, and the files that cannot be read, of the operators that are meant."""
        subtasks = tuple(each for each in self.subtasks if wanted(each.operator))
        broken = {path: why for path, why in self.broken.items() if wanted(owner_of(path))}
        return attrs.evolve(self, subtasks=subtasks, broken=broken)

    def at(self, checkpoint_id: int | None) -> Catalog:
        """The catalog, of a subtask's metadata that cannot be read only what may count at an id."""
        others = {
            path
            for each in self.subtasks
            for path in each.broken
            if not each.may_count(path, checkpoint_id)
        }
        broken = {path: why for path, why in self.broken.items() if path not in others}
        return attrs.evolve(self, broken=broken)

    def orphans(self, retained: int) -> list[str]:
        """Files that no snapshot within the retained number needs: lost attempts, and old ones.

        Files of an operator's newest checkpoint id are left alone, for an attempt may still be
        at work on them; so is what subtasks that are idle, or have not run since a rescale,
        would restore. What killed writers have left of older ones goes. What is no regular file,
        or lies in such a directory, is not ours. Nothing goes of a query of which a layout is cut
        off.

        Raises:
            CorruptSnapshotError: some metadata cannot be read, so the files it needs are unknown.
        """
        for path, reason in self.broken.items():
            if path in self.cut_off:
                continue
            cure = (
                "restore it, or delete it if its checkpoint may go; until then nothing is deleted"
            )
            raise CorruptSnapshotError(path, f"{reason.rstrip('.')}; {cure}")
        by_operator: dict[OperatorId, list[Subtask]] = {}
        for subtask in self.subtasks:
            by_operator.setdefault(subtask.operator, []).append(subtask.with_outlived())
        needed = frozenset[str]().union(*self.layouts.values())
        for mine in by_operator.values():
            needed |= _needed(mine, retained)
        found = [path for mine in by_operator.values() for path in _orphans(mine, needed)]
        found += [*self._left_behind(by_operator), *self.outdated]
        resting = {owner_of(path).query for path in self.cut_off}
        found = [path for path in found if owner_of(path).query not in resting]
        inside = tuple(f"{path}/" for path in self.odd)
        return [path for path in found if path not in self.odd and not path.startswith(inside)]

    def _left_behind(self, by_operator: Mapping[OperatorId, Sequence[Subtask]]) -> list[str]:
        newest = {operator: _newest_id(mine) or 0 for operator, mine in by_operator.items()}
        begun = self.unfinished.items()
        return sorted(path for path, (owner, number) in begun if number < newest.get(owner, 0))

    def delete(self, path: str, *, dry_run: bool = False) -> int | None:
        """Delete a file; its bytes, or None where somebody else has deleted it meanwhile."""
        try:
            size = self.storage.size(path)
        except CorruptSnapshotError:
            if path in self.storage.list(path.rpartition("/")[0]):
                raise
            return None
        if not dry_run:
            self.storage.delete(path)
        return size


def _newest_id(subtasks: Sequence[Subtask]) -> int | None:
    return max((h.checkpoint_id for each in subtasks for h in each.handles), default=None)


def _needed(subtasks: Sequence[Subtask], retained: int) -> frozenset[str]:
    newest = _newest_id(subtasks)
    if newest is None:
        return frozenset()
    oldest = newest - retained + 1
    recent = [h for each in subtasks for h in each.handles if h.checkpoint_id >= oldest]
    in_force = {part.metadata for part in newest_parts(subtasks, oldest)}
    for each in subtasks:
        rivals = each.at(oldest)  # any of them may be the one that Spark has committed
        if any(handle.metadata in in_force for handle in rivals):
            recent += rivals
    return frozenset[str]().union(*(handle.all_paths for handle in recent))


def _orphans(subtasks: Sequence[Subtask], needed: frozenset[str]) -> list[str]:
    newest = _newest_id(subtasks)
    if newest is None:
        return []
    files = {path: number for each in subtasks for path, number in each.files.items()}
    return sorted(p for p, number in files.items() if p not in needed and number < newest)


def complete_parts(
    catalog: Catalog, operator: OperatorId, checkpoint_id: int | None = None
) -> list[KeyedStateHandle]:
    """The snapshots that together are an operator's newest checkpoint up to an id.

    Raises:
        CorruptSnapshotError: metadata of this checkpoint cannot be read.
        IncompleteCheckpointError: files of it have no metadata.
        RestoreError: it does not hold all key groups, or what a subtask had then is deleted; the
            error names the checkpoints that are whole. A subtask of a Spark query that has never
            had a row has nothing, and is not a gap; a warning in the log says what is not there.
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
            raise IncompleteCheckpointError(what, subtask.folder, number)
    if checkpoint_id is not None:
        _check_whole(subtasks, operator, checkpoint_id, covered)
    if parts:
        everything = set(range(_key_groups(parts)))
        files = {path for each in subtasks for path in each.files}
        layouts = [paths for path, paths in catalog.layouts.items() if owner_of(path) == operator]
        wanted = _named(files.union(*layouts), checkpoint_id) if layouts else everything
        what = f"checkpoint {parts[0].checkpoint_id} of {operator}"
        if missing := _as_text(wanted - covered.keys()):
            raise RestoreError(what, (f"no snapshot holds the key groups {missing}",))
        if absent := _as_text(everything - covered.keys()):
            reason = "no row with one of them has come yet, or their subtask's folder is gone"
            _LOG.warning("%s: no snapshot holds the key groups %s: %s", what, absent, reason)
    return parts


def _check_whole(
    subtasks: Sequence[Subtask], operator: OperatorId, checkpoint_id: int, covered: dict[int, int]
) -> None:
    """Refuse a checkpoint at which a subtask had what is deleted since, or may be."""
    if gone := _as_text(gone_groups(subtasks, checkpoint_id, covered)):
        whole = as_text(whole_checkpoints(subtasks))
        reason = f"the key groups {gone} have newer snapshots only; whole are: {whole}"
        raise RestoreError(f"checkpoint {checkpoint_id} of {operator}", (reason,))


def _key_groups(parts: Sequence[KeyedStateHandle]) -> int:
    """How many there are."""
    total = parts[0].max_parallelism
    if any(part.max_parallelism != total for part in parts):
        numbers = sorted({part.max_parallelism for part in parts})
        reason = f"its parts have different numbers of key groups: {numbers}"
        raise RestoreError("a checkpoint", (reason,))
    return total


def _named(paths: Iterable[str], checkpoint_id: int | None) -> set[int]:
    """The key groups of the folders of snapshots up to an id, whether they are there or not."""
    found = set[int]()
    for file in filter(None, map(SnapshotPath.parse, paths)):
        if checkpoint_id is None or file.checkpoint_id <= checkpoint_id:
            found.update(file.key_group_range)
    return found


def _as_text(groups: set[int]) -> str:
    return ", ".join(str(run) for run in _runs(sorted(groups)))


def newest_parts(
    subtasks: Sequence[Subtask], checkpoint_id: int | None = None
) -> list[KeyedStateHandle]:
    """For each key group the newest snapshot that covers it, newest first.

    So subtasks of another parallelism, before a rescale, give only what newer ones do not have.
    Of operator state, which goes by subtask, ``undivided_states`` tells what cannot be given so.
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
    start = 0
    for at in range(1, len(groups) + 1):
        if at == len(groups) or groups[at] != groups[at - 1] + 1:
            yield KeyGroupRange(groups[start], groups[at - 1])
            start = at


def read_catalog(storage: CheckpointStorage) -> Catalog:
    """Read the metadata of all snapshots below a storage's root."""
    folders: dict[str, dict[str, SnapshotPath]] = {}
    odd = frozenset(filter(SnapshotPath.parse, storage.not_files("")))
    listed = storage.list("")
    for path in (*listed, *sorted(odd)):
        file = SnapshotPath.parse(path)
        if file is not None:
            folders.setdefault(file.folder, {})[path] = file
    subtasks = tuple(
        sorted(
            (read_subtask(storage, files, odd) for files in folders.values()),
            key=lambda each: (each.operator, each.key_group_range.start, each.folder),
        )
    )
    elsewhere = tuple(sorted({each.elsewhere for each in subtasks} - {""}))
    subtasks = tuple(
        each for each in subtasks if not each.elsewhere and not each.folder.startswith(elsewhere)
    )
    if any(each.broken for each in subtasks):
        present = odd.union(storage.list(""))
        subtasks = tuple(still_there(each, present) for each in subtasks)
    every = odd.union(listed)
    subtasks = tuple(without_outlived(each, every) for each in subtasks)
    mine = [path for path in listed if not path.startswith(elsewhere)]
    layouts = read_layouts(storage, mine)
    subtasks = without_cut_off(subtasks, layouts.in_force)
    broken = dict(layouts.broken)
    broken |= {path: reason for each in subtasks for path, reason in each.broken.items()}
    return Catalog(
        storage=storage,
        subtasks=subtasks,
        layouts=layouts.in_force,
        broken=broken,
        elsewhere=elsewhere,
        odd=odd,
        unfinished=temporary_files(mine),
        cut_off=frozenset(layouts.cut_off),
        outdated=tuple(layouts.outdated),
    )
