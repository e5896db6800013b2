"""Settling the layouts of a query that begins: which state belongs to whom.

Spark numbers the operators of a query by their position in its plan, and keeps our pointers under
that number. State belongs to an operator's uid. So wherever the operators of a query, or their
order, are others than at its last start, each gets a new layout that names what its subtasks
have left, whatever number that lies under; and state that no operator claims stops the start.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any
from urllib.parse import quote

import attrs
from millpond.errors import (
    ConfigError,
    MaxParallelismError,
    RestoreError,
    UnclaimedStateError,
)
from millpond.operator_id import OperatorId
from millpond.snapshots.layout_records import note_settings
from millpond.snapshots.restore import joined_states
from millpond.storage.checkpoint_storage import CheckpointStorage
from pyspark.sql import SparkSession

from millpond_spark.driver.savepoints import committed_handles, retained_handles
from millpond_spark.metrics.batch_metrics import keeps_timeouts, read_pointers
from millpond_spark.plan.layout import Layout, current_layout, last_counting, uids_of, write_layout
from millpond_spark.plan.layout_checks import (
    begins_otherwise,
    has_other_keys,
    is_fresh,
    require_its_keys,
    require_its_past,
)
from millpond_spark.plan.operator_declaration import (
    DeclaredOperator,
    first_layout,
    layout_of_retained,
    plain_layout,
)
from millpond_spark.plan.pointer import Pointer

_LOG = logging.getLogger("millpond.spark")


@attrs.define(slots=False)
class Start:
    """A query that is about to begin.

    Attributes:
        stream: Spark's query, on the JVM's side.
        query: the query's id.
        operators: those of its plan, in the plan's order.
    """

    spark: SparkSession
    stream: Any
    query: str
    operators: Sequence[DeclaredOperator]

    def settle(self) -> None:
        """Write what layouts are missing.

        Raises:
            ConfigError: a uid stands twice in the plan.
            UnclaimedStateError: there is state of an operator that the plan does not have.
            MaxParallelismError, RestoreError: an operator's state does not fit it or is missing,
                or is later than the query's last committed batch.
            StateMigrationError: an operator's state has keys that cannot become those it has now.
        """
        self._require_one_uid_each()
        current = {each.uid: self._current(each.storage, each.uid) for each in self.operators}
        self._require_their_past(current)
        self._require_the_same_timeouts(current)
        if all(self._goes_on(each, current[each.uid]) for each in self.operators):
            return
        left_out = self._left_out()
        layouts = [self._next_layout(each, current[each.uid]) for each in self.operators]
        for uid, layout in left_out.items():
            _LOG.warning("the query no longer has operator %r; its state is dropped", uid)
            self._write(self.operators[0].storage, uid, layout)
        for declared, layout in zip(self.operators, layouts, strict=True):
            _LOG.info("%s: %d subtasks from now on", declared.uid, declared.parallelism)
            self._write(declared.storage, declared.uid, layout)

    def _write(self, storage: CheckpointStorage, uid: str, layout: Layout) -> None:
        noted = attrs.evolve(layout, settled_after=self._now)
        write_layout(storage, OperatorId(self.query, uid), noted)

    def note_settings(self) -> None:
        """Note where the query's checkpoint is, and how much of it is retained, for deletions."""
        scheme, _, path = str(self.stream.resolvedCheckpointRoot()).partition(":")
        path = path if path.startswith("//") else f"//{path}"  # Hadoop writes file:/checkpoint
        checkpoint = f"{scheme}:{quote(path, safe='/@:')}"
        for each in self.operators:
            operator = OperatorId(self.query, each.uid)
            note_settings(each.storage, operator, each.retains, checkpoint)

    @property
    def roster(self) -> tuple[str, ...]:
        """The uids in the plan's order."""
        return tuple(each.uid for each in self.operators)

    def _require_one_uid_each(self) -> None:
        twice = sorted(uid for uid, count in Counter(self.roster).items() if count > 1)
        if twice:
            reason = (
                "stands more than once in the query's plan: give each operator a uid of its own; "
                "to use the output of one twice, write it in foreachBatch"
            )
            raise ConfigError(f"uid {twice[0]!r}", reason, "process(...)")

    def _require_their_past(self, current: Mapping[str, Layout | None]) -> None:
        for each in self.operators:
            layout = current[each.uid]
            if layout is None:
                continue
            require_its_past(layout, each.uid, self._now)
            if layout.restore and not each.savepoint and is_fresh(layout, self._now):
                said = "operator %r still begins with %s: no batch has been committed since"
                _LOG.warning(said, each.uid, layout.restore)

    def _require_the_same_timeouts(self, current: Mapping[str, Layout | None]) -> None:
        """Raise where Spark itself would refuse an earlier Millpond's state, less clearly.

        An earlier Millpond kept a timeout beside a pointer only if the function had timers.
        """
        for position, declared in enumerate(self.operators):
            layout = current[declared.uid]
            if layout is None or layout.timed or self._now < 0:
                continue
            root = self.stream.resolvedCheckpointRoot()
            if declared.timed != keeps_timeouts(self.spark, root, position):
                had, has = ("no timers", "some") if declared.timed else ("timers", "none")
                cause = (
                    f"an earlier Millpond began its state in Spark for a function with {had}, and "
                    f"now it has {has}: take a savepoint of the query, and start it from that with "
                    "a new checkpointLocation"
                )
                raise RestoreError(f"operator {declared.uid!r}", (cause,))

    def _goes_on(self, declared: DeclaredOperator, current: Layout | None) -> bool:
        """Whether nothing has changed since the operator's layout was written."""
        if current is None or current.dropped_after is not None or not current.begun:
            return False
        if begins_otherwise(current, declared.savepoint, self._now):
            return False
        if has_other_keys(current, declared.key, self._now):
            return False
        if current.key not in (None, declared.key) and not self._has_state(declared.uid, current):
            return False
        require_its_keys(current, declared.uid, declared.key)
        if current.max_parallelism != declared.max_parallelism:
            raise MaxParallelismError(current.max_parallelism, declared.max_parallelism)
        return current.parallelism == declared.parallelism and current.roster == self.roster

    def _has_state(self, uid: str, layout: Layout) -> bool:
        """Whether there is state that an operator goes on with under a layout."""
        begins_with = layout.sources or layout.savepoint
        return bool(begins_with) or any(each.operator_uid == uid for each in self._pointers)

    def _current(self, storage: CheckpointStorage, uid: str) -> Layout | None:
        return current_layout(storage, OperatorId(self.query, uid))

    # ---------------------------------------------------------------- what is committed

    @cached_property
    def _now(self) -> int:
        """The last committed batch; -1 before the first."""
        latest = self.stream.commitLog().getLatestBatchId()
        return -1 if latest.isEmpty() else int(latest.get())

    @cached_property
    def _pointers(self) -> list[Pointer]:
        if self._now < 0:
            return []
        return read_pointers(self.spark, self.stream.resolvedCheckpointRoot())

    def _left_out(self) -> dict[str, Layout]:
        """Layouts that end the operators of earlier starts which the query no longer has.

        Those without state get one too, or their last layouts would seem to be in force.
        """
        storage = self.operators[0].storage
        holders = {pointer.operator_uid for pointer in self._pointers} - set(self.roster)
        unclaimed = []
        found: dict[str, Layout] = {}
        for uid in holders | (uids_of(storage, self.query) - set(self.roster)):
            layout = self._current(storage, uid)
            if layout is None:
                raise self._missing(uid)
            if layout.dropped_after in (None, self._now):
                found[uid] = attrs.evolve(
                    layout, number=layout.number + 1, dropped_after=self._now, begun=True
                )
                if uid in holders or (layout.sources and not is_fresh(layout, self._now)):
                    unclaimed.append(uid)
        if unclaimed and not all(each.ignore_unclaimed for each in self.operators):
            where = "The query's checkpoint"
            raise UnclaimedStateError(where, tuple(sorted(unclaimed)), self.roster)
        return found

    def _missing(self, uid: str) -> RestoreError:
        cause = (
            f"Spark's checkpoint has state of operator {uid!r}, of which nothing is in "
            "spark.millpond.checkpoint.dir: name the directory that the query was begun with"
        )
        return RestoreError(f"operator {uid!r}", (cause,))

    # ---------------------------------------------------------------- what comes next

    def _next_layout(self, declared: DeclaredOperator, current: Layout | None) -> Layout:
        if current is None:
            if any(pointer.operator_uid == declared.uid for pointer in self._pointers):
                raise self._missing(declared.uid)
            return self._first_layout(declared, 0)
        last = self._last_counting(declared, current)
        if last is None or begins_otherwise(last, declared.savepoint, self._now):
            return self._first_layout(declared, current.number + 1)
        if last.max_parallelism != declared.max_parallelism:
            raise MaxParallelismError(last.max_parallelism, declared.max_parallelism)
        if is_fresh(last, self._now):
            return attrs.evolve(
                self._following(declared, current),
                sources=last.sources,
                savepoint=last.savepoint,
                restore=last.restore,
            )
        if self._has_state(declared.uid, last):
            require_its_keys(last, declared.uid, declared.key)
        mine = [pointer for pointer in self._pointers if pointer.operator_uid == declared.uid]
        sources = committed_handles(mine, last, declared.storage, declared.limits)
        if declared.parallelism != last.parallelism:
            joined_states(f"operator {declared.uid!r}", sources)
        return attrs.evolve(self._following(declared, current), sources=tuple(sources))

    def _first_layout(self, declared: DeclaredOperator, number: int) -> Layout:
        if declared.retained is None:
            return first_layout(declared, number, self.roster)
        handles = retained_handles(self.spark, declared.retained, declared.storage, declared.limits)
        return layout_of_retained(declared, number, self.roster, handles)

    def _following(self, declared: DeclaredOperator, current: Layout) -> Layout:
        return plain_layout(declared, current.number + 1, self.roster)

    def _last_counting(self, declared: DeclaredOperator, current: Layout) -> Layout | None:
        """The layout whose pointers count; None where the operator's state was dropped."""
        return last_counting(
            declared.storage, OperatorId(self.query, declared.uid), current, self._now
        )
