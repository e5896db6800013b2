"""Sealed metadata and handles are read as they were written, or refused."""

import json

import attrs
import pytest
from millpond import KeyedStateHandle, KeyGroupRange, errors
from millpond.snapshots.bundle import read_sealed, write_sealed
from millpond.snapshots.handles import RetiredFile, SnapshotFile
from millpond.storage.memory import MemoryStorage
from millpond.types import key_codec_for


@pytest.fixture
def storage():
    """A storage in memory."""
    return MemoryStorage.private()


def file(path, version, kind="delta"):
    """A file for handles."""
    return SnapshotFile(path, 100, "0" * 64, footer=50, kind=kind, version=version, rows=3)


def handle(storage, files, history=(), **more):
    """Return a handle with the given files."""
    return KeyedStateHandle(
        checkpoint_id=7,
        version=files[-1].version if files else "nothing",
        key_group_range=KeyGroupRange(0, 63),
        max_parallelism=128,
        key=key_codec_for(str).snapshot(),
        states=(),
        files=tuple(files),
        history=tuple(history),
        storage=storage,
        **more,
    )


def test_a_sealed_text_is_read_as_written(storage):
    """A sealed text with any characters is read as it was written."""
    for text in ("", "{}", 'ü"\\\n\0\U0001f41f', "x" * 10_000):
        write_sealed(storage, "m", text)
        assert read_sealed(storage, "m") == text


def test_no_change_of_a_sealed_text_goes_unseen(storage):
    """A change of any byte of the file is refused."""
    write_sealed(storage, "m", json.dumps({"names": ["a", "b"], "counts": list(range(40))}))
    sound = storage.read_all("m")
    for at in range(len(sound)):
        storage.write("bad", [sound[:at], bytes([sound[at] ^ 1]), sound[at + 1 :]])
        with pytest.raises(errors.CorruptSnapshotError):
            read_sealed(storage, "bad")


@pytest.mark.parametrize("data", [b"", b"[]", b"7", b"{}", b'{"sha256": 1, "content": "a"}'])
def test_what_is_not_a_sealed_text_is_refused(storage, data):
    """Other JSON, and text that is not JSON, is refused."""
    storage.write("m", [data])
    with pytest.raises(errors.CorruptSnapshotError, match="m"):
        read_sealed(storage, "m")


def test_a_handle_comes_back_from_its_json(storage):
    """A handle is restored from JSON with all fields, and bound to the storage."""
    given = handle(
        storage,
        [file("base", "v1", "base"), file("delta", "v2")],
        [file("old", "v1")],
        retired=(RetiredFile("gone", 5),),
        metadata="m.json",
    )
    found = KeyedStateHandle.from_json(given.to_json(), storage)
    assert found == given
    assert found.storage is storage
    assert found.paths == {"base", "delta", "old"}
    assert found.all_paths == {"base", "delta", "old", "gone", "m.json"}


@pytest.mark.parametrize("path", ["../x", "/etc/passwd", "a/../../x", ""])
def test_a_path_that_leaves_the_storage_is_refused(storage, path):
    """A path outside of the storage is refused in each list of a handle."""
    for change in (
        {"files": (file(path, "v"),)},
        {"history": (file(path, "v"),)},
        {"retired": (RetiredFile(path, 1),)},
    ):
        text = attrs.evolve(handle(storage, [file("base", "v")]), **change).to_json()
        with pytest.raises(errors.CorruptSnapshotError):
            KeyedStateHandle.from_json(text, storage)


def test_the_way_from_a_version_is_found(storage):
    """A copy at a version of the chain needs the later deltas; another copy cannot be updated."""
    base, two, three = file("b", "v3", "base"), file("d4", "v4"), file("d5", "v5")
    before = [file("d2", "v2"), file("d3", "v3")]
    found = handle(storage, [base, two, three], before)
    names = {
        version: None if files is None else [each.path for each in files]
        for version in ("v1", "v2", "v3", "v4", "v5", None)
        for files in [found.files_after(version)]
    }
    assert names == {
        "v1": None,
        "v2": ["d3", "d4", "d5"],
        "v3": ["d4", "d5"],
        "v4": ["d5"],
        "v5": [],
        None: None,
    }
    assert found.ancestors() == {"v2", "v3", "v4", "v5"}


def test_a_part_has_the_key_groups_in_common(storage):
    """The part of a handle has the common key groups; without any, there is no part."""
    given = handle(storage, [file("b", "v", "base")])
    assert given.intersection(KeyGroupRange(60, 127)).key_group_range == KeyGroupRange(60, 63)
    assert given.intersection(KeyGroupRange(64, 127)) is None
