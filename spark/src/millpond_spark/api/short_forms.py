"""``key_by(…).map(…)`` and its like: the short forms of ``process``."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from millpond.functions import short_forms
from millpond.functions.short_forms import Filtering, FlatMapping, Mapping, Reducing
from pyspark.sql.types import StructType
from typing_extensions import Unpack

from millpond_spark.api.operator_output import OperatorOutput
from millpond_spark.plan.column_arguments import ColumnOrName
from millpond_spark.plan.timing import TimeMode


class ProcessOptions(TypedDict, total=False):
    """The further arguments of ``KeyedStream.process``, which describes them."""

    output_mode: Literal["append", "update"]
    event_time: ColumnOrName | None
    order_by: ColumnOrName | Sequence[ColumnOrName]
    time_mode: TimeMode | None
    execution_mode: Literal["streaming", "batch"]


class ShortForms:
    """The short forms of ``process``, with its ``uid`` and its further arguments.

    What they do is told in ``millpond.keyed``. Those without ``output`` give the rows' own columns.
    """

    if TYPE_CHECKING:
        process: Callable[..., OperatorOutput]

    @property
    @abstractmethod
    def row_schema(self) -> StructType:
        """The columns of the rows."""

    @property
    def _row_type(self) -> Any:
        return self.row_schema  # a type of state at run time, which type checkers do not know

    def map(
        self,
        function: Mapping[Any, Any],
        *,
        output: str | StructType,
        uid: str,
        **options: Unpack[ProcessOptions],
    ) -> OperatorOutput:
        """Turn each row into one."""
        return self.process(short_forms.map(function), output=output, uid=uid, **options)

    def flat_map(
        self,
        function: FlatMapping[Any, Any],
        *,
        output: str | StructType,
        uid: str,
        **options: Unpack[ProcessOptions],
    ) -> OperatorOutput:
        """Turn each row into any number of rows."""
        return self.process(short_forms.flat_map(function), output=output, uid=uid, **options)

    def filter(
        self, function: Filtering[Any], *, uid: str, **options: Unpack[ProcessOptions]
    ) -> OperatorOutput:
        """Let rows pass for which a function is true."""
        made = short_forms.filter(function)
        return self.process(made, output=self.row_schema, uid=uid, **options)

    def reduce(
        self, function: Reducing[Any], *, uid: str, **options: Unpack[ProcessOptions]
    ) -> OperatorOutput:
        """Reduce each key's rows to one, which is given after each row."""
        made = short_forms.reduce(function, self._row_type)
        return self.process(made, output=self.row_schema, uid=uid, **options)

    def sum(self, field: str, *, uid: str, **options: Unpack[ProcessOptions]) -> OperatorOutput:
        """Give, after each row, the key's first one with a column's sum."""
        made = short_forms.sum(field, self._row_type)
        return self.process(made, output=self.row_schema, uid=uid, **options)

    def min(self, field: str, *, uid: str, **options: Unpack[ProcessOptions]) -> OperatorOutput:
        """Give, after each row, the key's first one with a column's minimum."""
        made = short_forms.min(field, self._row_type)
        return self.process(made, output=self.row_schema, uid=uid, **options)

    def max(self, field: str, *, uid: str, **options: Unpack[ProcessOptions]) -> OperatorOutput:
        """Give, after each row, the key's first one with a column's maximum."""
        made = short_forms.max(field, self._row_type)
        return self.process(made, output=self.row_schema, uid=uid, **options)

    def min_by(self, field: str, *, uid: str, **options: Unpack[ProcessOptions]) -> OperatorOutput:
        """Give, after each row, the key's row in which a column is least."""
        made = short_forms.min_by(field, self._row_type)
        return self.process(made, output=self.row_schema, uid=uid, **options)

    def max_by(self, field: str, *, uid: str, **options: Unpack[ProcessOptions]) -> OperatorOutput:
        """Give, after each row, the key's row in which a column is greatest."""
        made = short_forms.max_by(field, self._row_type)
        return self.process(made, output=self.row_schema, uid=uid, **options)
