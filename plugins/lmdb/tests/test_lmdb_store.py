"""LMDB as a byte store: long keys, growth, limits, kills."""

import os
import signal
import subprocess
import sys
import textwrap
from contextlib import closing
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st
from millpond import errors
from millpond_lmdb.long_keys import LIMIT, pack, restore_order, store_key, unpack
from millpond_lmdb.options import LmdbOptions
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
