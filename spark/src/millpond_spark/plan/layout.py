"""Layouts: how an operator's key groups are divided among subtasks, from some batch on.

A layout is a small file that the driver writes before a run's first batch when the operator is
new, its parallelism has changed, or the query's operators are others or stand elsewhere. It names
what the subtasks of before have left, so that the new ones restore from whatever intersects with
their key groups. Pointers carry the number of the layout they were written under; one of an
earlier layout no longer counts, wherever Spark has kept it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import attrs
from millpond.config import RestoreConfig
from millpond.config.config import SPARK_SOURCE
from millpond.config.option_sources import SPARK_PREFIX
from millpond.errors import (
    ConfigError,
    CorruptSnapshotError,
    MaxParallelismError,
    MillpondError,
    RestoreError,
    StorageAccessError,
)
from millpond.format_versions import LAYOUT
from millpond.keygroups import KeyGroupRange, check_parallelism, key_group_range
from millpond.operator_id import OperatorId
from millpond.safe_decoding import decoding, exact_bool, exact_int, exact_text, parse_json
from millpond.snapshots.bundle import read_sealed, write_sealed
from millpond.snapshots.handles import KeyedStateHandle, OperatorStateHandle, SavepointHandle
from millpond.snapshots.operator_state import operator_state_parts, redistributed
from millpond.snapshots.paths import layout_folder, layout_path, parse_layout_path
from millpond.storage.checkpoint_storage import CheckpointStorage, public_uri
from millpond.types import SerializerSnapshot
from millpond.types.key_columns import nested_snapshot
from millpond.types.keys import attrs_free

from millpond_spark.plan.pointer import Pointer


@attrs.frozen
class Layout:
    """One division of an operator's key groups.

    Attributes:
        number: counts from 0; the highest one is in force.
        sources: what was committed under the layouts before, together all key groups.
        savepoint: the URI of a savepoint that the operator starts from; empty where it does not.
        roster: the uids of the query's operators in the order of its plan.
        timed: whether Spark keeps a timeout beside each pointer.
        dropped_after: the last batch before the operator was left out of its query, -1 if there
            was none; None while it is part of it. Its state is given up with the next batch.
        rescaled_after: the last batch before ``rescale`` wrote it, -1 if there was none; None
            where the query's start has written it.
        begun: False from ``rescale`` until the next batch begins; then it is written once more.
        settled_after: the last batch that was committed when it was written, -1 if there was
            none.
        restore: what ``checkpoint.restore`` named when the operator began with it; None where the
            operator goes on from what it has left under the layouts before.
        key: the type of the keys; None if it is unknown.
    """

    number: int
    parallelism: int
    max_parallelism: int
    sources: tuple[KeyedStateHandle, ...] = ()
    savepoint: str = ""
    roster: tuple[str, ...] = ()
    timed: bool = False
    dropped_after: int | None = None
    rescaled_after: int | None = None
    begun: bool = True
    settled_after: int | None = None
    restore: str | None = None
    key: SerializerSnapshot | None = None

    def key_groups(self, index: int) -> KeyGroupRange:
        """The key groups of a subtask."""
        return key_group_range(self.max_parallelism, self.parallelism, index)

    def shares(self, limits: RestoreConfig) -> list[list[OperatorStateHandle]]:
        """What each subtask gets of the sources' operator state.

        Raises:
            CorruptSnapshotError: a file with raw keyed state cannot be read, or is beyond the
                limits.
        """
        return redistributed(operator_state_parts(self.sources, limits), self.parallelism)

    def sources_of(
        self, index: int, shares: Sequence[Sequence[OperatorStateHandle]]
    ) -> list[KeyedStateHandle]:
        """The sources' parts that belong to a subtask now, a last one for its operator state.

        Args:
            index: the subtask.
            shares: what ``shares`` gives.
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
        """What a subtask that has not run under this layout restores."""
        saved = [locate(self.savepoint)] if self.savepoint else []
        return [*saved, *self.sources_of(index, self.shares(limits))]

    def was_overtaken(self, pointer: Pointer) -> bool:
        """Whether a subtask went on under an earlier layout after this was written."""
        after = self.settled_after
        earlier = pointer.layout < self.number
        return after is not None and earlier and pointer.checkpoint_id > after + 1

    def require(self, uid: str, parallelism: int, max_parallelism: int) -> None:
        """Raise unless a plan divides the key groups in this way."""
        if max_parallelism != self.max_parallelism:
            raise MaxParallelismError(self.max_parallelism, max_parallelism)
        if parallelism != self.parallelism:
            cause = f"layout {self.number} is for {self.parallelism} subtasks, not {parallelism}"
            raise RestoreError(f"operator {uid!r}", (cause,))


def write_layout(storage: CheckpointStorage, operator: OperatorId, layout: Layout) -> None:
    """Write a layout's file; sources are named relative to the storage, like all else.

    Raises:
        ConfigError: nothing can be written to the storage.
    """
    body = {
        "format_version": LAYOUT.version,
        "number": layout.number,
        "parallelism": layout.parallelism,
        "max_parallelism": layout.max_parallelism,
        "sources": [source.to_json() for source in layout.sources],
        "savepoint": layout.savepoint,
        "roster": layout.roster,
        "timed": layout.timed,
        "dropped_after": layout.dropped_after,
        "rescaled_after": layout.rescaled_after,
        "begun": layout.begun,
        "settled_after": layout.settled_after,
        "restore": layout.restore,
        "key": layout.key and attrs_free(layout.key),
    }
    try:
        write_sealed(storage, layout_path(operator, layout.number), json.dumps(body))
    except StorageAccessError as error:
        raise unusable(storage, error) from error


def read_layout(storage: CheckpointStorage, operator: OperatorId, number: int) -> Layout:
    """Read a layout by its number.

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
        layout = Layout(
            number=exact_int(body["number"], int),
            parallelism=exact_int(body["parallelism"], int),
            max_parallelism=exact_int(body["max_parallelism"], int),
            sources=tuple(KeyedStateHandle.from_json(text, storage) for text in body["sources"]),
            savepoint=exact_text(body["savepoint"], str),
            roster=tuple(exact_text(each, str) for each in body["roster"]),
            timed=exact_bool(body["timed"], bool),
            dropped_after=_batch_or_none(body["dropped_after"]),
            rescaled_after=_batch_or_none(body["rescaled_after"]),
            begun=exact_bool(body["begun"], bool),
            settled_after=_batch_or_none(body["settled_after"]),
            restore=None if body["restore"] is None else exact_text(body["restore"], str),
            key=_key(body["key"]),
        )
        if layout.number != number:
            raise ValueError(f"it says that its number is {layout.number}")
    return layout


def _batch_or_none(value: Any) -> int | None:
    return None if value is None else exact_int(value, int)


def _key(noted: Any) -> SerializerSnapshot | None:
    if noted is None:
        return None
    key = nested_snapshot(noted)
    exact_text(key.id, str)
    return key


def unusable(
    storage: CheckpointStorage, error: StorageAccessError | CorruptSnapshotError
) -> ConfigError:
    """What to raise where the directory of snapshots cannot be used at all."""
    cure = getattr(error, "cure", "Name a directory that the driver and all workers can write to")
    reason = f"{public_uri(storage.uri)} cannot be used: {error.reason}. {cure}"
    return ConfigError(f"{SPARK_PREFIX}checkpoint.dir", reason, SPARK_SOURCE)


_RUNS_KEPT = 64
_of_runs: dict[tuple[str, OperatorId, str], Layout] = {}
"""The layouts that tasks of this process have asked for."""


def _layouts_below(storage: CheckpointStorage, folder: str) -> list[tuple[OperatorId, int]]:
    """The operator and the number of each layout that lies in a folder; ConfigError without one."""
    try:
        paths = storage.list(folder)
    except (StorageAccessError, CorruptSnapshotError) as error:
        raise unusable(storage, error) from error
    return [found for path in paths if (found := parse_layout_path(path))]


def current_layout(storage: CheckpointStorage, operator: OperatorId) -> Layout | None:
    """The layout in force; None before an operator's first run.

    Raises:
        ConfigError: the storage cannot be listed.
        CorruptSnapshotError: the layout is damaged.
    """
    numbers = [number for _, number in _layouts_below(storage, layout_folder(operator))]
    return read_layout(storage, operator, max(numbers)) if numbers else None


def last_counting(
    storage: CheckpointStorage, operator: OperatorId, current: Layout, now: int
) -> Layout | None:
    """The layout whose pointers count; None where the operator's state was dropped.

    State counts as dropped only once a batch has been committed without the operator. What
    ``rescale`` has written counts once a batch has begun under it.

    Args:
        storage: where the layouts lie.
        operator: whose they are.
        current: the one in force.
        now: the last committed batch, -1 before the first.
    """
    while current.dropped_after is not None or not current.begun:
        if current.dropped_after not in (None, now):
            return None
        current = read_layout(storage, operator, current.number - 1)
    return current


def layouts_by_uid(storage: CheckpointStorage, uid: str) -> list[Layout]:
    """The layouts in force of all queries that have kept state of this uid in a storage.

    Damaged ones are skipped, for they may be other queries'; the start reads its own.

    Raises:
        ConfigError: the storage cannot be listed.
    """
    layouts = _layouts_below(storage, "")
    found = []
    for operator in sorted({operator for operator, _ in layouts if operator.uid == uid}):
        with suppress(MillpondError):
            found.append(current_layout(storage, operator))
    return [layout for layout in found if layout is not None]


def uids_of(storage: CheckpointStorage, query: str) -> set[str]:
    """The operators that have a layout in a query."""
    layouts = _layouts_below(storage, query)
    return {operator.uid for operator, _ in layouts if operator.query == query}


def layout_of_run(storage: CheckpointStorage, operator: OperatorId, run: str) -> Layout:
    """The layout of a run of a query; the worker asks once a run, for it cannot change in one.

    Raises:
        RestoreError: the driver's file is not where this worker looks.
        ConfigError: this worker cannot look there.
    """
    key = (storage.uri, operator, run)
    layout = _of_runs.get(key) or current_layout(storage, operator)
    if layout is None:
        cause = (
            f"what the driver has settled for run {run} is not in {public_uri(storage.uri)}: "
            "name a directory that the driver and all workers share; if it was moved or deleted "
            "while the query ran, bring it back and start the query again"
        )
        raise RestoreError(f"operator {operator.uid!r}", (cause,))
    if len(_of_runs) >= _RUNS_KEPT:
        _of_runs.clear()
    _of_runs[key] = layout
    return layout
