"""Snapshots of RocksDB's own files: their files, and the clean-up after failures."""

import random
import signal
import subprocess
import sys
import threading

import millpond as mp
import pytest
from millpond import errors
from millpond.storage.memory import MemoryStorage
from millpond_rocksdb.native_files import files_to_store
from millpond_rocksdb.options import RocksDBOptionsFactory
from typing_extensions import override

SEEN = mp.ValueStateDescriptor("seen", bytes)


class Blobs(RocksDBOptionsFactory):
    """Options factory that stores values of 1,000 bytes and more in blob files."""

    @override
    def create_column_options(self, options, state):
        options.set_enable_blob_files(True)
        options.set_min_blob_size(1000)
        return options


def opened(directory, restore=(), backend="rocksdb", **options):
    """Return a backend with incremental snapshots and options."""
    config = {f"backend.rocksdb.{name.replace('_', '-')}": v for name, v in options.items()}
    config["state.snapshot.strategy"] = "incremental" if backend == "rocksdb" else "changelog"
    return mp.open_keyed_backend(
        backend, key_type=str, directory=directory, config=mp.Config(config), restore=restore
    )


def fill(backend, keys, value=None):
    """Write a value of 5,000 bytes under each key."""
    for key in keys:
        backend.set_current_key(key)
        backend.get_partitioned_state(SEEN).update(value or random.Random(key).randbytes(5000))


def test_blob_files_are_part_of_a_snapshot(tmp_path):
    """Blob files are uploaded once and shared, and RocksDB and other backends restore them."""
    storage, factory = MemoryStorage.private(), f"{__name__}:Blobs"
    with opened(tmp_path / "db", options_factory=factory) as backend:
        fill(backend, "abc")
        first = backend.snapshot(1, storage).result().handle
        backend.notify_checkpoint_complete(1)
        fill(backend, "d")
        second = backend.snapshot(2, storage).result().handle
    blobs = [{f.path for f in made.files if f.kind == "blob"} for made in (first, second)]
    assert blobs[0] < blobs[1]
    for name, options in (("rocksdb", {}), ("rocksdb", {"options_factory": factory}), ("heap", {})):
        with opened(tmp_path / f"{name}-{len(options)}", [second], name, **options) as restored:
            state = restored.get_partitioned_state(SEEN)
            for key in "abcd":
                restored.set_current_key(key)
                assert state.value() == random.Random(key).randbytes(5000)


def test_a_changed_blob_file_is_found(tmp_path):
    """A changed blob file is found by its digest, and the error names it."""
    storage = mp.checkpoint_storage((tmp_path / "c").as_uri())
    with opened(tmp_path / "db", options_factory=f"{__name__}:Blobs") as backend:
        fill(backend, "a")
        handle = backend.snapshot(1, storage).result().handle
    (blob,) = [f for f in handle.files if f.kind == "blob"]
    path = tmp_path / "c" / blob.path
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(errors.CorruptSnapshotError, match=path.name):
        opened(tmp_path / "r", [handle])


def test_an_unknown_file_is_refused_when_the_snapshot_is_taken(tmp_path):
    """A file of unknown kind is refused when the snapshot is taken; logs and options are omitted."""
    for name in ("000012.sst", "000013.blob", "MANIFEST-000005", "CURRENT"):
        (tmp_path / name).touch()
    for name in ("000004.log", "OPTIONS-000009", "rocksdict-config.json"):
        (tmp_path / name).touch()
    needed = ["000012.sst", "000013.blob", "CURRENT", "MANIFEST-000005"]
    assert [path.name for path in files_to_store(tmp_path)] == needed
    (tmp_path / "000014.dat").touch()
    with pytest.raises(errors.ConfigError, match=r"000014\.dat.*changelog or full"):
        files_to_store(tmp_path)


class Slow(MemoryStorage):
    """Storage that reports its first file, and stores no other one until the gate opens."""

    @override
    def write(self, path, chunks):
        super().write(path, chunks)
        self.first.set()
        assert self.gate.wait(10)


class Full(MemoryStorage):
    """Storage that stores RocksDB's files and then refuses the metadata."""

    @override
    def open_writer(self, path):
        if path.endswith(".snapshot"):
            raise errors.StorageAccessError(path, "no room", "Make room")
        return super().open_writer(path)


def test_an_aborted_snapshot_leaves_no_file(tmp_path):
    """An aborted snapshot deletes the files that it has uploaded."""
    storage = Slow.private()
    storage.first, storage.gate = threading.Event(), threading.Event()
    with opened(tmp_path / "db", inline_threshold=0, transfer_threads=1) as backend:
        fill(backend, "abc")
        made = backend.snapshot(1, storage)
        assert storage.first.wait(10)
        backend.notify_checkpoint_aborted(1)
        storage.gate.set()
    assert made.cancelled()
    assert storage.list("") == []


def test_a_failed_snapshot_leaves_no_file(tmp_path):
    """A failed snapshot leaves no file; files of confirmed ones remain."""
    storage = Full.private()
    with opened(tmp_path / "db", inline_threshold=0) as backend:
        fill(backend, "abc")
        with pytest.raises(errors.StorageAccessError, match="no room"):
            backend.snapshot(1, storage).result()
    assert storage.list("") == []


KILLED = """
import os, signal, sys
import millpond as mp
from millpond.storage.memory import MemoryStorage
class Deadly(MemoryStorage):
    def open_writer(self, path):
        os.kill(os.getpid(), signal.SIGKILL)
config = mp.Config({"state.snapshot.strategy": "incremental"})
with mp.open_keyed_backend("rocksdb", key_type=str, directory=sys.argv[1], config=config) as backend:
    backend.set_current_key("k")
    backend.get_partitioned_state(mp.ValueStateDescriptor("seen", bytes)).update(os.urandom(9000))
    backend.snapshot(1, Deadly.private()).result()
"""


def test_hard_links_of_a_killed_process_go(tmp_path):
    """Hard links of a killed process are deleted at the next opening."""
    killed = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert list(tmp_path.glob("links-*"))
    with opened(tmp_path):
        assert not list(tmp_path.glob("links-*"))
