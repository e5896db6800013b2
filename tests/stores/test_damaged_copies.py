"""Local copies are opened only if they are intact, and damage that is found later is reported."""

import itertools
import logging
import os
import random

import millpond as mp
import pytest
from millpond import errors
from millpond.backend import working_directory
from millpond.backend.working_directory import MARKER_FILE
from millpond.format_versions import Format
from millpond.spi import META_FAMILY
from millpond_conformance.opening import open_at
from millpond_rocksdb.options import RocksDBOptions
from millpond_rocksdb.store import RocksDBStore

from tests.stores.test_restore_alternatives import get, storage, total

TOTAL = mp.ValueStateDescriptor("total", int)
PEOPLE = 2000
__all__ = ["get", "storage"]


def make_copy(backend, directory, offset=0):
    """Return the directory of a backend that was closed at version v1."""
    with open_at(backend, directory) as opened:
        state = opened.get_partitioned_state(TOTAL)
        for number in range(PEOPLE):
            opened.set_current_key(f"k{number}")
            state.update(number + offset)
        opened.flush("v1")


def found_in(backend, directory):
    """Return why a copy was discarded, or its whole content."""
    with open_at(backend, directory, {"v1"}) as opened:
        if opened.version is None:
            assert opened.num_state_entries() == 0
            return opened.discarded
        state = opened.get_partitioned_state(TOTAL)
        values = {}
        for key in list(opened.keys("total")):
            opened.set_current_key(key)
            values[key] = state.value()
        return values


def flip(path, rng):
    """Flip one bit of a file."""
    data = bytearray(path.read_bytes())
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    path.write_bytes(data)


def cut(path, rng):
    """Truncate a file."""
    os.truncate(path, rng.randrange(path.stat().st_size))


def zero(path, rng):
    """Overwrite a page with zeros."""
    at = rng.randrange(max(1, path.stat().st_size // 4096)) * 4096
    with path.open("r+b") as file:
        file.seek(at)
        file.write(bytes(min(4096, path.stat().st_size - at)))


def lose(path, rng):
    """Delete a file."""
    del rng
    path.unlink()


def files_of(directory, pattern="*"):
    """Return the non-empty files except the marker."""
    found = [p for p in sorted(directory.rglob(pattern)) if p.is_file() and p.stat().st_size]
    return [path for path in found if path.name != MARKER_FILE]


def mutate_and_open(backend, directory, count):
    """Damage copies in many ways, and check that none is opened."""
    for number, way in zip(range(count), itertools.cycle((flip, cut, zero, lose))):
        rng = random.Random(number)
        make_copy(backend, directory)
        path = rng.choice(files_of(directory))
        way(path, rng)
        found = found_in(backend, directory)
        assert isinstance(found, str), (number, way.__name__, path.name)
        assert path.name in found


@pytest.mark.parametrize("backend", ["lmdb", "rocksdb"])
def test_damaged_copies_are_not_opened(backend, tmp_path):
    """If a file of a closed copy is changed in any way, the copy is discarded with the file's name."""
    make_copy(backend, tmp_path)
    assert found_in(backend, tmp_path) == {f"k{number}": number for number in range(PEOPLE)}
    mutate_and_open(backend, tmp_path, 20)


@pytest.mark.soak
@pytest.mark.parametrize("backend", ["lmdb", "rocksdb"])
def test_many_damaged_copies_are_not_opened(backend, tmp_path):
    """Many copies, each with one changed file, are discarded."""
    mutate_and_open(backend, tmp_path, 500)


def test_a_damaged_marker_opens_nothing_else(tmp_path):
    """A copy with a changed marker is discarded, or opened as it was stored."""
    for number in range(40):
        make_copy("lmdb", tmp_path)
        flip(tmp_path / MARKER_FILE, random.Random(number))
        assert isinstance(found_in("lmdb", tmp_path), str)


def _as_directory(seal, aside):
    seal.rename(aside)
    seal.mkdir()
    (seal / "x").write_text("x")


def _as_pipe(seal, aside):
    seal.rename(aside)
    os.mkfifo(seal)


def _as_link(seal, aside):
    aside.write_bytes(b"somebody's")
    seal.unlink()
    seal.symlink_to(aside)


def _as_second_name(seal, aside):
    aside.write_bytes(b"somebody's")
    seal.unlink()
    seal.hardlink_to(aside)


def _as_link_to_nothing(seal, aside):
    seal.unlink()
    seal.symlink_to(aside)


def _with_body(body):
    def write(seal, aside):
        aside.write_bytes(b"somebody's")
        seal.write_text(body)

    return write


HOSTILE_MARKERS = {
    "directory": _as_directory,
    "pipe": _as_pipe,
    "link": _as_link,
    "second name": _as_second_name,
    "link to nothing": _as_link_to_nothing,
    "endless": lambda seal, _: os.truncate(seal, 1 << 36),
    "deep": _with_body("[" * 200_000),
    "null": _with_body("null"),
}


@pytest.mark.parametrize("way", HOSTILE_MARKERS.values(), ids=HOSTILE_MARKERS)
def test_what_is_no_marker_is_neither_waited_for_nor_written_through(tmp_path, way):
    """A pipe, link or directory in place of the marker: the copy is replaced, and no other file changes."""
    make_copy("lmdb", tmp_path / "copy")
    aside = tmp_path / "aside"
    way(tmp_path / "copy" / MARKER_FILE, aside)
    before = aside.read_bytes() if aside.exists() else None
    assert "not closed in good order" in found_in("lmdb", tmp_path / "copy")
    make_copy("lmdb", tmp_path / "copy")
    assert (aside.read_bytes() if aside.exists() else None) == before
    assert len(found_in("lmdb", tmp_path / "copy")) == PEOPLE


def test_a_copy_of_another_format_is_not_opened(tmp_path, monkeypatch):
    """A copy that a newer Millpond has left is replaced by the snapshot."""
    with monkeypatch.context() as patch:
        newer = Format("local copy", working_directory.LOCAL_COPY.version + 1)
        patch.setattr(working_directory, "LOCAL_COPY", newer)
        make_copy("lmdb", tmp_path)
    assert "not closed in good order" in found_in("lmdb", tmp_path)


@pytest.mark.parametrize("backend", ["lmdb", "rocksdb"])
def test_another_places_files_are_no_copy(backend, tmp_path):
    """The files of another copy, and additional files, are refused."""
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    make_copy(backend, theirs, offset=1)
    make_copy(backend, ours)
    for path in files_of(theirs):
        path.replace(ours / path.relative_to(theirs))
    assert isinstance(found_in(backend, ours), str)
    make_copy(backend, ours)
    (ours / "more").write_text("x")
    assert "more was changed, added or removed" in found_in(backend, ours)


def test_a_copy_of_before_a_restart_of_the_machine_is_none(tmp_path, monkeypatch):
    """A copy from before a restart of the machine is discarded, because stores are not synced to disk."""
    make_copy("lmdb", tmp_path)
    monkeypatch.setattr("millpond.backend.working_directory.boot_id", lambda: "another")
    assert "restarted" in found_in("lmdb", tmp_path)


def test_a_store_that_found_damage_leaves_no_copy(tmp_path):
    """If RocksDB finds changed bytes, it raises an error; no row is missing, and the copy is discarded."""
    make_copy("rocksdb", tmp_path)
    table = max(files_of(tmp_path, "*.sst"), key=lambda path: path.stat().st_size)
    status = table.stat()
    with table.open("r+b") as file:
        file.seek(200)
        file.write(b"\0\xff\0")
    os.utime(table, ns=(status.st_atime_ns, status.st_mtime_ns))
    with open_at("rocksdb", tmp_path, {"v1"}) as opened:
        opened.get_partitioned_state(TOTAL)
        with pytest.raises(errors.StoreDamagedError, match=r"checksum mismatch.*restore the state"):
            list(opened.keys("total"))
    assert "not closed in good order" in found_in("rocksdb", tmp_path)


def every_way_to_read(store):
    """Read all rows by a scan, by gets, and by a reader."""
    with_scan = dict(store.scan("f", b"", None))
    reader = store.reader()
    try:
        with_reader = dict(reader.scan("f", b"", None))
    finally:
        reader.close()
    return with_scan, {key: store.get("f", key) for key in ROWS}, with_reader


ROWS = {b"%06d" % n: random.Random(n).randbytes(40) for n in range(5000)}


@pytest.mark.parametrize("kind", ["*.sst", "MANIFEST-*", "CURRENT", "OPTIONS-*"])
def test_rocksdb_loses_no_row_silently(kind, tmp_path):
    """With any flipped bit in a file, RocksDB returns all rows or raises an error.

    If the manifest is truncated, the store is an older one, as after a kill; its version shows
    this.
    """
    told = 0
    for number in range(12):
        directory, rng = tmp_path / str(number), random.Random(number)
        store = RocksDBStore(directory, RocksDBOptions())
        store.create_family("f")
        store.write({"f": list(ROWS.items()), META_FAMILY: [(b"version", b"v1")]})
        store.close()
        for path in directory.glob(kind):
            flip(path, rng)
        try:
            opened = RocksDBStore(directory, RocksDBOptions())
            try:
                if opened.get(META_FAMILY, b"version") == b"v1":
                    assert every_way_to_read(opened) == (ROWS, ROWS, ROWS)
                else:
                    told += 1
            finally:
                opened.close()
        except errors.StoreDamagedError:
            told += 1
    assert told == 0 if kind == "OPTIONS-*" else told >= 10


@pytest.mark.parametrize("backend", ["lmdb", "rocksdb"])
def test_a_damaged_copy_is_replaced_by_the_snapshot(get, storage, tmp_path, backend, caplog):
    """A task with a damaged copy restores the snapshot, counts the copy, and logs the reason."""
    _, first = get(backend, None, 1)
    _, second = get(backend, first, 2)
    for path in (tmp_path / "local").rglob("data.mdb" if backend == "lmdb" else "*.sst"):
        flip(path, random.Random(1))
    with caplog.at_level(logging.WARNING, "millpond.restore"):
        source, third = get(backend, second, 3)
    assert source == "snapshot"
    assert "the local copy cannot be used" in caplog.text
    assert total(storage, third) == 3
    source, fourth = get(backend, third, 4)
    assert source == "local"
    assert total(storage, fourth) == 4


@pytest.mark.parametrize("backend", ["lmdb", "rocksdb"])
def test_a_failed_task_leaves_no_copy(get, storage, backend, monkeypatch):
    """After a failed task, the next attempt restores the snapshot instead of the same copy."""
    _, first = get(backend, None, 1)
    with monkeypatch.context() as patch:
        patch.setattr("millpond.backend.keyed_backend.KeyedStateBackend.snapshot", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            get(backend, first, 2)
    source, second = get(backend, first, 2)
    assert source == "snapshot"
    assert total(storage, second) == 2
