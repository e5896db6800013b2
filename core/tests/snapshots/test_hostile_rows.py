"""Hostile snapshot files with correct digests: their memory is limited in advance."""

import hashlib
import json
import resource
import tracemalloc

import attrs
import millpond as mp
import pyarrow as pa
import pytest
from millpond import errors
from millpond.snapshots import row_files as segments

BLOB = mp.ValueStateDescriptor("blob", bytes)
SCHEMA = pa.schema([("state", pa.uint16()), ("key", pa.binary()), ("value", pa.binary())])


def snapshot(storage, values):
    """Take a snapshot of some values by key."""
    with mp.open_keyed_backend("heap", key_type=str, place="job") as backend:
        state = backend.get_partitioned_state(BLOB)
        for key, value in values.items():
            backend.set_current_key(key)
            state.update(value)
        return backend.snapshot(1, storage).result().handle


def restore(handle, config=None):
    """Restore a handle on heap, and return its content."""
    with mp.open_keyed_backend("heap", key_type=str, restore=[handle], config=config) as backend:
        state = backend.get_partitioned_state(BLOB)
        found = {}
        for key in list(backend.keys("blob")):
            backend.set_current_key(key)
            found[key] = state.value()
        return found


@pytest.fixture
def storage(tmp_path):
    """A storage in a directory."""
    return mp.checkpoint_storage(str(tmp_path))


def forge(storage, handle, streams, copies=1, states=("blob",)):
    """Write a file of arbitrary segments, each repeated as requested, with correct digests."""
    body, entries = b"", []
    for stream in streams:
        data = pa.compress(stream, codec="lz4_raw", asbytes=True)
        entry = {
            "rows": 1,
            "stream_bytes": len(stream),
            "first_group": 0,
            "last_group": 0,
            "digest": hashlib.sha256(data).hexdigest(),
            "length": len(data),
            "compression": "lz4",
        }
        entries += [entry] * copies
        body += data
    text = json.dumps({"format_version": 1, "states": list(states), "segments": entries}).encode()
    footer = text + len(text).to_bytes(4, "big") + b"MILLPOND"
    storage.write("forged", [body, footer])
    file = attrs.evolve(
        handle.files[0],
        path="forged",
        size=len(body) + len(footer),
        footer=len(footer),
        digest=hashlib.sha256(footer).hexdigest(),
    )
    return attrs.evolve(handle, files=(file,))


def ipc(batch, options=None):
    """Return a batch as an Arrow stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
        writer.write_batch(batch)
    return sink.getvalue().to_pybytes()


def row(value):
    """Return a row of key group 0."""
    return pa.record_batch([[0], [b"\0k"], [value]], schema=SCHEMA)


def test_buffers_compressed_inside_of_a_segment_are_refused(storage):
    """A small segment whose Arrow buffers would unpack to gigabytes needs almost no memory."""
    handle = snapshot(storage, {"k": b"v"})
    small = ipc(row(b"\0" * 40_000_000), pa.ipc.IpcWriteOptions(compression="zstd"))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(errors.CorruptSnapshotError, match="something else than plain rows"):
        restore(forge(storage, handle, [small]))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 20_000
    assert len(small) < 10_000


def test_a_segment_unpacks_within_its_budget(storage):
    """A segment that would unpack beyond the budget is refused with the option."""
    handle = snapshot(storage, {"k": b"v"})
    forged = forge(storage, handle, [ipc(row(b"\0" * (33 << 20)))])
    with pytest.raises(errors.CorruptSnapshotError, match=r"restore\.max-unpacked-bytes"):
        restore(forged)
    allowed = mp.Config({"restore.max-unpacked-bytes": "64mb"})
    tracemalloc.start()
    with pytest.raises(errors.CorruptSnapshotError):
        restore(attrs.evolve(forged, files=(attrs.evolve(forged.files[0], size=1 << 40),)), allowed)
    assert tracemalloc.get_traced_memory()[1] < 1 << 20
    tracemalloc.stop()


@pytest.mark.parametrize("size", [14, 15, 270, 17 << 20])
def test_own_snapshots_stay_below_every_budget(storage, monkeypatch, size):
    """A value that compresses too well is stored uncompressed, and is read under any budget."""
    monkeypatch.setattr(segments, "_MAX_GAIN", min(size, 16 << 20) - 20)
    none = mp.Config({"restore.max-unpacked-bytes": 16 << 20})
    values = {"k": b"\0" * size}
    assert restore(snapshot(storage, values), none) == values


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"copies": 1000}, "do not fill the file"),
        ({"states": ("blob", "surprise")}, "'surprise', which its handle does not name"),
        ({"states": ()}, "belongs to no state"),
    ],
)
def test_a_footer_says_no_more_than_there_is(storage, change, message):
    """Segments that are named twice, and states that are missing in the handle, are refused."""
    handle = snapshot(storage, {"k": b"v"})
    with pytest.raises(errors.CorruptSnapshotError, match=message):
        restore(forge(storage, handle, [ipc(row(b"\0"))], **change))


@pytest.mark.parametrize(
    "batch",
    [
        pa.record_batch([[0], [b""], [b"v"]], schema=SCHEMA),
        pa.record_batch([[None], [b"\0"], [b"v"]], schema=SCHEMA),
        pa.record_batch([[0], [None], [b"v"]], schema=SCHEMA),
        pa.record_batch([[], [], []], schema=SCHEMA),
        pa.record_batch([[0], [b"\0"], ["v"]], names=["state", "key", "value"]),
        pa.record_batch([[0], [b"\0"]], names=["state", "state"]),
    ],
)
def test_rows_without_sense_are_refused(storage, batch):
    """Empty keys and segments, nulls, other columns and duplicate columns are damage."""
    handle = snapshot(storage, {"k": b"v"})
    with pytest.raises(errors.CorruptSnapshotError, match="'forged'"):
        restore(forge(storage, handle, [ipc(batch)]))
