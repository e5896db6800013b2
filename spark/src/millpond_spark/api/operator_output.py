"""What ``process`` gives: the DataFrame of the main output, from which side outputs can be had."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from millpond.arguments import check_type
from millpond.errors import ConfigError
from millpond.functions.side_outputs import OutputTag
from pyspark.sql import DataFrame

from millpond_spark.values.schemas import column_named, quoted

Build = Callable[[Sequence[OutputTag]], DataFrame]
"""Makes the DataFrame of an operator's main output, with a struct column for each side output."""


class OperatorOutput(DataFrame):
    """The main output of an operator: a DataFrame of Spark's, which gives its side outputs too."""

    _build: Build
    _beside: tuple[OutputTag, ...]

    def side_output(self, tag: OutputTag) -> DataFrame:
        """The rows of a side output, as a DataFrame of its own.

        A query over it runs the operator for itself, beside a query over the main output. To have
        both from one run, see ``with_side_outputs``.

        Raises:
            ConfigError: the tag's name is that of a column, or its type is not one.
            UnsupportedColumnError: a column's type would lose values.
        """
        joint = self.with_side_outputs(tag)
        return joint.where(column_named(tag.tag_id).isNotNull()).select(f"{quoted(tag.tag_id)}.*")

    get_side_output = side_output

    def with_side_outputs(self, *tags: OutputTag) -> DataFrame:
        """The main output and side outputs in one DataFrame, from one run of the operator.

        A row of a side output stands in the struct column that has the tag's name, which is null
        in all other rows; the columns of the main output are null there. So ``late is not null``
        tells the rows of ``OutputTag("late")``, and ``late.*`` are their columns.

        Raises:
            ConfigError, UnsupportedColumnError: as ``side_output``.
        """
        if not tags:
            raise ConfigError("tags", "name at least one side output", "with_side_outputs(...)")
        for tag in tags:
            check_type("tags", tag, OutputTag)
        return self._build((*self._beside, *tags))


def operator_output(build: Build, beside: Sequence[OutputTag] = ()) -> OperatorOutput:
    """The output of an operator, with struct columns for the side outputs that stand beside it."""
    main = build(beside)
    kind: Any = type(main)
    made: OperatorOutput = object.__new__(_output_class(kind))
    vars(made).update(vars(main), _build=build, _beside=tuple(beside))
    return made


@cache
def _output_class(kind: type[DataFrame]) -> type[OperatorOutput]:
    """Spark has a class for DataFrames in this process, and one for those over Connect."""
    return type(
        OperatorOutput.__name__, (OperatorOutput, kind), {"__doc__": OperatorOutput.__doc__}
    )
