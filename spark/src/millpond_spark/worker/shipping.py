"""An operator's plan on its way to the workers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

import attrs
from millpond.errors import ConfigError, OperatorNotLoadedError
from millpond.functions.user_code import Place
from pyspark import cloudpickle

from millpond_spark.plan.plan import OperatorPlan
from millpond_spark.values.schemas import brief_reason
from millpond_spark.worker.error_report import hide_traceback
from millpond_spark.worker.unpicklable import unpicklable_part

_dumps: Callable[[Any], bytes] = cloudpickle.dumps


@attrs.frozen
class ShippedPlan:
    """A plan that is pickled by itself.

    So a worker that lacks one of its modules can still say which operator it is.
    """

    uid: str
    function: str
    made_at: Place | None
    data: bytes

    @classmethod
    def from_plan(cls, plan: OperatorPlan) -> Self:
        """Pickle a plan.

        Raises:
            ConfigError: the user's function holds an object that cannot be pickled.
        """
        function = type(plan.function).__name__
        try:
            data = _dumps(plan)
        except Exception as error:
            reason = f"{function} cannot be pickled for the workers: {_culprit(plan, error)}"
            raise ConfigError("function", reason, f"process(uid={plan.uid!r})") from error
        return cls(plan.uid, function, plan.made_at, data)

    def load(self) -> OperatorPlan:
        """Return the plan, in a worker.

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


def _culprit(plan: OperatorPlan, error: Exception) -> str:
    """Return which part of a plan cannot be pickled, and what to do."""
    whole = plan if _pickles(plan.function) else plan.function
    path, part = unpicklable_part(whole, _pickles)
    kind = type(part)
    name = f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins.")
    return f"{path} is of type {name}: {brief_reason(error)}. Create it in open(), in the worker"
