"""``key_by(df, …).window(…)``: windows over the rows of a keyed stream."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, Self

import attrs
from millpond.arguments import check_type
from millpond.functions.side_outputs import OutputTag
from millpond.functions.windows.window_contents import WindowFunction
from millpond.state import AggregateFunction
from millpond.types import DeclaredType
from millpond.windows import Evictor, Trigger, Windowing, WindowOperator
from pyspark.sql.types import StructType
from typing_extensions import TypeVar, Unpack

from millpond_spark.api.process_call import OperatorOutput, ProcessOptions, operator_output
from millpond_spark.plan.column_arguments import no_such_column

T = TypeVar("T", default=Any)
ACC = TypeVar("ACC", default=Any)
OUT = TypeVar("OUT", default=Any)


@attrs.frozen
class WindowedStream:
    """A keyed stream divided into windows, which still needs a function.

    The methods ``reduce``, ``aggregate`` and ``process`` take the function. They also take the same
    ``output``, ``uid`` and optional arguments as ``KeyedStream.process``.
    """

    _process: Callable[..., OperatorOutput]
    _columns: Sequence[str]
    _windowing: Windowing
    _late: OutputTag | None = None

    def trigger(self, trigger: Trigger) -> Self:
        """Use another trigger than the assigner's own."""
        return attrs.evolve(self, windowing=self._windowing.trigger(trigger))

    def evictor(self, evictor: Evictor) -> Self:
        """Drop the elements that `evictor` selects when a window fires.

        Windows with an evictor store each element, even for ``reduce`` and ``aggregate``.
        """
        return attrs.evolve(self, windowing=self._windowing.evictor(evictor))

    def allowed_lateness(self, lateness: timedelta | int) -> Self:
        """Keep windows for some time after their end, so that late rows fire them again.

        Args:
            lateness: that time, as a timedelta or in ms.
        """
        return attrs.evolve(self, windowing=self._windowing.allowed_lateness(lateness))

    def side_output_late_data(self, column: str | OutputTag = "late") -> Self:
        """Put out the rows that are too late, unchanged. By default they are dropped.

        Args:
            column: the tag of their side output. Or the name of a further column of the output,
                which holds a late row as a struct and is null in all other rows:
                ``out.where("late is not null").select("late.*")``.
        """
        check_type("column", column, str | OutputTag)
        tag = OutputTag(column) if isinstance(column, str) else column
        late = tag if isinstance(column, str) else None
        return attrs.evolve(self, late=late, windowing=self._windowing.side_output_late_data(tag))

    def reduce(
        self,
        reduce_function: Callable[[T, T], T],
        value_type: DeclaredType[T],
        value: str | Callable[[Any], T],
        window_function: WindowFunction[T] | None = None,
        *,
        output: str | StructType,
        uid: str,
        **options: Unpack[ProcessOptions],
    ) -> OperatorOutput:
        """Keep one value per window, reduced row by row; see ``millpond.windows.Windowing``."""
        reads = self._column_read(value, "reduce")
        function = self._windowing.reduce(reduce_function, value_type, value, window_function)
        return self._run(function, reads, output, uid, options)

    def aggregate(
        self,
        aggregate_function: AggregateFunction[Any, ACC, OUT],
        accumulator_type: DeclaredType[ACC],
        window_function: WindowFunction[OUT] | None = None,
        *,
        output: str | StructType,
        uid: str,
        element_type: DeclaredType[T] | None = None,
        value: str | Callable[[Any], T] | None = None,
        **options: Unpack[ProcessOptions],
    ) -> OperatorOutput:
        """Keep one accumulator per window, to which rows or their values are added."""
        reads = self._column_read(value, "aggregate")
        function = self._windowing.aggregate(
            aggregate_function,
            accumulator_type,
            window_function,
            element_type=element_type,
            value=value,
        )
        return self._run(function, reads, output, uid, options)

    def process(
        self,
        window_function: WindowFunction[list[T]],
        element_type: DeclaredType[T],
        value: str | Callable[[Any], T],
        *,
        output: str | StructType,
        uid: str,
        **options: Unpack[ProcessOptions],
    ) -> OperatorOutput:
        """Keep all elements of a window, and call `window_function` with them when it fires."""
        reads = self._column_read(value, "process")
        function = self._windowing.process(window_function, element_type, value)
        return self._run(function, reads, output, uid, options)

    def _column_read(self, value: object, call: str) -> str | None:
        """Return the only column that the windows' function reads; None if it may read all.

        Raises:
            ConfigError: the argument ``value`` is a name that no column has.
        """
        if not isinstance(value, str):
            return None
        if value not in self._columns:
            raise no_such_column(value, self._columns, f"{call}(value=...)")
        return None if self._windowing._needs_whole_rows else value  # noqa: SLF001 - our own

    def _run(
        self,
        function: WindowOperator,
        reads: str | None,
        output: str | StructType,
        uid: str,
        options: ProcessOptions,
    ) -> OperatorOutput:
        """Run the operator of windows, with a column for late rows if the user has named one."""
        made = self._process(function, reads, output=output, uid=uid, **options)
        if self._late is None:
            return made
        return operator_output(lambda tags: made.with_side_outputs(*tags), (self._late,))
