"""Messages about yielded rows that do not fit the output."""

import re

import millpond as mp
import pytest
from millpond import windows
from millpond.operator.operators import CHECKED_CALLS
from pyspark import TaskContext

from tests.spark.failed_tasks import MANY, failure_of
from tests.spark.failing import mark


class Late(mp.KeyedProcessFunction):
    """Function that yields valid rows, and then a wrong one."""

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
    def process(self, key, context, elements):  # fails: window
        yield key, "many"


def by_function(key, window, elements):
    return [(key, window.start, window.end)]


def counted(function):
    """Return windows of one row each, with a window function."""
    return windows.count_window(1).process(function, int, "n")


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
    """The error of an early row names the key and the ``yield``; of a list or windows, the method's first line."""
    error = failure_of(function(2), MANY, batch=batch)
    assert (error.file, error.line) == (__file__, mark(name, __file__))
    assert re.fullmatch(r"'k\d+'", error.key)
    assert bool(error.row) == (name != "timed")
    assert str(error).startswith("Operator 'totals', subtask 0, key 'k")
    assert "output column " in str(error)


@pytest.mark.parametrize(
    ("function", "methods"),
    [
        (Late(CHECKED_CALLS + 1), "process_element"),
        (Listing(CHECKED_CALLS + 1), "process_element"),
        (Timing(CHECKED_CALLS + 1), "on_timer or process_element"),
        (Both(CHECKED_CALLS + 1), "process_element or on_timer"),
    ],
)
def test_a_late_row_is_reported_with_its_method(function, methods):
    """The error of a late row names no key, and the first line of the method that probably yielded it."""
    error = failure_of(function, MANY)
    method = getattr(type(function), methods.split()[0])
    assert (error.file, error.line) == (__file__, method.__code__.co_firstlineno)
    assert (error.key, error.method) == ("", f"{type(function).__name__}.{methods}")
    assert "in the row tuple (" in str(error) or "missing: n; not a column: m" in str(error)


def test_a_task_that_runs_again_watches_every_row(monkeypatch):
    """When Spark repeats a failed task, the last attempt reports key and row of any output."""
    monkeypatch.setattr(TaskContext, "_taskContext", None)  # the line of the next row
    context = TaskContext()
    context._attemptNumber, context._partitionId = 1, 0
    error = failure_of(Late(CHECKED_CALLS + 1), MANY)
    assert error.key.startswith("'k")
    assert error.line == mark("late", __file__)


def test_windows_of_ours_alone_name_the_operator():
    """Rows of windows without a user's function are reported with the operator's line."""
    error = failure_of(windows.count_window(1).reduce(max, int, "n"), MANY)
    assert str(error).endswith("(the operator is made at /home/me/job.py, line 30)")
    assert "4 values for 2 columns" in str(error)


def test_a_function_of_windows_is_named():
    """A plain window function is named with its place."""
    error = failure_of(counted(by_function), MANY)
    assert (error.method, error.line) == ("by_function", by_function.__code__.co_firstlineno)
    assert "3 values for 2 columns" in str(error)
