"""The files in a directory that no start of a query, and no tool, can need."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import attrs

from millpond.inspection.outdated import LayoutHistory, snapshot_files
from millpond.inspection.subtask import Subtask


@attrs.frozen
class OperatorFiles:
    """The files of an operator, and what is known of them.

    Attributes:
        subtasks: the operator's, with all snapshots that can be read.
        history: its layouts; None if it has none.
        unfinished: files that a writer has begun, with the id of their checkpoint.
        newest: the newest checkpoint of the operator, on Spark of its query.
        retained: how many checkpoints stay whole.
    """

    subtasks: tuple[Subtask, ...]
    history: LayoutHistory | None
    unfinished: Mapping[str, int]
    newest: int
    retained: int

    @property
    def _oldest(self) -> int:
        """The oldest retained checkpoint, as the newest one may not be committed."""
        return self.newest - self.retained

    @property
    def _outlived(self) -> frozenset[str]:
        if self.history is None:
            return frozenset()
        files = snapshot_files(path for each in self.subtasks for path in each.files)
        return self.history.outlived(files, self._oldest)

    def needed(self) -> frozenset[str]:
        """The files of retained snapshots, of each subtask's newest ones, and of sources."""
        outlived = self._outlived
        found = frozenset[str]().union(*(self._needed_by(each, outlived) for each in self.subtasks))
        return found if self.history is None else found | self.history.needed_sources(self._oldest)

    def _needed_by(self, subtask: Subtask, outlived: frozenset[str]) -> frozenset[str]:
        """The files that a subtask needs; of several attempts any may be the committed one."""
        handles = [each for each in subtask.handles if each.metadata not in outlived]
        ids = (each.checkpoint_id for each in handles)
        start = max((number for number in ids if number <= self._oldest + 1), default=0)
        kept = (each.all_paths for each in handles if each.checkpoint_id >= start)
        return frozenset[str]().union(*kept)

    def unneeded(self, needed: frozenset[str]) -> Iterator[str]:
        """The files that may go, of those that are older than the newest checkpoint.

        Args:
            needed: the files that some operator of the directory needs.
        """
        files = {path: number for each in self.subtasks for path, number in each.files.items()}
        old = (path for path, number in files.items() if number < self.newest)
        yield from sorted(path for path in old if path not in needed)
        yield from sorted(path for path, number in self.unfinished.items() if number < self.newest)
        if self.history is not None:
            yield from self.history.outlived_layouts(self._oldest)
