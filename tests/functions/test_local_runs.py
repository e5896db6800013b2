"""The start of ``mp.local.run``, and its rows, keys and event times."""

import enum

import millpond as mp
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from millpond import errors
from millpond.backend import timer_queue

BACKENDS = pytest.mark.parametrize("backend", ["heap", "rocksdb", "lmdb"])


class Colour(enum.Enum):
    """A class whose instances are keys."""

    RED = 1


class Timed(mp.KeyedProcessFunction):
    """Function that sets a timer for each row, and yields the row's time and key when it fires."""

    def process_element(self, row, context):
        context.timer_service().register_event_time_timer(9)
        yield context.timestamp

    def on_timer(self, timestamp, context):
        yield context.current_key


class Told(Timed, mp.CheckpointedFunction, mp.CheckpointListener):
    """Function that records the ids of its checkpoints."""

    def __init__(self):
        self.told = []

    def initialize_state(self, context):
        self.told.append(context.restored_checkpoint_id)

    def snapshot_state(self, context):
        self.told.append(context.checkpoint_id)

    def notify_checkpoint_complete(self, checkpoint_id):
        self.told.append(checkpoint_id)


class Both(mp.KeyedCoProcessFunction):
    """Function that yields the input, key and time of each row."""

    def process_element1(self, row, context):
        yield 1, context.current_key, context.timestamp

    def process_element2(self, row, context):
        yield 2, context.current_key, context.timestamp


def waiting(key, key_type, backend="heap"):
    """Return the handle of a second snapshot, with a key's timer."""
    with mp.testing.KeyedOperatorHarness(
        Timed(), key="k", key_type=key_type, backend=backend
    ) as harness:
        harness.process({"k": key})
        harness.snapshot()
        return harness.snapshot()


@pytest.mark.parametrize("rows", [[], [{"k": "b"}]])
def test_checkpoints_go_on_from_the_restored_one(rows):
    """After a restore, checkpoint ids continue as in the harness and on Spark."""
    function = Told()
    mp.local.run(function, rows, key="k", restore=waiting("a", str))
    assert function.told == [2, 3, 3]


@BACKENDS
@pytest.mark.parametrize(
    ("key", "key_type"),
    [(7, int), ((1, "x"), tuple[int, str]), ((1, None), tuple[int, str | None])],
)
def test_without_rows_keys_are_of_the_restored_type(backend, key, key_type):
    """Without rows, keys have the restored type, and their timers fire at the end."""
    handle = waiting(key, key_type, backend)
    assert mp.local.run(Timed(), [], key="k", backend=backend, restore=handle) == [key]


def test_without_rows_a_class_of_keys_is_asked_for():
    """If keys have a class, a run without rows needs `key_type`, because a snapshot does not name the class."""
    handle = waiting(Colour.RED, Colour)
    with pytest.raises(errors.ArgumentTypeError, match=r"key_type: expected .*enum.*got None"):
        mp.local.run(Timed(), [], key="k", restore=handle)
    out = mp.local.run(Timed(), [], key="k", key_type=Colour, restore=handle)
    assert out == [Colour.RED]


def test_keys_are_known_by_the_second_input_where_the_first_has_no_rows():
    """If the first input has no rows, the first key of the second one determines the key type."""
    out = mp.local.run(Both(), [], key="k", second=[{"id": 1}], second_key="id")
    assert out == [(2, 1, None)]


TABLE = pa.table({"k": [1, 2], "ms": [5, 6]})


@pytest.mark.parametrize("second", [TABLE, TABLE.to_batches()[0], TABLE.to_pandas()])
def test_a_second_input_may_be_a_table(second):
    """The second input may be a Table too, also with event times."""
    out = mp.local.run(
        Both(), TABLE, key="k", event_time="ms", second=second, second_event_time="ms"
    )
    assert out == [(1, 1, 5), (2, 1, 5), (1, 2, 6), (2, 2, 6)]


def test_a_second_input_may_be_empty_and_is_no_single_row():
    """An empty DataFrame is an input without rows; a single dict is refused."""
    assert mp.local.run(Both(), [], key="k", second=pd.DataFrame({"k": []})) == []
    with pytest.raises(errors.ArgumentTypeError, match="second: expected several rows"):
        mp.local.run(Both(), [], key="k", second={"k": 1})


def test_event_times_may_be_numbers_of_numpy():
    """Event times may be NumPy numbers, for rows, broadcast rows and the harness; functions get ints."""
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
    """Other event times are refused by the argument that names them."""

    class Rules(mp.KeyedBroadcastProcessFunction):
        def process_element(self, row, context):
            """Do nothing."""

        def process_broadcast_element(self, row, context):
            """Do nothing."""

    rows = [{"k": 1, "ms": time}]
    given = {"second": rows} if argument == "second_event_time" else {}
    given |= {"broadcast": rows} if argument == "broadcast_event_time" else {}
    function = Both() if "second" in given else Rules() if given else Timed()
    with pytest.raises((errors.ArgumentTypeError, errors.ArgumentValueError)) as caught:
        mp.local.run(function, rows, key="k", **{argument: "ms"}, **given)
    assert f"{argument}: {said}" in str(caught.value)


class Keyed(mp.KeyedProcessFunction):
    """Function that yields the key of a row, and the number of the key's rows."""

    def open(self, context):
        self.count = context.get_state(mp.ValueStateDescriptor("count", int, default=0))

    def process_element(self, row, context):
        self.count.update(self.count.value() + 1)
        yield context.current_key, self.count.value()


TWO = [{"a": "x", "b c": 1}, {"a": "x", "b c": 2}, {"a": "x", "b c": 1}]
TWO_COUNTED = [(("x", 1), 1), (("x", 2), 1), (("x", 1), 2)]


@BACKENDS
@pytest.mark.parametrize("key_type", [None, tuple[str, int], "a string, `b c` bigint"])
def test_several_fields_make_a_key(key_type, backend):
    """The current key is then a row of the fields, as with several columns of ``key_by``."""
    output = mp.local.run(Keyed(), TWO, key=["a", "b c"], key_type=key_type, backend=backend)
    assert output == TWO_COUNTED
    assert {(key.a, key["b c"]) for key, _ in output} == {("x", 1), ("x", 2)}


@pytest.mark.parametrize("key_type", [tuple[str, int], "a string, `b c` bigint"])
def test_several_fields_make_a_key_of_a_harness_and_of_a_new_savepoint(key_type, tmp_path):
    """A savepoint with such keys and a run with the same fields find the same state."""
    key = ["a", "b c"]
    with mp.testing.KeyedOperatorHarness(Keyed(), key=key, key_type=key_type) as harness:
        for row in TWO:
            harness.process(row)
        assert harness.output == TWO_COUNTED
    count = mp.ValueStateDescriptor("count", int)
    writer = mp.SavepointWriter.new_savepoint(max_parallelism=128)
    rows = [{**row, "count": 10} for row in TWO[:2]]
    writer.with_operator("counts", rows, count, key=key, key_type=key_type)
    writer.write(tmp_path / "savepoint")
    later = mp.local.run(Keyed(), TWO, key=key, restore=tmp_path / "savepoint", uid="counts")
    assert [found for _, found in later] == [11, 11, 12]


@pytest.mark.parametrize("key", [["a"], "a"])
def test_one_field_in_a_list_is_that_field(key):
    """A list of one name makes the same keys as the name."""
    assert mp.local.run(Keyed(), TWO[:1], key=key) == [("x", 1)]


@pytest.mark.parametrize(
    ("key", "key_type", "expected"),
    [
        ([], None, "at least one field"),
        (["a", "a"], None, "each once"),
        (["a", 1], None, "expected str, got int 1"),
        (["a", "b c"], str, "a tuple of the types of a, b c"),
        (["a", "b c"], tuple[str], "a tuple of the types of a, b c"),
        (["a", "z"], None, "has no field str 'z'"),
    ],
)
def test_fields_that_cannot_be_a_key_are_refused(key, key_type, expected):
    """No field, a repeated or missing field, and an unsuitable type are refused."""
    with pytest.raises(errors.MillpondError, match=expected):
        mp.local.run(Keyed(), TWO, key=key, key_type=key_type)


class Endless(mp.KeyedProcessFunction):
    """Function whose timers each set another timer after a distance."""

    def __init__(self, domain, distance):
        self.domain, self.distance = domain, distance

    def process_element(self, row, context):
        context.timer_service().register(self.domain, 10)

    def on_timer(self, timestamp, context):
        context.timer_service().register(self.domain, timestamp + self.distance)


@BACKENDS
@pytest.mark.parametrize("domain", mp.TimeDomain)
@pytest.mark.parametrize("distance", [0, -1, 1000])
def test_timers_that_set_each_other_without_end_are_refused(distance, domain, backend, monkeypatch):
    """The run ends with an error that names the key and the cure, instead of running forever."""
    monkeypatch.setattr(timer_queue, "_LONGEST_CHAIN", 100)
    clock = mp.ManualClock(mp.MAX_TIMESTAMP)
    with pytest.raises(errors.UserFunctionError, match="100 timers in a row") as caught:
        mp.local.run(Endless(domain, distance), [{"k": "a"}], key="k", clock=clock, backend=backend)
    assert caught.value.key == "'a'"
    assert "set a timer only for a time after" in caught.value.reason


def test_a_long_chain_of_timers_ends(monkeypatch):
    """A chain of as many timers as allowed fires completely, for each key."""
    monkeypatch.setattr(timer_queue, "_LONGEST_CHAIN", 100)
    with mp.testing.KeyedOperatorHarness(Endless(mp.TimeDomain.EVENT_TIME, 1), key="k") as harness:
        for key in "abc":
            harness.process({"k": key})
        harness.advance_watermark(109)
        assert harness._operator.timers_fired == 300


class Later(mp.KeyedProcessFunction):
    """Function that yields a time after the row's event time."""

    def process_element(self, row, context):
        yield context.event_time + 1


class LaterRule(mp.KeyedBroadcastProcessFunction):
    """Broadcast function that yields a time after the row's event time."""

    def process_element(self, row, context):
        yield context.event_time + 1

    def process_broadcast_element(self, row, context):
        yield context.event_time + 2


def test_an_event_time_is_a_number_or_an_error():
    """``event_time`` is the row's timestamp; for a row without one the error gives the cure."""
    rows = [{"k": "a", "at": 5}]
    assert mp.local.run(Later(), rows, key="k", event_time="at") == [6]
    timed = {"key": "k", "event_time": "at", "broadcast_event_time": "at"}
    assert mp.local.run(LaterRule(), rows, broadcast=rows, **timed) == [7, 6]
    for function, more in ((Later(), {}), (LaterRule(), {"broadcast": rows})):
        with pytest.raises(errors.UserFunctionError, match=r"NoEventTimeError.*withWatermark"):
            mp.local.run(function, rows, key="k", **more)
