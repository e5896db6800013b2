"""What ``mp.local.run`` starts from, and what it takes for rows, keys and event times."""

import enum

import millpond as mp
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from millpond import errors

BACKENDS = pytest.mark.parametrize("backend", ["heap", "rocksdb", "lmdb"])


class Colour(enum.Enum):
    """A key that is of a class."""

    RED = 1


class Timed(mp.KeyedProcessFunction):
    """Sets a timer with each row, and yields the row's time and the key when it fires."""

    def process_element(self, row, context):
        context.timer_service().register_event_time_timer(9)
        yield context.timestamp

    def on_timer(self, timestamp, context):
        yield context.current_key


class Told(Timed, mp.CheckpointedFunction, mp.CheckpointListener):
    """Keeps the numbers of checkpoints that it is told."""

    def __init__(self):
        self.told = []

    def initialize_state(self, context):
        self.told.append(context.restored_checkpoint_id)

    def snapshot_state(self, context):
        self.told.append(context.checkpoint_id)

    def notify_checkpoint_complete(self, checkpoint_id):
        self.told.append(checkpoint_id)


class Both(mp.KeyedCoProcessFunction):
    """Tells of each row which input it is of, its key and its time."""

    def process_element1(self, row, context):
        yield 1, context.current_key, context.timestamp

    def process_element2(self, row, context):
        yield 2, context.current_key, context.timestamp


def waiting(key, key_type, backend="heap"):
    """The handle of a second snapshot, in which a key's timer waits."""
    with mp.testing.KeyedOperatorHarness(
        Timed(), key="k", key_type=key_type, backend=backend
    ) as harness:
        harness.process({"k": key})
        harness.snapshot()
        return harness.snapshot()


@pytest.mark.parametrize("rows", [[], [{"k": "b"}]])
def test_checkpoints_go_on_from_the_restored_one(rows):
    """A listener is told the number after it, as it would be of the harness or on Spark."""
    function = Told()
    mp.local.run(function, rows, key="k", restore=waiting("a", str))
    assert function.told == [2, 3, 3]


@BACKENDS
@pytest.mark.parametrize(
    ("key", "key_type"),
    [(7, int), ((1, "x"), tuple[int, str]), ((1, None), tuple[int, str | None])],
)
def test_without_rows_keys_are_of_the_restored_type(backend, key, key_type):
    """The timers of restored keys fire at the end of no rows."""
    handle = waiting(key, key_type, backend)
    assert mp.local.run(Timed(), [], key="k", backend=backend, restore=handle) == [key]


def test_without_rows_a_class_of_keys_is_asked_for():
    """A snapshot does not say which class its keys are of."""
    handle = waiting(Colour.RED, Colour)
    with pytest.raises(errors.ArgumentTypeError, match=r"key_type: expected .*enum.*got None"):
        mp.local.run(Timed(), [], key="k", restore=handle)
    out = mp.local.run(Timed(), [], key="k", key_type=Colour, restore=handle)
    assert out == [Colour.RED]


def test_keys_are_known_by_the_second_input_where_the_first_has_no_rows():
    """The type of its first key is that of all."""
    out = mp.local.run(Both(), [], key="k", second=[{"id": 1}], second_key="id")
    assert out == [(2, 1, None)]


TABLE = pa.table({"k": [1, 2], "ms": [5, 6]})


@pytest.mark.parametrize("second", [TABLE, TABLE.to_batches()[0], TABLE.to_pandas()])
def test_a_second_input_may_be_a_table(second):
    """As the first may, also beside event times."""
    out = mp.local.run(
        Both(), TABLE, key="k", event_time="ms", second=second, second_event_time="ms"
    )
    assert out == [(1, 1, 5), (2, 1, 5), (1, 2, 6), (2, 2, 6)]


def test_a_second_input_may_be_empty_and_is_no_single_row():
    """A DataFrame without rows is no rows; a dict would pass for its keys."""
    assert mp.local.run(Both(), [], key="k", second=pd.DataFrame({"k": []})) == []
    with pytest.raises(errors.ArgumentTypeError, match="second: expected several rows"):
        mp.local.run(Both(), [], key="k", second={"k": 1})


def test_event_times_may_be_numbers_of_numpy():
    """Of rows, broadcast rows and the harness alike; functions get Python's."""
    rows = [{"k": 1, "ms": np.int64(5)}]
    out = mp.local.run(Timed(), rows, key="k", event_time="ms", watermark_delay=0)
    assert out == [5, 1]
    with mp.testing.KeyedOperatorHarness(Timed(), key="k", key_type=int) as harness:
        harness.process(rows[0], np.int64(5))
        assert [type(time) for time in [*out[:1], *harness.output]] == [int, int]


@pytest.mark.parametrize(
    ("time", "said"),
    [
        (1 << 63, "expected a whole number within"),
        (True, "expected int or None, got bool True"),
        (5.0, "expected int or None, got float 5.0"),
    ],
)
@pytest.mark.parametrize("argument", ["event_time", "second_event_time", "broadcast_event_time"])
def test_other_event_times_are_refused(argument, time, said):
    """Each by the argument that names them."""

    class Rules(mp.KeyedBroadcastProcessFunction):
        def process_element(self, row, context):
            """Nothing."""

        def process_broadcast_element(self, row, context):
            """Nothing."""

    rows = [{"k": 1, "ms": time}]
    given = {"second": rows} if argument == "second_event_time" else {}
    given |= {"broadcast": rows} if argument == "broadcast_event_time" else {}
    function = Both() if "second" in given else Rules() if given else Timed()
    with pytest.raises((errors.ArgumentTypeError, errors.ArgumentValueError)) as caught:
        mp.local.run(function, rows, key="k", **{argument: "ms"}, **given)
    assert f"{argument}: {said}" in str(caught.value)
