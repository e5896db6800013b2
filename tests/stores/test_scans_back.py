"""Stores scanned backwards: the same rows as forwards, in opposite order."""

from contextlib import closing

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from millpond_lmdb.options import LmdbOptions
from millpond_lmdb.store import LmdbStore
from millpond_rocksdb.options import RocksDBOptions
from millpond_rocksdb.store import RocksDBStore

from core.tests.memory_store import MemoryStore

KEYS = st.one_of(
    st.binary(min_size=1, max_size=4),
    st.tuples(st.sampled_from([489, 494, 495, 496, 510, 511, 600]), st.binary(max_size=4)).map(
        lambda pair: b"p" * pair[0] + pair[1]
    ),
)


@pytest.fixture(scope="module", params=["lmdb", "rocksdb", "default"])
def store(request, tmp_path_factory):
    """An open store; the default one has no method of its own for backward scans."""
    folder = tmp_path_factory.mktemp(request.param) / "store"
    makers = {
        "lmdb": lambda: LmdbStore(folder, LmdbOptions()),
        "rocksdb": lambda: RocksDBStore(folder, RocksDBOptions()),
        "default": MemoryStore,
    }
    with closing(makers[request.param]()) as opened:
        opened.create_family("f")
        yield opened


@settings(max_examples=150, deadline=None)
@given(st.sets(KEYS, max_size=12), KEYS, st.none() | KEYS, st.integers(1, 3))
def test_a_scan_back_has_the_rows_of_a_scan(store, keys, start, end, size):
    """A backward scan equals the forward one, as a whole and in slices that continue each other."""
    before = [(key, None) for key, _ in store.scan("f", b"", None)]
    store.write({"f": before})
    store.write({"f": [(key, key[-2:]) for key in sorted(keys)]})
    expected = list(store.scan("f", start, end))
    assert [key for key, _ in expected] == sorted(
        key for key in keys if key >= start and (end is None or key < end)
    )
    assert list(store.scan_back("f", start, end)) == expected[::-1]
    found, stop = [], end
    while True:
        with closing(store.scan_back("f", start, stop)) as rows:
            part = [row for row, _ in zip(rows, range(size), strict=False)]
        found += part
        if len(part) < size:
            break
        stop = part[-1][0]
    assert found == expected[::-1]


def test_a_family_without_rows(store):
    """A family that was created and never written to has no rows in either direction."""
    store.create_family("new")
    assert list(store.scan_back("new", b"", None)) == list(store.scan_back("new", b"a", b"b")) == []
