"""RocksDB's compactions over the short lives of a store that is opened for each micro-batch."""

import os
from pathlib import Path

from millpond_rocksdb.options import RocksDBOptions
from millpond_rocksdb.store import RocksDBStore

ENTRIES = 60_000
TRIGGER = 4


def written(directory: Path, style: str, entries: range) -> int:
    """Open, write and close a store, as a micro-batch does; the number of files it had."""
    options = RocksDBOptions(compaction_style=style, compaction_trigger=TRIGGER)
    store = RocksDBStore(directory, options)
    store.create_family("f")
    files = len(list(directory.glob("*.sst")))
    store.write({"f": [(b"%08d" % entry, os.urandom(600)) for entry in entries]})
    store.close()
    return files


def test_a_compaction_comes_to_an_end(tmp_path):
    """Files do not gather where a compaction takes longer than the store is open."""
    written(tmp_path, "level", range(ENTRIES))
    batches = [range(at, ENTRIES, ENTRIES // 100) for at in range(32)]
    assert max(written(tmp_path, "level", batch) for batch in batches) <= 2 * TRIGGER + 1


def test_either_style_takes_the_others_files(tmp_path):
    """A store that was written with one style of compaction is opened with the other."""
    for at, style in enumerate(["level", "universal", "level", "universal"]):
        for batch in range(TRIGGER + 2):
            written(tmp_path, style, range(batch, 3000, at + 1))
    store = RocksDBStore(tmp_path, RocksDBOptions())
    assert sum(1 for _ in store.scan("f", b"", None)) == 3000
    store.close()
