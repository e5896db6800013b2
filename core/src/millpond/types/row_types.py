"""Rows as a type of state: declared as Spark declares columns, by DDL or a StructType.

A declared row is a class that looks like a named tuple's: it has ``_fields``, the types of these
and their defaults, so a nullable column can be added later. Its values are the rows that functions
get.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import lru_cache
from typing import Any, Optional

from millpond.errors import ConfigError, brief, shown
from millpond.safe_decoding import is_unicode
from millpond.types.rows import row_type

_SCALARS: dict[str, type] = {
    **dict.fromkeys(("tinyint", "byte", "smallint", "short", "int", "integer"), int),
    **dict.fromkeys(("bigint", "long"), int),
    **dict.fromkeys(("float", "real", "double"), float),
    **dict.fromkeys(("string", "varchar", "char", "character"), str),
    **dict.fromkeys(("decimal", "dec", "numeric"), Decimal),
    **dict.fromkeys(("timestamp", "timestamp_ntz", "timestamp_ltz"), datetime),
    "boolean": bool,
    "binary": bytes,
    "date": date,
    "time": time,
}
_INTERVALS: dict[str, type] = {
    **dict.fromkeys(
        (f"interval {unit}" for unit in ("day", "hour", "minute", "second")), timedelta
    ),
    **dict.fromkeys((f"interval {unit}" for unit in ("year", "month")), int),
}
"""By their first unit; whole months are a number."""

Column = tuple[str, Any, bool]
"""The name of a column, its type, and whether it may be null."""


def as_declared(declared: Any) -> Any:
    """A type as Python declares it, where it was given as DDL or as a type of Spark's.

    Raises:
        ConfigError: it is not DDL, or has a type that cannot be state.
    """
    if isinstance(declared, str):
        return _Ddl(declared).whole()
    to_json: Any = getattr(declared, "jsonValue", None)
    if not isinstance(declared, type) and to_json is not None:
        return _of_json(to_json())
    return declared


def row_class(columns: Iterable[Column]) -> Any:
    """The class that declares rows of some columns; the same columns give the same class.

    Raises:
        ConfigError: two columns have the same name.
    """
    return _row_class(tuple(columns))


@lru_cache(maxsize=1024)
def _row_class(columns: tuple[Column, ...]) -> type:
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


def _scalar(name: str, text: str) -> type:
    if name in _INTERVALS:
        return _INTERVALS[name]
    if name not in _SCALARS:
        reason = f"{brief(name)} is not a type of Spark's that state can have"
        raise ConfigError(brief(text), reason, place="state type")
    return _SCALARS[name]


def _of_json(declared: Any) -> Any:
    """A type as Spark writes it in JSON."""
    if isinstance(declared, str):
        return _scalar(declared.partition("(")[0].partition(" to ")[0].strip(), declared)
    kind = declared.get("type")
    if kind == "struct":
        return row_class(
            (field["name"], _of_json(field["type"]), field["nullable"])
            for field in declared["fields"]
        )
    if kind == "array":
        element = _optional(_of_json(declared["elementType"]), declared["containsNull"])
        return list[element]  # type: ignore[valid-type]  # known at run time
    if kind == "map":
        value = _optional(_of_json(declared["valueType"]), declared["valueContainsNull"])
        return dict[_of_json(declared["keyType"]), value]  # type: ignore[misc]
    return _scalar(str(kind), str(kind))


_TOKEN = re.compile(r"\s*(?:`((?:[^`]|``)*)`|([^\W]\w*|\d+)|('(?:[^'\\]|\\.)*')|([<>(),:]))")


class _Ddl:
    """Reads DDL: ``name type [NOT NULL] [COMMENT 'text'], …``, or a single type."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens: list[tuple[str, bool]] = []
        at, end = 0, len(text.rstrip())
        while at < end:
            match = _TOKEN.match(text, at)
            if match is None:
                raise self._refusal()
            quoted, word, literal, sign = match.groups()
            named = quoted is not None or word is not None
            token = quoted.replace("``", "`") if quoted is not None else word or literal or sign
            self._tokens.append((token, named))
            at = match.end()
        self._at = 0

    def _refusal(self) -> ConfigError:
        reason = "expected a Python type, or DDL such as 'customer string, spent double'"
        return ConfigError(brief(self._text), reason, place="state type")

    def whole(self) -> Any:
        """The type of the whole text."""
        alone = self._attempt(self._type)
        if alone is not None:
            return alone
        self._at = 0
        columns = self._columns("")
        if self._at < len(self._tokens):
            raise self._refusal()
        return row_class(columns)

    def _attempt(self, read: Callable[[], Any]) -> Any:
        """What can be read to the end of the text; None where it cannot."""
        try:
            found = read()
        except ConfigError:
            return None
        return found if self._at == len(self._tokens) else None

    def _next(self, *, named: bool = False) -> str:
        if self._at >= len(self._tokens):
            raise self._refusal()
        token, is_name = self._tokens[self._at]
        if named and not is_name:
            raise self._refusal()
        self._at += 1
        return token

    def _taken(self, *words: str) -> bool:
        """Whether these come next; they are then read."""
        found = [token.lower() for token, _ in self._tokens[self._at : self._at + len(words)]]
        if found != list(words):
            return False
        self._at += len(words)
        return True

    def _expect(self, word: str) -> None:
        if not self._taken(word):
            raise self._refusal()

    def _columns(self, end: str) -> list[Column]:
        columns: list[Column] = []
        while True:
            name = self._next(named=True)
            self._taken(":")
            kind = self._type()
            nullable = not self._taken("not", "null")
            if self._taken("comment"):
                self._next()
            columns.append((name, kind, nullable))
            if not self._taken(","):
                break
        if end:
            self._expect(end)
        return columns

    def _type(self) -> Any:
        name = self._next(named=True).lower()
        if name == "struct":
            self._expect("<")
            return row_class(self._columns(">"))
        if name == "array":
            self._expect("<")
            element = _optional(self._type(), nullable=True)
            self._expect(">")
            return list[element]  # type: ignore[valid-type]  # known at run time
        if name == "map":
            self._expect("<")
            key = self._type()
            self._expect(",")
            value = _optional(self._type(), nullable=True)
            self._expect(">")
            return dict[key, value]  # type: ignore[valid-type]  # known at run time
        if name == "interval":
            name = f"interval {self._next().lower()}"
            if self._taken("to"):
                self._next()
        if self._taken("("):
            while not self._taken(")"):
                self._next()
        if name == "double":
            self._taken("precision")
        return _scalar(name, self._text)
