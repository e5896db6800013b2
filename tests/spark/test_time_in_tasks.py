"""The watermark of a subtask behind another operator and of an idle subtask, task by task."""

import random

import attrs
import millpond as mp
import pandas as pd
import pytest
from millpond.functions.dead_letters import RowFaults
from millpond.operator_id import OperatorId
from millpond_spark.plan.layout import write_layout
from millpond_spark.plan.layout_decision import declared_layout
from millpond_spark.plan.pointer import POINTER_SCHEMA, Pointer
from millpond_spark.plan.timing import TIMEOUTS
from millpond_spark.session.group_labels import group_labels
from millpond_spark.values.schemas import GROUP_COLUMN
from millpond_spark.worker.task import run_subtask
from pyspark import TaskContext
from pyspark.sql.streaming.state import GroupState
from pyspark.sql.types import StringType, StructType, TimestampType

from tests.operator_plans import plan_of

SCHEMA = StructType().add("k", StringType()).add("t", TimestampType())
SIZE = 10
NEVER = -1


class Sums(mp.KeyedProcessFunction):
    """Function that counts rows in windows of ten milliseconds, by timers."""

    def __init__(self):
        self.fired, self.late, self.watermarks = [], [], []

    def open(self, context):
        self.counts = context.get_map_state(mp.MapStateDescriptor("counts", int, int))

    def process_element(self, row, context):
        watermark = context.timer_service().current_watermark()
        self.watermarks.append(watermark)
        time = context.timestamp
        if time is None:
            return
        end = time // SIZE * SIZE + SIZE
        if end - 1 <= watermark:
            self.late.append((row.k, time))
        else:
            self.counts[end] = self.counts.get(end, 0) + 1
            context.timer_service().register_event_time_timer(end - 1)

    def on_timer(self, timestamp, context):
        end = timestamp + 1
        self.fired.append((context.current_key, end, self.counts[end]))
        self.counts.remove(end)


class Reference:
    """Windows of one subtask, in plain Python."""

    def __init__(self):
        self.watermark = mp.MIN_TIMESTAMP
        self.open, self.fired, self.late = {}, [], []

    def rows(self, rows):
        for key, time in rows:
            end = time // SIZE * SIZE + SIZE
            if end - 1 <= self.watermark:
                self.late.append((key, time))
            else:
                self.open[key, end] = self.open.get((key, end), 0) + 1

    def advance(self, watermark):
        self.watermark = max(self.watermark, watermark)
        for key, end in sorted(self.open, key=lambda each: each[::-1]):
            if end - 1 <= self.watermark:
                self.fired.append((key, end, self.open.pop((key, end))))

    def check(self, sums):
        assert sorted(sums.fired) == sorted(self.fired)
        assert sorted(sums.late) == sorted(self.late)


class Tasks:
    """The tasks of an operator's only subtask, as Spark's worker runs them."""

    def __init__(self, tmp_path, monkeypatch, backend, mode="event-time", **options):
        self.sums, self.mode = Sums(), mode
        config = mp.Config({"checkpoint.dir": (tmp_path / "snapshots").as_uri()})
        made = plan_of("sums", self.sums, SCHEMA, config, backend)
        changed = {"event_time": 1, "watermarked": True, "wakes": True, "time_mode": mode}
        self.plan = attrs.evolve(made, **changed, **options)
        self.number, self.row, self.timeout, self.run = 0, None, NEVER, "run"
        monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))
        monkeypatch.setattr(TaskContext, "_taskContext", None)
        self.context = TaskContext()
        self.operator = OperatorId(f"query of {id(self)}", "sums")
        write_layout(self.plan.storage(), self.operator, declared_layout(self.plan, ("sums",)))

    def batch(self, rows, watermark, now=0, *, woken=True, twice=False):
        """Run a batch, and return whether Spark would call the subtask.

        ``twice`` runs the batch again from its beginning.
        """
        reached = watermark if self.mode == "event-time" else now
        timed_out = not rows and not woken and self.timeout != NEVER and self.timeout < reached
        if not rows and not woken and not timed_out:
            self.number += 1
            return False
        before = self.row
        for _ in range(1 + twice):
            fired, late = len(self.sums.fired), len(self.sums.late)
            state = self.state(before, watermark, now, timed_out)
            assert not list(run_subtask(self.plan, group_labels(1)[0], frames(rows), state))
            if twice:
                del self.sums.fired[fired:], self.sums.late[late:]
                twice = False
        self.row, self.timeout = state.get, state._timeout_timestamp
        self.number += 1
        return True

    def state(self, row, watermark, now, timed_out):
        self.context._localProperties = {
            "sql.streaming.queryId": self.operator.query,
            "streaming.sql.batchId": str(self.number),
            "spark.jobGroup.id": self.run,
        }
        return GroupState(
            row,
            batchProcessingTimeMs=now,
            eventTimeWatermarkMs=watermark,
            timeoutConf=TIMEOUTS[self.mode],
            hasTimedOut=timed_out,
            watermarkPresent=True,
            defined=row is not None,
            updated=False,
            removed=False,
            timeoutTimestamp=NEVER,
            keyAsUnsafe=b"",
            valueSchema=POINTER_SCHEMA,
        )


def frames(rows):
    """Return encoded frames of rows, and a wake-up in the first frame."""
    parts = [[(None, 0)], *([each] for each in rows)] if len(rows) < 3 else [[(None, 0), *rows]]
    for part in parts:
        groups = [-1 if k is None else mp.assign_to_key_group(k, 128) for k, _ in part]
        micros = [0 if t is None else t * 1000 for _, t in part]
        nulls = [2 if t is None else 0 for _, t in part]
        keys = [k for k, _ in part]
        yield pd.DataFrame({"c0": keys, "c1": micros, "nulls0": nulls, GROUP_COLUMN: groups})


BACKENDS = ("heap", "rocksdb", "lmdb")


@pytest.mark.parametrize("seed", range(12))
def test_rows_that_an_operator_before_has_held_back(tmp_path, monkeypatch, seed):
    """Rows up to the new watermark count by the last one, and then the timers fire, also in a replay."""
    draw = random.Random(seed)
    tasks = Tasks(tmp_path, monkeypatch, BACKENDS[seed % 3], chained=True)
    reference, watermark = Reference(), 0
    for _ in range(15):
        watermark += draw.choice((0, 3, 12, 40))
        rows = [
            (draw.choice("abc"), max(0, watermark + draw.randrange(-25, 25)))
            for _ in range(draw.choice((0, 0, 1, 4, 8)))
        ]
        tasks.batch(rows, watermark, twice=draw.random() < 0.2)
        known = watermark or mp.MIN_TIMESTAMP
        reference.rows(row for row in rows if row[1] <= known)
        reference.advance(known)
        reference.rows(row for row in rows if row[1] > known)
        reference.check(tasks.sums)
        if draw.random() < 0.2:
            tasks.run += "+"
    assert reference.fired
    assert reference.late


@pytest.mark.parametrize("ordered", [False, True])
def test_rows_without_event_time_come_after_the_watermark(tmp_path, monkeypatch, ordered):
    """Behind an operator, rows without an event time see the new watermark, with and without an order."""
    order = {"order_by": (0,)} if ordered else {}
    tasks = Tasks(tmp_path, monkeypatch, "heap", chained=True, **order)
    tasks.batch([("a", 5)], 3)
    tasks.batch([("a", None), ("b", 7), ("c", 30)], 20)
    assert sorted(tasks.sums.watermarks) == [3, 3, 20, 20]
    assert tasks.sums.fired == [("a", 10, 1), ("b", 10, 1)]
    assert not tasks.sums.late


@pytest.mark.parametrize("seed", range(12))
def test_idle_subtasks(tmp_path, monkeypatch, seed):
    """The watermark follows the clock from the last row of a run, and equals a plain reference."""
    draw = random.Random(seed)
    timeout = draw.choice((1, 15, 40))
    tasks = Tasks(
        tmp_path, monkeypatch, BACKENDS[seed % 3], "processing-time", idle_timeout=timeout
    )
    reference, spark, now = Reference(), 0, 1_000
    last, highest = None, mp.MIN_TIMESTAMP
    for _ in range(30):
        now += draw.choice((1, 5, 20, 30))
        spark += draw.choice((0, 0, 0, 0, 30))
        if draw.random() < 0.1:
            tasks.run, last = tasks.run + "+", None
        begun = max(spark, highest, 0)
        rows = [
            (draw.choice("ab"), max(0, begun + draw.randrange(-30, 30)))
            for _ in range(draw.choice((0, 0, 0, 1, 3)))
        ]
        woken = bool(rows) or last is None
        if not tasks.batch(rows, spark, now, woken=woken):
            continue
        if last is None:
            last = now
            if tasks.number == 1:
                highest = spark or mp.MIN_TIMESTAMP
        reference.advance(spark or mp.MIN_TIMESTAMP)
        if not rows and highest > mp.MIN_TIMESTAMP and now - last >= timeout:
            reference.advance(highest + now - last - timeout)
        reference.rows(rows)
        if rows:
            last, highest = now, max(highest, *(time for _, time in rows))
        reference.check(tasks.sums)
    assert reference.fired


def test_dropped_rows_end_a_pause(tmp_path, monkeypatch):
    """A row that ``null_event_times`` drops is a row of its subtask."""
    faults = RowFaults("fail", "drop", frozenset({"process_element"}))
    tasks = Tasks(tmp_path, monkeypatch, "heap", "processing-time", idle_timeout=10, faults=faults)
    tasks.batch([("a", 5)], 0, 100)
    tasks.batch([("a", None)], 0, 108)
    tasks.batch([], 0, 117)
    assert not tasks.sums.fired
    tasks.batch([], 0, 122)
    assert tasks.sums.fired == [("a", 10, 1)]
    assert Pointer.from_row(tasks.row).watermark == 9
