"""Damaged, missing, foreign and hostile snapshot files are refused by name."""

import hashlib
import json

import attrs
import millpond as mp
import pandas as pd
import pytest
from millpond import errors
from millpond.snapshots.handles import KeyedStateHandle, handle_from_json, handle_to_json

from tests.checkpoint.stored import reseal

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
    """Return the only file of a snapshot."""
    (file,) = handle.files
    return tmp_path / file.path


def test_any_flipped_bit_is_noticed(handle, tmp_path):
    """A changed byte anywhere in the file is an error that names the file."""
    path = file_of(handle, tmp_path)
    original = path.read_bytes()
    for position in range(0, handle.files[0].size, 97):
        damaged = bytearray(original)
        damaged[position] ^= 0x10
        path.write_bytes(damaged)
        with pytest.raises(errors.CorruptSnapshotError, match=path.name):
            restore(handle)
    path.write_bytes(original)
    restore(handle)


@pytest.mark.parametrize("keep", [0, 10, -1])
def test_truncated_and_missing_files(handle, tmp_path, keep):
    """A truncated or missing file is an error that names the file."""
    path = file_of(handle, tmp_path)
    data = path.read_bytes()[: handle.files[0].size]
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
    """A handle read from JSON equals the original, and the directory may have moved."""
    again = mp.KeyedStateHandle.from_json(handle.to_json(), handle.storage)
    assert again == handle
    assert str(tmp_path) not in handle.to_json()
    moved = tmp_path.parent / "moved"
    tmp_path.rename(moved)
    restore(mp.KeyedStateHandle.from_json(handle.to_json(), mp.checkpoint_storage(moved.as_uri())))
    moved.rename(tmp_path)


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"format_version": 1}', "nonsense"])
def test_damaged_handles(handle, text):
    """A string that is not a handle is refused."""
    with pytest.raises(errors.CorruptSnapshotError):
        mp.KeyedStateHandle.from_json(text, handle.storage)


def test_newer_formats(handle):
    """A handle of a newer format is refused with the package to upgrade."""
    tree = {**json.loads(handle.to_json()), "format_version": 99}
    with pytest.raises(errors.ApiVersionError, match="upgrade millpond"):
        mp.KeyedStateHandle.from_json(json.dumps(tree), handle.storage)


def test_swapped_files(handle, tmp_path):
    """Another snapshot's file under the right name is refused."""
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
    """For a URI with an unknown scheme, the error lists the known ones."""
    with pytest.raises(errors.ConfigError, match="expected one of the schemes"):
        mp.checkpoint_storage("nosuch://somewhere")


def test_a_handle_without_storage_is_refused(handle):
    """A handle that is not bound to a storage cannot be restored, and the error says so."""
    with pytest.raises(errors.RestoreError, match="no storage"):
        restore(attrs.evolve(handle, storage=None))
    with pytest.raises(errors.RestoreError, match="expected a snapshot's handle or"):
        restore(7)
    with pytest.raises(errors.CorruptSnapshotError, match="/no/such/place/savepoint.json"):
        restore("/no/such/place")


@pytest.mark.parametrize("number", [-1, 0, 64, 10**9])
def test_key_groups_of_a_handle_that_do_not_exist(number):
    """A handle with key groups beyond its max-parallelism is damaged."""
    with mp.open_keyed_backend("heap", key_type=str) as backend:
        backend.set_current_key("k")
        backend.get_partitioned_state(mp.ValueStateDescriptor("v", int)).update(1)
        handle = backend.snapshot(1, mp.checkpoint_storage("memory:")).result().handle
    text = handle_to_json(attrs.evolve(handle, max_parallelism=number))
    with pytest.raises(errors.CorruptSnapshotError, match="cannot be read.*max-parallelism"):
        handle_from_json(text, KeyedStateHandle)


def forged(handle, tmp_path, change):
    """Return the handle of a file whose footer was changed and has a correct digest."""
    path = file_of(handle, tmp_path)
    (file,) = handle.files
    data = path.read_bytes()[: file.size]
    footer = json.loads(data[-file.footer : -12])
    change(footer)
    text = json.dumps(footer).encode()
    tail = text + len(text).to_bytes(4, "big") + b"MILLPOND"
    body = data[: -file.footer]
    path.write_bytes(body + tail)
    digest = hashlib.sha256(tail).hexdigest()
    new = attrs.evolve(file, size=len(body) + len(tail), footer=len(tail), digest=digest)
    return attrs.evolve(handle, files=(new,))


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("stream_bytes", 1 << 40, "claims to unpack to"),
        ("stream_bytes", -1, "claims to unpack to"),
        ("stream_bytes", 10, "not an Arrow stream"),
        ("length", -5, "do not fill the file"),
        ("length", 1 << 50, "do not fill the file"),
        ("rows", 7, "unexpected columns or rows"),
        ("first_group", 3, "not of the key groups"),
        ("digest", "0" * 64, "digest of the bytes"),
        ("digest", None, "footer cannot be read|digest of the bytes"),
        ("rows", "many", "footer cannot be read"),
    ],
)
def test_hostile_footers(handle, tmp_path, field, value, message):
    """A footer with wrong numbers is refused before anything is unpacked, even if its digest is correct."""

    def change(footer):
        footer["segments"][0][field] = value

    with pytest.raises(errors.CorruptSnapshotError, match=message) as caught:
        restore(forged(handle, tmp_path, change))
    assert caught.value.file == handle.files[0].path


def test_footers_of_other_shapes(handle, tmp_path):
    """Missing parts, unknown parts and a newer format give different errors."""
    with pytest.raises(errors.CorruptSnapshotError, match="footer"):
        restore(forged(handle, tmp_path, lambda footer: footer.pop("segments")))


def test_a_newer_file_format(handle, tmp_path):
    """A file of a newer format is a RestoreError that says what to upgrade."""
    newer = forged(handle, tmp_path, lambda footer: footer.update(format_version=99))
    with pytest.raises(errors.RestoreError, match="upgrade millpond"):
        restore(newer)


@pytest.fixture
def saved(tmp_path):
    """A savepoint of a few keys."""
    with mp.open_keyed_backend("heap", key_type=str, place="job") as backend:
        state = backend.get_partitioned_state(TOTAL)
        for number in range(100):
            backend.set_current_key(f"k{number}")
            state.update(number)
        handle = backend.savepoint(1, mp.checkpoint_storage(tmp_path.as_uri())).result().handle
    return tmp_path / handle.folder


def first_file(body):
    """Return the first table file in a savepoint's metadata."""
    return body["operators"][0]["states"][0]["files"][0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda body: first_file(body).update(path="../../etc/passwd"), "leaves the checkpoint"),
        (lambda body: first_file(body).update(path="/etc/passwd"), "leaves the checkpoint"),
        (lambda body: first_file(body).update(size=1 << 60), "restore.max-file-bytes"),
        (lambda body: first_file(body).update(digest="0" * 64), "digest is wrong"),
        (lambda body: first_file(body).update(size=5), "size is not 5"),
        (lambda body: body.pop("operators"), "not a savepoint"),
        (lambda body: body.update(operators=[{"uid": 7}]), "not a savepoint"),
        (lambda body: body.update(surprise=1), "not a savepoint"),
    ],
)
def test_hostile_savepoints(saved, change, message):
    """Wrong metadata of a savepoint is refused by name, even if its digest is correct."""
    reseal(saved, change)
    with pytest.raises(errors.CorruptSnapshotError, match=message):
        restore_path(saved)


def restore_path(path):
    """Restore a savepoint on heap."""
    mp.open_keyed_backend("heap", key_type=str, restore=[path]).close()


def test_damaged_savepoint_metadata(saved):
    """A changed digit, a truncated file and a newer format give three clear errors."""
    path = saved / "savepoint.json"
    text = path.read_text()
    path.write_text(text.replace('"max_parallelism": 128', '"max_parallelism": 129'))
    with pytest.raises(errors.CorruptSnapshotError, match="digest"):
        restore_path(saved)
    path.write_text(text[: len(text) // 2])
    with pytest.raises(errors.CorruptSnapshotError, match="not a savepoint"):
        restore_path(saved)
    path.write_text(text)
    reseal(saved, lambda body: body.update(format_version=99))
    with pytest.raises(errors.RestoreError, match="upgrade millpond"):
        restore_path(saved)


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda frame: frame.drop(columns="value"), "value are missing"),
        (lambda frame: frame.assign(value="text"), "not a table of this state"),
        (lambda frame: frame.assign(key=None), "row 0 of the batch cannot be stored"),
        (lambda frame: frame.assign(value=0.5), "not a table of this state"),
    ],
)
def test_an_edit_that_cannot_be_stored_is_not_sealed(saved, edit, message):
    """Sealing refuses an edit that cannot be stored, names the file, and leaves the savepoint unchanged."""
    (file,) = saved.rglob("*.parquet")
    original, metadata = file.read_bytes(), (saved / "savepoint.json").read_bytes()
    edit(pd.read_parquet(file)).to_parquet(file)
    with pytest.raises(errors.CorruptSnapshotError, match=message) as caught:
        mp.seal_savepoint(saved)
    assert caught.value.file.endswith(file.name)
    assert (saved / "savepoint.json").read_bytes() == metadata
    file.write_bytes(original)
    restore_path(saved)


def test_sealing_puts_rows_into_their_key_groups(saved):
    """Sealing computes `key_group`, so that a row with a new key may have any value there."""
    (file,) = saved.rglob("*.parquet")
    frame = pd.read_parquet(file)
    fresh = pd.DataFrame({"key_group": [0], "key": ["fresh"], "value": [7]})
    pd.concat([frame, fresh]).to_parquet(file)
    mp.seal_savepoint(saved)
    with mp.open_keyed_backend("heap", key_type=str, restore=[saved]) as backend:
        backend.set_current_key("fresh")
        assert backend.get_partitioned_state(TOTAL).value() == 7


@pytest.mark.parametrize("victim", ["CURRENT", "MANIFEST", ".sst"])
def test_rocksdb_files_are_checked(tmp_path, victim):
    """A changed byte in any of RocksDB's own files is an error that names it."""
    settings = {"state.snapshot.strategy": "incremental", "backend.rocksdb.inline-threshold": 0}
    storage = mp.checkpoint_storage((tmp_path / "c").as_uri())
    with mp.open_keyed_backend(
        "rocksdb", key_type=str, directory=tmp_path / "db", config=mp.Config(settings)
    ) as backend:
        backend.set_current_key("k")
        backend.get_partitioned_state(TOTAL).update(1)
        handle = backend.snapshot(1, storage).result().handle
    path = next(tmp_path / "c" / f.path for f in handle.files if victim in f.path)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    for name in ("rocksdb", "heap"):
        with pytest.raises(errors.CorruptSnapshotError, match=path.name):
            mp.open_keyed_backend(
                name, key_type=str, directory=tmp_path / f"restored-{name}", restore=[handle]
            )


def test_foreign_names_among_rocksdb_files(tmp_path):
    """A handle cannot make a restore write files other than RocksDB's."""
    settings = {"state.snapshot.strategy": "incremental"}
    with mp.open_keyed_backend(
        "rocksdb", key_type=str, directory=tmp_path / "db", config=mp.Config(settings)
    ) as backend:
        backend.set_current_key("k")
        backend.get_partitioned_state(TOTAL).update(1)
        storage = mp.checkpoint_storage("memory:foreign")
        handle = backend.snapshot(1, storage).result().handle
    tree = json.loads(handle.to_json())
    tree["files"][0]["path"] = "inline_authorized_keys"
    evil = mp.KeyedStateHandle.from_json(json.dumps(tree), storage)
    with pytest.raises(errors.CorruptSnapshotError, match="not a file of a RocksDB snapshot"):
        mp.open_keyed_backend("rocksdb", key_type=str, directory=tmp_path / "r", restore=[evil])
