"""Compression of rows in snapshots: configurable, readable in every form, and limited in size."""

import itertools

import millpond as mp
import pyarrow as pa
import pytest
from millpond.errors import CorruptSnapshotError
from millpond.snapshots.row_files import Packing, pack, unpack

CODECS = ("lz4", "zstd", "none")
TEXT = mp.ValueStateDescriptor("text", str)
numbers = itertools.count()


def opened(codec, strategy="changelog", restore=()):
    """Return a backend with a compression."""
    settings = {"checkpoint.compression": codec, "state.snapshot.strategy": strategy}
    config = mp.Config(settings | {"checkpoint.claim": True, "checkpoint.inline-threshold": 0})
    return mp.open_keyed_backend("heap", key_type=int, config=config, restore=restore)


def put(backend, keys, text):
    """Set keys to a text."""
    state = backend.get_partitioned_state(TEXT)
    for key in keys:
        backend.set_current_key(key)
        state.update(text)


def value(backend, key):
    """Return the text of a key."""
    backend.set_current_key(key)
    return backend.get_partitioned_state(TEXT).value()


@pytest.mark.parametrize("strategy", ["changelog", "full"])
def test_a_chain_may_hold_all_of_them(strategy):
    """Each start may use another compression, and reads the files of the others."""
    storage = mp.checkpoint_storage(f"memory:codecs{next(numbers)}")
    handles = []
    for number, codec in enumerate((*CODECS, "lz4"), start=1):
        with opened(codec, strategy, handles[-1:]) as backend:
            put(backend, range(100 * number, 100 * number + (400 if number == 1 else 5)), codec)
            handles.append(backend.snapshot(number, storage).result().handle)
    with opened("none", restore=handles[-1:]) as backend:
        assert [value(backend, key) for key in (150, 200, 300, 400)] == [
            "lz4",
            "zstd",
            "none",
            "lz4",
        ]
    assert strategy == "full" or len(handles[-1].files) == 4


def test_what_each_of_them_takes():
    """For repetitive text zstd needs the least space, and `none` the most."""
    sizes = {}
    for codec in CODECS:
        storage = mp.checkpoint_storage(f"memory:codecs{next(numbers)}")
        with opened(codec) as backend:
            put(backend, range(5_000), "the same words, and some more of them, in each of the rows")
            sizes[codec] = backend.snapshot(1, storage).result().handle.size
    assert sizes["zstd"] < sizes["lz4"] < sizes["none"] / 2


def packed(codec, size=1_000):
    """Return a segment with one row."""
    return pack([0], [b"\0key"], [bytes(size)], Packing(codec))


@pytest.mark.parametrize("codec", CODECS)
def test_claims_about_sizes_are_checked(codec):
    """Sizes beyond the budget, wrong sizes, zero and negative ones are refused."""
    data, size, said = packed(codec)
    assert said == codec
    assert unpack("f", data, size, 1 << 20, codec).num_rows == 1
    for wrong in (0, -1, 1 << 40, len(data) + (1 << 20) + 1):
        with pytest.raises(CorruptSnapshotError, match="absurd|max-unpacked-bytes"):
            unpack("f", data, wrong, 1 << 20, codec)
    for wrong in (size - 1, 16):
        with pytest.raises(CorruptSnapshotError):
            unpack("f", data, wrong, 1 << 20, codec)


@pytest.mark.parametrize("codec", ["gzip", "", "LZ4", "x" * 9_999])
def test_unknown_compressions_are_refused(codec):
    """A footer with an unknown compression is refused."""
    data, size, _ = packed("lz4")
    with pytest.raises(CorruptSnapshotError, match="compressed by"):
        unpack("f", data, size, 1 << 20, codec)


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_bombs_are_neither_made_nor_read(codec):
    """Rows that would unpack to far more than their stored size are written uncompressed; such files are refused."""
    data, size, said = packed(codec, 64 << 20)
    assert (said, len(data)) == ("none", size)
    assert unpack("f", data, size, 0, "none").num_rows == 1
    bomb = pa.compress(bytes(1 << 30), codec="zstd", asbytes=True)
    before = pa.total_allocated_bytes()
    for claimed in (1 << 30, 1 << 20):
        with pytest.raises(CorruptSnapshotError):
            unpack("f", bomb, claimed, 32 << 20, codec)
    assert pa.total_allocated_bytes() <= before + (1 << 20)
