"""RocksDB's compactions in a store that is opened for each micro-batch."""

import itertools
import os
import subprocess
import sys

import millpond as mp
import pytest
from millpond_conformance.opening import open_at
from millpond_rocksdb.options import RocksDBOptions, RocksDBOptionsFactory
from millpond_rocksdb.store import RocksDBStore
from typing_extensions import override

ENTRIES = 60_000
TRIGGER = 4
BYTES = mp.ValueStateDescriptor("v", bytes)


def written(directory, style, entries):
    """Open, write and close a store like a micro-batch; return its number of files."""
    options = RocksDBOptions(compaction_style=style, compaction_trigger=TRIGGER)
    store = RocksDBStore(directory, options)
    store.create_family("f")
    files = len(list(directory.glob("*.sst")))
    store.write({"f": [(b"%08d" % entry, os.urandom(600)) for entry in entries]})
    store.await_compactions()
    store.close()
    return files


def test_a_compaction_comes_to_an_end(tmp_path):
    """The number of files is bounded, even if a compaction takes longer than the store is open."""
    written(tmp_path, "level", range(ENTRIES))
    batches = [range(at, ENTRIES, ENTRIES // 100) for at in range(32)]
    assert max(written(tmp_path, "level", batch) for batch in batches) <= 2 * TRIGGER + 1


PENDING = """
import os, sys
from pathlib import Path
from millpond_rocksdb import store
from millpond_rocksdb.options import RocksDBOptions

OPTIONS = RocksDBOptions(compaction_style="level", compaction_trigger=4, max_background_jobs=1)
LARGE, SMALL = (Path(sys.argv[1]) / name for name in ("large", "small"))
store._SECONDS_TO_BEGIN = 60.0  # however busy this machine is
for place, entries in ((LARGE, 40_000), (SMALL, 10)):
    for batch in range(4):
        made = store.RocksDBStore(place, OPTIONS, compacts=False)
        made.create_family("f")
        made.write({"f": [(b"%08d" % entry, os.urandom(600)) for entry in range(entries)]})
        made.close()
busy = store.RocksDBStore(LARGE, OPTIONS)
while not busy.metrics()["running_compactions"]:
    pass
waiting = store.RocksDBStore(SMALL, OPTIONS)
assert not waiting.metrics()["running_compactions"]
waiting.await_compactions()
waiting.close()
busy.close()
print(len(list(SMALL.glob("*.sst"))))
"""


def test_a_compaction_that_has_not_begun_is_waited_for(tmp_path):
    """Closing waits for a compaction that RocksDB's only thread has not started yet."""
    command = [sys.executable, "-c", PENDING, str(tmp_path)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert int(done.stdout) == 1


class Without(RocksDBOptionsFactory):
    """Options factory that turns compactions off."""

    @override
    def create_column_options(self, options, state):
        options.set_disable_auto_compactions(True)
        return options


def test_a_compaction_that_never_begins_is_not_waited_for(tmp_path):
    """With compactions off, closing does not wait."""
    factory = f"{__name__}:Without"
    options = RocksDBOptions(
        compaction_style="level", compaction_trigger=2, options_factory=factory
    )
    for batch in range(4):
        store = RocksDBStore(tmp_path, options)
        store.create_family("f")
        store.write({"f": [(b"k", b"%d" % batch)]})
        store.await_compactions()
        store.close()
    assert len(list(tmp_path.glob("*.sst"))) >= 4


def test_either_style_takes_the_others_files(tmp_path):
    """A store that was written with one compaction style can be opened with the other."""
    for at, style in enumerate(["level", "universal", "level", "universal"]):
        for batch in range(TRIGGER + 2):
            written(tmp_path, style, range(batch, 3000, at + 1))
    store = RocksDBStore(tmp_path, RocksDBOptions())
    assert sum(1 for _ in store.scan("f", b"", None)) == 3000
    store.close()


def compacting(directory):
    """A backend that is merging large files, and the files before."""
    settings = {"compaction-style": "level", "compaction-trigger": 2, "write-buffer-size": 32 << 20}
    config = mp.Config({f"backend.rocksdb.{name}": given for name, given in settings.items()})
    backend = mp.open_keyed_backend("rocksdb", key_type=int, directory=directory, config=config)
    state = backend.get_partitioned_state(BYTES)
    files, keys = set(), itertools.count()
    while not backend.native_metrics()["running_compactions"]:
        files = set(directory.rglob("*.sst"))
        backend.set_current_key(next(keys))
        state.update(os.urandom(1 << 20))
        backend.flush("done")
    return backend, files


def test_a_backend_waits_for_its_compaction(tmp_path):
    """After closing, the large files are merged and deleted."""
    backend, files = compacting(tmp_path)
    backend.close()
    assert files - set(tmp_path.rglob("*.sst"))


class Interrupted(BaseException):
    """An exception like KeyboardInterrupt, which would end the tests."""


@pytest.fixture
def waiting(tmp_path, monkeypatch):
    """A flushed backend that gets a Ctrl-C while it waits for a compaction."""

    def interrupted(store):
        raise Interrupted

    backend = open_at("rocksdb", tmp_path)
    backend.flush("done")
    with monkeypatch.context() as patch:
        patch.setattr(RocksDBStore, "await_compactions", interrupted)
        yield backend


@pytest.mark.parametrize(
    "before", [lambda backend: backend.forbid_local_copy(), lambda backend: backend.flush(None)]
)
def test_a_copy_that_nobody_opens_is_not_waited_for(waiting, before):
    """The copy of a failed task, or one without a version, is closed without waiting."""
    before(waiting)
    waiting.close()


def test_an_interrupted_wait_leaves_nothing_open(waiting, tmp_path):
    """After an interrupted wait the next backend opens in the same process, without the unfinished copy."""
    with pytest.raises(Interrupted):
        waiting.close()
    with open_at("rocksdb", tmp_path, ["done"]) as again:
        assert "not closed in good order" in again.discarded


def test_a_store_that_is_only_read_is_not_compacted(tmp_path):
    """Files that a restore reads row by row and then deletes are not compacted."""
    for number in range(TRIGGER):
        store = RocksDBStore(tmp_path, RocksDBOptions(compaction_trigger=100))
        store.create_family("f")
        store.write({"f": [(b"k", b"%d" % number)]})
        store.close()
    files = set(tmp_path.glob("*.sst"))
    assert len(files) >= TRIGGER
    store = RocksDBStore(tmp_path, RocksDBOptions(compaction_trigger=2), compacts=False)
    assert [*store.scan("f", b"", None)] == [(b"k", b"%d" % (TRIGGER - 1))]
    store.await_compactions()
    store.close()
    assert set(tmp_path.glob("*.sst")) == files
