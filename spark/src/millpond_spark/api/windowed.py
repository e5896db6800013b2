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
from millpond_spark.api.short_forms import ProcessOptions
from millpond_spark.plan.column_arguments import no_such_column

T = TypeVar("T", default=Any)
ACC = TypeVar("ACC", default=Any)
OUT = TypeVar("OUT", default=Any)

Reading = Callable[[str, ProcessOptions], Callable[..., OperatorOutput]]
"""Of the one column that is read of the rows, and options: ``process`` over these, less others."""


@attrs.frozen
class WindowedStream:
    """A keyed stream divided into windows, which still lacks the windows' function.

    The last step takes the same ``output``, ``uid`` and further arguments as
    ``KeyedStream.process``, which runs the windows' function over the rows.
    """

    _process: Callable[..., OperatorOutput]
    _columns: Sequence[str]
    _windowing: Windowing
    _reading: Reading | None = None
    _late: OutputTag | None = None

    def trigger(self, trigger: Trigger) -> Self:
        """Use another trigger than the assigner's own."""
        return attrs.evolve(self, windowing=self._windowing.trigger(trigger))

    def evictor(self, evictor: Evictor) -> Self:
        """Drop elements when a window fires; windows then keep all elements, also to reduce."""
        return attrs.evolve(self, windowing=self._windowing.evictor(evictor))

    def allowed_lateness(self, lateness: timedelta | int) -> Self:
        """Keep windows for a timedelta, or ms, after their end; late rows then fire them again."""
        return attrs.evolve(self, windowing=self._windowing.allowed_lateness(lateness))

    def side_output_late_data(self, column: str | OutputTag = "late") -> Self:
        """Have the rows that are too late come out, as they came; else they are dropped.

        Args:
            column: the tag of the side output that they go to. Or the name of a column that the
                output gets beside its own, which holds a late row as a struct and is null in all
                other rows: ``out.where("late is not null").select("late.*")``.
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
        """Keep one value a window, reduced as rows come; see ``millpond.windows.Windowing``."""
        self._require_column(value, "reduce")
        function = self._windowing.reduce(reduce_function, value_type, value, window_function)
        return self._run(function, value, output, uid, options)

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
        """Keep one accumulator a window, to which rows, or values of theirs, are added."""
        self._require_column(value, "aggregate")
        function = self._windowing.aggregate(
            aggregate_function,
            accumulator_type,
            window_function,
            element_type=element_type,
            value=value,
        )
        return self._run(function, value, output, uid, options)

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
        """Keep all elements, for a function that sees the whole window."""
        self._require_column(value, "process")
        function = self._windowing.process(window_function, element_type, value)
        return self._run(function, value, output, uid, options)

    def _require_column(self, value: object, call: str) -> None:
        """Raise ConfigError where the value is named by what is not a column of the rows."""
        if isinstance(value, str) and value not in self._columns:
            raise no_such_column(value, self._columns, f"{call}(value=...)")

    def _run(
        self,
        function: WindowOperator,
        value: object,
        output: str | StructType,
        uid: str,
        options: ProcessOptions,
    ) -> OperatorOutput:
        process, windowing = self._process, self._windowing
        # Columns that nobody reads neither cross to Python nor, often, leave their files.
        if self._reading is not None and isinstance(value, str) and not windowing._needs_whole_rows:  # noqa: SLF001 - our own
            process = self._reading(value, options)
        made = process(function, output=output, uid=uid, **options)
        if self._late is None:
            return made
        return operator_output(lambda tags: made.with_side_outputs(*tags), (self._late,))
