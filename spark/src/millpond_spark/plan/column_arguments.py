"""The columns that users name in arguments, by names that Spark resolves or as Columns."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from typing import TypeAlias

import attrs
from millpond.arguments import check_text, check_type, nearest
from millpond.errors import ConfigError, brief
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from millpond_spark.values.schemas import brief_reason, column_named

ColumnOrName: TypeAlias = str | Column

_NO_ORDER = "it is an order, not a column: order_by= is ascending, or by -F.col(…) descending"
_ORDER = re.compile(r" (?:ASC|DESC) NULLS (?:FIRST|LAST)(?: AS .+)?'>$")
_TEXT_ORDER = re.compile(r"(?<! AS) (ASC|DESC)'>$", re.IGNORECASE)
_QUOTED = re.compile(r"`((?:[^`]|``)*)`")


@attrs.frozen
class Choice:
    """A column that an argument names.

    Attributes:
        field: its name and type.
        column: the column itself.
        position: its position in the DataFrame; None for an expression and a struct's field.
    """

    field: T.StructField
    column: Column = attrs.field(eq=False)
    position: int | None = None


def choose(
    df: DataFrame, argument: str, given: ColumnOrName | Sequence[ColumnOrName], call: str
) -> list[Choice]:
    """Return the columns that an argument of a user's call names.

    Names are resolved as Spark does: ``spark.sql.caseSensitive`` decides about their case, ``a.x``
    is a struct's field, and a part in back-quotes is taken literally. A name that Spark cannot
    resolve may still equal a column's name.

    Args:
        df: the rows.
        argument: the argument's name, for errors.
        given: the argument's value.
        call: the name of the user's call, for errors.

    Raises:
        ConfigError: no column or several columns have a given name, or a value is neither a name
            nor a Column.
    """
    place = f"{call}(...)" if argument == "keys" else f"{call}({argument}=...)"
    if isinstance(given, (str, Column)):
        return [_chosen(df, argument, given, place)]
    check_type(argument, given, Sequence)
    return [_chosen(df, argument, each, place) for each in given]


def _chosen(df: DataFrame, argument: str, given: ColumnOrName, place: str) -> Choice:
    """Return the column that one value of an argument names; ``place`` is the call, for errors."""
    if isinstance(given, Column):
        return _resolved(df, brief(given), given, place)
    if not isinstance(given, str):
        reason = f"expected a column's name or a Column, got {brief(given)}"
        if isinstance(given, (list, tuple)):
            reason += ": give each as an argument of its own"
        raise ConfigError(argument, reason, place)
    check_text(argument, given)
    quoted = _QUOTED.fullmatch(given)
    name = quoted[1].replace("``", "`") if quoted else given
    found = _positions_of(df, name) if quoted or not {".", "`"} & set(given) else []
    if not found:
        with suppress(ConfigError, PySparkException):
            return _resolved(df, given, F.col(given), place)
    found = found or _positions_of(df, given)
    if len(found) > 1:
        names = ", ".join(df.columns[position] for position in found)
        reason = f"is ambiguous, for there are the columns {names}: rename one"
        raise ConfigError(given, reason, place)
    if found:
        return Choice(df.schema[found[0]], column_named(df.columns[found[0]]), found[0])
    raise no_such_column(given, df.columns, place)


def no_such_column(name: str, columns: Sequence[str], place: str) -> ConfigError:
    """Return the error for a name that no column has, with the nearest name of a column."""
    reason = f"there is no such column; there are: {', '.join(columns)}"
    return ConfigError(name, reason, place, suggestion=nearest(name, columns))


def _positions_of(df: DataFrame, name: str) -> list[int]:
    """Return the positions of the columns with a name; the session decides if case matters."""
    exactly = df.sparkSession.conf.get("spark.sql.caseSensitive") == "true"
    wanted = name if exactly else name.lower()
    columns = enumerate(df.columns)
    return [at for at, each in columns if (each if exactly else each.lower()) == wanted]


def _resolved(df: DataFrame, name: str, column: Column, place: str) -> Choice:
    """Return the choice for a Column, with the field that Spark's analysis of the rows gives.

    The analysis accepts an order such as ``F.desc("n")`` as if it were the column, and the job
    would fail with an internal error. So orders are refused here.

    Raises:
        ConfigError: the Column is an order, or Spark cannot resolve it among the rows.
    """
    if _ORDER.search(str(column)):
        raise ConfigError(name, _NO_ORDER, place)
    try:
        fields = df.select("*", column).schema.fields[len(df.columns) :]
    except PySparkException as error:
        reason = f"it is not a column of these rows: {brief_reason(error)}"
        raise ConfigError(name, reason, place) from error
    if len(fields) != 1:
        reason = f"expected one column, got {len(fields)}"
        raise ConfigError(name, reason, place)
    in_text = _TEXT_ORDER.search(str(column))
    if in_text and fields[0].name == in_text[1]:  # for Spark, a name that the column is given
        raise ConfigError(name, _NO_ORDER, place)
    return Choice(fields[0], column)


def time_choice(df: DataFrame, given: ColumnOrName, call: str) -> Choice:
    """Return the column that the argument ``event_time`` of a user's call names.

    Raises:
        ConfigError: as ``choose`` does, or if the column's type is not a timestamp.
    """
    (choice,) = choose(df, "event_time", [given], call)
    if not choice.field.dataType.typeName().startswith("timestamp"):
        reason = f"is not a timestamp column, but {choice.field.dataType.simpleString()}: cast it"
        raise ConfigError(choice.field.name, reason, f"{call}(event_time=...)")
    return choice


@attrs.frozen
class Extension:
    """The chosen columns that are expressions, to be added behind a DataFrame's own columns.

    Attributes:
        width: the number of columns of the DataFrame.
        choices: the added columns.
    """

    width: int
    choices: list[Choice] = attrs.Factory(list)

    def position(self, choice: Choice) -> int:
        """Return the position of a chosen column; add it first if it is an expression."""
        if choice.position is not None:
            return choice.position
        self.choices.append(choice)
        return self.width + len(self.choices) - 1

    def applied(self, df: DataFrame) -> DataFrame:
        """Return the DataFrame with the added columns."""
        return df.select("*", *(choice.column for choice in self.choices)) if self.choices else df

    @property
    def fields(self) -> list[T.StructField]:
        """The fields of the added columns."""
        return [choice.field for choice in self.choices]
