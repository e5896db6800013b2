"""LMDB as a byte store: long keys, growth, limits, kills."""

import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
import tracemalloc
from contextlib import closing
from itertools import islice
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from millpond import errors
from millpond_lmdb.options import LmdbOptions
from millpond_lmdb.reading import LIMIT, pack, restore_order, store_key, unpack
from millpond_lmdb.store import LmdbStore

LONG = st.binary(min_size=0, max_size=4).map(lambda tail: b"p" * 500 + tail * 20)


@given(st.sets(st.binary(max_size=20) | LONG))
def test_long_keys_keep_order(keys):
    """Keys of any length are read completely and in order from their stored form."""
    stored = sorted(pack(key, key[:3]) for key in keys)
    assert all(len(key) <= LIMIT for key, _ in stored)
    assert list(restore_order(iter(stored))) == [(key, key[:3]) for key in sorted(keys)]
    for key in keys:
        assert unpack(*pack(key, b"v")) == (key, b"v")
        assert store_key(key) == pack(key, b"")[0]


@pytest.fixture
def store(tmp_path):
    opened = LmdbStore(tmp_path / "lmdb", LmdbOptions())
    yield opened
    opened.close()


def test_scans_of_long_prefixes(store):
    """A scan finds exactly the keys in its range, also with long bounds."""
    store.create_family("f")
    prefix = b"k" * 600
    keys = [prefix + bytes([number]) for number in range(20)]
    others = [b"k" * 600, b"k" * 599 + b"l", b"k", b"l"]
    store.write({"f": [(key, b"v") for key in sorted(keys + others)]})
    found = [key for key, _ in store.scan("f", prefix + b"\x05", prefix + b"\x0a")]
    assert found == keys[5:10]
    assert [key for key, _ in store.scan("f", b"", None)] == sorted(keys + others)
    store.write({"f": [(keys[3], None)]})
    assert store.get("f", keys[3]) is None
    assert store.get("f", keys[4]) == b"v"


STEPS = st.lists(st.tuples(st.booleans(), LONG, LONG, st.integers(1, 4)), max_size=30)


@given(STEPS)
def test_scans_in_slices_see_what_is_written(tmp_path_factory, steps):
    """Writes, scans in slices and an open scan give the results of a dictionary."""
    with closing(LmdbStore(tmp_path_factory.mktemp("lmdb"), LmdbOptions())) as store:
        model = {}
        for family in "fg":
            store.create_family(family)
        for writes, key, other, count in steps:
            if writes:
                value = None if count == 1 else bytes([count])
                left_open, before = store.scan("f", b"", None), sorted(model.items())
                seen = list(islice(left_open, count))
                store.write({"f": [(key, value)], "g": [(key, b"other")]})
                model = {k: v for k, v in {**model, key: value}.items() if v is not None}
                assert [*seen, *left_open] == before
            start, end = sorted([key, other])
            for low, high in ((start, end), (other, None), (b"", None)):
                expected = [row for row in sorted(model.items()) if low <= row[0] < (high or b"q")]
                assert list(store.scan("f", low, high)) == expected
                with closing(store.scan("f", low, high)) as scan:
                    assert next(scan, None) == next(iter(expected), None)


def test_a_scan_in_slices_takes_no_longer_than_one(store):
    """Long keys with the same beginning are sorted once, not for each of forty slices."""
    store.create_family("f")
    keys = [b"k" * 600 + number.to_bytes(4, "big") for number in range(20_000)]
    store.write({"f": [(key, b"v") for key in keys]})
    began = time.process_time()
    assert sum(1 for _ in store.scan("f", b"", None)) == len(keys)
    whole = time.process_time() - began
    began, start, found = time.process_time(), b"k" * 600, 0
    while rows := list(islice(store.scan("f", start, None), 500)):
        found, start = found + len(rows), rows[-1][0] + b"\0"
    assert found == len(keys)
    assert time.process_time() - began < 5 * whole


def test_a_scan_in_slices_keeps_no_values(store):
    """Between slices only the ends of the keys are kept, and after the last slice nothing."""
    store.create_family("f")
    prefix = b"k" * 600
    rows = [(prefix + number.to_bytes(4, "big"), bytes(10_000)) for number in range(2000)]
    store.write({"f": rows})
    tracemalloc.start()
    try:
        assert list(islice(store.scan("f", prefix, None), 1)) == rows[:1]
        assert 100_000 < tracemalloc.get_traced_memory()[0] < 1_000_000
        assert sum(1 for _ in store.scan("f", prefix, None)) == len(rows)
        assert tracemalloc.get_traced_memory()[0] < 20_000
    finally:
        tracemalloc.stop()


def test_the_map_grows_by_itself(tmp_path):
    """Writing more than the map holds enlarges it without an error."""
    store = LmdbStore(tmp_path / "lmdb", LmdbOptions(initial_map_size=1 << 20))
    store.create_family("f")
    for number in range(10):
        store.write({"f": [(b"%02d" % number, bytes(1 << 20))]})
    store.write({"f": [(b"big", bytes(32 << 20))]})
    assert len(store.get("f", b"big")) == 32 << 20
    store.close()
    again = LmdbStore(tmp_path / "lmdb", LmdbOptions(initial_map_size=1 << 20))
    assert sum(1 for _ in again.scan("f", b"", None)) == 11
    again.close()


LIMITED = """
import resource, sys
from pathlib import Path
from millpond import errors
from millpond_lmdb.options import LmdbOptions
from millpond_lmdb.store import LmdbStore
pages = int(Path("/proc/self/statm").read_text().split()[0])
limit = pages * 4096 + (256 << 20)
hard = resource.getrlimit(resource.RLIMIT_AS)[1]
resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
store = LmdbStore(Path(sys.argv[1]), LmdbOptions())
store.create_family("f")
written = 0
try:
    for number in range(1000):
        store.write({"f": [(b"%04d" % number, bytes(1 << 20))]})
        written += 1
except errors.StoreFullError as error:
    resource.setrlimit(resource.RLIMIT_AS, (hard, hard))
    assert store.get("f", b"0000") == bytes(1 << 20)
    print(written, error)
"""


def test_an_address_space_limit(tmp_path):
    """With an address-space limit the map grows up to it, then an error is raised; earlier writes remain."""
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, str(tmp_path / "lmdb")],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    written, _, message = done.stdout.partition(" ")
    assert int(written) >= 60
    assert "cannot grow its store" in message


KILLED = """
import os, signal, sys
from pathlib import Path
from millpond_lmdb.options import LmdbOptions
from millpond_lmdb.store import LmdbStore
store = LmdbStore(Path(sys.argv[1]), LmdbOptions())
store.create_family("a"); store.create_family("b")
for number in range(10_000):
    value = b"%d" % number
    store.write({"a": [(b"k", value)], "b": [(b"k", value)]})
    if number == 100: print("ready", flush=True)
"""


def test_a_killed_writer_leaves_whole_writes(tmp_path):
    """After SIGKILL all families have the same write."""
    child = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(KILLED), str(tmp_path / "lmdb")],
        stdout=subprocess.PIPE,
    )
    assert child.stdout.readline() == b"ready\n"
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    child.stdout.close()
    store = LmdbStore(tmp_path / "lmdb", LmdbOptions())
    assert store.get("a", b"k") == store.get("b", b"k")
    assert int(store.get("a", b"k")) >= 100
    store.close()


def test_a_file_in_the_directorys_place_is_told(tmp_path):
    """A file in place of the directory is refused with a cure."""
    (tmp_path / "lmdb").write_text("a file where the directory should be")
    with pytest.raises(errors.StoreAccessError, match=r"/lmdb.*Move the file that has its name"):
        LmdbStore(tmp_path / "lmdb", LmdbOptions())


def fill(store, count):
    """Write rows of a kilobyte."""
    for first in range(0, count, 1000):
        rows = [(b"%08d" % n, bytes(1000)) for n in range(first, first + 1000)]
        store.write({"f": rows})


def test_a_file_full_of_free_pages_is_written_anew(tmp_path):
    """At opening, a file with many free pages is rewritten smaller, with all rows."""
    store = LmdbStore(tmp_path, LmdbOptions())
    store.create_family("f")
    fill(store, 40_000)
    for first in range(0, 39_000, 1000):
        store.write({"f": [(b"%08d" % n, None) for n in range(first, first + 1000)]})
    before = (tmp_path / "data.mdb").stat().st_size
    assert store.metrics()["free_bytes"] > before / 2
    store.close()
    half = tmp_path / "compact" / "data.mdb"
    half.parent.mkdir()
    half.write_bytes(b"what a process has left that was killed while it wrote anew")
    again = LmdbStore(tmp_path, LmdbOptions())
    assert not half.parent.exists()
    assert (tmp_path / "data.mdb").stat().st_size < before / 10
    with closing(again.scan("f", b"", None)) as scan:
        assert [key for key, _ in scan] == [b"%08d" % n for n in range(39_000, 40_000)]
    again.write({"f": [(b"x", b"y")]})
    assert again.get("f", b"x") == b"y"
    again.close()


OUT_OF_ROOM = """
import resource, sys
from pathlib import Path
from millpond_lmdb.options import LmdbOptions
from millpond_lmdb.store import LmdbStore
hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
resource.setrlimit(resource.RLIMIT_FSIZE, (500_000, hard))
store = LmdbStore(Path(sys.argv[1]), LmdbOptions())
print(sum(1 for _ in store.scan("f", b"", None)))
store.close()
"""


def test_without_room_to_write_it_anew_a_file_serves_as_it_is(tmp_path, monkeypatch, caplog):
    """Without disk space for the rewrite, the file is opened unchanged, with a warning.

    The rewrite is not tried if the disk reports too little space.
    """
    store = LmdbStore(tmp_path, LmdbOptions())
    store.create_family("f")
    fill(store, 30_000)
    for first in range(0, 28_000, 1000):
        store.write({"f": [(b"%08d" % n, None) for n in range(first, first + 1000)]})
    store.close()
    command = [sys.executable, "-c", OUT_OF_ROOM, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout == "2000\n", done.stderr
    assert f"{tmp_path}/data.mdb: not rewritten" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["data.mdb"]
    before = (tmp_path / "data.mdb").stat().st_size
    with monkeypatch.context() as patched:
        patched.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1000))
        LmdbStore(tmp_path, LmdbOptions()).close()
    assert (tmp_path / "data.mdb").stat().st_size == before
    assert "bytes, and the disk has 1,000" in caplog.text
    LmdbStore(tmp_path, LmdbOptions()).close()
    assert (tmp_path / "data.mdb").stat().st_size < 5 << 20


def test_a_file_whose_pages_are_overwritten_is_not_written_anew(tmp_path):
    """Batches that change a row of each page do not cause a rewrite, because free pages are used again."""
    data = tmp_path / "data.mdb"
    store = LmdbStore(tmp_path, LmdbOptions())
    store.create_family("f")
    store.write({"f": [(b"%08d" % n, bytes(30)) for n in range(400_000)]})
    store.close()
    with data.open() as file:  # kept open, so that no other file gets its number
        for _ in range(4):
            store = LmdbStore(tmp_path, LmdbOptions())
            store.write({"f": [(b"%08d" % n, bytes(30)) for n in range(0, 400_000, 40)]})
            gauges = store.metrics()
            store.close()
            assert data.stat().st_ino == os.fstat(file.fileno()).st_ino
    assert gauges["free_bytes"] > 1.5 * gauges["live_bytes"]


def test_reader_slots_run_out_loudly(tmp_path):
    """If all reader slots are used, the error names the option; a freed slot can be used."""
    store = LmdbStore(tmp_path, LmdbOptions(max_readers=3))
    readers = [store.reader(), store.reader(), store.reader()]
    with pytest.raises(errors.StoreFullError, match="max-readers"):
        store.reader()
    readers.pop().close()
    readers.append(store.reader())
    for reader in readers:
        reader.close()
    store.close()


READER = """
import os, signal, sys
from pathlib import Path
from millpond_lmdb.options import LmdbOptions
from millpond_lmdb.store import LmdbStore
store = LmdbStore(Path(sys.argv[1]), LmdbOptions(max_readers=3))
reader = store.reader()
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_slots_of_killed_processes_are_freed(tmp_path):
    """Reader slots of a killed process are freed."""
    LmdbStore(tmp_path, LmdbOptions(max_readers=3)).close()
    for _ in range(4):
        killed = subprocess.run([sys.executable, "-c", READER, str(tmp_path)], check=False)
        assert killed.returncode == -signal.SIGKILL
    store = LmdbStore(tmp_path, LmdbOptions(max_readers=3))
    store.reader().close()
    store.close()
