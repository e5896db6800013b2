"""Reading portable snapshots: everything in a file is checked before it is used."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterator
from typing import Any

import cattrs
import pyarrow as pa
import pyarrow.compute as pc

from millpond.backend.changes import Changes
from millpond.backend.key_layout import KeyLayout
from millpond.config import RestoreConfig
from millpond.errors import CorruptSnapshotError
from millpond.format_versions import SNAPSHOT_FILE
from millpond.keygroups import KeyGroupRange
from millpond.safe_decoding import decoding, exact_int, exact_text, parse_json
from millpond.snapshots.handles import SnapshotFile
from millpond.snapshots.output_streams import part_reader, require_whole
from millpond.snapshots.row_file_format import TRAILER, Entry, Footer, unpack
from millpond.storage.checkpoint_storage import CheckpointStorage

_SLICE = 1 << 16

_CONVERTER = cattrs.Converter(forbid_extra_keys=True)
_CONVERTER.register_structure_hook(int, exact_int)
_CONVERTER.register_structure_hook(str, exact_text)


def read_rows(
    storage: CheckpointStorage,
    file: SnapshotFile,
    groups: KeyGroupRange,
    layout: KeyLayout,
    states: Collection[str] | None = None,
    limits: RestoreConfig = RestoreConfig(),
) -> Iterator[tuple[str, Changes]]:
    """The rows of some key groups, checked, in the order they were written.

    Args:
        storage: where the file is.
        file: what its handle says of it.
        groups: the key groups to read.
        layout: of its physical keys.
        states: the states that the handle names; a file with others is refused.
        limits: how much memory may be needed.

    Yields:
        A state's name and consecutive rows of it.

    Raises:
        CorruptSnapshotError: the file is damaged, missing or foreign.
        ApiVersionError: it was written by a newer Millpond.
    """
    read = part_reader(storage, file)
    footer = _read_footer(read, file)
    unknown = [] if states is None else [name for name in footer.states if name not in states]
    if unknown:
        reason = f"it holds the state {unknown[0]!r}, which its handle does not name"
        raise CorruptSnapshotError(file.path, reason)
    for entry in footer.segments:
        if entry.last_group < groups.start or entry.first_group > groups.end:
            continue
        batch = _read_segment(read, file, entry, layout, limits)
        if entry.first_group < groups.start or entry.last_group > groups.end:
            batch = _inside(batch, groups, layout)
        for index, rows in _split_by_state(batch):
            if index >= len(footer.states):
                raise CorruptSnapshotError(file.path, "a row belongs to no state")
            yield footer.states[index], rows


def _inside(batch: pa.RecordBatch, groups: KeyGroupRange, layout: KeyLayout) -> pa.RecordBatch:
    """The rows of some key groups; filtered before Python sees them."""
    keys = batch.column(1)
    inside = pc.greater_equal(keys, layout.group_prefix(groups.start))
    end = layout.end_of_group(groups.end)
    if end is not None:
        inside = pc.and_(inside, pc.less(keys, end))
    return batch.filter(inside)


def verify_rows(
    storage: CheckpointStorage, file: SnapshotFile, layout: KeyLayout, limits: RestoreConfig
) -> None:
    """Read a whole file and check it; raises what :func:`read_rows` raises."""
    require_whole(storage, file)
    read = part_reader(storage, file)
    for entry in _read_footer(read, file).segments:
        _read_segment(read, file, entry, layout, limits)


def _read_footer(read: Callable[[int, int], bytes], file: SnapshotFile) -> Footer:
    if not TRAILER < file.footer <= file.size:
        raise CorruptSnapshotError(file.path, "its sizes are impossible")
    data = read(file.size - file.footer, file.footer)
    if hashlib.sha256(data).hexdigest() != file.digest:
        raise CorruptSnapshotError(file.path, "the digest of its footer is wrong")
    with decoding(file.path, "its footer cannot be read"):
        body: dict[str, Any] = parse_json(data[:-TRAILER])
        SNAPSHOT_FILE.check(body["format_version"], file.path)
        footer = _CONVERTER.structure(body, Footer)
    position = 0
    for entry in footer.segments:
        if entry.offset != position or entry.length <= 0:
            reason = f"a segment at {entry.offset} lies outside of the file or within another"
            raise CorruptSnapshotError(file.path, reason)
        position += entry.length
    if position != file.size - file.footer:
        raise CorruptSnapshotError(file.path, "its segments lie outside of the file")
    return footer


def _read_segment(
    read: Callable[[int, int], bytes],
    file: SnapshotFile,
    entry: Entry,
    layout: KeyLayout,
    limits: RestoreConfig,
) -> pa.RecordBatch:
    offset = entry.offset
    data = read(offset, entry.length)
    if hashlib.sha256(data).hexdigest() != entry.digest:
        raise CorruptSnapshotError(file.path, f"the digest of the bytes at {offset} is wrong")
    batch = unpack(
        file.path, data, entry.stream_bytes, limits.max_unpacked_bytes, entry.compression
    )
    if batch.num_rows != entry.rows or batch.column(0).null_count or not entry.rows:
        raise CorruptSnapshotError(file.path, f"unexpected columns or rows at {offset}")
    _check_extent(file, entry, batch.column(1), layout)
    return batch


def _check_extent(
    file: SnapshotFile, entry: Entry, keys: pa.BinaryArray, layout: KeyLayout
) -> None:
    """The key groups must be those that the footer says: by them segments are skipped."""
    if keys.null_count or pc.min(pc.binary_length(keys)).as_py() < layout.group_bytes:
        raise CorruptSnapshotError(file.path, f"a row at {entry.offset} has no key")
    extent = pc.min_max(keys)
    first, last = (layout.group_of(extent[end].as_py()) for end in ("min", "max"))
    if (first, last) != (entry.first_group, entry.last_group):
        reason = f"the rows at {entry.offset} are not of the key groups that the footer says"
        raise CorruptSnapshotError(file.path, reason)


def _split_by_state(batch: pa.RecordBatch) -> Iterator[tuple[int, Changes]]:
    """Consecutive rows of one state; of many small rows not all are made objects at once."""
    for at in range(0, batch.num_rows, _SLICE):
        part = batch.slice(at, _SLICE)
        keys, values = part.column(1).to_pylist(), part.column(2).to_pylist()
        runs = pc.run_end_encode(part.column(0))
        start = 0
        for index, end in zip(runs.values.to_pylist(), runs.run_ends.to_pylist(), strict=True):
            yield index, Changes(keys[start:end], values[start:end])
            start = end
