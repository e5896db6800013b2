"""Snapshot files: rows are read by key group as they were written, and changed files are refused."""

from contextlib import suppress

import attrs
import pytest
from millpond import KeyGroupRange
from millpond.config import RestoreConfig
from millpond.errors import CorruptSnapshotError
from millpond.snapshots.bundle import Bundle
from millpond.snapshots.handles import KeyedStateHandle
from millpond.snapshots.row_files import (
    RowFileWriter,
    SegmentBuilder,
    read_rows,
    verify_rows,
)
from millpond.spi.keys import KeyLayout
from millpond.storage.memory import MemoryStorage
from millpond.types import key_codec_for

ALL = KeyGroupRange(0, 127)
BLANK = KeyedStateHandle(1, "v", ALL, 128, key_codec_for(str).snapshot(), states=(), files=())


@pytest.fixture
def storage():
    """A storage in memory."""
    return MemoryStorage.private()


def rows_of(group, count, size=10):
    """Return rows of a key group; every third one is a removal."""
    prefix = bytes([group])
    values = (None if n % 3 == 2 else bytes([n % 251]) * size for n in range(count))
    return [(prefix + n.to_bytes(4, "big"), value) for n, value in enumerate(values)]


def write(storage, by_state, path="a/file.snapshot"):
    """Write a file with rows of some states."""
    with Bundle(storage, path) as bundle:
        writer = RowFileWriter(bundle, KeyLayout(128))
        for state, rows in by_state.items():
            writer.builder.add(state, rows)
        made = writer.finish("base", "version")
        bundle.finish(attrs.evolve(BLANK, files=(made,)))
    return made


def read(storage, file, groups=ALL, **options):
    """Return the rows by state."""
    found = {}
    for state, rows in read_rows(storage, file, groups, KeyLayout(128), **options):
        found.setdefault(state, []).extend(rows)
    return found


def test_rows_come_back(storage):
    """Rows are read by state and in order; removals and empty values differ."""
    given = {"one": [*rows_of(0, 20), (b"\x05k", b"")], "two": rows_of(127, 7), "none": []}
    file = write(storage, given)
    assert read(storage, file) == {"one": given["one"], "two": given["two"]}
    assert file.rows == 28
    verify_rows(storage, file, KeyLayout(128), RestoreConfig())


@pytest.mark.parametrize("groups", [(0, 0), (1, 2), (2, 2), (3, 127), (4, 5)])
def test_only_the_wanted_key_groups_come(storage, groups):
    """Only rows of the requested key groups are read, however the segments are cut."""
    wanted = KeyGroupRange(*groups)
    rows = [row for group in (0, 1, 2, 3, 9) for row in rows_of(group, 5)]
    big = [(bytes([group]) + b"big", bytes(600_000)) for group in (2, 3, 4, 5)]
    file = write(storage, {"state": rows, "big": big})
    found = read(storage, file, wanted)
    for name, given in (("state", rows), ("big", big)):
        assert found.get(name, []) == [row for row in given if row[0][0] in wanted]


def test_large_rows_are_cut_into_segments():
    """Large rows are divided into segments of about a megabyte, each with its key groups."""
    segments = []
    builder = SegmentBuilder(KeyLayout(128), segments.append)
    rows = [row for group in range(10) for row in rows_of(group, 300, 1000)]
    builder.add("state", rows)
    builder.cut()
    assert len(segments) in (2, 3)
    assert sum(segment.entry.rows for segment in segments) == len(rows)
    spans = [(each.entry.first_group, each.entry.last_group) for each in segments]
    assert spans[0][0] == 0
    assert spans[-1][1] == 9
    assert spans == sorted(spans)


def test_encoded_segments_are_a_file_too(storage):
    """Segments that a changelog has collected are read like those of a snapshot."""
    segments = []
    builder = SegmentBuilder(KeyLayout(128), segments.append)
    for group in (3, 1):
        builder.add("state", rows_of(group, 4))
        builder.cut()
    with Bundle(storage, "d") as bundle:
        writer = RowFileWriter(bundle, KeyLayout(128))
        for segment in segments:
            writer.place(segment)
        file = writer.finish("delta", "v", builder.states)
        bundle.finish(attrs.evolve(BLANK, files=(file,)))
    assert read(storage, file)["state"] == [*rows_of(3, 4), *rows_of(1, 4)]
    assert file.kind == "delta"


@pytest.mark.parametrize("part", ["segment", "footer", "trailer"])
def test_one_flipped_bit_is_refused(storage, part):
    """Any flipped bit is refused: segments and footer have digests, and the handle has the footer's."""
    file = write(storage, {"state": rows_of(0, 50)})
    data = bytearray(storage.read_all(file.path))[: file.size]
    at = {"segment": 20, "footer": len(data) - file.footer + 3, "trailer": len(data) - 2}[part]
    data[at] ^= 1
    storage.write("bad", [bytes(data)])
    with pytest.raises(CorruptSnapshotError, match="digest"):
        read(storage, attrs.evolve(file, path="bad"))


def test_a_state_that_the_handle_does_not_name_is_refused(storage):
    """A state that only the footer names is refused."""
    file = write(storage, {"one": rows_of(0, 3), "two": rows_of(0, 3)})
    with pytest.raises(CorruptSnapshotError, match="'two'"):
        read(storage, file, states={"one"})


def test_a_writer_that_fails_leaves_no_file(storage):
    """A writer that fails leaves no file."""
    with suppress(KeyError), Bundle(storage, "half") as bundle:
        writer = RowFileWriter(bundle, KeyLayout(128))
        writer.builder.add("state", rows_of(0, 3))
        writer.builder.cut()
        raise KeyError
    assert list(storage.list("")) == []
