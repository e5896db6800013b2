"""Generated Spark SQL types: nested to a depth, with odd names, nullable or not, and extreme values.

A generated value is a function's view of it, with plain tuples for structs. ``seen`` and
``collected`` convert a function's values and collected values into that form. ``state_type``
returns the type of a state for a column.
"""

import datetime as dt
import math
from decimal import Decimal

from pyspark.sql import types as st

from tests.types import type_language as tl

HAS_TIME = hasattr(st, "TimeType")
"""Spark has the type from 4.1 on."""
FLOAT_MAX = 3.4028234663852886e38
FIRST, LAST = dt.datetime(1, 1, 2, 0, 0, 0, 1), dt.datetime(9999, 12, 30, 23, 59, 59, 999999)
_US = dt.timedelta(microseconds=1)
_DAY = st.DayTimeIntervalType
_UNITS = [86_400_000_000, 3_600_000_000, 60_000_000, 1]
_MOMENTS = [
    FIRST, LAST, dt.datetime(1969, 12, 31, 23, 59, 59, 999999), dt.datetime(1970, 1, 1),
    dt.datetime(2024, 3, 10, 2, 30), dt.datetime(2024, 11, 3, 5, 30, 0, 1),
]  # fmt: skip
_TEXTS = [
    "",
    "a",
    "\0",
    "é\0€😀",
    "null",
    '{"v":1}',
    " \n\t\r\x7f\x85\u2028\ufeff",
    "x" * 300,
    "\\u0041\\",
]
COLUMN_NAMES = [
    "", " ", "a.b", "a`b", "``", "x y", "Ä", "ß", "select", "millpond_group", "millpond_label",
    "c0", "nulls0", "nans0", "_0", "v", "a\nb", '"q"', "$1", "*", "a,b;{}()=", "class", "_fields",
    "😀", "a", "A", "key", "value", "count", "index",
]  # fmt: skip


class Kind:
    """A Spark type, with a function that draws its values; none of them is None."""

    def __init__(self, declared, draw):
        self.declared, self.draw = declared, draw


def _of(declared, values):
    return lambda rng: Kind(declared, lambda: rng.choice(values))


def _whole(declared, bits):
    top = 1 << (bits - 1)
    return _of(declared, [0, -1, top - 1, -top, top // 3])


def decimal_values(precision, scale):
    """Return extreme and other values of a decimal type, each with the type's scale."""
    top = 10**precision - 1
    whole = [0, 1, -1, top, -top, top // 7]
    digits = [tuple(map(int, str(abs(number)))) for number in whole]
    return [
        Decimal((int(number < 0), each, -scale)) for number, each in zip(whole, digits, strict=True)
    ]


def _decimal(rng):
    precision = rng.choice([1, 2, 9, 10, 18, 19, 20, 28, 29, 37, 38, rng.randint(1, 38)])
    scale = rng.choice([0, precision, rng.randint(0, precision)])
    values = decimal_values(precision, scale)
    return Kind(st.DecimalType(precision, scale), lambda: rng.choice(values))


def _collated(rng):
    return Kind(st.StringType(rng.choice(["UTF8_LCASE", "UNICODE_CI"])), lambda: rng.choice(_TEXTS))


def _time(rng):
    precision = rng.randint(0, 6)
    step = 10 ** (6 - precision)
    values = [dt.time(), dt.time(23, 59, 59, 999_999 // step * step), dt.time(1, 2, 3)]
    return Kind(st.TimeType(precision), lambda: rng.choice(values))


def _days(rng):
    first = rng.randint(0, 3)
    last = rng.randint(first, 3)
    unit = _UNITS[last]
    extremes = [-(1 << 63), (1 << 63) - 1, 0, -unit, unit, 7 * 86_400_000_000]
    values = [
        (abs(micros) // unit * unit) * (1 if micros >= 0 else -1) * _US for micros in extremes
    ]
    return Kind(_DAY(first, last), lambda: rng.choice(values))


_DOUBLES = [0.0, -0.0, 0.1, math.nan, math.inf, -math.inf, 5e-324, 1.7976931348623157e308, 1e22]
_FLOATS = [
    0.0,
    -0.0,
    0.10000000149011612,
    math.nan,
    math.inf,
    FLOAT_MAX,
    -FLOAT_MAX,
    1.401298464324817e-45,
]
SCALARS = [
    _of(st.BooleanType(), [True, False]),
    _whole(st.ByteType(), 8), _whole(st.ShortType(), 16), _whole(st.IntegerType(), 32),
    _whole(st.LongType(), 64), _of(st.LongType(), [2**53 + 1, -(2**53) - 1]),
    _of(st.FloatType(), _FLOATS), _of(st.DoubleType(), _DOUBLES), _of(st.StringType(), _TEXTS),
    _of(st.BinaryType(), [b"", b"\0", b"\0\xff\0\0", bytes(range(256))]),
    _of(st.DateType(), [dt.date.min, dt.date.max, dt.date(1969, 12, 31), dt.date(2024, 2, 29)]),
    _of(st.TimestampType(), [moment.replace(tzinfo=dt.UTC) for moment in _MOMENTS]),
    _of(st.TimestampNTZType(), [*_MOMENTS, dt.datetime.min, dt.datetime.max]),  # noqa: DTZ901
    _decimal, _decimal, _collated, _days, *([_time] if HAS_TIME else []),
]  # fmt: skip
_KEPT = [*SCALARS[:8], SCALARS[9], _decimal]


def any_kind(rng, depth, *, key=False):
    """Draw a type with at most the given nesting; a map's key contains no map and is never void."""
    if depth == 0 or rng.random() < 0.15:
        if not key and rng.random() < 0.05:
            return Kind(st.NullType(), None)
        return rng.choice(SCALARS)(rng)
    makers = [_array, _struct, _struct] if key else [_array, _struct, _struct, _map]
    return rng.choice(makers)(rng, depth - 1, key=key)


def _part(rng, kind):
    """Draw whether a part may be null, and its type."""
    if kind.draw is None:
        return True, lambda: None
    nullable = rng.random() < 0.7
    return nullable, lambda: None if nullable and rng.random() < 0.25 else kind.draw()


def _array(rng, depth, *, key=False):
    # In a key, ``createDataFrame`` makes lists of other elements, which Python cannot hash.
    part = rng.choice(_KEPT)(rng) if key else any_kind(rng, depth)
    nullable, draw = _part(rng, part)
    kind = tuple if key else list  # the key of a dict must be hashable
    return Kind(
        st.ArrayType(part.declared, nullable),
        lambda: kind(draw() for _ in range(rng.choice([0, 1, 2, 3]))),
    )


def _struct(rng, depth, *, key=False):
    names = rng.sample(COLUMN_NAMES, rng.randint(1, 4))
    parts = [any_kind(rng, depth, key=key) for _ in names]
    drawn = [_part(rng, part) for part in parts]
    fields = [
        st.StructField(name, part.declared, nullable)
        for name, part, (nullable, _) in zip(names, parts, drawn, strict=True)
    ]
    return Kind(st.StructType(fields), lambda: tuple(draw() for _, draw in drawn))


def _map(rng, depth, *, key=False):
    keys, part = any_kind(rng, rng.choice([0, depth]), key=True), any_kind(rng, depth)
    nullable, draw = _part(rng, part)
    # Python does not know which keys are equal under a collation.
    sizes = [0, 1] if "collate" in keys.declared.simpleString() else [0, 1, 2, 3]

    def entries():
        found = {}
        for _ in range(rng.choice(sizes)):
            name = _no_sign_of_zero(keys.draw())
            found.setdefault(_same_key(name), (name, draw()))
        return dict(found.values())

    return Kind(st.MapType(keys.declared, part.declared, nullable), entries)


def _same_key(value):
    """Return a value that is equal for all NaNs, which Spark treats as one key."""
    if isinstance(value, tuple):
        return tuple(map(_same_key, value))
    return "nan" if isinstance(value, float) and math.isnan(value) else value


def _no_sign_of_zero(value):
    """Return a key as Spark's maps store it."""
    if isinstance(value, tuple):
        return tuple(map(_no_sign_of_zero, value))
    return value + 0.0 if isinstance(value, float) else value


class Schema:
    """Generated columns, and rows of values; the last row is null wherever possible."""

    def __init__(self, rng, columns, rows, depth):
        kinds = [any_kind(rng, depth) for _ in range(columns)]
        drawn = [_part(rng, kind) for kind in kinds]
        names = [f"{rng.choice(COLUMN_NAMES)}{at}" for at in range(columns)]
        self.fields = [
            st.StructField(name, kind.declared, nullable)
            for name, kind, (nullable, _) in zip(names, kinds, drawn, strict=True)
        ]
        self.rows = [tuple(draw() for _, draw in drawn) for _ in range(rows)]
        self.rows.append(tuple(None if nullable else draw() for nullable, draw in drawn))


def seen(declared, value):
    """Return a function's value with structs as plain tuples; fail if its containers have other types."""
    if value is None:
        return None
    if isinstance(declared, st.ArrayType):
        assert type(value) in (list, tuple), type(value)
        return type(value)(seen(declared.elementType, item) for item in value)
    if isinstance(declared, st.MapType):
        assert type(value) is dict, type(value)
        return {
            seen(declared.keyType, key): seen(declared.valueType, item)
            for key, item in value.items()
        }
    if isinstance(declared, st.StructType):
        assert isinstance(value, tuple), type(value)
        assert list(value._fields) == declared.names
        pairs = zip(declared.fields, value, strict=True)
        return tuple(seen(field.dataType, item) for field, item in pairs)
    return value


def with_leaves(declared, leaf):
    """Return the same type with other leaf types."""
    if isinstance(declared, st.ArrayType):
        return st.ArrayType(with_leaves(declared.elementType, leaf), declared.containsNull)
    if isinstance(declared, st.MapType):
        key, item = with_leaves(declared.keyType, leaf), with_leaves(declared.valueType, leaf)
        return st.MapType(key, item, declared.valueContainsNull)
    if isinstance(declared, st.StructType):
        fields = [(f.name, with_leaves(f.dataType, leaf), f.nullable) for f in declared.fields]
        return st.StructType([st.StructField(*field) for field in fields])
    return leaf(declared)


def data_frame(spark, schema, rows):
    """Return a DataFrame of rows."""
    df = spark.createDataFrame(rows, schema, verifySchema=False)
    # Java's maps have another order each time
    return df.localCheckpoint()


def state_type(declared):
    """Return the type of a state for a column's values; None if there is none."""
    if isinstance(declared, st.ArrayType):
        return _with_parts(lambda item: list[item], declared.elementType)
    if isinstance(declared, st.MapType):
        key = _key_type(declared.keyType)
        return key and _with_parts(lambda item: dict[key, item], declared.valueType)
    if isinstance(declared, st.StructType):
        types = [field.dataType for field in declared.fields]
        return _with_parts(lambda *parts: tuple[parts], *types)
    return _SCALAR_STATES.get(type(declared))


def _key_type(declared):
    """Return the type of a map key, in which an array is a tuple."""
    if isinstance(declared, st.ArrayType):
        part = _key_type(declared.elementType)
        return part and tuple[part | None, ...]
    if isinstance(declared, st.StructType):
        parts = [_key_type(field.dataType) for field in declared.fields]
        return None if None in parts else tuple[tuple(part | None for part in parts)]
    return state_type(declared)


def _with_parts(make, *types):
    parts = [type(None) if isinstance(each, st.NullType) else state_type(each) for each in types]
    if None in parts:
        return None
    return make(*(part if part is type(None) else part | None for part in parts))


_SCALAR_STATES = {
    st.BooleanType: bool, st.ByteType: int, st.ShortType: int, st.IntegerType: int,
    st.LongType: int, st.FloatType: float, st.DoubleType: float, st.StringType: str,
    st.BinaryType: bytes, st.DateType: dt.date,
    st.TimestampType: dt.datetime, st.TimestampNTZType: dt.datetime, st.DecimalType: Decimal,
    st.DayTimeIntervalType: dt.timedelta,
    **({st.TimeType: dt.time} if HAS_TIME else {}),
}  # fmt: skip


def exactly(value):
    """Return the exact form of a value; entries of maps have no order in Spark."""
    if type(value) is dict:
        return sorted((repr(exactly(key)), repr(exactly(item))) for key, item in value.items())
    if type(value) in (list, tuple):
        return type(value), [exactly(item) for item in value]
    return tl.fingerprint(value)
