"""Conversion between the physical rows of a state and the typed rows of its savepoint table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
import pyarrow as pa

from millpond.errors import CorruptSnapshotError, shown
from millpond.safe_decoding import unreadable
from millpond.spi.keys import KeyLayout
from millpond.spi.portable_rows import Change, join_cells, split_cells
from millpond.spi.tables import TIMESTAMP_BYTES, timestamp_bytes, timestamp_from
from millpond.state.descriptors import StateKind
from millpond.state.state_meta import StateMeta
from millpond.state.ttl.expiry_rule import STAMP
from millpond.types import SerializerSnapshot
from millpond.types.key_columns import codec_from_snapshot, key_column
from millpond.types.scalar_base import UnfitError
from millpond.types.value_columns import column_form


@attrs.frozen
class _Address:
    """The decoded parts of a stored key. A part is None if the state does not have such a part."""

    key: Any
    namespace: Any
    map_key: Any
    timestamp: int | None


class TableCodec:
    """The conversion of one keyed state's rows to Arrow batches and back.

    Args:
        key: the description of the key type.
        meta: the state.
        max_parallelism: the number of key groups.
        exact: whether values have the exact form; see ``SavedState``.

    Attributes:
        schema: the columns of the table: ``key_group, key, namespace, map_key, value,
            ttl_timestamp``. For example, only map states have ``map_key``. A list state has lists
            in ``value`` and ``ttl_timestamp``. A state of timers has ``timestamp`` instead of
            ``value``.
    """

    def __init__(
        self, key: SerializerSnapshot, meta: StateMeta, max_parallelism: int, *, exact: bool
    ) -> None:
        self.meta = meta
        self._max_parallelism = max_parallelism
        self._layout = KeyLayout(max_parallelism)
        self._key_codec, self._key = codec_from_snapshot(key), key_column(key)
        self._namespace_codec = codec_from_snapshot(meta.namespace)
        self._namespace = None if meta.namespace.id == "void" else key_column(meta.namespace)
        self._map_codec = None if meta.map_key is None else codec_from_snapshot(meta.map_key)
        self._map_key = None if meta.map_key is None else key_column(meta.map_key)
        self._form = column_form(meta.value, exact=exact)
        self._is_list = meta.kind is StateKind.LIST
        self._is_timer = meta.kind is StateKind.TIMER
        self.schema = self._make_schema()

    def _make_schema(self) -> pa.Schema:
        """Return the names and types of the columns in the state's table."""
        value, stamp = self._form.arrow_type, pa.int64()
        fields = [("key_group", pa.int32()), ("key", self._key.arrow_type)]
        if self._is_timer:
            fields.append(("timestamp", pa.int64()))
        if self._namespace is not None:
            fields.append(("namespace", self._namespace.arrow_type))
        if self._map_key is not None:
            fields.append(("map_key", self._map_key.arrow_type))
        if not self._is_timer:
            fields.append(("value", pa.list_(value) if self._is_list else value))
        if self.meta.ttl:
            fields.append(("ttl_timestamp", pa.list_(stamp) if self._is_list else stamp))
        return pa.schema(fields)

    # ---------------------------------------------------------------- to a table

    def to_batch(self, rows: Sequence[Change]) -> pa.RecordBatch:
        """Return rows as typed columns.

        Raises:
            UnfitError: a value does not fit the column type for its state, such as int64.
        """
        columns: dict[str, list[Any]] = {name: [] for name in self.schema.names}
        for physical, data in rows:
            try:
                self._add_row(columns, physical, data or b"")
            except UnfitError:
                raise
            except Exception as error:
                raise unreadable("", self.meta.name, physical, error) from error
        try:
            arrays = [pa.array(columns[field.name], field.type) for field in self.schema]
        except pa.ArrowTypeError as error:
            raise unreadable("", self.meta.name, rows[0][0], error) from error
        return pa.record_batch(arrays, schema=self.schema)

    def _add_row(self, columns: dict[str, list[Any]], physical: bytes, data: bytes) -> None:
        """Append the column values of one row to the lists in `columns`.

        Args:
            columns: the lists, by column name.
            physical: the stored key of the row.
            data: the stored value of the row.
        """
        address = self._parse(physical)
        columns["key_group"].append(self._layout.group_of(physical))
        columns["key"].append(self._key.to_column(address.key))
        if self._namespace is not None:
            columns["namespace"].append(self._namespace.to_column(address.namespace))
        if self._map_key is not None:
            columns["map_key"].append(self._map_key.to_column(address.map_key))
        if self._is_timer:
            columns["timestamp"].append(address.timestamp)
            return
        value: Any
        stamp: Any
        if self._is_list:
            cells = [self._cell_out(cell) for cell in split_cells(data)]
            value, stamp = [value for value, _ in cells], [stamp for _, stamp in cells]
        else:
            value, stamp = self._cell_out(data)
        columns["value"].append(value)
        if self.meta.ttl:
            columns["ttl_timestamp"].append(stamp)

    def _parse(self, physical: bytes) -> _Address:
        """Return the decoded parts of the stored key `physical`."""
        start, skip = self._layout.group_bytes, TIMESTAMP_BYTES if self._is_timer else 0
        found = self._layout.parse(physical, self._key_codec, self._namespace_codec, skip)
        timestamp = timestamp_from(physical[start : start + skip]) if skip else None
        codec = self._map_codec
        map_key = None if codec is None else codec.decode(physical, found.namespace_end)[0]
        return _Address(found.key, found.namespace, map_key, timestamp)

    def _cell_out(self, data: bytes) -> tuple[Any, int | None]:
        """Return the value and the TTL timestamp that `data`, a stored value or element, holds."""
        if not self.meta.ttl:
            return self._form.to_column(data), None
        return self._form.to_column(data[STAMP.size :]), STAMP.unpack_from(data)[0]

    # ---------------------------------------------------------------- from a table

    def from_batch(self, batch: pa.RecordBatch, path: str) -> list[Change]:
        """Return the stored rows of a batch. Their key groups are computed from the keys.

        Args:
            batch: the typed columns; the column ``key_group`` is ignored.
            path: the file, for errors.

        Raises:
            CorruptSnapshotError: a value does not fit the type of its column, or a key is null.
        """
        columns = {name: batch.column(name).to_pylist() for name in self.schema.names}
        missing = [None] * batch.num_rows
        keyed = zip(
            columns["key"],
            columns.get("namespace", missing),
            columns.get("map_key", missing),
            columns.get("value", missing),
            columns.get("ttl_timestamp", missing),
            columns.get("timestamp", missing),
            strict=True,
        )
        rows: list[Change] = []
        for number, (key, namespace, map_key, value, stamp, timestamp) in enumerate(keyed):
            try:
                physical = self.physical(key, namespace, map_key, timestamp)
                rows.append((physical, self.value_bytes(value, stamp)))
            except MemoryError:
                raise
            except Exception as error:
                reason = f"row {number} of the batch cannot be stored: {error}"
                raise CorruptSnapshotError(path, reason) from error
        return rows

    def physical(
        self, key: Any, namespace: Any = None, map_key: Any = None, timestamp: int | None = None
    ) -> bytes:
        """Return the stored key of the row with these column values."""
        codec = self._key_codec
        given = self._key.from_column(_given(key))
        checked, group = codec.check_with_group(given, self._max_parallelism)
        parts = [self._layout.group_prefix(group)]
        if self._is_timer:
            parts.append(timestamp_bytes(_given(timestamp)))
        parts.append(codec.encode(checked))
        if self._namespace is not None:
            value = self._namespace_codec.check(self._namespace.from_column(_given(namespace)))
            parts.append(self._namespace_codec.encode(value))
        if self._map_key is not None and self._map_codec is not None:
            value = self._map_codec.check(self._map_key.from_column(_given(map_key)))
            parts.append(self._map_codec.encode(value))
        return b"".join(parts)

    def described(self, physical: bytes) -> str:
        """Return the parts of the stored key `physical` as text for an error message."""
        found = self._parse(physical)
        namespace = None if self._namespace is None else found.namespace
        parts = {"namespace": namespace, "map key": found.map_key, "timer": found.timestamp}
        more = (f", {name} {shown(part)}" for name, part in parts.items() if part is not None)
        return f"the key {shown(found.key)}{''.join(more)}"

    def value_bytes(self, value: Any, stamp: Any) -> bytes:
        """Return the stored value of a row.

        `value` and `stamp` are the row's values in the columns ``value`` and ``ttl_timestamp``.

        Raises:
            ValueError, TypeError: `value` or `stamp` does not fit the column.
        """
        if self._is_timer:
            return b""
        if not self._is_list:
            return self._cell_back(value, stamp)
        stamps = stamp if self.meta.ttl else [None] * len(_given(value))
        cells = (self._cell_back(v, s) for v, s in zip(value, stamps, strict=True))
        return join_cells(cells)

    def _cell_back(self, value: Any, stamp: Any) -> bytes:
        """Return the stored bytes of `value`, with `stamp` as TTL timestamp if the state has one.

        `value` is a whole value or one list element.
        """
        data: bytes = self._form.from_column(value)
        return STAMP.pack(_given(stamp)) + data if self.meta.ttl else data

    def group_of(self, key: Any) -> int:
        """Return the key group of `key`, a value of the column ``key``."""
        given = self._key.from_column(_given(key))
        return self._key_codec.check_with_group(given, self._max_parallelism)[1]

    def groups(self, rows: Sequence[Change]) -> list[int]:
        """Return the key group of each physical row."""
        return [self._layout.group_of(physical) for physical, _ in rows]


def _given(value: Any) -> Any:
    """Return `value`; raise ValueError if it is None, which stands for a null in the column."""
    if value is None:
        raise ValueError("null is not allowed here")
    return value
