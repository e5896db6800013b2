"""The tables of all scalar types."""

from __future__ import annotations

from millpond.types.number_types import NUMBER_KEYS
from millpond.types.scalar_base import ScalarKeyCodec, ScalarSerializer
from millpond.types.text_types import TEXT_KEYS
from millpond.types.time_types import TIME_KEYS

SCALAR_KEYS: dict[type, ScalarKeyCodec] = {
    codec.serializer.exact_type: codec for codec in (*NUMBER_KEYS, *TEXT_KEYS, *TIME_KEYS)
}

SCALARS: dict[type, ScalarSerializer] = {
    kind: codec.serializer for kind, codec in SCALAR_KEYS.items()
}

SCALARS_BY_NAME = {serializer.type_name: serializer for serializer in SCALARS.values()}
