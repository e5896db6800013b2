"""Deletion of files that no retained checkpoint needs: files of failed attempts and old layouts.

Each snapshot already deletes the files that it replaces. In addition, once in
`checkpoint.retained` checkpoints, each subtask deletes the files that failed attempts of its tasks
have left. One subtask, a different one each time, also deletes files from before the last rescale
and the files of operators that the query no longer has. The rules are in
`millpond.snapshots.retention`.
"""

from __future__ import annotations

from collections.abc import Iterable

import attrs
from millpond.keygroups import KeyGroupRange
from millpond.operator_id import OperatorId
from millpond.snapshots.handles import KeyedStateHandle
from millpond.snapshots.layouts import (
    StoredLayouts,
    read_layouts,
    read_settings,
    record_commit,
    record_first,
)
from millpond.snapshots.paths import owner_of, parse_layout_path, snapshot_folder
from millpond.snapshots.retention import LayoutHistory, lost_attempts, snapshot_files
from millpond.storage.checkpoint_storage import CheckpointStorage

from millpond_spark.plan.layout import Layout


@attrs.frozen
class Subtask:
    """A subtask that deletes files of its operator at the end of a micro-batch.

    Attributes:
        layout: the operator's layout, the division of its key groups among subtasks.
        index: the subtask.
        checkpoint_id: the checkpoint of this batch, which is not committed yet.
        retained: the number of checkpoints to keep.
    """

    storage: CheckpointStorage
    operator: OperatorId
    layout: Layout
    index: int
    checkpoint_id: int
    retained: int

    @property
    def _groups(self) -> KeyGroupRange:
        return self.layout.key_groups(self.index)

    def record_first_snapshot(self) -> None:
        """Write a record that this batch's snapshot is the subtask's first one under the layout."""
        number = self.layout.number
        record_first(self.storage, self.operator, number, self._groups, self.checkpoint_id)

    def delete_outdated(self, committed_id: int, committed: KeyedStateHandle | None) -> None:
        """Once in `retained` checkpoints, delete files that no retained checkpoint needs.

        Args:
            committed_id: the id of the subtask's last committed checkpoint under the layout.
            committed: the snapshot of this checkpoint; None if the subtask had no state.
        """
        turn = self.checkpoint_id // self.retained
        if committed_id // self.retained == turn:
            return
        first = self.layout.settled_after + 2  # the layout's first checkpoint
        if committed is not None:
            folder = snapshot_folder(self.operator, self._groups)
            oldest = self.checkpoint_id - self.retained
            self._delete(lost_attempts(self.storage, folder, committed, first, oldest))
        if self.layout.sources:
            number = self.layout.number
            record_commit(self.storage, self.operator, number, self._groups, committed_id)
        if turn % self.layout.parallelism == self.index:
            self._delete_earlier_layouts()

    def _delete(self, paths: Iterable[str]) -> bool:
        """Delete the files `paths`; return whether all of them could be deleted."""
        failed = [path for path in paths if not self.storage.delete_if_possible(path)]
        return not failed

    def _delete_earlier_layouts(self) -> None:
        """Delete files that operators of the query have written under earlier layouts.

        The operators are this one and those that the query no longer has. If this operator has a
        newer layout, nothing is deleted. The query has then been started again, and the new run
        decides which files are needed.
        """
        paths = self.storage.list(self.operator.query)
        numbers: dict[OperatorId, list[int]] = {}
        for operator, number in filter(None, map(parse_layout_path, paths)):
            numbers.setdefault(operator, []).append(number)
        changed = {operator for operator, mine in numbers.items() if len(mine) > 1}
        if not changed or max(numbers[self.operator], default=-1) != self.layout.number:
            return
        every = [path for path in self.storage.list("") if parse_layout_path(path)]
        layouts = read_layouts(self.storage, every)
        for operator in sorted(changed):
            newest = layouts.readable[operator][-1:]
            if operator == self.operator or any(each.is_dropped for each in newest):
                mine = [path for path in paths if owner_of(path) == operator]
                self._delete_before_base(operator, mine, layouts)

    def _delete_before_base(
        self, operator: OperatorId, paths: list[str], layouts: StoredLayouts
    ) -> None:
        """Delete an operator's files of earlier layouts that no retained checkpoint needs.

        Args:
            operator: this operator, or an operator that the query no longer has.
            paths: the operator's files.
            layouts: the layouts of all queries in the storage. Their subtasks may start from some
                of the files.
        """
        settings = read_settings(self.storage, operator)
        oldest = self.checkpoint_id - max(self.retained, settings.retained if settings else 0)
        history = LayoutHistory.read(self.storage, operator, layouts.readable[operator], paths)
        others = (known for each, known in layouts.readable.items() if each != operator)
        elsewhere = frozenset[str]().union(*(each.source_paths for mine in others for each in mine))
        files = snapshot_files(paths)
        outlived = history.outlived(files, oldest)
        are_gone = self._delete(sorted(outlived - elsewhere - history.needed_sources(oldest)))
        if are_gone and not outlived & elsewhere:
            self._delete(history.outlived_layouts(oldest))
            self.storage.delete_empty({files[path].folder for path in outlived})
