"""Rows, which are tuples with column names. DDL and Spark types declare rows as a type of state."""

from __future__ import annotations

import re
from collections import Counter, namedtuple
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import lru_cache, partial
from typing import Any, ClassVar, Optional, Self

from typing_extensions import override

from millpond.arguments import nearest
from millpond.errors import ConfigError, UnknownColumnError, brief, shown
from millpond.safe_decoding import is_unicode


class Row(tuple[Any, ...]):
    """A row: ``row.column``, ``row["any column"]``, ``row[0]``, ``row.asDict()``.

    A row is a tuple, and is equal to any tuple of the same values. As in Spark's Row, ``"name" in
    row`` tests for a column, not for a value. If two columns have the same name, ``row.name`` is
    the value of the first one. Rows also have the members of named tuples: ``_fields``,
    ``_asdict()``, ``_replace(column=value)``.
    """

    __slots__ = ()
    _fields: ClassVar[tuple[str, ...]] = ()

    def __new__(cls, *values: Any) -> Self:
        """Create a row from one value for each column."""
        if len(values) != len(cls._fields):
            raise TypeError(f"{len(values)} values for {len(cls._fields)} columns")
        return tuple.__new__(cls, values)

    def asDict(self, recursive: bool = False) -> dict[str, Any]:  # noqa: FBT001, FBT002, N802 - Spark's
        """Return the values by column name. If `recursive`, convert rows in the values too."""
        values: Iterable[Any] = map(_plain, self) if recursive else self
        return dict(zip(self._fields, values, strict=True))

    def _asdict(self) -> dict[str, Any]:
        return self.asDict()

    def _replace(self, **values: Any) -> Self:
        for name in values:
            if name not in self._fields:
                raise unknown_column(name, self)
        pairs = zip(self._fields, self, strict=True)
        return tuple.__new__(type(self), [values.get(name, value) for name, value in pairs])

    @classmethod
    def _make(cls, values: Iterable[Any]) -> Self:
        return cls(*values)

    @override
    def __contains__(self, column: object) -> bool:
        return column in self._fields

    @override
    def __repr__(self) -> str:
        pairs = zip(self._fields, self, strict=True)
        return f"Row({', '.join(f'{name}={value!r}' for name, value in pairs)})"

    @override
    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (self._fields, tuple(self))


def row_type(names: Iterable[str]) -> type[Row]:
    """Return the class of rows with these column names; it is cached.

    Access by ``row.column`` is as fast as in a named tuple. ``row[0]`` and ``row["column"]`` need a
    Python call, which takes 0.06 µs instead of 0.01.
    """
    return _row_type(tuple(names))


def row_maker(kind: type[Row]) -> Callable[[Iterable[Any]], Any]:
    """Return a function that creates a row of class `kind` from an iterable of values.

    The function does not check the number of values. A call takes 0.13 µs; ``_make`` of a named
    tuple takes 0.18.
    """
    return partial(tuple.__new__, kind)


def is_attribute(name: str) -> bool:
    """Return whether ``row.name`` is the column `name`, rather than a method that all rows have.

    A column named ``count`` or ``index`` hides the method of tuples.
    """
    return name in ("count", "index") or not (name.startswith("__") or name in _OWN)


_OWN = frozenset(dir(Row))


@lru_cache(maxsize=1024)
def _row_type(names: tuple[str, ...]) -> type[Row]:
    getters = _getters(len(names))
    readers: dict[Any, Callable[[Row], Any]] = {}
    members: dict[str, Any] = {"__slots__": (), "_fields": names, "__match_args__": names}
    for position in reversed(range(len(names))):
        name, getter = names[position], getters[position]
        readers[position] = readers[position - len(names)] = readers[name] = getter.__get__
        if is_attribute(name):
            members[name] = getter

    def __getitem__(self: Row, item: Any) -> Any:  # noqa: N807 - it becomes the type's
        try:
            reader = readers[item]
        except (KeyError, TypeError):  # TypeError: a slice is not hashable
            pass
        else:
            return reader(self)
        # Not in the exception handler: the errors below should have no context.
        if isinstance(item, str):
            raise unknown_column(item, self)
        return tuple.__getitem__(self, item)

    members["__getitem__"] = __getitem__
    return type("Row", (Row,), members)


@lru_cache(maxsize=64)
def _getters(width: int) -> list[Any]:
    """Return descriptors that read the items of a tuple of this width.

    They are taken from a named tuple, whose descriptors are written in C and so the fastest.
    """
    make: Any = namedtuple  # noqa: PYI024 - no type to be used
    # The local name keeps the class alive while its members are read.
    kind = make("kind", [f"c{at}" for at in range(width)])
    return [vars(kind)[field] for field in kind._fields]


def unknown_column(name: str, row: Row) -> UnknownColumnError:
    """Return the error for an unknown column name, which suggests the most similar column."""
    columns = row._fields
    return UnknownColumnError(name, columns, nearest(name, columns))


def columns_fault(names: Sequence[Any], columns: Sequence[str]) -> str:
    """Return a description of missing and unknown columns.

    Return '' if `names` contains exactly the columns, in any order.

    Args:
        names: the column names of a row.
        columns: the expected column names.
    """
    missing, unknown = Counter(columns) - Counter(names), Counter(names) - Counter(columns)
    found = (("missing", missing), ("not a column", unknown))
    fault = "; ".join(f"{what}: {', '.join(map(str, which))}" for what, which in found if which)
    close = [(name, nearest(str(name), missing or columns)) for name in unknown]
    meant = [f"{column} by {name}" for name, column in close if column is not None]
    return fault + (f"; did you mean {', '.join(meant)}?" if meant else "")


def row_fault(value: Any, columns: Sequence[str]) -> str:
    """Return the reason why a row or dict does not fit `columns`, or ''.

    The result is '' for a value without column names.
    """
    names = value if isinstance(value, Mapping) else row_names(value)
    if names is None:
        return ""
    fault = columns_fault(tuple(names), columns)
    if not fault and tuple(names) != tuple(columns):
        fault = "its columns are in another order"
    return fault or "give a tuple of their values, or a row of these columns in this order"


def row_names(value: Any) -> tuple[str, ...] | None:
    """Return the column names of a row of Millpond or Spark, or of a named tuple.

    Return None for any other value.
    """
    if not isinstance(value, tuple):
        return None
    names = getattr(value, "_fields", None) or getattr(value, "__fields__", None)
    return None if names is None else tuple(names)


def _plain(value: Any) -> Any:
    """Return `value` with dicts instead of rows, including rows in lists and dicts."""
    if isinstance(value, Row):
        return value.asDict(recursive=True)
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return value


def _restored(names: tuple[str, ...], values: tuple[Any, ...]) -> Row:
    """Return the row that a pickle describes by its column names and values."""
    return row_type(names)(*values)


# ---------------------------------------------------------------- rows as a type of state

_SCALARS: dict[str, type] = {
    **dict.fromkeys(("tinyint", "byte", "smallint", "short", "int", "integer"), int),
    **dict.fromkeys(("bigint", "long"), int),
    **dict.fromkeys(("float", "real", "double", "double precision"), float),
    "string": str,
    **dict.fromkeys(("decimal", "dec", "numeric"), Decimal),
    **dict.fromkeys(("timestamp", "timestamp_ntz", "timestamp_ltz"), datetime),
    "boolean": bool,
    "binary": bytes,
    "date": date,
    "time": time,
}
_INTERVALS: dict[str, type] = {
    f"interval {unit}": timedelta for unit in ("day", "hour", "minute", "second")
}
"""The Python type of each of Spark's interval types, by the first unit in the type's name."""

_BOUNDED = "state does not limit or pad strings; declare string"

Column = tuple[str, Any, bool]
"""The name of a column, its type, and whether it may contain null."""


def as_declared(declared: Any) -> Any:
    """Return the Python type of a type in DDL or a Spark type; return any other type unchanged.

    Raises:
        ConfigError: a string is not valid DDL, or state does not support the type.
    """
    if isinstance(declared, str):
        try:
            return _ddl_type(declared)
        except ConfigError as error:
            if error.reason == _BOUNDED:
                raise
        return _ddl_row(declared)  # the string is not a single type
    to_json: Any = getattr(declared, "jsonValue", None)
    if not isinstance(declared, type) and to_json is not None:
        return _from_json(to_json())
    return declared


@lru_cache(maxsize=1024)
def _row_class(columns: tuple[Column, ...]) -> type:
    """Return a class that declares rows with these columns as a type of state.

    The class has ``_fields``, annotations and defaults, as a named tuple has. So a nullable column
    can be added later. The values of the type are ``Row`` objects.

    Raises:
        ConfigError: two columns have the same name.
    """
    names = [name for name, _, _ in columns]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(name, "two columns have this name", place="state type")
        if not is_unicode(name):
            raise ConfigError(shown(name), "the column's name is not Unicode", place="state type")
    members = {
        "__annotations__": {name: _optional(kind, nullable) for name, kind, nullable in columns},
        "_fields": tuple(names),
        "_field_defaults": {name: None for name, _, nullable in columns if nullable},
        "_row_type": row_type(names),
    }
    return type("Row", (), members)


def _optional(kind: Any, nullable: bool) -> Any:  # noqa: FBT001 - a column's
    return Optional[kind] if nullable else kind  # noqa: UP045 - the type is known at run time


def _scalar(text: str) -> type:
    """Return the Python type of a scalar Spark type, such as ``decimal(10,2)``."""
    name = re.sub(r"\(.*\)", "", " ".join(text.lower().split())).partition(" to ")[0].strip()
    kind = _INTERVALS.get(name) or _SCALARS.get(name)
    if kind is None:
        reason = f"{brief(name)} is not a Spark type that state supports"
        if name in ("varchar", "char", "character"):
            reason = _BOUNDED
        raise ConfigError(brief(text), reason, place="state type")
    return kind


def _from_json(declared: Any) -> Any:
    """Return the Python type of a Spark type, given the result of ``DataType.jsonValue()``."""
    if isinstance(declared, str):
        return _scalar(declared)
    kind = declared.get("type")
    if kind == "struct":
        fields = ((f["name"], _from_json(f["type"]), f["nullable"]) for f in declared["fields"])
        return _row_class(tuple(fields))
    if kind == "array":
        element = _optional(_from_json(declared["elementType"]), declared["containsNull"])
        return list[element]  # type: ignore[valid-type]  # known at run time
    if kind == "map":
        value = _optional(_from_json(declared["valueType"]), declared["valueContainsNull"])
        return dict[_from_json(declared["keyType"]), value]  # type: ignore[misc]
    return _scalar(str(kind))


# ---------------------------------------------------------------- DDL

_PIECE = re.compile(r"`(?:[^`]|``)*`|'(?:[^'\\]|\\.)*'|.", re.DOTALL)
_COLUMN = re.compile(
    r"(?P<name>`(?:[^`]|``)*`|\w+)\s*(?::|\s)\s*(?P<type>.+?)(?P<required>\s+not\s+null)?"
    r"(?:\s+comment\s+(?:'(?:[^'\\]|\\.)*')+)?",
    re.DOTALL | re.IGNORECASE,
)
_NESTED = re.compile(r"(array|map|struct)\s*<(.*)>", re.DOTALL | re.IGNORECASE)


def _ddl_row(text: str) -> Any:
    """Return the class of rows for columns in DDL, such as ``customer string, n int``."""
    columns = []
    for part in _split(text):
        match = _COLUMN.fullmatch(part.strip())
        if match is None:
            reason = "expected a Python type, or DDL such as 'customer string, spent double'"
            raise ConfigError(brief(text), reason, place="state type")
        name = match["name"]
        name = name[1:-1].replace("``", "`") if name.startswith("`") else name
        columns.append((name, _ddl_type(match["type"]), match["required"] is None))
    return _row_class(tuple(columns))


def _ddl_type(text: str) -> Any:
    """Return the Python type of a type in DDL, such as ``array<int>``."""
    match = _NESTED.fullmatch(text.strip())
    if match is None:
        return _scalar(text)
    kind, inner = match[1].lower(), match[2]
    if kind == "struct":
        return _ddl_row(inner)
    parts = _split(inner)
    if len(parts) != (2 if kind == "map" else 1):
        return _scalar(text)  # raises ConfigError
    *key, value = map(_ddl_type, parts)
    value = _optional(value, nullable=True)
    return dict[key[0], value] if key else list[value]  # type: ignore[valid-type]  # at run time


def _split(text: str) -> list[str]:
    """Return the columns or arguments in DDL, split at the commas outside brackets and quotes."""
    parts, depth = [""], 0
    for piece in _PIECE.findall(text):
        depth += (piece in "<(") - (piece in ">)")
        if piece == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += piece
    return parts
