"""Carriers: how each Spark type crosses to Python and back without loss.

pandas loses values: a null makes a bigint column float64, null and NaN become one, timestamps
become nanoseconds. So the JVM encodes each column in a form that pandas carries as it is: whole
numbers (microseconds, days, months) and doubles filled where null, with the nulls in a bit
mask beside them; text, bytes and decimals as objects; nested values as JSON. The worker
decodes column-wise. Results go back in the same form, but for nulls, which Arrow's arrays hold.

What the JVM does is written as SQL: a Column costs a call of the JVM for each of its parts, which
took 12 s for a thousand columns. Carriers see plain names of columns only, none of a user's.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from operator import countOf
from typing import Any, ClassVar

from millpond.errors import brief
from millpond.types.foreign_scalars import python_scalar
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    CharType,
    DataType,
    StringType,
    VarcharType,
)
from typing_extensions import override

_FILLERS: dict[type, str] = {bool: "false", int: "0L", float: "0D"}


class Carrier(ABC):
    """How one type is carried.

    Attributes:
        carried: the Spark type that crosses.
        filler: what stands for null where the carried type needs a value; None where it
            carries null by itself.
        identity: whether the Python value is the carried value, so nothing needs decoding.
    """

    carried: ClassVar[DataType]
    filler: ClassVar[Any] = None
    identity: ClassVar[bool] = False
    python_name: ClassVar[str]

    def encode(self, column: str) -> str:
        """In SQL, from the type to what is carried; null stays null."""
        return column

    def filled(self, column: str) -> str:
        """The same, with the filler for null."""
        encoded = self.encode(column)
        return encoded if self.filler is None else f"coalesce({encoded}, {self.nothing})"

    @property
    def nothing(self) -> str:
        """In SQL, what is carried for null."""
        if self.filler is None:
            return f"CAST(NULL AS {self.carried.simpleString()})"
        return _FILLERS[type(self.filler)]

    def decode(self, value: Any) -> Any:
        """In Python, from a carried value, not null, to the user's value."""
        return value

    def decode_many(self, values: list[Any]) -> list[Any]:
        """``decode`` for each of many. Override it where that can be had quicker."""
        return list(map(self.decode, values))

    def at_once(self, values: Sequence[Any]) -> Any:
        """Values, one at least, as Arrow takes them: plainly of the type, none null.

        By a few loops in C, some 10 ns a value each. None where it cannot be had so quickly.
        """
        return None

    @abstractmethod
    def pack(self, value: Any) -> Any:
        """In Python, from a user's value to what is carried.

        Raises:
            TypeError, ValueError, OverflowError: the value does not fit the type. None never
                does: callers keep nulls to themselves.
        """

    def restore(self, column: str) -> str:
        """In SQL, from what is carried back to the type."""
        return column


def packed(pack: Callable[[Any], Any], value: Any, *, nullable: bool) -> Any:
    """Return what is carried for a value: ``pack`` of it, of a NumPy or pandas scalar as Python's.

    Raises:
        TypeError, ValueError, OverflowError: the value does not fit the type.
    """
    if value is None and nullable:
        return None
    try:
        return pack(value)
    except (TypeError, ValueError, OverflowError):
        plain = python_scalar(value)
        if plain is value:
            raise
    return packed(pack, plain, nullable=nullable)


def refuse(value: Any) -> TypeError:
    """The error of a value of a wrong type; the caller adds the column."""
    return TypeError("it is declared to have no nulls" if value is None else brief(value))


def cast(column: str, given: DataType, wanted: DataType) -> str:
    """A column of one type as another, in SQL; a cast that does nothing is one more to read."""
    return column if given == wanted else f"CAST({column} AS {wanted.simpleString()})"


def all_are(kind: type, values: Sequence[Any]) -> bool:
    """Whether all values are of exactly a type: 10 ns a value, by a set of the types 20."""
    return countOf(map(type, values), kind) == len(values)


class TextCarrier(Carrier):
    """string, char, varchar; a char is not filled up with spaces."""

    carried = StringType()
    identity = True
    python_name = "str"

    def __init__(self, declared: DataType) -> None:
        self._declared = declared
        self.length = _length_of(declared)

    @override
    def encode(self, column: str) -> str:
        """What is no UTF-8 fails, where JSON would change it."""
        return f"validate_utf8({cast(column, self._declared, self.carried)})"

    @override
    def at_once(self, values: Sequence[Any]) -> Any:
        if not all_are(str, values) or not _is_text("".join(values)):
            return None
        fits = self.length is None or max(map(len, values)) <= self.length
        return values if fits else None

    @override
    def pack(self, value: Any) -> Any:
        if not isinstance(value, str):
            raise refuse(value)
        value.encode()
        if self.length is not None and len(value) > self.length:
            raise ValueError(f"{len(value)} characters do not fit {self._declared.simpleString()}")
        return str.__str__(value)  # the text itself: an enum's str() may be its name

    @override
    def restore(self, column: str) -> str:
        """A collation is part of the type."""
        return column if self.length is not None else cast(column, self.carried, self._declared)


def _length_of(declared: DataType) -> int | None:
    """How many characters a type takes; None where it takes any number."""
    return declared.length if isinstance(declared, (CharType, VarcharType)) else None


def _is_text(value: str) -> bool:
    """Whether a string can be written; one with half a surrogate pair cannot."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


class BinaryCarrier(Carrier):
    """binary."""

    carried = BinaryType()
    python_name = "bytes"

    @override
    def decode(self, value: Any) -> Any:
        return bytes(value)

    @override
    def pack(self, value: Any) -> Any:
        if not isinstance(value, (bytes, bytearray, memoryview)):
            raise refuse(value)
        return bytes(value)


class NullCarrier(Carrier):
    """void."""

    carried = BooleanType()
    filler = False
    python_name = "None"

    @override
    def encode(self, column: str) -> str:
        return "CAST(NULL AS BOOLEAN)"

    @override
    def pack(self, value: Any) -> Any:
        raise refuse(value)

    @override
    def restore(self, column: str) -> str:
        return "NULL"
