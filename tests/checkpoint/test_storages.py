"""Checkpoint storages: memory, local files, S3 through a real protocol server, fsspec."""

import threading
import urllib.request
from pathlib import Path

import millpond as mp
import pytest
from millpond import errors
from millpond.snapshots.handles import FilePart
from millpond.storage.memory import MemoryStorage
from moto.server import ThreadedMotoServer

TOTAL = mp.ValueStateDescriptor("total", int)
BUCKET = "millpond-test"


@pytest.fixture(scope="module")
def s3_endpoint():
    """A server that speaks S3's protocol on loopback, with an empty bucket."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    made = urllib.request.Request(f"http://{host}:{port}/{BUCKET}", method="PUT")
    urllib.request.urlopen(made).close()
    yield f"{host}:{port}"
    server.stop()


@pytest.fixture(params=["memory", "file", "s3", "fsspec"])
def storage(request, tmp_path):
    """One storage of each kind, empty."""
    name = tmp_path.name
    if request.param == "s3":
        endpoint = request.getfixturevalue("s3_endpoint")
        options = f"scheme=http&endpoint_override={endpoint}&region=us-east-1"
        return mp.checkpoint_storage(f"s3://key:secret@{BUCKET}/{name}?{options}")
    uris = {
        "memory": f"memory:{name}",
        "file": tmp_path.as_uri(),
        "fsspec": f"local://{tmp_path}",
    }
    return mp.checkpoint_storage(uris[request.param])


@pytest.mark.parametrize("strategy", ["changelog", "full", "savepoint"])
def test_snapshots_on_every_storage(storage, tmp_path, strategy):
    """Three snapshots can each be restored from every kind of storage."""
    config = mp.Config({"state.snapshot.strategy": strategy})
    with mp.open_keyed_backend("heap", key_type=str, config=config) as backend:
        state = backend.get_partitioned_state(TOTAL)
        for number in range(1, 4):
            backend.set_current_key("k")
            state.update(number)
            handle = backend.snapshot(number, storage).result().handle
            backend.notify_checkpoint_complete(number)
            if strategy != "savepoint":
                handle = mp.KeyedStateHandle.from_json(handle.to_json(), storage)
            with mp.open_keyed_backend(
                "lmdb", key_type=str, directory=tmp_path / f"l{number}", restore=[handle]
            ) as restored:
                restored.set_current_key("k")
                assert restored.get_partitioned_state(TOTAL).value() == number


def test_incremental_rocksdb_on_every_storage(storage, tmp_path):
    """Only new SST files are uploaded; each snapshot can be restored, and unconfirmed ones are no base."""
    settings = {"state.snapshot.strategy": "incremental", "backend.rocksdb.inline-threshold": 0}
    config = mp.Config(settings)
    with mp.open_keyed_backend(
        "rocksdb", key_type=str, directory=tmp_path / "db", config=config
    ) as backend:
        state = backend.get_partitioned_state(TOTAL)
        sets = []
        for number in range(1, 5):
            for key in range(200):
                backend.set_current_key(f"{number}-{key}")
                state.update(number)
            result = backend.snapshot(number, storage).result()
            files = {f.path for f in result.handle.files if f.kind == "sst"}
            sets.append(files)
            if number != 3:
                backend.notify_checkpoint_complete(number)
    assert sets[0] <= sets[1]
    assert sets[3] & sets[2] == sets[1]
    for name in ("rocksdb", "heap"):
        with mp.open_keyed_backend(
            name, key_type=str, directory=tmp_path / f"r-{name}", restore=[result.handle]
        ) as restored:
            restored.get_partitioned_state(TOTAL)
            assert len(list(restored.keys("total"))) == 800


def test_a_wrong_digest_is_noticed(storage):
    """A handle with a wrong digest or with a path outside of the storage is refused."""
    storage.write("a/file", [b"content"])
    with pytest.raises(errors.CorruptSnapshotError, match="digest"):
        FilePart("a/file", 7, "0" * 64).read_all(storage)
    with pytest.raises(errors.CorruptSnapshotError, match="size"):
        FilePart("a/file", 9, "0" * 64).read_all(storage)
    for path in ("../file", "/etc/passwd", "a/../../b", "", "a//b", "a\\b", "x\0y", "a/" * 600):
        with pytest.raises(errors.CorruptSnapshotError, match="leaves the checkpoint directory"):
            FilePart(path, 7, "0" * 64).read_all(storage)


def test_files_can_be_listed_deleted_and_measured(storage):
    """A deleted file is missing; deleting it again is no error; a missing folder is empty."""
    storage.write("x/1", [b"ab", b"c"])
    storage.write("x/y/2", [b""])
    assert storage.list("x") == ["x/1", "x/y/2"]
    assert storage.size("x/1") == 3
    assert storage.read("x/1", 1, 2) == b"bc"
    storage.delete("x/1")
    storage.delete("x/1")
    with pytest.raises(errors.CorruptSnapshotError, match="missing"):
        storage.size("x/1")
    with pytest.raises(errors.CorruptSnapshotError, match="missing"):
        storage.read("x/1", 0, 1)
    assert storage.list("nothing") == []
    assert storage.list("") == ["x/y/2"]


def test_two_writers_in_one_directory(storage, tmp_path):
    """Two backends that snapshot the same key groups at the same time use different files."""
    results = {}

    def writer(number):
        with mp.open_keyed_backend("heap", key_type=str, place="job") as backend:
            state = backend.get_partitioned_state(TOTAL)
            for checkpoint_id in range(1, 6):
                backend.set_current_key("k")
                state.update(number * 100 + checkpoint_id)
                results[number] = backend.snapshot(checkpoint_id, storage).result().handle
                backend.notify_checkpoint_complete(checkpoint_id)

    threads = [threading.Thread(target=writer, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number, handle in results.items():
        with mp.open_keyed_backend("heap", key_type=str, restore=[handle]) as backend:
            backend.set_current_key("k")
            assert backend.get_partitioned_state(TOTAL).value() == number * 100 + 5


def test_unknown_schemes_and_options_are_refused():
    """An unknown scheme and a wrong memory limit are named; secrets are not shown."""
    with pytest.raises(errors.ConfigError, match="expected one of the schemes") as caught:
        mp.checkpoint_storage("nosuch://user:secret@host/path?token=secret")
    assert "secret" not in str(caught.value)
    with pytest.raises(errors.ConfigError, match="max-file-bytes"):
        mp.checkpoint_storage("memory:x?max-file-bytes=many")


def test_a_local_file_appears_whole(tmp_path):
    """A file has its name only when it is complete, and no other file is left."""
    storage = mp.checkpoint_storage(tmp_path.as_uri())
    writer = storage.open_writer("a/file")
    writer.write(b"half")
    assert not (tmp_path / "a" / "file").exists()
    writer.commit()
    assert [path.name for path in Path(tmp_path, "a").iterdir()] == ["file"]


def test_a_private_storage_goes_with_its_last_reference():
    """A private in-memory storage is not shared, and is freed with its last reference."""
    storage = MemoryStorage.private()
    storage.write("a/b", [b"x"])
    assert mp.checkpoint_storage(storage.uri).read_all("a/b") == b"x"
    uri = storage.uri
    del storage
    assert mp.checkpoint_storage(uri).list("") == []
