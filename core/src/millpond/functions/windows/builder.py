"""``millpond.windows.window(…)``: windows as a keyed function, step by step as in PyFlink."""

from __future__ import annotations

import functools
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Self

import attrs
from typing_extensions import TypeVar

from millpond.arguments import INT64, check_type, check_within
from millpond.errors import ConfigError
from millpond.functions.row_conversion import selector
from millpond.functions.side_outputs import OutputTag
from millpond.functions.windows.assigners import GlobalWindows, WindowAssigner, is_ours
from millpond.functions.windows.evictors import CountEvictor, Evictor
from millpond.functions.windows.repeating_triggers import (
    ContinuousEventTimeTrigger,
    ContinuousProcessingTimeTrigger,
    ProcessingTimeoutTrigger,
)
from millpond.functions.windows.triggers import (
    CountTrigger,
    EventTimeTrigger,
    NeverTrigger,
    ProcessingTimeTrigger,
    PurgingTrigger,
    Trigger,
)
from millpond.functions.windows.window import milliseconds
from millpond.functions.windows.window_contents import (
    CONTENTS,
    ProcessWindowFunction,
    WindowContents,
    WindowFunction,
    as_window_function,
)
from millpond.functions.windows.window_operator import LateRow, WindowOperator
from millpond.state import (
    AggregateFunction,
    AggregatingStateDescriptor,
    ListStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
)
from millpond.types import DeclaredType

_BY_TIME_OR_NUMBER = (
    EventTimeTrigger,
    ProcessingTimeTrigger,
    CountTrigger,
    NeverTrigger,
    ContinuousEventTimeTrigger,
    ContinuousProcessingTimeTrigger,
)


T = TypeVar("T", default=Any)
ACC = TypeVar("ACC", default=Any)
OUT = TypeVar("OUT", default=Any)


@attrs.frozen
class Windowing:
    """The settings of windows.

    ``reduce``, ``aggregate`` and ``process`` return a keyed function with these settings. Pass the
    function to ``mp.local.run``, to the harness, or to ``key_by(…).process``.
    """

    _assigner: WindowAssigner
    _trigger: Trigger
    _lateness: int = 0
    _late: Callable[[Any], Any] | None = None
    _evictor: Evictor | None = None

    def trigger(self, trigger: Trigger) -> Self:
        """Return these settings with another trigger than the assigner's default."""
        check_type("trigger", trigger, Trigger)
        return attrs.evolve(self, trigger=trigger)

    def evictor(self, evictor: Evictor) -> Self:
        """Return these settings with an evictor, which drops elements when a window fires.

        Windows then keep all elements, even for ``reduce`` and ``aggregate``.
        """
        check_type("evictor", evictor, Evictor)
        return attrs.evolve(self, evictor=evictor)

    def allowed_lateness(self, lateness: timedelta | int) -> Self:
        """Return these settings with an allowed lateness.

        A window is kept for the time ``lateness`` after its end, so that late rows fire the window
        again. With ``2**63 - 1`` ms windows are kept for ever.

        Raises:
            ConfigError: ``lateness`` is negative, or not a length of time.
        """
        return attrs.evolve(self, lateness=milliseconds(lateness, "allowed_lateness", least=0))

    def side_output_late_data(self, make: Callable[[Any], Any] | OutputTag = LateRow) -> Self:
        """Return these settings with an output of late rows, which are dropped by default.

        Args:
            make: the tag of a side output, or a function that turns a late row into a row of the
                main output.

        Raises:
            ArgumentTypeError: ``make`` is neither a tag nor a function. Only windows on Spark
                accept the name of a column.
        """
        check_type("make", make, Callable | OutputTag)
        to_tag: Callable[[Any], Any] = lambda row: (make, row)  # noqa: E731 - one expression
        return attrs.evolve(self, late=to_tag if isinstance(make, OutputTag) else make)

    @property
    def _needs_whole_rows(self) -> bool:
        """Whether windows need more of a row than its event time and the value that they keep.

        The output of late rows, a user's assigner and a user's trigger may use the whole row.
        """
        trigger = self._trigger
        # A subclass is the user's, and may read the whole row.
        while type(trigger) in (PurgingTrigger, ProcessingTimeoutTrigger):
            trigger = trigger.inner  # type: ignore[attr-defined]  # both triggers have one
        ours = is_ours(self._assigner) and type(trigger) in _BY_TIME_OR_NUMBER
        return self._late is not None or not ours or callable(getattr(self._assigner, "gap", None))

    def reduce(
        self,
        reduce_function: Callable[[T, T], T],
        value_type: DeclaredType[T],
        value: str | Callable[[Any], T],
        window_function: WindowFunction[T] | None = None,
    ) -> WindowOperator:
        """Return a keyed function that combines the values of a window's rows into one value.

        Args:
            reduce_function: ``f(a, b)``, which combines two values.
            value_type: the type of the values.
            value: the value to reduce: a field of the row, or a function of the row.
            window_function: ``f(key, window, value)`` or a ``ProcessWindowFunction``. Without it
                the output row has the key, the window's start and end in ms, and the value.
        """
        descriptor = ReducingStateDescriptor(CONTENTS, reduce_function, value_type)
        reduce = descriptor.reduce_function
        return self._operator(
            descriptor,
            value_type,
            selector(value, "value"),
            window_function,
            lambda values: functools.reduce(reduce, values) if values else None,
        )

    def aggregate(
        self,
        aggregate_function: AggregateFunction[Any, ACC, OUT],
        accumulator_type: DeclaredType[ACC],
        window_function: WindowFunction[OUT] | None = None,
        *,
        element_type: DeclaredType[T] | None = None,
        value: str | Callable[[Any], T] | None = None,
    ) -> WindowOperator:
        """Return a keyed function that adds the rows of a window to one accumulator.

        Args:
            aggregate_function: adds values to an accumulator, and turns the accumulator into a
                result.
            accumulator_type: the type of the accumulator.
            window_function: as in ``reduce``.
            element_type: the type of the values that windows keep if they have an evictor.
            value: the value to add: a field, or a function of the row; by default the row itself.

        Raises:
            ConfigError: the windows have an evictor, and ``element_type`` or ``value`` is missing.
        """
        descriptor = AggregatingStateDescriptor(CONTENTS, aggregate_function, accumulator_type)
        if self._evictor is not None and (element_type is None or value is None):
            reason = "an evictor needs the elements: give element_type= and value="
            raise ConfigError("evictor", reason, "aggregate(...)")
        select = (lambda row: row) if value is None else selector(value, "value")
        function = descriptor.aggregate_function

        def aggregate(values: list[Any]) -> Any:
            accumulator = function.create_accumulator()
            for each in values:
                accumulator = function.add(each, accumulator)
            return function.get_result(accumulator)

        return self._operator(descriptor, element_type, select, window_function, aggregate)

    def process(
        self,
        window_function: WindowFunction[list[T]],
        element_type: DeclaredType[T],
        value: str | Callable[[Any], T],
    ) -> WindowOperator:
        """Return a keyed function that keeps all elements of a window for ``window_function``.

        Args:
            window_function: ``f(key, window, elements)`` or a ``ProcessWindowFunction``.
            element_type: the type of the kept values.
            value: the value to keep: a field, or a function of the row.
        """
        check_type("window_function", window_function, ProcessWindowFunction | Callable)
        descriptor = ListStateDescriptor(CONTENTS, element_type)
        select = selector(value, "value")
        return self._operator(descriptor, element_type, select, window_function, list)

    def _operator(
        self,
        descriptor: StateDescriptor,
        element_type: Any,
        select: Callable[[Any], Any],
        function: WindowFunction[Any] | None,
        result: Callable[[list[Any]], Any],
    ) -> WindowOperator:
        """Return the operator of windows whose contents are in the state of a descriptor.

        With an evictor, the state is a list of all elements with their times instead. Then
        ``result`` turns the elements that the evictor leaves into the argument of ``function``.
        """
        if self._evictor is not None:
            timestamped: Any = tuple[int, element_type]
            descriptor = ListStateDescriptor(CONTENTS, timestamped)
        contents = WindowContents(
            descriptor, select, as_window_function(function), self._evictor, result
        )
        return WindowOperator(self._assigner, self._trigger, contents, self._lateness, self._late)


def window(assigner: WindowAssigner) -> Windowing:
    """Return windows over keyed rows; the result's methods set a trigger and a function.

    Raises:
        ArgumentTypeError: the argument is not a window assigner.
    """
    check_type("assigner", assigner, WindowAssigner)
    return Windowing(assigner, assigner.default_trigger())


def count_window(size: int, slide: int | None = None) -> Windowing:
    """Return windows of a key's last ``size`` rows that fire after every ``slide`` rows.

    The rules are those of PyFlink's ``count_window``.

    Without ``slide`` each row is in one window, and a window fires once, when it has ``size`` rows.

    Raises:
        ArgumentValueError: size or slide is not positive.
    """
    check_within("size", size, 1, INT64[1])
    windows = window(GlobalWindows.create())
    if slide is None:
        return windows.trigger(PurgingTrigger.of(CountTrigger.of(size)))
    check_within("slide", slide, 1, INT64[1])
    return windows.evictor(CountEvictor.of(size)).trigger(CountTrigger.of(slide))
