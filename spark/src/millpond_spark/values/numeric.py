"""Carriers of booleans and numbers."""

from __future__ import annotations

import math
import struct
from decimal import Context, Decimal, Inexact, InvalidOperation
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
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

from millpond_spark.values.carrier import Carrier, cast, misfit

_FLOAT = struct.Struct("<f")


class BooleanCarrier(Carrier):
    """The carrier of boolean."""

    carried = BooleanType()
    filler = False
    identity = True
    python_name = "bool"
    plain_type = bool
    arrow_type = pa.bool_()

    @override
    def pack_array(self, array: pa.Array) -> pa.Array | None:
        return array if pa.types.is_boolean(array.type) else None

    @override
    def pack(self, value: Any) -> Any:
        if type(value) is not bool and type(value).__name__ not in ("bool", "bool_"):
            raise misfit(value)
        return bool(value)


class IntegralCarrier(Carrier):
    """The carrier of tinyint, smallint, int and bigint, which all cross as bigint."""

    carried = LongType()
    filler = 0
    identity = True
    python_name = "int"
    plain_type = int
    arrow_type = pa.int64()

    def __init__(self, declared: DataType, bits: int) -> None:
        self._declared = declared
        self._low, self._high = -(1 << (bits - 1)), (1 << (bits - 1)) - 1

    @override
    def encode(self, column: str) -> str:
        return cast(column, self._declared, self.carried)

    @override
    def pack_array(self, array: pa.Array) -> pa.Array | None:
        if not pa.types.is_integer(array.type):
            return None
        numbers = array.cast(pa.int64())
        if self._declared == self.carried:
            return numbers
        bounds = pc.min_max(numbers).as_py()
        least, most = bounds["min"], bounds["max"]
        return numbers if least is None or self._low <= least <= most <= self._high else None

    @override
    def pack(self, value: Any) -> Any:
        if isinstance(value, bool) or not hasattr(value, "__index__"):
            raise misfit(value)
        number = value.__index__()
        if not self._low <= number <= self._high:
            raise ValueError(f"out of range of {self._declared.simpleString()}")
        return number

    @override
    def restore(self, column: str) -> str:
        return cast(column, self.carried, self._declared)


class DoubleCarrier(Carrier):
    """The carrier of double. NaN is not null. An int must be exact as a double."""

    carried = DoubleType()
    filler = 0.0
    identity = True
    python_name = "float"
    plain_type = float
    arrow_type = pa.float64()

    @override
    def pack_array(self, array: pa.Array) -> pa.Array | None:
        numeric = pa.types.is_floating(array.type) or pa.types.is_integer(array.type)
        return array.cast(pa.float64()) if numeric else None

    @override
    def pack(self, value: Any) -> Any:
        if isinstance(value, float):
            return float(value)
        if isinstance(value, bool) or not hasattr(value, "__index__"):
            raise misfit(value)
        return exact_float(value.__index__())


class FloatCarrier(DoubleCarrier):
    """The carrier of float, which crosses as double: values are rounded, but not to infinity."""

    @override
    def encode(self, column: str) -> str:
        return f"CAST({column} AS DOUBLE)"

    @override
    def pack_array(self, array: pa.Array) -> pa.Array | None:
        doubles = super().pack_array(array)
        if doubles is None:
            return None
        exact = doubles.fill_null(0.0).to_numpy()
        with np.errstate(over="ignore"):
            narrow = exact.astype(np.float32)
        return doubles if (np.isinf(narrow) == np.isinf(exact)).all() else None

    @override
    def pack(self, value: Any) -> Any:
        """Return the nearest number that a float column has."""
        try:
            return _FLOAT.unpack(_FLOAT.pack(super().pack(value)))[0]
        except OverflowError:
            raise ValueError("out of range of float; declare double") from None

    @override
    def restore(self, column: str) -> str:
        return f"CAST({column} AS FLOAT)"


class DecimalCarrier(Carrier):
    """The carrier of decimal, which crosses as text: exact at any precision and scale."""

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
            raise misfit(value)
        try:
            made = Decimal(value).quantize(self._unit, context=self._exactly)
        except (Inexact, InvalidOperation):
            made = Decimal("NaN")  # refused below, as infinities and NaN are
        if not made.is_finite():
            raise ValueError(f"it does not fit {self._declared.simpleString()}")
        return str(made)

    @override
    def restore(self, column: str) -> str:
        return f"CAST({column} AS {self._declared.simpleString()})"


def java_double(value: float) -> str:
    """Return the text that Spark casts back to the same double."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return repr(value)
