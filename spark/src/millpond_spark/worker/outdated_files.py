"""The files that a subtask deletes in addition to the files that its snapshots retire.

Every `checkpoint.retained` checkpoints a subtask deletes the files of lost attempts in its folder.
One subtask, another one each time, also deletes the files from before the present layout, and those
of operators that the query has dropped. See `millpond.snapshots.layouts` for the rule.
"""

from __future__ import annotations

from collections.abc import Iterable

import attrs
from millpond.keygroups import KeyGroupRange
from millpond.operator_id import OperatorId
from millpond.snapshots.handles import KeyedStateHandle
from millpond.snapshots.layout_records import read_settings, record_commit, record_first
from millpond.snapshots.layouts import (
    LayoutHistory,
    StoredLayouts,
    lost_attempts,
    read_layouts,
    snapshot_files,
)
from millpond.snapshots.paths import owner_of, parse_layout_path, snapshot_folder
from millpond.storage.checkpoint_storage import CheckpointStorage

from millpond_spark.plan.layout import Layout


@attrs.frozen
class Subtask:
    """A subtask in a micro-batch, whose snapshot will be the checkpoint of that id."""

    storage: CheckpointStorage
    operator: OperatorId
    layout: Layout
    index: int
    checkpoint_id: int
    retained: int

    @property
    def _groups(self) -> KeyGroupRange:
        return self.layout.key_groups(self.index)

    @property
    def _oldest(self) -> int:
        """The oldest retained checkpoint, as the last committed batch is the one before."""
        return self.checkpoint_id - self.retained

    def record_first_snapshot(self) -> None:
        """Record that the subtask has a snapshot under the layout."""
        number = self.layout.number
        record_first(self.storage, self.operator, number, self._groups, self.checkpoint_id)

    def delete_outdated(self, committed_id: int, committed: KeyedStateHandle | None) -> None:
        """Delete files that no retained checkpoint needs, once in `retained` checkpoints.

        Args:
            committed_id: the subtask's last committed checkpoint, under the present layout.
            committed: its snapshot; None without state.
        """
        settled = self.layout.settled_after
        if settled is None or committed_id // self.retained == self._turn:
            return
        if committed is not None:
            folder = snapshot_folder(self.operator, self._groups)
            oldest = self._oldest
            self._delete(lost_attempts(self.storage, folder, committed, settled + 2, oldest))
        if self.layout.sources:
            number = self.layout.number
            record_commit(self.storage, self.operator, number, self._groups, committed_id)
        if self._turn % self.layout.parallelism == self.index:
            self._delete_earlier_layouts()

    @property
    def _turn(self) -> int:
        return self.checkpoint_id // self.retained

    def _delete(self, paths: Iterable[str]) -> bool:
        """Delete as many files as possible; False if one of them is still there."""
        failed = [path for path in paths if not self.storage.delete_if_possible(path)]
        return not failed

    def _delete_earlier_layouts(self) -> None:
        """Delete the files from before the layouts in force of the query's operators.

        If the query has been started again elsewhere, that start decides which files are needed.
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
