"""``millpond.windows.window(…)``: windows as a keyed function, step by step as in PyFlink."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, Self

import attrs
from typing_extensions import TypeVar

from millpond.arguments import check_type
from millpond.errors import ConfigError, brief
from millpond.runtime.windows.assigners import WindowAssigner
from millpond.runtime.windows.triggers import Trigger
from millpond.runtime.windows.window import milliseconds
from millpond.runtime.windows.window_contents import (
    WindowContents,
    WindowFunction,
    aggregated,
    kept,
    reduced,
)
from millpond.runtime.windows.window_operator import LateRow, WindowOperator
from millpond.state import AggregateFunction
from millpond.types import DeclaredType

__all__ = ["Windowing", "window"]

T = TypeVar("T", default=Any)
ACC = TypeVar("ACC", default=Any)
OUT = TypeVar("OUT", default=Any)


@attrs.frozen
class Windowing:
    """Windows that still lack their function; each method returns windows or, last, the function.

    The functions made here are keyed functions: for ``mp.local.run``, the harness, and
    ``key_by(…).process``.
    """

    _assigner: WindowAssigner
    _trigger: Trigger
    _lateness: int = 0
    _late: Callable[[Any], Any] | None = None

    def trigger(self, trigger: Trigger) -> Self:
        """Use another trigger than the assigner's own."""
        check_type("trigger", trigger, Trigger)
        return attrs.evolve(self, trigger=trigger)

    def allowed_lateness(self, lateness: timedelta | int) -> Self:
        """Keep windows for this long after their end; late rows then fire them again.

        Raises:
            ConfigError: it is negative, or not a length of time.
        """
        length = milliseconds(lateness, "allowed_lateness")
        if length < 0:
            raise ConfigError("allowed_lateness", f"{length} ms is negative", "windows")
        return attrs.evolve(self, lateness=length)

    def side_output_late_data(self, make: Callable[[Any], Any] = LateRow) -> Self:
        """Yield rows that are too late, made into output by a function; else they are dropped."""
        check_type("make", make, Callable)
        return attrs.evolve(self, late=make)

    def reduce(
        self,
        reduce_function: Callable[[T, T], T],
        value_type: DeclaredType[T],
        value: str | Callable[[Any], T],
        window_function: WindowFunction[T] | None = None,
    ) -> WindowOperator:
        """Keep one value a window, reduced as rows come.

        Args:
            reduce_function: ``f(a, b)``.
            value_type: the type of the values.
            value: what is reduced: a field of the row, or a function of the row.
            window_function: ``f(key, window, value)`` or a ``ProcessWindowFunction``; by default
                windows give key, start and end in ms, and the value.
        """
        return self._operator(reduced(reduce_function, value_type, value, window_function))

    def aggregate(
        self,
        aggregate_function: AggregateFunction[Any, ACC, OUT],
        accumulator_type: DeclaredType[ACC],
        window_function: WindowFunction[OUT] | None = None,
    ) -> WindowOperator:
        """Keep one accumulator a window, to which rows are added as they come."""
        return self._operator(aggregated(aggregate_function, accumulator_type, window_function))

    def process(
        self,
        window_function: WindowFunction[list[T]],
        element_type: DeclaredType[T],
        value: str | Callable[[Any], T],
    ) -> WindowOperator:
        """Keep all elements, for a function that sees the whole window.

        Args:
            window_function: ``f(key, window, elements)`` or a ``ProcessWindowFunction``.
            element_type: the type of what is kept.
            value: what is kept of a row: a field, or a function of the row.
        """
        return self._operator(kept(element_type, value, window_function))

    def _operator(self, contents: WindowContents) -> WindowOperator:
        return WindowOperator(self._assigner, self._trigger, contents, self._lateness, self._late)


def window(assigner: WindowAssigner) -> Windowing:
    """Windows over keyed rows; ConfigError where the argument is not a window assigner."""
    if not isinstance(assigner, WindowAssigner):
        reason = (
            f"{brief(assigner)} is not a window assigner, such as TumblingEventTimeWindows.of(…)"
        )
        raise ConfigError("assigner", reason, "window(...)")
    return Windowing(assigner, assigner.default_trigger())
