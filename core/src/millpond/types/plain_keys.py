"""The key codecs of all plain types."""

from __future__ import annotations

from millpond.types.scalar_keys import (
    BoolKeyCodec,
    BytesKeyCodec,
    DecimalKeyCodec,
    FloatKeyCodec,
    IntKeyCodec,
    ScalarKeyCodec,
    StrKeyCodec,
    UuidKeyCodec,
)
from millpond.types.temporal_keys import (
    DateKeyCodec,
    DatetimeKeyCodec,
    TimedeltaKeyCodec,
    TimeKeyCodec,
)

SCALAR_KEYS: dict[type, ScalarKeyCodec] = {
    codec.python_type: codec
    for codec in (
        IntKeyCodec(),
        BoolKeyCodec(),
        FloatKeyCodec(),
        StrKeyCodec(),
        BytesKeyCodec(),
        DecimalKeyCodec(),
        DatetimeKeyCodec(),
        DateKeyCodec(),
        TimedeltaKeyCodec(),
        TimeKeyCodec(),
        UuidKeyCodec(),
    )
}
