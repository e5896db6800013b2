"""The files that a subtask deletes in addition to the files that its snapshots retire.

Once in `checkpoint.retained` checkpoints a subtask deletes the files of lost attempts in its
folder. One subtask, a different one each time, also deletes the files from before the present
layout, and the files of operators that the query has dropped. The rules are in
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
        layout: the layout in force.
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
        """Record that the subtask has its first snapshot under the layout."""
        number = self.layout.number
        record_first(self.storage, self.operator, number, self._groups, self.checkpoint_id)

    def delete_outdated(self, committed_id: int, committed: KeyedStateHandle | None) -> None:
        """Delete files that no retained checkpoint needs, once in `retained` checkpoints.

        Args:
            committed_id: the subtask's last committed checkpoint, under the layout in force.
            committed: the snapshot of that checkpoint; None without state.
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
        """Delete files, and return whether all of them are gone. A file in use remains."""
        failed = [path for path in paths if not self.storage.delete_if_possible(path)]
        return not failed

    def _delete_earlier_layouts(self) -> None:
        """Delete the files that the query's operators have written under earlier layouts.

        Nothing is deleted if a newer layout than this subtask's exists: the query has then been
        started again elsewhere, and that start decides which files are needed.
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
            operator: this operator, or one that the query has dropped.
            paths: the operator's files.
            layouts: the layouts of all queries in the storage, whose sources may be these files.
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
