"""The bytes of one segment: a complete Arrow IPC stream, compressed as one block, or as it is.

What a segment unpacks to is known before it is unpacked. Inside the stream nothing is
compressed: Arrow would unpack buffers to whatever size they claim.
"""

from __future__ import annotations

import struct
from typing import Self

import attrs
import pyarrow as pa

from millpond.config import Config
from millpond.errors import CorruptSnapshotError
from millpond.untrusted import decoding

__all__ = ["Packing", "pack", "unpack"]

_SCHEMA = pa.schema([("state", pa.uint16()), ("key", pa.binary()), ("value", pa.binary())])
_CODECS = {"lz4": "lz4_raw", "zstd": "zstd"}
"""Arrow's names of what ``checkpoint.compression`` names; ``none`` has none."""
_MAX_LZ4_RATIO = 256
"""LZ4 cannot do better than this, so a larger claim is a lie."""
_MAX_GAIN = 16 << 20


@attrs.frozen
class Packing:
    """How segments are compressed.

    Attributes:
        compression: ``lz4``, ``zstd`` or ``none``.
        max_gain: by how many bytes a segment may exceed its stored size when it is unpacked. A
            segment that would exceed it further is stored as it is, because readers refuse it.
    """

    compression: str = "lz4"
    max_gain: int = _MAX_GAIN

    @classmethod
    def from_config(cls, config: Config) -> Self:
        """Return the configured compression, within ``restore.max-unpacked-bytes``."""
        max_gain = min(_MAX_GAIN, config.restore.max_unpacked_bytes)
        return cls(config.checkpoint.compression, max_gain)


def pack(
    indexes: list[int], keys: list[bytes], values: list[bytes | None], packing: Packing
) -> tuple[bytes, int, str]:
    """Rows as bytes, how many they are when unpacked, and how they are compressed after all."""
    columns = [
        pa.array(indexes, pa.uint16()),
        pa.array(keys, pa.binary()),
        pa.array(values, pa.binary()),
    ]
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, _SCHEMA) as writer:
        writer.write_batch(pa.record_batch(columns, schema=_SCHEMA))
    stream = sink.getvalue()
    if packing.compression != "none":
        data: bytes = pa.compress(stream, codec=_CODECS[packing.compression], asbytes=True)
        if stream.size - len(data) <= packing.max_gain:
            return data, stream.size, packing.compression
    return stream.to_pybytes(), stream.size, "none"


def unpack(
    path: str, data: bytes, size: int, budget: int, compression: str = "lz4"
) -> pa.RecordBatch:
    """The rows of a segment.

    Args:
        path: the file, for errors.
        data: the segment's bytes.
        size: how many they are when unpacked, as the footer says.
        budget: by how much that may exceed ``len(data)``.
        compression: how they are compressed, as the footer says.

    Raises:
        CorruptSnapshotError: the bytes are not a segment, or need more than the budget.
    """
    if compression not in (*_CODECS, "none"):
        raise CorruptSnapshotError(path, f"a segment is compressed by {compression[:40]!r}")
    most = {"lz4": len(data) * _MAX_LZ4_RATIO, "none": len(data)}.get(compression, size)
    if not 0 < size <= most or (compression == "none" and size != most):
        raise CorruptSnapshotError(path, "a segment claims to unpack to an absurd size")
    if size > len(data) + budget:
        reason = f"a segment of {len(data):,} bytes claims to unpack to {size:,}"
        raise CorruptSnapshotError(path, f"{reason}; restore.max-unpacked-bytes allows more")
    with decoding(path, "it is not an Arrow stream of rows"):
        stream = data
        if compression != "none":
            codec = _CODECS[compression]
            stream = pa.decompress(data, decompressed_size=size, codec=codec)
        messages = pa.ipc.MessageReader.open_stream(stream)
        if pa.ipc.read_schema(messages.read_next_message()) != _SCHEMA:
            raise ValueError("unexpected columns")
        message = messages.read_next_message()
        if message.type != "record batch" or _compressed(message.metadata.to_pybytes()):
            raise ValueError("it holds something else than plain rows")
        batch = pa.ipc.read_record_batch(message, _SCHEMA)
        batch.validate(full=True)
    return batch


_BATCH_HEADER, _COMPRESSION = 2, 3


def _compressed(metadata: bytes) -> bool:
    """Whether a record batch says of itself that its buffers are compressed."""
    (root,) = struct.unpack_from("<I", metadata)
    header = _field(metadata, root, _BATCH_HEADER)
    (offset,) = struct.unpack_from("<I", metadata, header)
    return _field(metadata, header + offset, _COMPRESSION) != 0


def _field(data: bytes, table: int, index: int) -> int:
    """Where a field of a flatbuffers table lies; 0 where it is absent."""
    (back,) = struct.unpack_from("<i", data, table)
    vtable, at = table - back, 4 + 2 * index
    (size,) = struct.unpack_from("<H", data, vtable)
    if at >= size:
        return 0
    (offset,) = struct.unpack_from("<H", data, vtable + at)
    return table + offset if offset else 0
