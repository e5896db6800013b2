"""Reports of failed tasks: the message, then the user's frames, then Millpond's.

A worker's exception reaches the driver as text: Spark's heading and the worker's text. By default
that is a traceback, whose frames are Millpond's and whose last line is the error. So the frames are
added to the error as notes, and Spark is asked for no traceback of its own.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Iterator
from contextlib import contextmanager

import attrs
from millpond.errors import (
    FunctionResultError,
    MillpondError,
    OutputTypeError,
    UserFunctionError,
)
from millpond.functions.user_code import Place, format_users_frames, raised_by_us
from millpond.operator.failures import yielding_methods
from pyspark import TaskContext

from millpond_spark.plan.plan import OperatorPlan

_HEADING = "Traceback (most recent call last):"
BEHIND = "Behind it, in Millpond:"
"""The line between the user's frames and ours."""
_HIDE = "SPARK_HIDE_TRACEBACK"
"""The variable of ``spark.sql.execution.pyspark.udf.hideTraceback.enabled`` in a worker."""


def failed_before() -> int:
    """Return the number of failed attempts of this task."""
    context = TaskContext.get()
    return 0 if context is None else context.attemptNumber()


@contextmanager
def readable_errors(plan: OperatorPlan) -> Iterator[None]:
    """Make an exception that leaves a task begin with its message."""
    try:
        yield
    except Exception as error:
        told = _users_frames(plan, error)
        for file, cell in plan.cells.items():
            told = told.replace(f'File "{file}"', cell)
        if told:
            error.add_note(told)
        if isinstance(error, MillpondError):
            _name_place(plan, error)
        error.add_note(f"{BEHIND}\n{_all_frames(error)}")
        hide_traceback()
        raise


def hide_traceback() -> None:
    """Ask Spark for no traceback of its own.

    This cannot hide the traceback of another task, since the worker ends with the exception.
    """
    os.environ[_HIDE] = "1"


def _name_place(plan: OperatorPlan, error: MillpondError) -> None:
    """Name the user's line in the error, in a notebook by its cell."""
    if isinstance(error, UserFunctionError) and error.file:
        error.file = plan.cells.get(error.file, error.file)
    elif plan.made_at is not None:
        file = plan.cells.get(plan.made_at.file, plan.made_at.file)
        error.made_at = str(attrs.evolve(plan.made_at, file=file))


def _users_frames(plan: OperatorPlan, error: Exception) -> str:
    """Return the user's frames of the failure, else the lines that make the operator and yield."""
    cause = error.__cause__
    if isinstance(cause, FunctionResultError):
        shown = Place(cause.file, cause.line, cause.method).shown if cause.file else ""
        return f"{_HEADING}\n{shown}\n{cause}"
    if isinstance(cause, OutputTypeError):
        frames = [plan.made_at, *yielding_methods(plan.function).values()]
        if cause.method:
            frames = [plan.made_at, Place(cause.file, cause.line, cause.method)]
    elif isinstance(error, UserFunctionError) and error.file and cause is not None:
        return format_users_frames(cause)
    else:
        frames = [plan.made_at]
    told = "\n".join(place.shown for place in frames if place is not None)
    return f"{_HEADING}\n{told}" if told else ""


def _all_frames(error: BaseException) -> str:
    frames = traceback.format_tb(error.__traceback__)
    cause = error.__cause__
    if isinstance(error, UserFunctionError) and cause is not None and raised_by_us(cause):
        frames += traceback.format_tb(cause.__traceback__)[1:]
    return "".join(frames).rstrip()
