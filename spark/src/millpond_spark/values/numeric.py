"""Carriers of booleans and numbers."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from decimal import Context, Decimal, Inexact, InvalidOperation
from typing import Any

import numpy as np
from millpond.types.number_types import exact_float
from pyspark.sql.types import (
    BooleanType,
    DataType,
    DecimalType,
    DoubleType,
    LongType,
    StringType,
)
from typing_extensions import override

from millpond_spark.values.carrier import Carrier, all_are, cast, refuse

_FLOAT = struct.Struct("<f")


def as_array(code: str, values: Sequence[Any]) -> Any:
    """Numbers as an array of a native type of ``struct``'s: half of what NumPy takes itself.

    Raises:
        struct.error, TypeError, OverflowError: one is no such number.
    """
    numbers = struct.Struct(f"{len(values)}{code}")
    data = bytearray(numbers.size)
    numbers.pack_into(data, 0, *values)
    return np.frombuffer(data, code)


class BooleanCarrier(Carrier):
    """boolean."""

    carried = BooleanType()
    filler = False
    identity = True
    python_name = "bool"

    @override
    def at_once(self, values: Sequence[Any]) -> Any:
        return np.array(values, np.bool_) if all_are(bool, values) else None

    @override
    def pack(self, value: Any) -> Any:
        if type(value) is not bool and type(value).__name__ not in ("bool", "bool_"):
            raise refuse(value)
        return bool(value)


class IntegralCarrier(Carrier):
    """tinyint to bigint, as bigint."""

    carried = LongType()
    filler = 0
    identity = True
    python_name = "int"

    def __init__(self, declared: DataType, bits: int) -> None:
        self._declared = declared
        self.low, self.high = -(1 << (bits - 1)), (1 << (bits - 1)) - 1

    @override
    def encode(self, column: str) -> str:
        return cast(column, self._declared, self.carried)

    @override
    def at_once(self, values: Sequence[Any]) -> Any:
        """By ``struct``, which refuses what ``pack`` does, but takes booleans as 0 and 1.

        So types are looked at only where there are such numbers. 10 ns a value; by their types,
        their least and their greatest it was 80.
        """
        try:
            numbers = as_array("q", values)
        except (struct.error, TypeError, ValueError, OverflowError):
            return None
        fit = self.low <= numbers.min() and numbers.max() <= self.high
        if not fit or ((numbers.view(np.uint64) <= 1).any() and not all_are(int, values)):
            return None
        return numbers

    @override
    def pack(self, value: Any) -> Any:
        if isinstance(value, bool) or not hasattr(value, "__index__"):
            raise refuse(value)
        number = value.__index__()
        if not self.low <= number <= self.high:
            raise ValueError(f"out of range of {self._declared.simpleString()}")
        return number

    @override
    def restore(self, column: str) -> str:
        return cast(column, self.carried, self._declared)


class DoubleCarrier(Carrier):
    """double; NaN is not null. An int must be the same number as a double."""

    carried = DoubleType()
    filler = 0.0
    identity = True
    python_name = "float"

    @override
    def at_once(self, values: Sequence[Any]) -> Any:
        return as_array("d", values) if all_are(float, values) else None

    @override
    def pack(self, value: Any) -> Any:
        if isinstance(value, float):
            return float(value)
        if isinstance(value, bool) or not hasattr(value, "__index__"):
            raise refuse(value)
        return exact_float(value.__index__())


class FloatCarrier(DoubleCarrier):
    """float, as double. That it keeps fewer digits is its nature; no number becomes infinity."""

    @override
    def encode(self, column: str) -> str:
        return f"CAST({column} AS DOUBLE)"

    @override
    def at_once(self, values: Sequence[Any]) -> Any:
        numbers = super().at_once(values)
        if numbers is None:
            return None
        with np.errstate(over="ignore"):
            infinite = np.isinf(numbers.astype(np.float32))
        return numbers if (infinite == np.isinf(numbers)).all() else None

    @override
    def pack(self, value: Any) -> Any:
        """The nearest number that a float column has."""
        try:
            return _FLOAT.unpack(_FLOAT.pack(super().pack(value)))[0]
        except OverflowError:
            raise ValueError("out of range of float; declare double") from None

    @override
    def restore(self, column: str) -> str:
        return f"CAST({column} AS FLOAT)"


class DecimalCarrier(Carrier):
    """decimal, as text: exact at any precision and scale."""

    carried = StringType()
    python_name = "Decimal"

    def __init__(self, declared: DecimalType) -> None:
        self._declared = declared
        self._unit = Decimal((0, (1,), -declared.scale))
        self._exactly = Context(prec=declared.precision, traps=[Inexact, InvalidOperation])

    @override
    def encode(self, column: str) -> str:
        return f"CAST({column} AS STRING)"

    @override
    def decode(self, value: Any) -> Any:
        return Decimal(value)

    @override
    def pack(self, value: Any) -> Any:
        if isinstance(value, bool) or not isinstance(value, (Decimal, int)):
            raise refuse(value)
        try:
            made = Decimal(value).quantize(self._unit, context=self._exactly)
        except (Inexact, InvalidOperation):
            made = Decimal("NaN")  # as an infinity and NaN itself come to be
        if not made.is_finite():
            raise ValueError(f"it does not fit {self._declared.simpleString()}")
        return str(made)

    @override
    def restore(self, column: str) -> str:
        return f"CAST({column} AS {self._declared.simpleString()})"


def java_double(value: float) -> str:
    """A float as the text that Spark casts back to the same double."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return repr(value)
