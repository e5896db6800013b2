"""Texts of failed tasks: the message, then the user's frames, then Millpond's frames.

A worker's exception reaches the driver as text. By default this text is a traceback, which begins
with Millpond's frames and ends with the message. Therefore Millpond adds the frames to the
exception as notes, and Spark is asked not to add a traceback.
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
"""The line between the user's frames and Millpond's frames."""


def failed_before() -> int:
    """Return the number of failed attempts of this task."""
    context = TaskContext.get()
    return 0 if context is None else context.attemptNumber()


@contextmanager
def readable_errors(plan: OperatorPlan) -> Iterator[None]:
    """Change an exception of the ``with`` block so that Spark shows its message first."""
    try:
        yield
    except Exception as error:
        shown = _users_frames(plan, error)
        for file, cell in plan.cells.items():
            shown = shown.replace(f'File "{file}"', cell)
        if shown:
            error.add_note(shown)
        if isinstance(error, UserFunctionError) and error.file:
            error.file = plan.cells.get(error.file, error.file)
        elif isinstance(error, MillpondError) and plan.made_at is not None:
            file = plan.cells.get(plan.made_at.file, plan.made_at.file)
            error.made_at = str(attrs.evolve(plan.made_at, file=file))
        frames = traceback.format_tb(error.__traceback__)
        cause = error.__cause__
        if isinstance(error, UserFunctionError) and cause is not None and raised_by_us(cause):
            frames += traceback.format_tb(cause.__traceback__)[1:]
        error.add_note(f"{BEHIND}\n{''.join(frames).rstrip()}")
        hide_traceback()
        raise


def hide_traceback() -> None:
    """Ask Spark to add no traceback to the exception that this worker is about to raise.

    In a worker, the setting ``spark.sql.execution.pyspark.udf.hideTraceback.enabled`` is an
    environment variable. It affects no other task, because the worker ends with the exception.
    """
    os.environ["SPARK_HIDE_TRACEBACK"] = "1"


def _users_frames(plan: OperatorPlan, error: Exception) -> str:
    """Return the lines of the user's code that belong to `error`, as the text of a traceback.

    If `error` has no frames of the user's code, the text shows the line that creates the operator
    and, for a wrong output row, the lines that yield rows.
    """
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
    lines = "\n".join(place.shown for place in frames if place is not None)
    return f"{_HEADING}\n{lines}" if lines else ""
