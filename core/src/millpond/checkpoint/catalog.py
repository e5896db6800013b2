"""What lies in a checkpoint directory: operators, subtasks, snapshots, and files nobody needs.

A catalog is made from the metadata files beside the snapshots. Which of two attempts of the
same batch Spark has committed, only the pointers in Spark's checkpoint say.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence

import attrs

from millpond.checkpoint.handles import KeyedStateHandle
from millpond.checkpoint.sealed import read_sealed
from millpond.checkpoint.storage import CheckpointStorage
from millpond.errors import MillpondError
from millpond.keygroups import KeyGroupRange

__all__ = ["Catalog", "Subtask", "newest_parts", "read_catalog"]

_SNAPSHOT_FILE = re.compile(r"(?P<folder>.*kg-\d+-\d+)/(?P<id>\d+)-[0-9a-f]{32}[._].*")
_METADATA = ".handle.json"


@attrs.frozen
class Subtask:
    """One folder of snapshots: an operator's place and key groups.

    Attributes:
        folder: ``<place>/kg-<first>-<last>``.
        handles: its snapshots by ascending checkpoint id.
        files: all files in the folder, with the checkpoint id in their names.
        broken: metadata files that cannot be read, with the reason.
    """

    folder: str
    handles: tuple[KeyedStateHandle, ...]
    files: dict[str, int]
    broken: dict[str, str]

    @property
    def place(self) -> str:
        """The operator's place: on Spark the query's id and the operator's uid."""
        return self.folder.rpartition("/")[0]

    @property
    def uid(self) -> str:
        """The operator's uid."""
        return self.place.rpartition("/")[2]

    def at(self, checkpoint_id: int | None) -> list[KeyedStateHandle]:
        """The newest snapshots up to an id; several where attempts have raced."""
        known = [
            h for h in self.handles if checkpoint_id is None or h.checkpoint_id <= checkpoint_id
        ]
        return [h for h in known if h.checkpoint_id == known[-1].checkpoint_id]


@attrs.frozen
class Catalog:
    """All subtasks below a checkpoint directory."""

    storage: CheckpointStorage
    subtasks: tuple[Subtask, ...]

    def select(self, uid: str | None) -> tuple[Subtask, ...]:
        """The subtasks of an operator; all of them for None."""
        return tuple(each for each in self.subtasks if uid in (None, each.uid))

    def orphans(self, retained: int) -> list[str]:
        """Files that no snapshot within the retained number needs: lost attempts, and old ones.

        Files of an operator's newest checkpoint id are left alone, for an attempt may still be
        at work on them; so is what subtasks that are idle, or have not run since a rescale,
        would restore.
        """
        kept = frozenset(p for path in self.layouts() for p in self._source_paths(path))
        found: list[str] = []
        for place in sorted({subtask.place for subtask in self.subtasks}):
            found += _orphans(
                [each for each in self.subtasks if each.place == place], retained, kept
            )
        return found

    def _source_paths(self, layout: str) -> Iterator[str]:
        sources = json.loads(read_sealed(self.storage, layout))["sources"]
        for text in sources:
            yield from KeyedStateHandle.from_json(text, self.storage).all_paths

    def layouts(self) -> list[str]:
        """The layout files in force: of each operator the one with the highest number."""
        newest: dict[str, str] = {}
        for path in self.storage.list(""):
            folder, _, _ = path.rpartition("/")
            if folder.endswith("/layout"):
                newest[folder] = max(newest.get(folder, ""), path)
        return list(newest.values())


def _orphans(subtasks: Sequence[Subtask], retained: int, kept: frozenset[str]) -> list[str]:
    newest = max((h.checkpoint_id for each in subtasks for h in each.handles), default=None)
    if newest is None:
        return []
    oldest = newest - retained + 1
    recent = [h for each in subtasks for h in each.handles if h.checkpoint_id >= oldest]
    needed = kept.union(*(h.all_paths for h in (*recent, *newest_parts(subtasks, oldest))))
    files = {path: number for each in subtasks for path, number in each.files.items()}
    return sorted(p for p, number in files.items() if p not in needed and number < newest)


def newest_parts(
    subtasks: Sequence[Subtask], checkpoint_id: int | None = None
) -> list[KeyedStateHandle]:
    """For each key group the newest snapshot that covers it, newest first.

    So subtasks of another parallelism, before a rescale, give only what newer ones do not have.
    Of operator state, which goes by subtask, they give nothing once a newer one has taken over a
    key group of theirs; until all subtasks have run, only Spark's pointers tell whose it is.
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
            cut = attrs.evolve(handle, operator_state=())
            parts += [attrs.evolve(cut, key_group_range=run) for run in _runs(free)]
    return parts


def _runs(groups: Sequence[int]) -> Iterator[KeyGroupRange]:
    start = 0
    for at in range(1, len(groups) + 1):
        if at == len(groups) or groups[at] != groups[at - 1] + 1:
            yield KeyGroupRange(groups[start], groups[at - 1])
            start = at


def read_catalog(storage: CheckpointStorage) -> Catalog:
    """Read the metadata of all snapshots below a storage's root."""
    folders: dict[str, dict[str, int]] = {}
    for path in storage.list(""):
        match = _SNAPSHOT_FILE.fullmatch(path)
        if match:
            folders.setdefault(match["folder"], {})[path] = int(match["id"])
    subtasks = (_subtask(storage, folder, files) for folder, files in sorted(folders.items()))
    return Catalog(storage, tuple(subtasks))


def _subtask(storage: CheckpointStorage, folder: str, files: dict[str, int]) -> Subtask:
    broken: dict[str, str] = {}

    def handles() -> Iterator[KeyedStateHandle]:
        for path in files:
            if path.endswith(_METADATA):
                try:
                    yield KeyedStateHandle.from_json(read_sealed(storage, path), storage)
                except MillpondError as error:
                    broken[path] = str(error)

    found = tuple(sorted(handles(), key=lambda handle: handle.checkpoint_id))
    return Subtask(folder, found, files, broken)
