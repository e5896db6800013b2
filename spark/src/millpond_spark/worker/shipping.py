"""The way of a pickled plan to the workers, and of their errors back to the user."""

from __future__ import annotations

import inspect
import os
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from types import FunctionType
from typing import Any, Self

import attrs
from millpond.errors import (
    ConfigError,
    FunctionResultError,
    MillpondError,
    OperatorNotLoadedError,
    OutputTypeError,
    UserFunctionError,
)
from millpond.functions.user_code import Place, format_users_frames, raised_by_us
from millpond.operator.failures import yielding_methods
from pyspark import TaskContext, cloudpickle

from millpond_spark.plan.plan import OperatorPlan
from millpond_spark.values.schemas import brief_reason

_MOST_STEPS = 30
"""The largest number of steps in the path to a part; each step pickles the remaining parts."""


def unpicklable_part(function: Any) -> tuple[str, Any]:
    """Return the deepest part of `function` that cannot be pickled: its path, and the part."""
    path, part, seen = type(function).__name__, function, {id(function)}
    for _ in range(_MOST_STEPS):
        parts = ((step, each) for step, each in _parts(part).items() if id(each) not in seen)
        step, part = next(((step, each) for step, each in parts if not _pickles(each)), ("", part))
        if id(part) in seen:
            break
        seen.add(id(part))
        path += step
    return path, part


def _parts(value: Any) -> dict[str, Any]:
    """Return the objects within `value` that pickling includes, by the text of their path."""
    if isinstance(value, FunctionType):
        with suppress(ValueError):  # a variable has no value yet
            outside = inspect.getclosurevars(value)
            variables = {**outside.nonlocals, **outside.globals}
            return {f", variable {name!r}": part for name, part in variables.items()}
    if isinstance(value, Mapping):
        return {f"[{key!r}]": part for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return {f"[{at}]": part for at, part in enumerate(value)}
    own = dict(getattr(value, "__dict__", {}))
    if isinstance(value, type):
        return {f".{name}": part for name, part in own.items() if not name.startswith("__")}
    slots = getattr(type(value), "__slots__", ())
    own |= {name: getattr(value, name) for name in slots if hasattr(value, name)}
    return {**{f".{name}": part for name, part in own.items()}, "": type(value)}


_dumps: Callable[[Any], bytes] = cloudpickle.dumps


@attrs.frozen
class ShippedPlan:
    """A pickled plan, together with the names of the operator and its function.

    If a worker lacks a module that the plan needs, the error can still name the operator.
    """

    uid: str
    function: str
    made_at: Place | None
    data: bytes

    @classmethod
    def from_plan(cls, plan: OperatorPlan) -> Self:
        """Pickle `plan`.

        Raises:
            ConfigError: the user's function holds an object that cannot be pickled.
        """
        function = type(plan.function).__name__
        try:
            data = _dumps(plan)
        except Exception as error:
            path, part = unpicklable_part(plan.function)
            name = f"{type(part).__module__}.{type(part).__qualname__}".removeprefix("builtins.")
            reason = (
                f"{function} cannot be pickled for the workers: {path} is of type {name}: "
                f"{brief_reason(error)}. Create it in open(), in the worker"
            )
            raise ConfigError("function", reason, f"process(uid={plan.uid!r})") from error
        return cls(plan.uid, function, plan.made_at, data)

    def load(self) -> OperatorPlan:
        """Unpickle the plan, in a worker.

        Raises:
            OperatorNotLoadedError: the worker lacks a module, or has another version of it.
        """
        try:
            plan: OperatorPlan = cloudpickle.loads(self.data)
        except (ImportError, AttributeError) as error:
            hide_traceback()
            reason = f"{type(error).__name__}: {error}"
            failure = OperatorNotLoadedError(self.uid, self.function, reason)
            if self.made_at is not None:
                failure.made_at = str(self.made_at)
            raise failure from error
        return plan


def _pickles(value: Any) -> bool:
    try:
        _dumps(value)
    except Exception:  # noqa: BLE001 - a user's __reduce__ may raise anything
        return False
    return True


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
