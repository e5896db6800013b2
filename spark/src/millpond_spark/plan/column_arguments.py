"""Arguments that name columns, by strings that Spark resolves or by Columns."""

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
        field: the column's name and type.
        column: the column itself.
        position: the column's position in the DataFrame; None if the column is an expression or a
            field of a struct.
    """

    field: T.StructField
    column: Column = attrs.field(eq=False)
    position: int | None = None


def choose(
    df: DataFrame, argument: str, given: ColumnOrName | Sequence[ColumnOrName], call: str
) -> list[Choice]:
    """Return the columns that `given`, an argument of a user's call, names.

    Names are resolved by Spark's rules: ``spark.sql.caseSensitive`` decides whether case matters,
    ``a.x`` is a field of the struct ``a``, and a part in back-quotes is taken literally. If Spark
    cannot resolve a name, it is compared with the columns' names.

    Args:
        df: the rows.
        argument: the argument's name, for errors.
        given: the argument's value.
        call: the name of the user's call, for errors.

    Raises:
        ConfigError: no column or several columns have a given name, or an item of `given` is
            neither a name nor a Column.
    """
    place = f"{call}(...)" if argument == "keys" else f"{call}({argument}=...)"
    if isinstance(given, (str, Column)):
        return [_chosen(df, argument, given, place)]
    check_type(argument, given, Sequence)
    return [_chosen(df, argument, each, place) for each in given]


def _chosen(df: DataFrame, argument: str, given: ColumnOrName, place: str) -> Choice:
    """Return the column that `given` names, an item of an argument; `place` is for errors."""
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
    """Return the error for a `name` that no column has. It suggests the most similar column."""
    reason = f"there is no such column; there are: {', '.join(columns)}"
    return ConfigError(name, reason, place, suggestion=nearest(name, columns))


def _positions_of(df: DataFrame, name: str) -> list[int]:
    """Return the positions of the columns named `name`. The session decides if case matters."""
    exactly = df.sparkSession.conf.get("spark.sql.caseSensitive") == "true"
    wanted = name if exactly else name.lower()
    columns = enumerate(df.columns)
    return [at for at, each in columns if (each if exactly else each.lower()) == wanted]


def _resolved(df: DataFrame, name: str, column: Column, place: str) -> Choice:
    """Return the choice for `column`, with its name and type as Spark's analysis finds them.

    The analysis also accepts a sort order such as ``F.desc("n")``, but the job would then fail with
    an internal error. Therefore sort orders are refused here.

    Raises:
        ConfigError: `column` is a sort order, or Spark cannot resolve it in `df`.
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
    if in_text and fields[0].name == in_text[1]:  # Spark takes the word ASC or DESC for an alias
        raise ConfigError(name, _NO_ORDER, place)
    return Choice(fields[0], column)


def time_choice(df: DataFrame, given: ColumnOrName, call: str) -> Choice:
    """Return the column that `given` names, the argument ``event_time`` of a user's call.

    Raises:
        ConfigError: there is no such column, its name is ambiguous, or its type is not a timestamp.
    """
    (choice,) = choose(df, "event_time", [given], call)
    if not choice.field.dataType.typeName().startswith("timestamp"):
        reason = f"is not a timestamp column, but {choice.field.dataType.simpleString()}: cast it"
        raise ConfigError(choice.field.name, reason, f"{call}(event_time=...)")
    return choice


@attrs.frozen
class Extension:
    """The expressions among the columns that arguments name, to be appended to a DataFrame.

    Attributes:
        width: the number of columns of the DataFrame itself.
        choices: the appended columns.
    """

    width: int
    choices: list[Choice] = attrs.Factory(list)

    def position(self, choice: Choice) -> int:
        """Return the position of `choice` in the extended DataFrame; append it if necessary."""
        if choice.position is not None:
            return choice.position
        self.choices.append(choice)
        return self.width + len(self.choices) - 1

    def applied(self, df: DataFrame) -> DataFrame:
        """Return `df` with the appended columns."""
        return df.select("*", *(choice.column for choice in self.choices)) if self.choices else df

    @property
    def fields(self) -> list[T.StructField]:
        """The names and types of the appended columns."""
        return [choice.field for choice in self.choices]
