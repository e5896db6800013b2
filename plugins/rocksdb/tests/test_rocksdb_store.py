"""RocksDB as a byte store: options, and versions after a kill."""

import os
import signal
import subprocess
import sys
from typing import ClassVar

import attrs
import millpond as mp
import pytest
from millpond import errors
from millpond_conformance.opening import open_at
from millpond_rocksdb.options import RocksDBOptions, RocksDBOptionsFactory, arena_block_size
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
    """After SIGKILL the store is at an earlier write, the same in all column families."""
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
    """A closed store contains its last write, without a write-ahead log."""
    store = RocksDBStore(tmp_path / "db", RocksDBOptions())
    store.create_family("f")
    store.write({"f": [(b"k", b"v")]})
    store.close()
    again = RocksDBStore(tmp_path / "db", RocksDBOptions())
    assert again.get("f", b"k") == b"v"
    assert sorted(again.families()) == ["default", "f"]
    again.close()


FOREIGN_RECORDS = """
import sys
from pathlib import Path
from millpond import errors
from millpond_rocksdb.options import RocksDBOptions
from millpond_rocksdb.store import RocksDBStore
directory = Path(sys.argv[1])
RocksDBStore(directory, RocksDBOptions()).close()
RocksDBStore(directory, RocksDBOptions()).close()
(manifest,) = directory.glob("MANIFEST-*")
sound = manifest.read_bytes()
second = 7 + int.from_bytes(sound[4:6], "little")
(log,) = directory.glob("*.log")
for kind in (0, *range(5, 256)):
    for path, data, at in ((manifest, sound, second), (log, sound, 0)):
        path.write_bytes(data[: at + 6] + bytes([kind]) + data[at + 7 :])
        try:
            RocksDBStore(directory, RocksDBOptions()).close()
            print("opened", path.name, kind)
        except errors.StoreDamagedError as error:
            assert f"the record at byte {at} has the unknown type {kind}" in str(error), error
            assert path.name in str(error), error
        manifest.write_bytes(sound)
        log.write_bytes(b"")
"""


def test_records_of_foreign_types_are_refused_before_they_are_read(tmp_path):
    """A manifest with a record type that makes RocksDB hang is refused before RocksDB reads it."""
    command = [sys.executable, "-c", FOREIGN_RECORDS, str(tmp_path / "db")]
    done = subprocess.run(command, timeout=60, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_options_per_state():
    """A state's own options override the backend's, which override the defaults."""
    options = RocksDBOptions.from_mapping(
        {"bloom-bits": 7, "compression": "zstd", "state": {"spent": {"bloom-bits": 0}}}
    )
    assert options.for_state("spent").bloom_bits == 0
    assert options.for_state("spent").compression == "zstd"
    assert options.for_state("other").bloom_bits == 7
    config = mp.Config({"backend.rocksdb.state.last_seen.bloom-bits": 3})
    named = RocksDBOptions.from_mapping(config.backend_options("rocksdb"))
    assert named.for_state("last_seen").bloom_bits == 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"blom-bits": 1}, r"backend.rocksdb.blom-bits: .*'backend.rocksdb.bloom-bits'"),
        ({"compression": "rar"}, "expected one of .*, got 'rar'"),
        ({"state": {"x": {"max-open-files": 3}}}, r"backend.rocksdb.state.x.max-open-files"),
        ({"predefined": "turbo"}, "expected one of default, spinning-disk-optimized"),
        ({"memory": "some"}, "256mb or a share like 25%"),
        ({"memory": "0%"}, "256mb or a share like 25%"),
        ({"memory": "120%"}, "256mb or a share like 25%"),
        ({"memory": "64kb"}, "too few for memtables"),
        ({"compaction-style": "fifo"}, "expected one of level, universal, got 'fifo'"),
        ({"options-factory": "nowhere"}, "options-factory: expected module:attr"),
        ({"options-factory": "nowhere:at_all"}, "nowhere:at_all: ModuleNotFoundError"),
        ({"options-factory": "builtins:dict"}, "expected a RocksDBOptionsFactory, got dict"),
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


def test_only_the_wanted_version_is_taken_over(tmp_path):
    """A directory at another version, or changed since its version was written, opens empty."""
    total = mp.ValueStateDescriptor("total", int)
    with open_at("rocksdb", tmp_path, ()) as backend:
        backend.set_current_key("k")
        backend.get_partitioned_state(total).update(1)
        backend.flush("v1")
    with open_at("rocksdb", tmp_path, {"v1"}) as backend:
        assert backend.version == "v1"
        backend.set_current_key("k")
        assert backend.get_partitioned_state(total).value() == 1
        backend.get_partitioned_state(total).update(2)
        backend.flush()
    with open_at("rocksdb", tmp_path, {"v1"}) as backend:
        assert backend.version is None
        backend.set_current_key("k")
        assert backend.get_partitioned_state(total).value() is None


def test_a_broken_local_copy_is_replaced(tmp_path):
    """A store that cannot be opened is deleted and created again, because it is only a copy."""
    with open_at("rocksdb", tmp_path, ()) as backend:
        backend.flush("v1")
    (tmp_path / "rocksdb" / "CURRENT").write_text("garbage")
    with open_at("rocksdb", tmp_path, {"v1"}) as backend:
        assert backend.version is None


def test_without_a_directory(tmp_path):
    """Without a directory, RocksDB raises an error that says so."""
    with pytest.raises(errors.ConfigError, match="needs a directory"):
        mp.open_keyed_backend("rocksdb", key_type=str)


def test_predefined_options_are_defaults():
    """`predefined` changes the defaults; single options override it."""
    options = RocksDBOptions.from_mapping(
        {"predefined": "spinning-disk-optimized-high-mem", "block-size": "8kb"}
    )
    assert options.block_cache_size == 256 << 20
    assert options.block_size == 8 << 10
    assert options.for_state("any").target_file_size == 256 << 20


def test_one_budget_for_all_stores_of_a_process(tmp_path):
    """Memtables of several stores remain near their common budget, although each could be far larger.

    The limit is approximate, because memtables that are being written to files still count.
    """
    options = RocksDBOptions.from_mapping({"memory": "12mb", "write-buffer-size": "64mb"})
    stores = [RocksDBStore(tmp_path / str(number), options) for number in range(3)]
    for store in stores:
        store.create_family("f")
    peak = 0.0
    for number in range(6000):
        for store in stores:
            store.write({"f": [(b"%06d" % number, os.urandom(4000))]})
        gauges = stores[0].metrics()
        assert gauges["budget_bytes"] == 12 << 20
        peak = max(peak, gauges["write_buffer_bytes"])
    assert peak <= 12 << 20
    assert sum(store.metrics()["sst_bytes"] for store in stores) > 0
    for store in stores:
        store.close()


def test_the_budget_as_a_share_of_the_memory():
    """A budget in percent refers to the memory that the process may use."""
    whole = RocksDBOptions.from_mapping({"memory": "100%"}).budget
    half = RocksDBOptions.from_mapping({"memory": "50%"}).budget
    assert half.total == whole.total // 2
    assert RocksDBOptions.from_mapping({"memory": "50%"}).budget is half


@pytest.mark.parametrize(("memory", "arena"), [(None, 1 << 20), ("4mb", 152917), ("1gb", 1 << 20)])
def test_the_arena_fits_the_budget(memory, arena):
    """Memtables grow in steps that are small compared with the budget."""
    options = RocksDBOptions.from_mapping({} if memory is None else {"memory": memory})
    assert arena_block_size(options.write_buffer_size, options.budget) == arena


class Few(RocksDBOptionsFactory):
    """Options factory that makes memtables small, and records its calls."""

    asked: ClassVar = []

    def create_column_options(self, options, state):
        self.asked.append(state)
        options.set_write_buffer_size(64 << 10)
        return options


def opened(tmp_path, **options):
    """Return a backend with a thousand rows, and its gauges."""
    config = mp.Config({f"backend.rocksdb.{name}": value for name, value in options.items()})
    with mp.open_keyed_backend("rocksdb", key_type=str, directory=tmp_path, config=config) as made:
        state = made.get_partitioned_state(mp.ValueStateDescriptor("seen", bytes))
        for number in range(1000):
            made.set_current_key(f"k{number}")
            state.update(os.urandom(1000))
        made.flush("v1")
        return made.native_metrics()


def test_a_factory_has_the_last_word(tmp_path):
    """An options factory is loaded by name, and gets each state's options and name."""
    Few.asked.clear()
    chosen = {"compaction-style": "universal", "max-size-level-base": "1mb"}
    opened(tmp_path, **chosen, **{"options-factory": f"{__name__}:Few"})
    assert "seen" in Few.asked
    written = [path.read_text() for path in tmp_path.rglob("OPTIONS-*")]
    (families,) = {text.partition('[CFOptions "seen"]')[2] for text in written} - {""}
    assert "write_buffer_size=65536" in families
    assert "compaction_style=kCompactionStyleUniversal" in families
    assert "max_bytes_for_level_base=1048576" in families


def test_any_property_and_ticker_is_a_gauge(tmp_path):
    """Configured properties and tickers become additional gauges; unknown names are refused."""
    named = {"properties": "num-snapshots, num-entries-active-mem-table",
             "tickers": "number.keys.written"}  # fmt: skip
    found = opened(tmp_path / "a", **named)
    assert found["num_snapshots"] == 0
    assert found["num_entries_active_mem_table"] == found["number_keys_written"] > 1000
    assert "estimated_keys" in found
    for wrong in ({"properties": "stats"}, {"properties": "nothing"}, {"tickers": "nothing"}):
        with pytest.raises(errors.ConfigError, match="RocksDB has no (property|ticker) '"):
            opened(tmp_path / "b", **wrong)
    assert opened(tmp_path / "b")


def test_the_budget_of_all_backends(tmp_path):
    """RocksDB uses ``state.memory`` unless it has its own budget."""
    config = mp.Config({"state.memory": "32mb"})
    with mp.open_keyed_backend("rocksdb", key_type=str, directory=tmp_path, config=config) as made:
        assert made.parameters.memory_budget == 32 << 20
        assert made.native_metrics()["budget_bytes"] == 32 << 20
        whole = mp.Config({"state.memory": "100%", "backend.rocksdb.memory": "16mb"})
        shared = attrs.evolve(made.parameters, config=whole)
        assert shared.memory_budget > 32 << 20
    with mp.open_keyed_backend("rocksdb", key_type=str, directory=tmp_path, config=whole) as made:
        assert made.native_metrics()["budget_bytes"] == 16 << 20
    with pytest.raises(errors.ConfigError, match=r"state\.memory: expected bytes like 256mb"):
        mp.Config({"state.memory": "much"})


def test_the_native_log_is_bounded(tmp_path):
    """RocksDB's own log does not grow with the age of an open store."""
    store = RocksDBStore(tmp_path / "db", RocksDBOptions(write_buffer_size=1 << 16))
    store.create_family("f")
    for number in range(600):
        store.write({"f": [(b"%06d" % number, os.urandom(64 << 10))]})
    logs = [path.stat().st_size for path in (tmp_path / "db").glob("LOG*")]
    store.close()
    assert sum(logs) < 3 << 20
