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

from millpond_spark.api.operator_output import OperatorOutput, operator_output
from millpond_spark.api.process_call import ProcessOptions
from millpond_spark.plan.column_arguments import no_such_column

T = TypeVar("T", default=Any)
ACC = TypeVar("ACC", default=Any)
OUT = TypeVar("OUT", default=Any)


@attrs.frozen
class WindowedStream:
    """A keyed stream whose rows are divided into windows.

    The methods ``reduce``, ``aggregate`` and ``process`` take the function to run over the windows
    and return the output. Their other arguments are documented at ``KeyedStream.process``.
    """

    _process: Callable[..., OperatorOutput]
    _columns: Sequence[str]
    _windowing: Windowing
    _late: OutputTag | None = None

    def trigger(self, trigger: Trigger) -> Self:
        """Use `trigger` instead of the default trigger of the window assigner."""
        return attrs.evolve(self, windowing=self._windowing.trigger(trigger))

    def evictor(self, evictor: Evictor) -> Self:
        """When a window fires, remove the elements that `evictor` selects.

        With an evictor, a window stores each element, even for ``reduce`` and ``aggregate``.
        """
        return attrs.evolve(self, windowing=self._windowing.evictor(evictor))

    def allowed_lateness(self, lateness: timedelta | int) -> Self:
        """Keep each window for `lateness` after its end, so that a late row fires it again.

        Args:
            lateness: a timedelta, or a number of ms.
        """
        return attrs.evolve(self, windowing=self._windowing.allowed_lateness(lateness))

    def side_output_late_data(self, column: str | OutputTag = "late") -> Self:
        """Put out the rows that come too late for their windows, unchanged.

        By default these rows are dropped.

        Args:
            column: an OutputTag to put the late rows out to. Or the name of a column to add to the
                output, which has a late row as a struct and is null in all other rows. Then
                ``out.where("late is not null").select("late.*")`` returns the late rows.
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
        """Store one value per window, and combine it with each row's value by `reduce_function`.

        See ``millpond.windows.Windowing.reduce`` for the arguments.
        """
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
        """Store one accumulator per window, to which `aggregate_function` adds each row's value.

        See ``millpond.windows.Windowing.aggregate`` for the arguments.
        """
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
        """Store all elements of a window; when the window fires, pass them to `window_function`.

        See ``millpond.windows.Windowing.process`` for the arguments.
        """
        reads = self._column_read(value, "process")
        function = self._windowing.process(window_function, element_type, value)
        return self._run(function, reads, output, uid, options)

    def _column_read(self, value: object, call: str) -> str | None:
        """Return the only column that the windows' function reads; None if it may read all.

        Raises:
            ConfigError: `value` is a string that is not the name of a column.
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
        """Call `_process`, and add the column of late rows if the user has named one."""
        made = self._process(function, reads, output=output, uid=uid, **options)
        if self._late is None:
            return made
        return operator_output(lambda tags: made.with_side_outputs(*tags), (self._late,))
