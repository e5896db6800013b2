"""What is said of rows that a function yields and that do not fit, wherever they come from."""

import re

import attrs
import millpond as mp
import numpy as np
import pytest
from arriving import arriving
from failing import mark
from millpond import errors, windows
from millpond.runtime.keyed_operator import WATCHED
from millpond.runtime.user_code import Place
from millpond.spark.columns import GROUP_COLUMN
from millpond.spark.worker.bounded import run_partition
from operator_plans import plan_of
from pyspark import TaskContext
from pyspark.sql.types import LongType, StringType, StructType

ROWS = StructType().add("k", StringType()).add("n", LongType())
MADE = Place("/home/me/job.py", 30, "<module>")


class Late(mp.KeyedProcessFunction):
    """Yields rows that fit, until a number of rows has come."""

    def __init__(self, fitting=0):
        self.left = fitting

    def wrong(self):
        self.left -= 1
        return self.left < 0

    def process_element(self, row, context):
        yield row.k, "one" if self.wrong() else 1  # fails: late


class Twice(Late):
    def process_element(self, row, context):
        yield row.k, row.n
        if self.wrong():
            yield row.k, row.n, 2  # fails: twice


class Delegating(Late):
    def process_element(self, row, context):
        yield from self.rows(row)

    def rows(self, row):
        yield row.k, 1
        yield row.k, 1.5 if self.wrong() else 1  # fails: delegated


class Listing(Late):
    def process_element(self, row, context):  # fails: listed
        return [(row.k, 1), (row.k, "one" if self.wrong() else 2)]


class Timing(Late):
    def process_element(self, row, context):
        context.timer_service().register_event_time_timer(row.n)

    def on_timer(self, timestamp, context):
        yield {"k": context.current_key, "m" if self.wrong() else "n": 1}  # fails: timed


class Both(Timing):
    def process_element(self, row, context):
        super().process_element(row, context)
        yield row.k, row.n  # fails: both


class Named(windows.ProcessWindowFunction):
    def process(self, key, context, elements):
        yield key, "many"  # fails: window


def by_function(key, window, elements):
    return [(key, window.start, window.end)]


def counted(function):
    """Windows of one row each, with a function."""
    return windows.count_window(1).process(function, int, "n")


def failure_of(function, rows, *, batch=False):
    """What a task says that runs a function over rows."""
    plan = plan_of("totals", function, ROWS, mp.Config({}), "heap")
    plan = attrs.evolve(plan, made_at=MADE, batch=batch, max_parallelism=1)
    frame = arriving(plan.rows, plan.output.columns(rows, "input"))
    frame[GROUP_COLUMN] = np.zeros(len(frame), dtype=np.int32)
    with pytest.raises(errors.UserFunctionError) as caught:
        list(run_partition(plan, [frame]))
    return caught.value


MANY = [(f"k{at}", at) for at in range(WATCHED + 3)]


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (Late, "late"),
        (Twice, "twice"),
        (Delegating, "delegated"),
        (Listing, "listed"),
        (Timing, "timed"),
        (lambda _: counted(Named()), "window"),
    ],
)
@pytest.mark.parametrize("batch", [False, True])
def test_an_early_row_is_told_with_key_and_line(function, name, batch):
    """The line is that of the yield which has given it, also of several and through others."""
    error = failure_of(function(2), MANY, batch=batch)
    assert (error.file, error.line) == (__file__, mark(name, __file__))
    assert re.fullmatch(r"'k\d+'", error.key)
    assert bool(error.row) == (name != "timed")
    assert str(error).startswith("Operator 'totals', subtask 0, key 'k")
    assert "output column " in str(error)


@pytest.mark.parametrize(
    ("function", "name", "method"),
    [
        (Late(WATCHED + 1), "late", "Late.process_element"),
        (Listing(WATCHED + 1), "listed", "Listing.process_element"),
        (Timing(WATCHED + 1), "timed", "Timing.on_timer"),
        (Both(WATCHED + 1), "both", "Both.process_element or on_timer"),
    ],
)
def test_a_late_row_is_told_with_its_method(function, name, method):
    """No key is known any more; the line is that of the only yield there is."""
    error = failure_of(function, MANY)
    assert (error.file, error.line, error.key) == (__file__, mark(name, __file__), "")
    assert error.method == method
    assert "in the row tuple (" in str(error) or "missing: n; not a column: m" in str(error)


def test_a_task_that_runs_again_watches_every_row(monkeypatch):
    """Where Spark tries a failed task once more, the last try knows key and row of any output."""
    monkeypatch.setattr(TaskContext, "_taskContext", None)  # where the next one puts itself
    context = TaskContext()
    context._attemptNumber, context._partitionId = 1, 0
    error = failure_of(Late(WATCHED + 1), MANY)
    assert error.key.startswith("'k")
    assert error.line == mark("late", __file__)


def test_windows_of_ours_alone_name_the_operator():
    """The plain windows' rows have no line of the user's, so the operator's is told."""
    error = failure_of(windows.count_window(1).reduce(max, int, "n"), MANY)
    assert str(error).endswith("(the operator is made at /home/me/job.py, line 30)")
    assert "4 values for 2 columns" in str(error)


def test_a_function_of_windows_is_named():
    """A windows' function that is a plain function is told by its name and place."""
    error = failure_of(counted(by_function), MANY)
    assert (error.method, error.line) == ("by_function", by_function.__code__.co_firstlineno)
    assert "3 values for 2 columns" in str(error)


class Leaving(mp.KeyedProcessFunction):
    def __init__(self, error):
        self.error = error

    def process_element(self, row, context):
        raise self.error  # fails: left


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()])
def test_what_is_no_exception_is_told_as_one(error):
    """``sys.exit()`` and an interrupt in a function end the task with the function's own line."""
    told = failure_of(Leaving(error), MANY)
    assert (told.key, told.line) == ("'k0'", mark("left", __file__))
    assert type(error).__name__ in told.reason
    assert "in process_element" in told.__notes__[0].splitlines()[1]


def test_an_interrupt_of_a_local_run_stays_one():
    """Whoever presses Ctrl-C in a local run is heard; ``sys.exit()`` is a failure there too."""
    with pytest.raises(KeyboardInterrupt):
        mp.local.run(Leaving(KeyboardInterrupt()), [{"k": "a"}], key="k")
    with pytest.raises(errors.UserFunctionError, match=r"line \d+\): SystemExit: 3"):
        mp.local.run(Leaving(SystemExit(3)), [{"k": "a"}], key="k")


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
        ("of_time", r"NoneType.*\(context.timestamp is None where .*event_time= of process"),
        ("of_timer", r"None.*\(context.timestamp is None where .*event_time= of process"),
        ("of_state", r"NoneType.*\(a value state is None before its first update: .*default="),
        ("of_reduced", r"NoneType.*\(the state's get\(\) is None before"),
        ("of_row", r"'int' and 'NoneType'$"),
    ],
)
def test_where_none_comes_from(method, hint):
    """A failing line that reads what is None at first is told with what to do about it."""
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
    """A descriptor taken for its state is told so; a method of too few arguments has its line."""
    with pytest.raises(errors.UserFunctionError, match=r"a descriptor .* get states in open\(\)"):
        mp.local.run(Unopened(), [{"k": "a"}], key="k")
    with pytest.raises(errors.UserFunctionError, match=r"no attribute 'append' \(.*add, add_all"):
        mp.local.run(Guessing(), [{"k": "append"}], key="k")
    with pytest.raises(errors.UserFunctionError, match=r"'get_state' \(get states in open\(\)"):
        mp.local.run(Guessing(), [{"k": "get"}], key="k")
    with pytest.raises(errors.UserFunctionError, match="takes 2 positional arguments") as caught:
        mp.local.run(Narrow(), [{"k": "a"}], key="k")
    assert (caught.value.file, caught.value.line) == (__file__, mark("narrow", __file__))
