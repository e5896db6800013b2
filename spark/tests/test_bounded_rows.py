"""A subtask's rows of a plain DataFrame, processed as in a worker, without a session."""

import attrs
import millpond as mp
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from millpond import errors
from millpond.functions.functions import SubtaskInfo
from millpond.operator.opening import StartingPoint
from millpond_spark.values.schemas import GROUP_COLUMN
from millpond_spark.worker.runner import runner_of
from millpond_spark.worker.task import write_part
from pyspark.sql.types import LongType, StringType, StructType

from tests.arriving import values_of
from tests.operator_plans import plan_of

SCHEMA = StructType().add("k", StringType()).add("n", LongType())
TOTAL = mp.ReducingStateDescriptor("total", mp.functions.sum, int)


def frame_of(rows):
    """Return rows as they reach a worker, all of one key group."""
    keys, numbers = zip(*rows, strict=True)
    return pd.DataFrame(
        {
            "c0": np.array(keys, object),
            "c1": np.array(numbers, np.int64),
            "nulls0": np.zeros(len(rows), np.int64),
            GROUP_COLUMN: np.zeros(len(rows), np.int32),
        }
    )


def plan(function):
    """Return the plan of a function whose input and output have the same columns."""
    made = plan_of("op", function, SCHEMA, mp.Config({}), "heap")
    return attrs.evolve(made, max_parallelism=1)


def worker(function, *frames, restore=None):
    """Return the output of a bounded subtask for frames of rows."""
    start = StartingPoint.from_argument(restore, None)
    with (
        mp.open_keyed_backend(
            "heap", key_type=str, max_parallelism=1, restore=start.handles
        ) as backend,
        mp.open_operator_backend() as own,
    ):
        runner = runner_of(plan(function))(
            plan(function), SubtaskInfo("op", 0, 1, 1), backend, own, start.checkpoint_id
        )
        with runner.operator.opened():
            parts = [values_of(frame)[:2] for frame in runner.run(map(frame_of, frames), None)]
    return [row for part in parts for row in zip(*part, strict=True)]


def local(function, *frames, restore=None):
    """Return the output of a local run for the same rows."""
    rows = [{"k": key, "n": number} for frame in frames for key, number in frame]
    given = {"key": "k", "key_type": str, "restore": restore}
    return [tuple(row) for row in mp.local.run(function, rows, **given)]


class InParts(mp.VectorizedProcessFunction):
    """Vectorized function that sums by key, yields a table before and after each key, and sets due timers."""

    def open(self, context):
        self.total = context.get_reducing_state(TOTAL)

    def process_batch(self, rows, context):
        for key in context.keys:
            context.timer_service(key.as_py()).register_processing_time_timer(0)
        for key, part in context.groups():
            yield pa.table({"k": [key], "n": [-1]})
            self.total.add(sum(part["n"].to_pylist()))
            yield pa.table({"k": [key], "n": [self.total.get()]})

    def on_timer(self, timestamp, context):
        other = "b" if context.current_key == "a" else "a"
        yield context.current_key, 100 + (self.total.get_many([other])[0].as_py() or 0)


def test_no_timer_fires_in_the_middle_of_a_frame():
    """Timers fire after a frame, not between two tables of it, and each key keeps its state."""
    frames = [("a", 1), ("b", 2)], [("b", 4), ("c", 8)]
    expected = [("a", -1), ("a", 1), ("b", -1), ("b", 2)]
    expected += [("b", -1), ("b", 6), ("c", -1), ("c", 8)]
    found = worker(InParts(), *frames)
    assert [row for row in found if row[1] < 100] == expected
    assert sorted(row for row in found if row[1] >= 100) == [
        ("a", 102),
        ("b", 101),
        ("b", 101),
        ("c", 101),
    ]


class Alarm(mp.KeyedProcessFunction):
    """Function that sets a timer of each kind, and yields which of them has fired."""

    def process_element(self, row, context):
        context.timer_service().register_processing_time_timer(5)
        context.timer_service().register_event_time_timer(7)
        yield context.current_key, row.n

    def on_timer(self, timestamp, context):
        yield context.current_key, -timestamp


@pytest.mark.parametrize("frames", [(), ([("b", 1)],), ([("b", 1)], [("c", 2)])])
def test_processing_time_fires_before_rows_and_at_the_end(tmp_path, frames):
    """Timers of a savepoint fire as in a local run: before the first row, or without any row."""
    with mp.testing.KeyedOperatorHarness(Alarm(), key="k", max_parallelism=1) as harness:
        harness.process({"k": "a", "n": 0})
        harness.savepoint(tmp_path / "saved")
    found = worker(Alarm(), *frames, restore=tmp_path / "saved")
    assert found[0] == ("a", -5)
    assert found == local(Alarm(), *frames, restore=tmp_path / "saved")


class Frames(mp.VectorizedProcessFunction):
    """Vectorized function that sets a due timer for each key of a frame, and yields which has fired."""

    def process_batch(self, rows, context):
        for key in context.keys:
            context.timer_service(key.as_py()).register_processing_time_timer(5)
        yield pa.table({"k": rows["k"], "n": rows["n"]})

    def on_timer(self, timestamp, context):
        yield context.current_key, -timestamp


def test_rows_of_timers_come_before_the_frame_that_they_fired_before(tmp_path):
    """Output of timers comes before the frame before which they fired, also for vectorized functions."""
    with mp.testing.KeyedOperatorHarness(Frames(), key="k", max_parallelism=1) as harness:
        harness.process({"k": "a", "n": 0})
        harness.savepoint(tmp_path / "saved")
    found = worker(Frames(), [("a", 1)], [("a", 2)], restore=tmp_path / "saved")
    assert found == [("a", -5), ("a", 1), ("a", -5), ("a", 2), ("a", -5)]


class Fills(mp.KeyedStateBootstrapFunction):
    """Bootstrap function that yields a row after a number of rows."""

    def __init__(self, turn):
        self.turn = turn

    def open(self, context):
        self.total = context.get_reducing_state(TOTAL)

    def process_element(self, row, context):
        self.total.add(row.n)
        return [(row.k, row.n)] if row.n == self.turn else None


@pytest.mark.parametrize("turn", [0, 60])
def test_a_bootstrap_function_that_yields_is_refused(tmp_path, turn):
    """A bootstrap function that yields is refused, however late the row comes."""
    frame = frame_of([(f"k{at:02d}", at) for at in range(100)])
    with pytest.raises(errors.UserFunctionError, match="gives no rows"):
        list(write_part(plan(Fills(turn)), f"file:{tmp_path}", frozenset(), [frame]))
