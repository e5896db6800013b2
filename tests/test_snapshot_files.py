"""Damaged, missing, foreign and hostile snapshot files are refused by name."""

import json

import attrs
import millpond as mp
import pytest
from millpond import errors

TOTAL = mp.ValueStateDescriptor("total", int)


@pytest.fixture
def handle(tmp_path):
    """A snapshot of a few keys in files."""
    storage = mp.checkpoint_storage(tmp_path.as_uri())
    with mp.open_keyed_backend("heap", key_type=str, place="job") as backend:
        state = backend.get_partitioned_state(TOTAL)
        for number in range(100):
            backend.set_current_key(f"k{number}")
            state.update(number)
        return backend.snapshot(1, storage).result().handle


def restore(handle):
    """Restore a handle on heap."""
    mp.open_keyed_backend("heap", key_type=str, restore=[handle]).close()


def file_of(handle, tmp_path):
    """The only file of a snapshot."""
    (file,) = handle.files
    return tmp_path / file.path


def test_any_flipped_bit_is_noticed(handle, tmp_path):
    """A changed byte anywhere in the file is an error that names the file."""
    path = file_of(handle, tmp_path)
    original = path.read_bytes()
    for position in range(0, len(original), 97):
        damaged = bytearray(original)
        damaged[position] ^= 0x10
        path.write_bytes(damaged)
        with pytest.raises(errors.CorruptSnapshotError, match=path.name):
            restore(handle)
    path.write_bytes(original)
    restore(handle)


@pytest.mark.parametrize("keep", [0, 10, -1])
def test_truncated_and_missing_files(handle, tmp_path, keep):
    """A cut-off or missing file is an error that names the file."""
    path = file_of(handle, tmp_path)
    data = path.read_bytes()
    if keep:
        path.write_bytes(data[:keep])
    else:
        path.unlink()
    with pytest.raises(errors.CorruptSnapshotError, match=path.name):
        restore(handle)


@pytest.mark.parametrize(
    "path", ["../x", "/etc/passwd", "a/../../x", "a\\b", "", "a\0b", "x" * 5000]
)
def test_paths_do_not_leave_the_directory(handle, path):
    """A handle whose path leaves the checkpoint directory is refused when it is read."""
    tree = json.loads(handle.to_json())
    tree["files"][0]["path"] = path
    with pytest.raises(errors.CorruptSnapshotError, match="leaves the checkpoint directory"):
        mp.KeyedStateHandle.from_json(json.dumps(tree), handle.storage)


def test_handles_travel_as_json(handle, tmp_path):
    """A handle read back from JSON is equal, and the directory may have moved."""
    again = mp.KeyedStateHandle.from_json(handle.to_json(), handle.storage)
    assert again == handle
    assert str(tmp_path) not in handle.to_json()
    moved = tmp_path.parent / "moved"
    tmp_path.rename(moved)
    restore(mp.KeyedStateHandle.from_json(handle.to_json(), mp.checkpoint_storage(moved.as_uri())))
    moved.rename(tmp_path)


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"format_version": 1}', "nonsense"])
def test_damaged_handles(handle, text):
    """Text that is no handle is refused."""
    with pytest.raises(errors.CorruptSnapshotError):
        mp.KeyedStateHandle.from_json(text, handle.storage)


def test_newer_formats(handle):
    """A handle of a newer format says what to upgrade."""
    tree = {**json.loads(handle.to_json()), "format_version": 99}
    with pytest.raises(errors.ApiVersionError, match="upgrade millpond"):
        mp.KeyedStateHandle.from_json(json.dumps(tree), handle.storage)


def test_swapped_files(handle, tmp_path):
    """A file of another snapshot under the right name is noticed."""
    other = handle.storage
    with mp.open_keyed_backend("heap", key_type=str, place="job") as backend:
        backend.set_current_key("x")
        backend.get_partitioned_state(TOTAL).update(7)
        foreign = backend.snapshot(2, other).result().handle
    file_of(handle, tmp_path).write_bytes(file_of(foreign, tmp_path).read_bytes())
    with pytest.raises(errors.CorruptSnapshotError):
        restore(handle)


def test_pickle_must_be_allowed(tmp_path):
    """Pickled state is not read unless configuration allows it."""
    pickled = mp.ValueStateDescriptor("x", mp.PickleSerializer())
    storage = mp.checkpoint_storage("memory:pickle")
    with mp.open_keyed_backend("heap", key_type=str) as backend:
        backend.set_current_key("k")
        backend.get_partitioned_state(pickled).update({1, 2})
        handle = backend.snapshot(1, storage).result().handle
    with (
        mp.open_keyed_backend("heap", key_type=str, restore=[handle]) as backend,
        pytest.raises(errors.ConfigError, match="can run code"),
    ):
        backend.get_partitioned_state(pickled)
    allowed = mp.Config({"serialization.allow-pickle": True})
    with mp.open_keyed_backend("heap", key_type=str, restore=[handle], config=allowed) as backend:
        backend.set_current_key("k")
        assert backend.get_partitioned_state(pickled).value() == {1, 2}


def test_unknown_storages():
    """A URI of an unknown scheme lists the known ones."""
    with pytest.raises(errors.ConfigError, match="the scheme is none of"):
        mp.checkpoint_storage("ftp://somewhere")


def test_a_handle_without_storage_is_refused(handle):
    """A handle that is bound to no storage cannot be restored, and says so."""
    with pytest.raises(errors.RestoreError, match="no storage"):
        restore(attrs.evolve(handle, storage=None))
    with pytest.raises(errors.RestoreError, match="neither a snapshot's handle nor"):
        restore(7)
    with pytest.raises(errors.CorruptSnapshotError, match="/no/such/place/savepoint.json"):
        restore("/no/such/place")
