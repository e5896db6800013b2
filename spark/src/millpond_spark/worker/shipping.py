"""An operator's plan on its way to the workers, and the part of it that cannot be pickled."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from types import FunctionType, MethodType
from typing import Any, Self

import attrs
from millpond.errors import ConfigError, OperatorNotLoadedError
from millpond.functions.user_code import Place
from pyspark import cloudpickle

from millpond_spark.plan.plan import OperatorPlan
from millpond_spark.values.schemas import brief_reason
from millpond_spark.worker.error_report import hide_traceback

_DEEPEST = 30
"""The largest number of steps in the path from an object to a part of it."""
_WRAPPED = ("__self__", "__func__", "fget", "fset", "fdel", "func", "args", "keywords")
"""The attributes of methods, properties and partial functions that hold other objects."""

Part = tuple[str, Any]
"""The path from an object to its part, such as ``.name`` or ``[0]``, and the part."""


def unpicklable_part(value: Any, pickles: Callable[[Any], bool]) -> Part:
    """Return the smallest part of an object that cannot be pickled, with its path.

    The path begins at the user's outermost object: Millpond's own objects are left out.

    Args:
        value: the object, which cannot be pickled.
        pickles: whether an object can be pickled.
    """
    path, seen = _first_name(value), {id(value)}
    for _ in range(_DEEPEST):
        failing = ((name, p) for name, p in _parts(value) if id(p) not in seen and not pickles(p))
        name, part = next(failing, ("", value))
        if part is value:
            break
        is_ours = type(value).__module__.partition(".")[0] in ("millpond", "millpond_spark")
        path = _first_name(part) if is_ours else path + name
        value = part
        seen.add(id(value))
    return path, value


def _first_name(value: Any) -> str:
    """Return the name of a function or class, or of an object's class: a path begins with it."""
    named = isinstance(value, (FunctionType, MethodType, type))
    return str(value.__qualname__ if named else type(value).__name__)


def _parts(value: Any) -> Iterator[Part]:
    """Iterate over the direct parts of an object, which are pickled together with it."""
    if isinstance(value, FunctionType):
        yield from _variables(value)
    elif isinstance(value, (MethodType, staticmethod, classmethod, property, partial)):
        yield from (("", getattr(value, name)) for name in _WRAPPED if hasattr(value, name))
    elif isinstance(value, Mapping):
        yield from ((f"[{key!r}]", part) for key, part in value.items())
        yield from (("", key) for key in value)
    elif isinstance(value, (list, tuple, set, frozenset)):
        yield from ((f"[{at}]", part) for at, part in enumerate(value))
    if not isinstance(value, (FunctionType, MethodType)):
        yield from _attributes(value)


def _variables(function: FunctionType) -> Iterator[Part]:
    """Iterate over the variables that a function takes from outside, and its defaults."""
    with suppress(ValueError):  # a variable has no value yet
        outside = inspect.getclosurevars(function)
        for name, part in {**outside.nonlocals, **outside.globals}.items():
            yield f", variable {name!r}", part
    yield ", a default", (function.__defaults__, function.__kwdefaults__)


def _attributes(value: Any) -> Iterator[Part]:
    """Iterate over an object's own attributes, slots included, and its class."""
    names = dict.fromkeys(getattr(value, "__dict__", ()))
    for kind in type(value).__mro__:
        slots = vars(kind).get("__slots__", ())
        names.update(dict.fromkeys([slots] if isinstance(slots, str) else slots))
    for name in names:
        if name in ("__dict__", "__weakref__"):
            continue
        try:
            # A class's own entry: methods of the class behind it are functions, not bound ones.
            part = vars(value)[name] if isinstance(value, type) else getattr(value, name)
        except Exception:  # noqa: BLE001, S112 - a slot without a value, a user's property
            continue
        yield f".{name}", part
    if not isinstance(value, type):
        yield "", type(value)


_dumps: Callable[[Any], bytes] = cloudpickle.dumps


@attrs.frozen
class ShippedPlan:
    """A pickled plan, with the operator's names next to it.

    A worker that lacks one of the plan's modules can still name the operator in its error.
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
            whole = plan if _pickles(plan.function) else plan.function
            path, part = unpicklable_part(whole, _pickles)
            name = f"{type(part).__module__}.{type(part).__qualname__}".removeprefix("builtins.")
            reason = (
                f"{function} cannot be pickled for the workers: {path} is of type {name}: "
                f"{brief_reason(error)}. Create it in open(), in the worker"
            )
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
