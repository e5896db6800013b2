"""The measured constants of `millpond plan`, each with its section of docs/quality/benchmarks.md.

If a benchmark is measured again, change the value and the day here. A test checks that each section
exists.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import attrs

Backend: TypeAlias = Literal["heap", "lmdb", "rocksdb"]


@attrs.frozen
class Constant:
    """A measured number.

    Attributes:
        value: the number.
        unit: the unit of the number.
        section: the heading of the section of the benchmarks page that shows the measurement.
        day: the day of the measurement.
    """

    value: float
    unit: str
    section: str
    day: str


_PARTS = "Parts of a batch"
_SUBTASKS = "Many subtasks"
_KEYS = "Bytes of a key"
_LARGE = "Ten million keys, and a large micro-batch"
_REQUESTS = "Requests to the storage"
_CHECKPOINTS = "Checkpoints"
_PLANNED = "Plan and measurement"

ROW: dict[Backend, Constant] = {
    "heap": Constant(2.7, "µs of a core per row", _PARTS, "2026-11-25"),
    "lmdb": Constant(3.7, "µs of a core per row", _PARTS, "2026-11-25"),
    "rocksdb": Constant(5.6, "µs of a core per row", _PARTS, "2026-11-25"),
}
"""The time of a row on one core, with the input and the transfer between the JVM and Python.

It is the difference between batches of 100,000 and of 100 rows, in a JVM that has run for less than
a minute. After some minutes a batch takes up to 40 % less.
"""

BATCH = Constant(240, "ms per batch", _PARTS, "2026-11-25")
"""The time of a batch of 100 rows without the times of its partitions and subtasks."""

PARTITION = Constant(17, "ms of the driver per state partition and batch", _SUBTASKS, "2026-11-27")
SUBTASK: dict[Backend, Constant] = {
    "heap": Constant(50, "ms of a core per subtask and batch", _SUBTASKS, "2026-11-27"),
    "lmdb": Constant(50, "ms of a core per subtask and batch", _SUBTASKS, "2026-11-27"),
    "rocksdb": Constant(55, "ms of a core per subtask and batch", _SUBTASKS, "2026-11-27"),
}
"""The time of a subtask and its task without rows: start, opening, snapshot, pointer."""

WORKER: dict[Backend, Constant] = {
    "heap": Constant(90, "MB per worker", _LARGE, "2026-11-24"),
    "lmdb": Constant(90, "MB per worker", _LARGE, "2026-11-24"),
    "rocksdb": Constant(150, "MB per worker", _PLANNED, "2026-11-27"),
}
"""The memory of a Python worker without frames, cache and state."""

BATCH_ROW = Constant(50, "bytes per row of a subtask", _LARGE, "2026-11-24")
"""The memory that grows with a large batch, such as the changes for the snapshot."""


FRAMES = Constant(2.1, "kB per row of a frame", _LARGE, "2026-11-24")
MAX_FRAME_ROWS = 50_000
"""The rows of a frame that `configure` sets."""

BUFFERED_ENTRY = Constant(300, "bytes per changed entry", _LARGE, "2026-11-24")
MAX_BUFFERED = 200_000
"""The default of `buffer.max-entries`."""

HEAP_ENTRY = Constant(190, "bytes per key", _PLANNED, "2026-11-27")
"""The memory of a key on heap, apart from the bytes of its key and value.

Of this, 125 bytes are the entry itself (section *Bytes of a key*). A snapshot copies dictionaries.
"""

CACHE = Constant(64, "MB per worker", _LARGE, "2026-11-24")
"""The default of `backend.rocksdb.block-cache-size`."""

PAGE = Constant(4096, "bytes per changed key", _LARGE, "2026-11-24")
"""LMDB's page, of which a transaction holds a copy in memory."""
MAX_PAGES = 131_071
"""The largest number of pages that LMDB holds before it writes some to the disk."""

DISK_ENTRY: dict[Backend, Constant] = {
    "heap": Constant(0, "bytes per key", _KEYS, "2026-11-27"),
    "lmdb": Constant(90, "bytes per key", _KEYS, "2026-11-27"),
    "rocksdb": Constant(-5, "bytes per key", _PLANNED, "2026-11-27"),
}
"""The disk space of a key apart from its bytes; RocksDB stores less of keys that begin alike.

RocksDB's numbers are fitted to a job with a million keys, whose files wait longer for their merge.
"""

DISK_FACTOR: dict[Backend, Constant] = {
    "heap": Constant(0, "bytes of disk per byte of state", _KEYS, "2026-11-27"),
    "lmdb": Constant(2.9, "bytes of disk per byte of state", _KEYS, "2026-11-27"),
    "rocksdb": Constant(2, "bytes of disk per compressed byte of state", _PLANNED, "2026-11-27"),
}

UNMERGED = 8
"""The default of `backend.rocksdb.compaction-trigger`: batches whose changes are not merged yet."""

COMPRESSION = Constant(0.74, "bytes in a snapshot per byte of state", _CHECKPOINTS, "2026-11-25")

WRITES = Constant(1, "requests per file of up to 10 MiB", _REQUESTS, "2026-11-27")
DELETES = Constant(4, "requests per deleted file", _REQUESTS, "2026-11-27")
PART_BYTES = 10 << 20
"""The bytes of a part of a large file; pyarrow sends each part by one request."""
MAX_FILE_BYTES = 10_000 * PART_BYTES
"""The largest file that pyarrow can write to S3, which refuses more than 10,000 parts."""

RETAINED = 100
"""The default of `checkpoint.retained`."""
MAX_DELTAS = 100
"""The default of `state.snapshot.max-deltas`."""
BASE_RATIO = 4.0
"""The default of `state.snapshot.base-ratio`."""

RESTORE: dict[Backend, Constant] = {
    "heap": Constant(0.61, "µs of a core per entry", _PLANNED, "2026-11-27"),
    "lmdb": Constant(0.47, "µs of a core per entry", _PLANNED, "2026-11-27"),
    "rocksdb": Constant(0.88, "µs of a core per entry", _PLANNED, "2026-11-27"),
}
"""The time of a restored entry apart from its bytes, fitted to the job *totals*."""

RESTORE_BYTE: dict[Backend, Constant] = {
    "heap": Constant(3.2, "ns of a core per byte of state", _PLANNED, "2026-11-27"),
    "lmdb": Constant(7.0, "ns of a core per byte of state", _PLANNED, "2026-11-27"),
    "rocksdb": Constant(3.2, "ns of a core per byte of state", _PLANNED, "2026-11-27"),
}
"""The time of a restored byte, fitted to the job *profiles*."""
