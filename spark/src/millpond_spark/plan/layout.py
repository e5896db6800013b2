"""Layouts: how an operator's key groups are divided among its subtasks.

A layout is stored in a small file. The driver writes one before the first batch of a run if the
operator is new, if its parallelism has changed, or if the query has other operators than before. A
layout names the snapshots of the subtasks of the previous layout. From these snapshots each new
subtask restores the entries of its own key groups.

Each subtask's pointer, a small row in Spark's state that names its snapshot, has the number of the
layout under which it was written. Pointers of earlier layouts are ignored. The layout with the
highest number is called the layout in force.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Literal

import attrs
from millpond.config import RestoreConfig
from millpond.config.config import SPARK_SOURCE
from millpond.config.option_sources import SPARK_PREFIX
from millpond.errors import ConfigError, CorruptSnapshotError, MillpondError, StorageAccessError
from millpond.format_versions import LAYOUT
from millpond.keygroups import KeyGroupRange, check_parallelism, key_group_range
from millpond.operator_id import OperatorId
from millpond.safe_decoding import decoding, exact_int, exact_text, parse_json
from millpond.snapshots.bundle import read_sealed, write_sealed
from millpond.snapshots.handles import KeyedStateHandle, OperatorStateHandle, SavepointHandle
from millpond.snapshots.operator_state import operator_state_parts
from millpond.snapshots.paths import layout_folder, layout_path, parse_layout_path
from millpond.snapshots.redistribution import redistributed
from millpond.storage.checkpoint_storage import CheckpointStorage, public_uri
from millpond.types import SerializerSnapshot
from millpond.types.key_codecs import nested_form
from millpond.types.key_columns import snapshot_from_nested

from millpond_spark.plan.pointer import Pointer

Status = Literal["begun", "prepared", "dropped"]
_STATUSES: dict[str, Status] = {"begun": "begun", "prepared": "prepared", "dropped": "dropped"}


@attrs.frozen
class Layout:
    """A division of an operator's key groups among its subtasks, and the state they start from.

    Attributes:
        number: the layout's number. An operator's layouts are counted from 0.
        sources: the snapshots from which the subtasks start. Together they have all key groups.
        savepoint: the URI of the savepoint from which the subtasks start, or an empty string.
        roster: the uids of all operators of the query, in the order of the query's plan.
        settled_after: the last batch that was committed before the layout was written; -1 if there
            was none.
        status: ``begun`` if batches may have run under the layout. ``prepared`` if ``rescale`` has
            written it; the next start of the query writes a further layout. ``dropped`` if the
            query no longer has the operator; its state is lost when the next batch is committed.
        restore: the value of ``checkpoint.restore`` if the operator began with this layout; None if
            the operator continues from an earlier layout.
        key: the type of the keys; None if it is unknown.
    """

    number: int
    parallelism: int
    max_parallelism: int
    sources: tuple[KeyedStateHandle, ...] = ()
    savepoint: str = ""
    roster: tuple[str, ...] = ()
    settled_after: int = -1
    status: Status = "begun"
    restore: str | None = None
    key: SerializerSnapshot | None = None

    def key_groups(self, index: int) -> KeyGroupRange:
        """Return the key groups of the subtask `index`."""
        return key_group_range(self.max_parallelism, self.parallelism, index)

    def shares(self, limits: RestoreConfig) -> list[list[OperatorStateHandle]]:
        """Divide the operator state in `sources` among the subtasks; return one list per subtask.

        Args:
            limits: limits on the sizes of files to read.

        Raises:
            CorruptSnapshotError: a file with raw keyed state cannot be read or is too large.
        """
        return redistributed(operator_state_parts(self.sources, limits), self.parallelism)

    def sources_of(
        self, index: int, shares: Sequence[Sequence[OperatorStateHandle]]
    ) -> list[KeyedStateHandle]:
        """Return the handles that the subtask `index` restores.

        There is a handle for each of `sources` that has some of the subtask's key groups. If the
        subtask gets operator state, a further handle names it.

        Args:
            index: the subtask.
            shares: the result of the method ``shares``.
        """
        groups = self.key_groups(index)
        parts = [source.intersection(groups) for source in self.sources]
        found = [part for part in parts if part is not None]
        share = tuple(shares[index])
        if share:
            bare = self.sources[0].without_files()
            found.append(attrs.evolve(bare, key_group_range=groups, operator_state=share))
        return found

    def starting_points(
        self, index: int, locate: Callable[[str], SavepointHandle], limits: RestoreConfig
    ) -> list[KeyedStateHandle | SavepointHandle]:
        """Return the handles that a subtask restores if it has not run under this layout yet.

        Args:
            index: the subtask.
            locate: returns the handle of a savepoint by its URI.
            limits: limits on the sizes of files to read.
        """
        saved = [locate(self.savepoint)] if self.savepoint else []
        return [*saved, *self.sources_of(index, self.shares(limits))]

    def was_overtaken(self, pointer: Pointer) -> bool:
        """Return whether `pointer` was written after this layout, but under an earlier one."""
        return pointer.layout < self.number and pointer.checkpoint_id > self.settled_after + 1


def write_layout(storage: CheckpointStorage, operator: OperatorId, layout: Layout) -> None:
    """Write the file of `layout`. The paths of snapshots in it are relative to `storage`.

    Raises:
        ConfigError: nothing can be written to the storage.
    """
    body = {
        **attrs.asdict(layout, recurse=False),
        "format_version": LAYOUT.version,
        "sources": [source.to_json() for source in layout.sources],
        "key": layout.key and nested_form(layout.key),
    }
    try:
        write_sealed(storage, layout_path(operator, layout.number), json.dumps(body))
    except StorageAccessError as error:
        raise _unusable(storage, error) from error


def read_layout(storage: CheckpointStorage, operator: OperatorId, number: int) -> Layout:
    """Read the layout with the number `number` of an operator.

    Raises:
        CorruptSnapshotError: the file is missing or damaged.
        ApiVersionError: a newer Millpond wrote it.
    """
    path = layout_path(operator, number)
    text = read_sealed(storage, path)
    with decoding(path, "it is not a layout"):
        body: dict[str, Any] = parse_json(text)
        LAYOUT.check(body["format_version"], path)
        check_parallelism(body["max_parallelism"], body["parallelism"])
        restore, key = body["restore"], body["key"] and snapshot_from_nested(body["key"])
        layout = Layout(
            number=exact_int(body["number"], int),
            parallelism=exact_int(body["parallelism"], int),
            max_parallelism=exact_int(body["max_parallelism"], int),
            sources=tuple(KeyedStateHandle.from_json(text, storage) for text in body["sources"]),
            savepoint=exact_text(body["savepoint"], str),
            roster=tuple(exact_text(each, str) for each in body["roster"]),
            settled_after=exact_int(body["settled_after"], int),
            status=_STATUSES[body["status"]],
            restore=None if restore is None else exact_text(restore, str),
            key=key or None,
        )
        if key:
            exact_text(key.id, str)
        if layout.number != number:
            raise ValueError(f"it says that its number is {layout.number}")
    return layout


def _unusable(
    storage: CheckpointStorage, error: StorageAccessError | CorruptSnapshotError
) -> ConfigError:
    """Return the error for a directory of snapshots that cannot be listed or written."""
    cure = getattr(error, "cure", "Name a directory that the driver and all workers can write to")
    reason = f"{public_uri(storage.uri)} cannot be used: {error.reason}. {cure}"
    return ConfigError(f"{SPARK_PREFIX}checkpoint.dir", reason, SPARK_SOURCE)


def _layouts_below(storage: CheckpointStorage, folder: str) -> list[tuple[OperatorId, int]]:
    """Return the operator and the number of each layout below `folder`.

    Raises:
        ConfigError: the storage cannot be listed.
    """
    try:
        paths = storage.list(folder)
    except (StorageAccessError, CorruptSnapshotError) as error:
        raise _unusable(storage, error) from error
    return [found for path in paths if (found := parse_layout_path(path))]


def current_layout(storage: CheckpointStorage, operator: OperatorId) -> Layout | None:
    """Return the operator's layout with the highest number; None before the operator's first run.

    Raises:
        ConfigError: the storage cannot be listed.
        CorruptSnapshotError: the layout is damaged.
    """
    numbers = [number for _, number in _layouts_below(storage, layout_folder(operator))]
    return read_layout(storage, operator, max(numbers)) if numbers else None


def last_begun(
    storage: CheckpointStorage, operator: OperatorId, current: Layout, now: int
) -> Layout | None:
    """Return the last layout under which batches may have run; None if the state was dropped.

    The state of an operator is dropped when a batch has been committed without the operator.

    Args:
        storage: the storage of the layouts.
        operator: the operator.
        current: the operator's layout with the highest number.
        now: the id of the last committed batch; -1 if there is none.
    """
    while current.status != "begun":
        if current.status == "dropped" and current.settled_after != now:
            return None
        current = read_layout(storage, operator, current.number - 1)
    return current


def layouts_by_uid(storage: CheckpointStorage, uid: str) -> list[Layout]:
    """Return the current layout of each operator that has the uid `uid`, in any query.

    Damaged layouts are ignored. They may belong to other queries, and the start of a query reads
    its own layouts again.

    Raises:
        ConfigError: the storage cannot be listed.
    """
    layouts = _layouts_below(storage, "")
    found = []
    for operator in sorted({operator for operator, _ in layouts if operator.uid == uid}):
        with suppress(MillpondError):
            found.append(current_layout(storage, operator))
    return [layout for layout in found if layout is not None]


def query_uids(storage: CheckpointStorage, query: str) -> set[str]:
    """Return the uids of all operators that have a layout in the query with the id `query`."""
    layouts = _layouts_below(storage, query)
    return {operator.uid for operator, _ in layouts if operator.query == query}
