"""``key_by(df, …).window(…)``: windows over the rows of a keyed stream."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from typing import Any, Literal, Self, TypedDict

import attrs
from pyspark.sql import DataFrame
from pyspark.sql.types import StructField, StructType
from typing_extensions import TypeVar, Unpack, override

from millpond.arguments import check_text, check_type
from millpond.errors import ConfigError
from millpond.runtime.windows import (
    ProcessWindowFunction,
    Trigger,
    WindowContext,
    Windowing,
    WindowOperator,
)
from millpond.runtime.windows.window_contents import WindowFunction, as_window_function
from millpond.spark.carriers.named_rows import names_of, reader_of
from millpond.spark.driver.timing import TimeMode
from millpond.spark.schemas import output_schema
from millpond.state import AggregateFunction
from millpond.types import DeclaredType

__all__ = ["ProcessOptions", "WindowedStream"]

T = TypeVar("T", default=Any)
ACC = TypeVar("ACC", default=Any)
OUT = TypeVar("OUT", default=Any)


class ProcessOptions(TypedDict, total=False):
    """The further arguments of ``KeyedStream.process``, which describes them."""

    output_mode: Literal["append", "update"]
    event_time: str | None
    order_by: str | Sequence[str]
    time_mode: TimeMode | None
    execution_mode: Literal["streaming", "batch"]


@attrs.frozen
class _LateColumn:
    """Puts a late row into the last column."""

    width: int

    def __call__(self, row: Any) -> Any:
        return (*(None,) * self.width, row)


class _BesideLateRows(ProcessWindowFunction):
    """Leaves the last column, that of late rows, empty."""

    def __init__(self, inner: ProcessWindowFunction, late: str) -> None:
        self._inner = inner
        self._late = late

    @override
    def process(self, key: Any, context: WindowContext, elements: Any) -> Iterable[Any]:
        for row in self._inner.process(key, context, elements):
            names = names_of(row)
            if names is None:
                yield (*row, None) if isinstance(row, (tuple, list)) else row
            else:
                values = reader_of(type(row), names)(row)
                yield {**dict(zip(names, values, strict=True)), self._late: None}

    @override
    def clear(self, context: WindowContext) -> None:
        self._inner.clear(context)


@attrs.frozen
class WindowedStream:
    """A keyed stream divided into windows, which still lacks the windows' function.

    The last step takes the same ``output``, ``uid`` and further arguments as
    ``KeyedStream.process``, which runs the windows' function over the rows.
    """

    _process: Callable[..., DataFrame]
    _row_schema: StructType
    _windowing: Windowing
    _late: str | None = None

    def trigger(self, trigger: Trigger) -> Self:
        """Use another trigger than the assigner's own."""
        return attrs.evolve(self, windowing=self._windowing.trigger(trigger))

    def allowed_lateness(self, lateness: timedelta | int) -> Self:
        """Keep windows for a timedelta, or ms, after their end; late rows then fire them again."""
        return attrs.evolve(self, windowing=self._windowing.allowed_lateness(lateness))

    def side_output_late_data(self, column: str = "late") -> Self:
        """Add a column to the output that holds the rows that are too late, all others null.

        Without it they are dropped. ``out.where("late is not null").select("late.*")`` are the
        rows as they came. The output must have no other column of that name.
        """
        check_type("column", column, str)
        check_text("column", column)
        return attrs.evolve(self, late=column)

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
    ) -> DataFrame:
        """Keep one value a window, reduced as rows come; see ``millpond.windows.Windowing``."""
        schema, windowing = self._outputs(output)
        fired = self._fired(window_function)
        function = windowing.reduce(reduce_function, value_type, value, fired)
        return self._run(function, schema, uid, options)

    def aggregate(
        self,
        aggregate_function: AggregateFunction[Any, ACC, OUT],
        accumulator_type: DeclaredType[ACC],
        window_function: WindowFunction[OUT] | None = None,
        *,
        output: str | StructType,
        uid: str,
        **options: Unpack[ProcessOptions],
    ) -> DataFrame:
        """Keep one accumulator a window, to which rows are added as they come."""
        schema, windowing = self._outputs(output)
        fired = self._fired(window_function)
        function = windowing.aggregate(aggregate_function, accumulator_type, fired)
        return self._run(function, schema, uid, options)

    def process(
        self,
        window_function: WindowFunction[list[T]],
        element_type: DeclaredType[T],
        value: str | Callable[[Any], T],
        *,
        output: str | StructType,
        uid: str,
        **options: Unpack[ProcessOptions],
    ) -> DataFrame:
        """Keep all elements, for a function that sees the whole window."""
        check_type("window_function", window_function, ProcessWindowFunction | Callable)
        schema, windowing = self._outputs(output)
        function = windowing.process(self._fired(window_function), element_type, value)
        return self._run(function, schema, uid, options)

    def _outputs(self, output: str | StructType) -> tuple[StructType, Windowing]:
        """The schema with the column of late rows, and windows that fill it."""
        schema = output_schema(output)
        if self._late is None:
            return schema, self._windowing
        if self._late in schema.names:
            reason = "the output has a column of that name: give the late rows another one"
            raise ConfigError(self._late, reason, "side_output_late_data(...)")
        late = StructField(self._late, self._row_schema)
        windowing = self._windowing.side_output_late_data(_LateColumn(len(schema)))
        return StructType([*schema.fields, late]), windowing

    def _fired(self, given: WindowFunction[Any] | None) -> ProcessWindowFunction:
        function = as_window_function(given)
        return function if self._late is None else _BesideLateRows(function, self._late)

    def _run(
        self, function: WindowOperator, schema: StructType, uid: str, options: ProcessOptions
    ) -> DataFrame:
        return self._process(function, output=schema, uid=uid, **options)
