"""The driver's part at a query's start: checks, and the layouts before the first micro-batch.

A layout is a file that says how an operator's key groups are divided among its subtasks, and with
which snapshots the subtasks start. Spark calls a listener in the query's own thread and waits for
it. Therefore all layouts are written before the first task runs.

Millpond's pointers, the small rows in Spark's state that name snapshots, are stored by the position
of the operator in the query's plan. But state belongs to an operator's uid. If operators have been
added, removed or moved since the query's last start, each operator gets a new layout, which names
the committed snapshots of the operator's uid. If no operator has the uid of some state, the query
does not start.
"""

from __future__ import annotations

import hashlib
import logging
import threading
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
from millpond.snapshots.layouts import note_settings
from millpond.snapshots.restore import joined_states
from millpond.storage.checkpoint_storage import CheckpointStorage
from pyspark.sql import DataFrame, SparkSession

from millpond_spark.driver.query_checks import require_one_watermark, require_supported
from millpond_spark.driver.savepoints import committed_handles, retained_handles
from millpond_spark.metrics.batch_reports import report_batches
from millpond_spark.plan.batch_identity import note_run
from millpond_spark.plan.layout import (
    Layout,
    current_layout,
    last_begun,
    layouts_by_uid,
    query_uids,
    write_layout,
)
from millpond_spark.plan.layout_decision import (
    Step,
    decide_layout,
    declared_layout,
    is_fresh,
    missing_snapshots,
    restored_layout,
)
from millpond_spark.plan.plan import OperatorPlan
from millpond_spark.plan.pointer import Pointer, RetainedCheckpoint, read_pointers
from millpond_spark.session import internals
from millpond_spark.session.session import is_connect

_LOG = logging.getLogger("millpond.spark")

_NO_DATA_BATCHES = "spark.sql.streaming.noDataMicroBatches.enabled"

_plans: dict[str, OperatorPlan] = {}
"""The plans of all ``process`` calls, by the names of their functions in Spark's plans."""
_watched: set[str] = set()
"""The ids of sessions that have a listener."""
_watching = threading.Lock()


def watch_operator(spark: SparkSession, plan: OperatorPlan) -> str:
    """Register an operator's plan, so that the start of a query finds it.

    Returns:
        A name for the operator's function. The start of a query finds `plan` by this name in
        Spark's plan of the query.
    """
    division = plan.parallelism, plan.max_parallelism, plan.key_codec().snapshot()
    places = plan.storage().uri, plan.savepoint(), plan.made_at
    said = repr((division, places, plan.config, plan.time_mode, plan.watermarked))
    name = f"millpond[{plan.uid}]@{hashlib.sha256(said.encode()).hexdigest()[:12]}"
    _plans[name] = plan
    report_batches(spark, plan.config)
    session = internals.session_id(spark)
    with _watching:
        if session not in _watched:
            listener = internals.StartListener(spark, lambda stream: _prepare_query(spark, stream))
            spark.streams.addListener(listener)
            _watched.add(session)
    return name


def watermark_delay(df: DataFrame) -> int:
    """Return the time in ms by which the watermark behind `df` is behind Spark's.

    An interval join yields rows that are older than its watermark. If an operator follows it, these
    rows would be late by Spark's watermark.
    """
    if not df.isStreaming or is_connect(df.sparkSession):
        return 0
    before = map(_plans.get, internals.operator_names(internals.analyzed_plan(df)))
    return max((plan.output_delay for plan in before if plan is not None), default=0)


def _prepare_query(spark: SparkSession, stream: Any) -> None:
    """Check a query before its first micro-batch and write its layouts; end it if that fails.

    Args:
        spark: the session.
        stream: the query's JVM object.
    """
    names = internals.operator_names(internals.query_plan(stream))
    operators = [_plans[name] for name in names if name in _plans]
    if not operators:
        return
    settings = internals.query_settings(stream)
    has_clock_timers = any(each.time_mode == "processing-time" for each in operators)
    if has_clock_timers and internals.ends_with_its_input(stream):
        # With processing-time timers Spark would always run another micro-batch without rows, and
        # a query with `availableNow` would never end. Timers that are not due fire in a later run.
        settings.set(_NO_DATA_BATCHES, "false")
    try:
        note_run(spark, stream)
        is_quick = settings.get(internals.FILE_MANAGER, "") == internals.quick_file_manager()
        if is_quick and not internals.replaces_files(stream):
            settings.unset(internals.FILE_MANAGER)  # its renames would not replace old files
        require_supported(spark, stream)
        require_one_watermark(stream, _plans)
        start = QueryStart(spark, stream, str(stream.id()), operators)
        start.write_layouts()
        start.note_settings()
    except Exception as error:  # noqa: BLE001 - the error is raised to those who await the query
        _LOG.exception("query %s cannot start", stream.id())
        if isinstance(error, MillpondError):
            places = dict.fromkeys(str(each.made_at) for each in operators if each.made_at)
            error.made_at = " and ".join(places)
        internals.fail_query(spark, stream, str(error))


def warn_of_no_end(spark: SparkSession, plan: OperatorPlan) -> None:
    """Warn if a query with ``availableNow`` over Spark Connect would never end.

    This is so if the operator has processing-time timers and the session lacks a setting.
    """
    if plan.time_mode == "processing-time" and spark.conf.get(_NO_DATA_BATCHES) != "false":
        _LOG.warning(
            "operator %r has processing-time timers: over Spark Connect a query with the trigger "
            "availableNow ends only if the session has %s=false when it is started",
            plan.uid,
            _NO_DATA_BATCHES,
        )


@attrs.define(slots=False)
class QueryStart:
    """A query before its first micro-batch.

    Attributes:
        stream: the query's JVM object.
        query: the query's id.
        operators: the plans of the query's operators, in the order of Spark's plan.
    """

    spark: SparkSession
    stream: Any
    query: str
    operators: Sequence[OperatorPlan]

    def write_layouts(self) -> None:
        """Write a layout for each operator that has no layout, or whose layout does not fit.

        Raises:
            ConfigError: two operators have the same uid.
            UnclaimedStateError: there is state of an operator that the query does not have.
            MaxParallelismError: an operator's state has another number of key groups.
            RestoreError: an operator's state is missing, or is later than the query's last
                committed batch. Or the sink will skip the batch after the last committed one.
            StateMigrationError: the keys in an operator's state cannot be migrated to the types of
                the operator's key columns.
        """
        twice = sorted(uid for uid, count in Counter(self.roster).items() if count > 1)
        if twice:
            reason = (
                "is used more than once in the query's plan: give each operator a uid of its own; "
                "to use the output of one twice, write it in foreachBatch"
            )
            raise ConfigError(f"uid {twice[0]!r}", reason, "process(...)")
        decided = [(each, *self._decide(each)) for each in self.operators]
        changed = [each for each in decided if each[1] is not Step.KEEP]
        if not changed:
            return
        self._require_no_skipped_batch([each[0] for each in changed if each[1] is not Step.BEGIN])
        dropped = self._dropped_layouts()
        layouts = [(each[0], self._with_sources(*each)) for each in changed]
        for uid, layout in dropped.items():
            _LOG.warning("the query no longer has operator %r; its state is dropped", uid)
            self._write(self.operators[0].storage(), uid, layout)
        for plan, layout in layouts:
            _LOG.info("%s: %d subtasks from now on", plan.uid, plan.parallelism)
            self._write(plan.storage(), plan.uid, layout)

    def _require_no_skipped_batch(self, continued: Sequence[OperatorPlan]) -> None:
        """Raise RestoreError if the sink will skip the unfinished batch.

        The new layouts would begin without the rows of that batch, because no task repeats it.
        """
        batch = self._skipped_batch if continued else None
        if batch is not None:
            cause = (
                f"the sink has the files of batch {batch}, but Spark has not committed the batch, "
                "and will not run it again. Start the query once with the operators and the "
                "parallelism of its last run, and change them afterwards"
            )
            raise RestoreError(f"operator {continued[0].uid!r}", (cause,))

    def _write(self, storage: CheckpointStorage, uid: str, layout: Layout) -> None:
        layout = attrs.evolve(layout, settled_after=self._now)
        write_layout(storage, OperatorId(self.query, uid), layout)

    def note_settings(self) -> None:
        """Write the query's checkpoint URI and ``checkpoint.retained`` next to the snapshots.

        The deletion of outdated snapshots reads both.
        """
        scheme, _, path = internals.checkpoint_of(self.stream).partition(":")
        path = path if path.startswith("//") else f"//{path}"  # Hadoop writes file:/checkpoint
        checkpoint = f"{scheme}:{quote(path, safe='/@:')}"
        for each in self.operators:
            operator = OperatorId(self.query, each.uid)
            note_settings(each.storage(), operator, each.config.checkpoint.retained, checkpoint)

    @property
    def roster(self) -> tuple[str, ...]:
        """The uids in the plan's order."""
        return tuple(each.uid for each in self.operators)

    @cached_property
    def _now(self) -> int:
        """The id of the last committed batch; -1 if there is none."""
        return internals.last_committed_batch(self.stream)

    @cached_property
    def _skipped_batch(self) -> int | None:
        """The unfinished batch that the sink will skip; None if there is none."""
        return internals.skipped_batch(self.stream)

    @cached_property
    def _pointers(self) -> list[Pointer]:
        """All committed pointers of the query. A Spark job reads them."""
        return (
            [] if self._now < 0 else read_pointers(self.spark, internals.checkpoint_of(self.stream))
        )

    def _pointers_of(self, uid: str) -> list[Pointer]:
        return [pointer for pointer in self._pointers if pointer.operator_uid == uid]

    def _decide(self, plan: OperatorPlan) -> tuple[Step, Layout, Layout | None]:
        """Decide which layout an operator has next.

        Returns:
            The source of the operator's state, the next layout, and the last layout under which
            batches may have run. The last one is None if there is no such layout, or if its state
            was dropped.
        """
        uid, operator, storage = plan.uid, OperatorId(self.query, plan.uid), plan.storage()
        current = current_layout(storage, operator)
        last = current and last_begun(storage, operator, current, self._now)

        def has_state() -> bool:
            begins_with = last is not None and (last.sources or last.savepoint)
            return bool(begins_with or self._pointers_of(uid))

        wanted = declared_layout(plan, self.roster)
        step, layout = decide_layout(uid, current, last, wanted, self._now, has_state)
        if current is None and self._pointers_of(uid):
            raise missing_snapshots(uid)
        return step, layout, last

    def _with_sources(
        self, plan: OperatorPlan, step: Step, layout: Layout, last: Layout | None
    ) -> Layout:
        """Return `layout` with the snapshots or the savepoint from which the subtasks start.

        Args:
            plan: the operator's plan.
            step: the decision about the operator's state.
            layout: the next layout.
            last: the last layout under which batches may have run, if any.
        """
        limits, storage = plan.config.restore, plan.storage()
        if step is Step.BEGIN:
            retained = plan.retained_checkpoint
            if retained is None:
                return restored_layout(plan, layout)
            handles = retained_handles(self.spark, retained, storage, limits)
            return restored_layout(plan, layout, handles)
        if step is Step.CARRY:
            return layout
        assert last is not None
        sources = committed_handles(self._pointers_of(plan.uid), last, storage, limits)
        if plan.parallelism != last.parallelism:
            joined_states(f"operator {plan.uid!r}", sources)
        return attrs.evolve(layout, sources=tuple(sources))

    def _dropped_layouts(self) -> dict[str, Layout]:
        """Return, by uid, a final layout for each operator that the query no longer has.

        A final layout has the status ``dropped``. Operators without state get one too. Otherwise
        their last layouts would still count.

        Raises:
            UnclaimedStateError: one of these operators has state, and the configuration does not
                allow the query to drop the state.
            RestoreError: Spark's checkpoint has state of an operator that has no layout.
        """
        storage = self.operators[0].storage()
        holders = {pointer.operator_uid for pointer in self._pointers} - set(self.roster)
        unclaimed = []
        dropped: dict[str, Layout] = {}
        for uid in holders | (query_uids(storage, self.query) - set(self.roster)):
            layout = current_layout(storage, OperatorId(self.query, uid))
            if layout is None:
                raise missing_snapshots(uid)
            if layout.status != "dropped" or layout.settled_after == self._now:
                dropped[uid] = attrs.evolve(layout, number=layout.number + 1, status="dropped")
                if uid in holders or (layout.sources and not is_fresh(layout, self._now)):
                    unclaimed.append(uid)
        ignored = all(each.config.checkpoint.ignore_unclaimed_state for each in self.operators)
        if unclaimed and not ignored:
            where = "The query's checkpoint"
            raise UnclaimedStateError(where, uids=tuple(sorted(unclaimed)), operators=self.roster)
        return dropped


def known_max_parallelism(config: Config, uid: str, parallelism: int, *, streaming: bool) -> int:
    """Return an operator's number of key groups if the user has not configured it.

    Spark's plan contains this number, but Spark names a query's checkpoint only when the query
    starts. Therefore the number comes from the layouts of all queries that have an operator with
    this uid. If there is no such layout, it comes from the savepoint that ``checkpoint.restore``
    names. Numbers smaller than `parallelism` are ignored. If the other numbers are not all equal,
    or if there are none, the result is Flink's default for `parallelism`. If the query's state has
    another number, the start of the query raises an error.

    Args:
        config: the operator's configuration.
        uid: the operator's uid.
        parallelism: the number of subtasks.
        streaming: whether the operator's rows are a stream. Only streams have layouts.
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
