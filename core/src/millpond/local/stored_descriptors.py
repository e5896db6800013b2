"""Descriptors that read stored states as plain Python values, without the job's classes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from typing_extensions import override

from millpond.backend import StateMeta
from millpond.state import (
    AggregateFunction,
    AggregatingStateDescriptor,
    FoldingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    StateKind,
    ValueStateDescriptor,
)
from millpond.types import SerializerSnapshot, TypeSerializer
from millpond.types.columns import column_form
from millpond.types.key_columns import codec_from_snapshot

__all__ = ["stored_descriptor"]


class StoredValue(TypeSerializer[Any]):
    """Reads stored values as plain Python values, without the job's classes."""

    immutable = True
    type_name = "stored"

    def __init__(self, snapshot: SerializerSnapshot) -> None:
        self._snapshot = snapshot
        self._decode = column_form(snapshot, exact=False).to_column
        self._decode_exactly = column_form(snapshot, exact=True).to_column

    @override
    def check(self, value: Any) -> Any:
        return value

    @override
    def serialize(self, value: Any) -> bytes:
        """Nothing is ever written."""
        raise NotImplementedError

    @override
    def deserialize(self, data: bytes) -> Any:
        """Ints beyond 64 bits are digits."""
        try:
            return self._decode(data)
        except Exception:  # noqa: BLE001 - the natural form is tried first, as in tables
            return self._decode_exactly(data)

    @override
    def snapshot(self) -> SerializerSnapshot:
        return self._snapshot


class _Accumulator(AggregateFunction[Any, Any, Any]):
    """Shows an accumulator as it is stored."""

    @override
    def create_accumulator(self) -> Any:
        return None

    @override
    def add(self, value: Any, accumulator: Any) -> Any:
        return accumulator

    @override
    def get_result(self, accumulator: Any) -> Any:
        return accumulator

    @override
    def merge(self, a: Any, b: Any) -> Any:
        return a


def _second(a: Any, b: Any) -> Any:  # noqa: ARG001 - the shape of a fold
    return b


def stored_descriptor(meta: StateMeta) -> StateDescriptor:
    """What reads a stored state of any kind."""
    values = StoredValue(meta.value)
    if meta.kind is StateKind.MAP:
        assert meta.map_key is not None
        return MapStateDescriptor(meta.name, codec_from_snapshot(meta.map_key), values)
    made: dict[StateKind, Callable[[], StateDescriptor]] = {
        StateKind.VALUE: lambda: ValueStateDescriptor(meta.name, values),
        StateKind.LIST: lambda: ListStateDescriptor(meta.name, values),
        StateKind.REDUCING: lambda: ReducingStateDescriptor(meta.name, _second, values),
        StateKind.AGGREGATING: lambda: AggregatingStateDescriptor(
            meta.name, _Accumulator(), values
        ),
        StateKind.FOLDING: lambda: FoldingStateDescriptor(meta.name, 0, _second, values),
    }
    return made[meta.kind]()
