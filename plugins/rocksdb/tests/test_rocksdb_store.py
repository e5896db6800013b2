"""RocksDB as a byte store: options, versions after a kill."""

import os
import signal
import subprocess
import sys

import millpond as mp
import pytest
from millpond import errors
from millpond.backend import KeyedBackendParameters
from millpond.plugins import get_registry
from millpond.types import key_codec_for
from millpond_rocksdb.options import RocksDBOptions
from millpond_rocksdb.store import RocksDBStore

KILLED = """
import sys
from pathlib import Path
from millpond_rocksdb.options import RocksDBOptions
from millpond_rocksdb.store import RocksDBStore
options = RocksDBOptions(write_buffer_size=1 << 16)
store = RocksDBStore(Path(sys.argv[1]), options)
store.create_family("a"); store.create_family("b")
for number in range(100_000):
    value = b"%d" % number
    rows = [(b"%d-%d" % (number, part), bytes(100)) for part in range(20)]
    store.write({"a": [*sorted(rows), (b"k", value)], "b": [(b"k", value)]})
    if number == 2000: print("ready", flush=True)
"""


def test_a_killed_writer_leaves_one_version(tmp_path):
    """After SIGKILL the store is at an older write, the same in all column families."""
    child = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(tmp_path / "db")], stdout=subprocess.PIPE
    )
    assert child.stdout.readline() == b"ready\n"
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    child.stdout.close()
    store = RocksDBStore(tmp_path / "db", RocksDBOptions())
    assert store.get("a", b"k") == store.get("b", b"k")
    assert int(store.get("a", b"k")) > 0
    store.close()


def test_closed_stores_are_found_again(tmp_path):
    """Without a write-ahead log, a closed store still holds its last write."""
    store = RocksDBStore(tmp_path / "db", RocksDBOptions())
    store.create_family("f")
    store.write({"f": [(b"k", b"v")]})
    store.close()
    again = RocksDBStore(tmp_path / "db", RocksDBOptions())
    assert again.get("f", b"k") == b"v"
    assert sorted(again.families()) == ["default", "f"]
    again.close()


def test_options_per_state():
    """A state's own options stand over the backend's, which stand over the defaults."""
    options = RocksDBOptions.from_mapping(
        {"bloom-bits": 7, "compression": "zstd", "state": {"spent": {"bloom-bits": 0}}}
    )
    assert options.for_state("spent").bloom_bits == 0
    assert options.for_state("spent").compression == "zstd"
    assert options.for_state("other").bloom_bits == 7


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"blom-bits": 1}, r"backend.rocksdb.blom-bits: .*'backend.rocksdb.bloom-bits'"),
        ({"compression": "rar"}, "'rar' is none of"),
        ({"state": {"x": {"max-open-files": 3}}}, r"backend.rocksdb.state.x.max-open-files"),
    ],
)
def test_wrong_options(tmp_path, options, message):
    """Unknown options and values are refused with their place, before anything is opened."""
    with pytest.raises((errors.ConfigError, ValueError), match=message):
        mp.open_keyed_backend(
            "rocksdb",
            key_type=str,
            directory=tmp_path,
            config=mp.Config(backend={"rocksdb": options}),
        )
    assert list(tmp_path.iterdir()) == []


def open_at(tmp_path, versions):
    """A RocksDB backend that may take over these versions."""
    registry = get_registry()
    return registry.backend("rocksdb").create_keyed_backend(
        KeyedBackendParameters(
            key_codec=key_codec_for(str),
            max_parallelism=128,
            key_group_range=mp.KeyGroupRange(0, 127),
            clock=mp.ManualClock(0),
            config=mp.Config(),
            registry=registry,
            directory=tmp_path,
            reuse_versions=frozenset(versions),
        )
    )


def test_only_the_wanted_version_is_taken_over(tmp_path):
    """A directory at another version, or changed since its version was named, starts empty."""
    total = mp.ValueStateDescriptor("total", int)
    with open_at(tmp_path, ()) as backend:
        backend.set_current_key("k")
        backend.get_partitioned_state(total).update(1)
        backend.flush("v1")
    with open_at(tmp_path, {"v1"}) as backend:
        assert backend.version == "v1"
        backend.set_current_key("k")
        assert backend.get_partitioned_state(total).value() == 1
        backend.get_partitioned_state(total).update(2)
        backend.flush()
    with open_at(tmp_path, {"v1"}) as backend:
        assert backend.version is None
        backend.set_current_key("k")
        assert backend.get_partitioned_state(total).value() is None


def test_a_broken_local_copy_is_replaced(tmp_path):
    """A store that cannot be opened is deleted and made anew, for it is only a copy."""
    with open_at(tmp_path, ()) as backend:
        backend.flush("v1")
    (tmp_path / "rocksdb" / "CURRENT").write_text("garbage")
    with open_at(tmp_path, {"v1"}) as backend:
        assert backend.version is None


def test_without_a_directory(tmp_path):
    """RocksDB needs a directory, and says so."""
    with pytest.raises(errors.ConfigError, match="needs a directory"):
        mp.open_keyed_backend("rocksdb", key_type=str)
