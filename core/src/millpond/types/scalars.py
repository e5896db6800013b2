"""The tables of all scalar types."""

from __future__ import annotations

from millpond.types.number_types import (
    BOOL,
    DECIMAL,
    FLOAT,
    INT,
    BoolKeyCodec,
    DecimalKeyCodec,
    FloatKeyCodec,
    IntKeyCodec,
)
from millpond.types.scalar import ScalarKeyCodec, ScalarSerializer
from millpond.types.text_types import (
    BYTES,
    STR,
    UUID,
    BytesKeyCodec,
    StrKeyCodec,
    UuidKeyCodec,
)
from millpond.types.time_types import (
    DATE,
    DATETIME,
    TIME,
    TIMEDELTA,
    DateKeyCodec,
    DatetimeKeyCodec,
    TimedeltaKeyCodec,
    TimeKeyCodec,
)

SCALARS: dict[type, ScalarSerializer] = {
    serializer.exact_type: serializer
    for serializer in (
        *(INT, FLOAT, BOOL, DECIMAL),
        *(STR, BYTES, UUID),
        *(DATETIME, DATE, TIMEDELTA, TIME),
    )
}

SCALARS_BY_NAME = {serializer.type_name: serializer for serializer in SCALARS.values()}

SCALAR_KEYS: dict[type, ScalarKeyCodec] = {
    codec.serializer.exact_type: codec
    for codec in (
        *(IntKeyCodec(), FloatKeyCodec(), BoolKeyCodec(), DecimalKeyCodec()),
        *(StrKeyCodec(), BytesKeyCodec(), UuidKeyCodec()),
        *(DatetimeKeyCodec(), DateKeyCodec(), TimedeltaKeyCodec(), TimeKeyCodec()),
    )
}
