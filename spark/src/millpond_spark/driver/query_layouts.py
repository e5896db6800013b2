"""The layouts of a query that starts: which state belongs to which subtask.

Spark numbers the operators of a query by their position in its plan, and keeps our pointers under
that number. State belongs to an operator's uid. If a query has other operators than at its last
start, or has them in another order, each operator gets a new layout. The layout names the
operator's committed snapshots under any number of Spark's. If there is state
that no operator claims, the query does not start.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from functools import cached_property
from typing import Any
from urllib.parse import quote

import attrs
from millpond.config import Config
from millpond.errors import ConfigError, MillpondError, RestoreError, UnclaimedStateError
from millpond.keygroups import default_max_parallelism
from millpond.operator_id import OperatorId
from millpond.plugins import get_registry
from millpond.savepoints.savepoint_file import read_savepoint
from millpond.snapshots.layout_records import note_settings
from millpond.snapshots.restore import joined_states
from millpond.storage.checkpoint_storage import CheckpointStorage
from pyspark.sql import SparkSession

from millpond_spark.driver.savepoints import committed_handles, retained_handles
from millpond_spark.metrics.batch_metrics import read_pointers
from millpond_spark.plan.layout import (
    Layout,
    current_layout,
    last_counting,
    layouts_by_uid,
    uids_of,
    write_layout,
)
from millpond_spark.plan.next_layout import Committed, NextLayout, Step, is_fresh, next_layout
from millpond_spark.plan.operator_declaration import DeclaredOperator, restored_layout
from millpond_spark.plan.pointer import Pointer, RetainedCheckpoint
from millpond_spark.session.internals import checkpoint_of, last_committed_batch

_LOG = logging.getLogger("millpond.spark")


@attrs.define(slots=False)
class QueryStart:
    """A query that is about to begin.

    Attributes:
        stream: Spark's query, on the JVM's side.
        query: the query's id.
        operators: the operators of its plan, in the plan's order.
    """

    spark: SparkSession
    stream: Any
    query: str
    operators: Sequence[DeclaredOperator]

    def write_layouts(self) -> None:
        """Write the layouts that the query's operators lack.

        Raises:
            ConfigError: two operators of the plan have one uid.
            UnclaimedStateError: there is state of an operator that the plan does not have.
            MaxParallelismError, RestoreError: an operator's state does not fit it or is missing,
                or is later than the query's last committed batch.
            StateMigrationError: an operator's state has keys that cannot become its new ones.
        """
        self._require_one_uid_each()
        found = [(each, self._next_layout(each)) for each in self.operators]
        changed = [(each, after) for each, after in found if after.step is not Step.KEEP]
        if not changed:
            return
        left_out = self._left_out()
        layouts = [(each, self._with_sources(each, after)) for each, after in changed]
        for uid, layout in left_out.items():
            _LOG.warning("the query no longer has operator %r; its state is dropped", uid)
            self._write(self.operators[0].storage, uid, layout)
        for declared, layout in layouts:
            _LOG.info("%s: %d subtasks from now on", declared.uid, declared.parallelism)
            self._write(declared.storage, declared.uid, layout)

    def _write(self, storage: CheckpointStorage, uid: str, layout: Layout) -> None:
        layout = attrs.evolve(layout, settled_after=self._now)
        write_layout(storage, OperatorId(self.query, uid), layout)

    def note_settings(self) -> None:
        """Note the URI of the query's checkpoint and how many batches it keeps."""
        scheme, _, path = checkpoint_of(self.stream).partition(":")
        path = path if path.startswith("//") else f"//{path}"  # Hadoop writes file:/checkpoint
        checkpoint = f"{scheme}:{quote(path, safe='/@:')}"
        for each in self.operators:
            operator = OperatorId(self.query, each.uid)
            note_settings(each.storage, operator, each.config.checkpoint.retained, checkpoint)

    @property
    def roster(self) -> tuple[str, ...]:
        """The uids in the plan's order."""
        return tuple(each.uid for each in self.operators)

    def _require_one_uid_each(self) -> None:
        twice = sorted(uid for uid, count in Counter(self.roster).items() if count > 1)
        if twice:
            reason = (
                "is used more than once in the query's plan: give each operator a uid of its own; "
                "to use the output of one twice, write it in foreachBatch"
            )
            raise ConfigError(f"uid {twice[0]!r}", reason, "process(...)")

    @cached_property
    def _now(self) -> int:
        """The last committed batch; -1 before the first."""
        return last_committed_batch(self.stream)

    @cached_property
    def _pointers(self) -> list[Pointer]:
        """All committed pointers of the query, which a job of Spark reads."""
        if self._now < 0:
            return []
        return read_pointers(self.spark, checkpoint_of(self.stream))

    def _pointers_of(self, uid: str) -> list[Pointer]:
        return [pointer for pointer in self._pointers if pointer.operator_uid == uid]

    def _next_layout(self, declared: DeclaredOperator) -> NextLayout:
        uid, operator = declared.uid, OperatorId(self.query, declared.uid)
        current = current_layout(declared.storage, operator)
        last = current and last_counting(declared.storage, operator, current, self._now)

        def has_state() -> bool:
            begins_with = last is not None and (last.sources or last.savepoint)
            return bool(begins_with or self._pointers_of(uid))

        committed = Committed(uid, last, has_state)
        found = next_layout(current, declared.layout(self.roster), committed, self._now)
        if current is None and self._pointers_of(uid):
            raise self._missing(uid)
        begins_with = "" if current is None else current.restore
        if current and begins_with and not declared.restore and is_fresh(current, self._now):
            said = "operator %r still begins with %s: no batch has been committed since"
            _LOG.warning(said, uid, begins_with)
        return found

    def _with_sources(self, declared: DeclaredOperator, found: NextLayout) -> Layout:
        """Return a next layout with the state that its subtasks start from."""
        limits, storage = declared.config.restore, declared.storage
        if found.step is Step.BEGIN:
            retained = RetainedCheckpoint.from_config(declared.restore)
            if retained is None:
                return restored_layout(declared, found.layout)
            handles = retained_handles(self.spark, retained, storage, limits)
            return restored_layout(declared, found.layout, handles)
        if found.step is Step.CARRY:
            return found.layout
        last = found.last
        assert last is not None
        sources = committed_handles(self._pointers_of(declared.uid), last, storage, limits)
        if declared.parallelism != last.parallelism:
            joined_states(f"operator {declared.uid!r}", sources)
        return attrs.evolve(found.layout, sources=tuple(sources))

    def _left_out(self) -> dict[str, Layout]:
        """Return layouts that end the operators of earlier starts that the query no longer has.

        Operators without state get one too. Otherwise their last layouts would seem to be in force.
        """
        storage = self.operators[0].storage
        holders = {pointer.operator_uid for pointer in self._pointers} - set(self.roster)
        unclaimed = []
        found: dict[str, Layout] = {}
        for uid in holders | (uids_of(storage, self.query) - set(self.roster)):
            layout = current_layout(storage, OperatorId(self.query, uid))
            if layout is None:
                raise self._missing(uid)
            if layout.status != "dropped" or layout.settled_after == self._now:
                found[uid] = attrs.evolve(layout, number=layout.number + 1, status="dropped")
                if uid in holders or (layout.sources and not is_fresh(layout, self._now)):
                    unclaimed.append(uid)
        ignored = all(each.config.checkpoint.ignore_unclaimed_state for each in self.operators)
        if unclaimed and not ignored:
            where = "The query's checkpoint"
            raise UnclaimedStateError(where, uids=tuple(sorted(unclaimed)), operators=self.roster)
        return found

    def _missing(self, uid: str) -> RestoreError:
        cause = (
            f"Spark's checkpoint has state of operator {uid!r}, of which nothing is in "
            "spark.millpond.checkpoint.dir: name the directory that the query was begun with"
        )
        return RestoreError(f"operator {uid!r}", (cause,))


def known_max_parallelism(config: Config, uid: str, parallelism: int, *, streaming: bool) -> int:
    """Return the number of key groups for an operator if none is configured.

    The number is part of Spark's plan, but Spark names a query's checkpoint only when the query
    starts. So the number is taken from the layouts of all queries with an operator of this uid, or
    from its savepoint. If queries differ, or have fewer key groups than subtasks, it is Flink's
    default. The start refuses a number that is not the query's.

    Args:
        config: the operator's configuration.
        uid: the operator.
        parallelism: its number of subtasks.
        streaming: whether its rows are a stream, so that the directory may have layouts.
    """
    registry, restore = get_registry(config.plugins), config.checkpoint.restore
    stored = set[int]()
    if streaming and config.checkpoint.dir is not None:
        storage = registry.storage(config.checkpoint.dir, config)
        stored = {layout.max_parallelism for layout in layouts_by_uid(storage, uid)}
    if not stored and restore is not None and RetainedCheckpoint.from_config(restore) is None:
        with suppress(MillpondError):  # the query's start reports errors of the savepoint
            operators = read_savepoint(registry.savepoint(restore, config)).operators
            stored = {saved.max_parallelism for saved in operators if saved.uid == uid}
    fitting = [number for number in stored if number >= parallelism]
    return fitting[0] if len(fitting) == 1 else default_max_parallelism(parallelism)
