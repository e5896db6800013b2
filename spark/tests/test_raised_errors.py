"""Messages about exceptions of functions, on Spark and without."""

import millpond as mp
import pytest
from millpond import errors
from millpond_spark.worker.task import run_partition

from tests.spark.failed_tasks import MANY, failure_of, task_of
from tests.spark.failing import Passing, mark

CLOSED = [(f"k{at}", at) for at in range(10_000)]  # as many rows as a frame has


class Leaving(mp.KeyedProcessFunction):
    def __init__(self, kind):
        self.kind = kind

    def process_element(self, row, context):
        raise self.kind("enough")  # fails: left


class LeavingFrames(mp.VectorizedProcessFunction):
    def __init__(self, kind):
        self.kind = kind

    def process_batch(self, rows, context):
        yield rows
        raise self.kind("enough")  # fails: left frames


class LimitError(BaseException):
    """A user's exception that derives from BaseException."""


class WordlessError(Exception):
    def __str__(self):
        raise RuntimeError("no str")


LEAVING = [SystemExit, GeneratorExit, LimitError]


@pytest.mark.parametrize("kind", [*LEAVING, KeyboardInterrupt])
def test_what_is_no_exception_is_told_as_one(kind):
    """``sys.exit()`` and any BaseException are reported with the function's own line."""
    told = failure_of(Leaving(kind), MANY)
    assert (told.key, told.line) == ("'k0'", mark("left", __file__))
    assert told.reason == f"{kind.__name__}: enough"
    assert "in process_element" in told.__notes__[0].splitlines()[1]


@pytest.mark.parametrize("kind", [*LEAVING, KeyboardInterrupt])
def test_what_is_no_exception_is_told_of_frames(kind):
    """The same exceptions are reported for a vectorized function that has yielded tables before."""
    told = failure_of(LeavingFrames(kind), MANY)
    assert (told.file, told.line) == (__file__, mark("left frames", __file__))
    assert told.reason == f"{kind.__name__}: enough"


def test_an_exception_without_words_is_told():
    """For an exception whose ``__str__`` fails, the message says so, with key, row and line."""
    told = failure_of(Leaving(WordlessError), MANY)
    assert (told.key, told.line) == ("'k0'", mark("left", __file__))
    assert told.reason == "WordlessError: <str failed: RuntimeError>"
    assert "in process_element" in told.__notes__[0].splitlines()[1]


@pytest.mark.parametrize("function", [LeavingFrames(ValueError), Passing()])
def test_a_task_that_is_closed_early_has_not_failed(function):
    """If a task's output is closed early, the task ends without an error."""
    task = run_partition(*task_of(function, CLOSED))
    assert len(next(task))
    task.close()


@pytest.mark.parametrize("kind", [SystemExit, GeneratorExit])
def test_a_function_without_spark_fails_in_the_same_words(kind):
    """The local run and the harness report a BaseException with the same words as a task."""
    said = rf"line {mark('left', __file__)}\): {kind.__name__}: enough"
    with pytest.raises(errors.UserFunctionError, match=said):
        mp.local.run(Leaving(kind), [{"k": "a"}], key="k")
    with (
        mp.testing.KeyedOperatorHarness(Leaving(kind), key="k") as harness,
        pytest.raises(errors.UserFunctionError, match=said),
    ):
        harness.process({"k": "a"})


@pytest.mark.parametrize("kind", [KeyboardInterrupt, LimitError])
def test_what_ends_more_than_the_function_stays_what_it_is(kind):
    """A local run and the harness raise interrupts and exceptions of test tools unchanged."""
    with pytest.raises(kind):
        mp.local.run(Leaving(kind), [{"k": "a"}], key="k")
    with mp.testing.KeyedOperatorHarness(Leaving(kind), key="k") as harness, pytest.raises(kind):
        harness.process({"k": "a"})


class Adding(mp.KeyedProcessFunction):
    def open(self, context):
        self.sum = context.get_state(mp.ValueStateDescriptor("sum", int))
        self.most = context.get_reducing_state(mp.ReducingStateDescriptor("most", max, int))

    def process_element(self, row, context):
        getattr(self, row.k)(row, context)

    def of_time(self, row, context):
        return context.timestamp + 1

    def of_timer(self, row, context):
        context.timer_service().register_event_time_timer(context.timestamp)

    def of_state(self, row, context):
        self.sum.update(self.sum.value() + row.n)

    def of_reduced(self, row, context):
        return self.most.get() + row.n

    def of_row(self, row, context):
        return row.n + None


@pytest.mark.parametrize(
    ("method", "hint"),
    [
        ("of_time", r"NoneType.*\(context.timestamp is None if .*event_time= of process"),
        ("of_timer", r"None.*\(context.timestamp is None if .*event_time= of process"),
        ("of_state", r"NoneType.*\(a value state is None before its first update: .*default="),
        ("of_reduced", r"NoneType.*\(the state's get\(\) is None before"),
        ("of_row", r"'int' and 'NoneType'$"),
    ],
)
def test_where_none_comes_from(method, hint):
    """A failing line that uses None from a state or a timestamp is reported with a cure."""
    with pytest.raises(errors.UserFunctionError, match=hint):
        mp.local.run(Adding(), [{"k": method, "n": 1}], key="k")


class Unopened(mp.KeyedProcessFunction):
    sum = mp.ValueStateDescriptor("sum", int)

    def process_element(self, row, context):
        return self.sum.value()


class Guessing(mp.KeyedProcessFunction):
    def open(self, context):
        self.all = context.get_list_state(mp.ListStateDescriptor("all", int))

    def process_element(self, row, context):
        self.all.append(1) if row.k == "append" else context.get_state(None)


class Narrow(mp.KeyedProcessFunction):
    def process_element(self, row):  # fails: narrow
        return []


def test_what_beginners_write():
    """A descriptor used as its state is reported as that; a method with too few arguments with its line."""
    with pytest.raises(errors.UserFunctionError, match=r"a descriptor .* get states in open\(\)"):
        mp.local.run(Unopened(), [{"k": "a"}], key="k")
    with pytest.raises(errors.UserFunctionError, match=r"no attribute 'append' \(.*add, add_all"):
        mp.local.run(Guessing(), [{"k": "append"}], key="k")
    with pytest.raises(errors.UserFunctionError, match=r"'get_state' \(get states in open\(\)"):
        mp.local.run(Guessing(), [{"k": "get"}], key="k")
    with pytest.raises(errors.UserFunctionError, match="takes 2 positional arguments") as caught:
        mp.local.run(Narrow(), [{"k": "a"}], key="k")
    assert (caught.value.file, caught.value.line) == (__file__, mark("narrow", __file__))
