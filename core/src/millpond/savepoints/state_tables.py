"""Conversion between the physical rows of a state and the typed rows of its savepoint table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import repeat
from typing import Any

import pyarrow as pa

from millpond.errors import CorruptSnapshotError, shown
from millpond.safe_decoding import unreadable
from millpond.spi.keys import KeyLayout
from millpond.spi.portable_rows import Change, Changes, join_cells, split_cells
from millpond.spi.tables import TIMESTAMP_BYTES, timestamp_bytes, timestamp_from
from millpond.state.descriptors import StateKind
from millpond.state.state_meta import StateMeta
from millpond.state.ttl.expiry_rule import STAMP
from millpond.types import SerializerSnapshot
from millpond.types.key_codecs import VoidKeyCodec
from millpond.types.key_columns import codec_from_snapshot, key_column
from millpond.types.scalar_base import UnfitError
from millpond.types.value_columns import column_form


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
        self._prefixes = list(map(self._layout.group_prefix, range(max_parallelism)))
        types = {"key": key, "namespace": meta.namespace, "map_key": meta.map_key}
        if meta.namespace.id == VoidKeyCodec.id:
            del types["namespace"]
        self._parts = [
            (name, codec_from_snapshot(snapshot), key_column(snapshot))
            for name, snapshot in types.items()
            if snapshot is not None
        ]
        _, self._key_codec, self._key = self._parts[0]
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
        fields += [(name, column.arrow_type) for name, _, column in self._parts[1:]]
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
            CorruptSnapshotError: a row cannot be decoded.
        """
        rows = Changes.from_rows(rows)
        try:
            columns = self._columns(rows)
            arrays = [pa.array(columns[field.name], field.type) for field in self.schema]
        except (UnfitError, pa.ArrowInvalid):
            raise
        except Exception as error:
            if len(rows) == 1:
                raise unreadable("", self.meta.name, rows.keys[0], error) from error
            for row in rows:  # find the row, for the error
                self.to_batch((row,))
            raise unreadable("", self.meta.name, rows.keys[0], error) from error
        return pa.record_batch(arrays, schema=self.schema)

    def _columns(self, rows: Changes) -> dict[str, Any]:
        """Return the values of each column of the table, by name.

        Conversion by column instead of by row saves 2.2 of 4.7 µs a row in `savepoint create`
        (processor time, benchmarks/bootstrapping.py).
        """
        physical, start = rows.keys, self._layout.group_bytes
        columns: dict[str, Any] = {"key_group": self.groups(rows)}
        if self._is_timer:
            end = start + TIMESTAMP_BYTES
            columns["timestamp"] = [timestamp_from(each[start:end]) for each in physical]
            start = end
        ends: Iterable[int] = repeat(start, len(physical))
        for name, codec, column in self._parts:
            found = list(map(codec.decode, physical, ends))
            columns[name] = column.to_values([value for value, _ in found])
            ends = [end for _, end in found]
        if not self._is_timer:
            values, stamps = self._values_out([data or b"" for data in rows.values])
            columns |= {"value": values, "ttl_timestamp": stamps}
        return columns

    def _values_out(self, stored: list[bytes]) -> tuple[list[Any], list[Any]]:
        """Return the values of the columns ``value`` and ``ttl_timestamp`` for stored values."""
        if self._is_list:
            lists = [self._cells_out(split_cells(data)) for data in stored]
            return [values for values, _ in lists], [stamps for _, stamps in lists]
        return self._cells_out(stored)

    def _cells_out(self, cells: list[bytes]) -> tuple[list[Any], list[Any]]:
        """Return the values and the TTL timestamps in `cells`: stored values, or list elements."""
        if not self.meta.ttl:
            return self._form.to_values(cells), []
        stamps = [STAMP.unpack_from(cell)[0] for cell in cells]
        return self._form.to_values([cell[STAMP.size :] for cell in cells]), stamps

    # ---------------------------------------------------------------- from a table

    def from_batch(self, batch: pa.RecordBatch, path: str) -> Changes:
        """Return the stored rows of a batch. Their key groups are computed from the keys.

        Args:
            batch: the typed columns; the column ``key_group`` is ignored.
            path: the file, for errors.

        Raises:
            CorruptSnapshotError: a value does not fit the type of its column, or a key is null.
        """
        try:
            return self._rows(batch)
        except MemoryError:
            raise
        except Exception:
            for number in range(batch.num_rows):  # find the row, for the error
                try:
                    self._rows(batch.slice(number, 1))
                except Exception as error:
                    reason = f"row {number} of the batch cannot be stored: {error}"
                    raise CorruptSnapshotError(path, reason) from error
            raise

    def _rows(self, batch: pa.RecordBatch) -> Changes:
        """Return the stored rows of a batch.

        Conversion by column instead of by row saves 1.3 of 4.6 µs a row in a restore on heap
        (processor time, benchmarks/bootstrapping.py).
        """
        columns = {name: batch.column(name).to_pylist() for name in self.schema.names[1:]}
        stored = self._stored_keys(columns)
        if self._is_timer:
            return Changes(stored, [b""] * len(stored))
        values = columns["value"]
        if not self._is_list:
            return Changes(stored, self._cells_back(values, columns.get("ttl_timestamp")))
        stamps = columns.get("ttl_timestamp", repeat(None))
        lists: list[bytes | None] = list(map(self.value_bytes, values, stamps))
        return Changes(stored, lists)

    def _stored_keys(self, columns: Mapping[str, list[Any]]) -> list[bytes]:
        """Return the stored keys of rows with these columns."""
        codec, most = self._key_codec, self._max_parallelism
        keys = self._key.from_values(_all_given(columns["key"]))
        checked = [codec.check_with_group(key, most) for key in keys]
        parts = [[self._prefixes[group] for _, group in checked]]
        if self._is_timer:
            parts.append(list(map(timestamp_bytes, _all_given(columns["timestamp"]))))
        parts.append(codec.encode_many([key for key, _ in checked]))
        for name, other, column in self._parts[1:]:
            values = column.from_values(_all_given(columns[name]))
            parts.append(other.encode_many(list(map(other.check, values))))
        return list(map(b"".join, zip(*parts, strict=True)))

    def physical(
        self, key: Any, namespace: Any = None, map_key: Any = None, timestamp: int | None = None
    ) -> bytes:
        """Return the stored key of the row with these column values."""
        given = {"key": key, "namespace": namespace, "map_key": map_key, "timestamp": timestamp}
        (stored,) = self._stored_keys({name: [value] for name, value in given.items()})
        return stored

    def described(self, physical: bytes) -> str:
        """Return the parts of the stored key `physical` as text for an error message."""
        start, skip = self._layout.group_bytes, TIMESTAMP_BYTES if self._is_timer else 0
        timer = timestamp_from(physical[start : start + skip]) if skip else None
        found, at = dict[str, Any](), start + skip
        for name, codec, _ in self._parts:
            found[name.replace("_", " ")], at = codec.decode(physical, at)
        key = found.pop("key")
        parts = {**found, "timer": timer}
        more = (f", {name} {shown(part)}" for name, part in parts.items() if part is not None)
        return f"the key {shown(key)}{''.join(more)}"

    def value_bytes(self, value: Any, stamp: Any) -> bytes:
        """Return the stored value of a row.

        `value` and `stamp` are the row's values in the columns ``value`` and ``ttl_timestamp``.

        Raises:
            ValueError, TypeError: `value` or `stamp` does not fit the column.
        """
        if self._is_timer:
            return b""
        stamps = stamp if self.meta.ttl else None
        if self._is_list:
            return join_cells(self._cells_back(_given(value), stamps))
        data: bytes
        (data,) = self._cells_back([value], None if stamps is None else [stamps])
        return data

    def _cells_back(self, values: list[Any], stamps: list[Any] | None) -> list[Any]:
        """Return the stored bytes of `values`, which are whole values or the elements of a list.

        If the state has a TTL, `stamps` are the TTL timestamps of the values.
        """
        cells: list[bytes] = self._form.from_values(values)
        if not self.meta.ttl:
            return cells
        return [STAMP.pack(s) + cell for s, cell in zip(_all_given(stamps), cells, strict=True)]

    def group_of(self, key: Any) -> int:
        """Return the key group of `key`, a value of the column ``key``."""
        given = self._key.from_column(_given(key))
        return self._key_codec.check_with_group(given, self._max_parallelism)[1]

    def groups(self, rows: Sequence[Change]) -> list[int]:
        """Return the key group of each physical row."""
        physical = Changes.from_rows(rows).keys
        if self._layout.group_bytes == 1:
            return [each[0] for each in physical]
        return list(map(self._layout.group_of, physical))


def _given(value: Any) -> Any:
    """Return `value`; raise ValueError if it is None, which stands for a null in the column."""
    if value is None:
        raise ValueError("null is not allowed here")
    return value


def _all_given(values: Any) -> Any:
    """Return the list `values`; raise ValueError if it has a None."""
    if None in values:
        _given(None)
    return values
