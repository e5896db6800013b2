"""Pickled plans for the workers, and the search for a part that cannot be pickled."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import FunctionType
from typing import Any, Self

import attrs
from millpond.errors import ConfigError, OperatorNotLoadedError
from millpond.functions.user_code import Place
from pyspark import cloudpickle

from millpond_spark.plan.plan import OperatorPlan
from millpond_spark.values.schemas import brief_reason
from millpond_spark.worker.error_report import hide_traceback

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
