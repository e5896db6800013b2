"""Snapshots that are embedded in handles while they are small, and written to a file otherwise."""

import base64
import itertools
import json
import pickle
import random

import attrs
import millpond as mp
import pytest
from millpond.errors import ConfigError, CorruptSnapshotError, SnapshotTooLargeError
from millpond.plugins import get_registry
from millpond.snapshots.bundle import POINTER_BYTES
from millpond.snapshots.catalog import read_catalog
from millpond_cli.inspection.orphans import orphans
from millpond_cli.inspection.stored_operator import open_stored, state_table
from millpond_cli.inspection.verify import files_of, verify_file

BACKENDS = ("heap", "lmdb", "rocksdb")
TEXT = mp.ValueStateDescriptor("text", str)
LIMIT = 20_000
numbers = itertools.count()


@pytest.fixture
def storage():
    """An in-memory storage for one test."""
    return mp.checkpoint_storage(f"memory:carried{next(numbers)}")


@pytest.fixture
def opened(tmp_path):
    """Opens backends and closes all of them at the end."""
    held = []

    def open_backend(name="heap", restore=(), strategy="changelog", **checkpoint):
        config = mp.Config(
            {"state.snapshot.strategy": strategy, "checkpoint.inline-threshold": LIMIT}
            | {f"checkpoint.{key.replace('_', '-')}": value for key, value in checkpoint.items()}
        )
        backend = mp.open_keyed_backend(
            name,
            key_type=int,
            directory=tmp_path / str(next(numbers)),
            config=config,
            restore=restore,
            place="q/op",
        )
        held.append(backend)
        return backend

    yield open_backend
    for backend in held:
        backend.close()


def put(backend, keys, text="x", size=0):
    """Set keys to a text that ends with a number of incompressible characters."""
    state = backend.get_partitioned_state(TEXT)
    for key in keys:
        backend.set_current_key(key)
        chance = random.Random(f"{text}{key}")
        state.update(text + chance.randbytes(size // 2).hex())


def held_by(backend, keys):
    """Return the texts of some keys."""
    state = backend.get_partitioned_state(TEXT)
    found = {}
    for key in keys:
        backend.set_current_key(key)
        found[key] = state.value()
    return found


def committed(backend, number, storage):
    """Return the handle of a confirmed snapshot, converted to JSON and back as in Spark's pointer."""
    handle = backend.snapshot(number, storage).result().handle
    backend.notify_checkpoint_complete(number)
    return mp.KeyedStateHandle.from_json(handle.to_json(), storage)


def carried(handle):
    """Return the number of bytes embedded in a handle."""
    return sum(file.size for file in files_of(handle) if file.inline)


@pytest.mark.parametrize("strategy", ["changelog", "full"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_small_snapshots_write_no_file(opened, storage, backend, strategy):
    """A small state writes no file in any batch, even with new bases; each handle can be restored elsewhere."""
    working = opened(backend, strategy=strategy)
    for number in range(1, 41):
        put(working, range(number % 7, 60, 7), f"{number} of ")
        handle = committed(working, number, storage)
        assert carried(handle) <= LIMIT
        assert handle.carries
    assert storage.list("") == []
    for other in BACKENDS:
        restored = opened(other, [handle])
        assert held_by(restored, range(60)) == held_by(working, range(60))


def test_what_is_larger_is_one_file(opened, storage):
    """A larger snapshot is one file with rows, operator state, earlier embedded parts and the handle."""
    working = opened()
    own = working.operator_state = mp.open_operator_backend()
    seen = own.get_list_state(mp.ListStateDescriptor("seen", str))
    put(working, range(50))
    seen.add("first")
    assert carried(committed(working, 1, storage))
    put(working, range(50, 100), "1", 1000)
    seen.add("second")
    handle = committed(working, 2, storage)
    assert storage.list("") == [handle.metadata]
    assert handle.metadata.endswith(".snapshot")
    assert carried(handle) == 0
    (stored,) = open_stored(get_registry().savepoint(storage.uri, mp.Config()), get_registry())
    assert stored.parts == (handle,)
    assert state_table(stored, "text").num_rows == 100
    assert [len(state.partitions) for (state,) in stored.operator_states()] == [2]
    for file in files_of(handle):
        verify_file(handle, file)
    assert held_by(opened("lmdb", [handle]), range(100)) == held_by(working, range(100))


def test_deltas_of_a_large_state_share_files(opened, storage):
    """With a large state, handles stay below the threshold, and only some batches write a file."""
    working = opened()
    put(working, range(200), "2", 1000)
    committed(working, 1, storage)
    files = [len(storage.list(""))]
    for number in range(2, 30):
        put(working, [number], f"{number}", 2_500)
        handle = committed(working, number, storage)
        assert carried(handle) <= LIMIT
        files.append(len(storage.list("")))
    written = [after - before for before, after in itertools.pairwise(files)]
    assert set(written) == {0, 1}
    assert 2 <= sum(written) <= 6
    assert held_by(opened("rocksdb", [handle]), range(200)) == held_by(working, range(200))


def test_copies_catch_up_by_carried_deltas(opened, storage):
    """A local copy of any version can apply the later deltas, embedded or in files."""
    working = opened()
    put(working, range(200), "3", 1000)
    chain = [committed(working, 1, storage)]
    for number in range(2, 12):
        put(working, [number], f"{number}", 2_500)
        chain.append(committed(working, number, storage))
    last = chain[-1]
    for behind, handle in enumerate(reversed(chain)):
        assert handle.version in last.ancestors()
        assert len(last.files_after(handle.version)) == behind


@pytest.mark.parametrize(
    ("first", "then"),
    list(
        itertools.permutations(
            [{"inline_threshold": 0}, {"inline_threshold": LIMIT}, {"storage": "pointer"}], 2
        )
    ),
)
def test_the_setting_may_change(opened, storage, first, then):
    """A backend continues from a snapshot that was taken with another setting."""
    before = opened(**first)
    put(before, range(30))
    before.snapshot(1, storage).result()
    handle = committed(before, 1, storage)
    after = opened(restore=[handle], **then, claim=True)
    for number in (2, 3):
        put(after, range(number, number + 20), "after ")
        handle = committed(after, number, storage)
    if then.get("storage") == "pointer":
        assert handle.needed_paths == frozenset()
    if then.get("inline_threshold") == 0:
        assert carried(handle) == 0
    assert held_by(opened(restore=[handle]), range(30)) == held_by(after, range(30))


@pytest.mark.parametrize("strategy", ["changelog", "full"])
def test_pointers_alone_hold_so_much_and_no_more(opened, storage, strategy):
    """If the pointer's limit is exceeded, the error names the largest state and the cure; smaller state works again."""
    working = opened(strategy=strategy, storage="pointer")
    small = working.get_partitioned_state(mp.ValueStateDescriptor("small", int))
    put(working, range(20), "4", 100_000)
    small.update(1)
    handle = committed(working, 1, storage)
    put(working, range(20, 70), "5", 100_000)
    with pytest.raises(SnapshotTooLargeError) as caught:
        working.snapshot(2, storage).result()
    error = pickle.loads(pickle.dumps(caught.value))
    assert (error.state, error.limit) == ("text", POINTER_BYTES)
    assert "q/op/" in str(error)
    assert "checkpoint.storage to files" in str(error)
    assert storage.list("") == []
    put(working, range(20, 70), "short")
    handle = committed(working, 3, storage)
    assert storage.list("") == []
    assert held_by(opened(restore=[handle]), range(70)) == held_by(working, range(70))


def test_operator_state_of_pointers_alone_is_bounded_too(opened, storage):
    """If operator state exceeds the pointer's limit, the error names it."""
    working = opened(storage="pointer")
    own = working.operator_state = mp.open_operator_backend()
    own.get_list_state(mp.ListStateDescriptor("few", str)).add("x")
    own.get_list_state(mp.ListStateDescriptor("many", str)).add("x" * (POINTER_BYTES + 1))
    with pytest.raises(SnapshotTooLargeError, match="'many'"):
        working.snapshot(1, storage).result()


def test_own_files_of_rocksdb_need_a_directory(opened, storage):
    """`checkpoint.storage=pointer` is refused with RocksDB's incremental snapshots."""
    with pytest.raises(ConfigError, match=r"checkpoint\.storage"):
        opened("rocksdb", strategy="incremental", storage="pointer").snapshot(1, storage)


def test_files_go_once_nothing_retained_needs_them(opened, storage):
    """A file with several parts is deleted only when no retained snapshot needs any of them."""
    working = opened(retained=1, inline_threshold=2_000)
    for number in range(1, 40):
        put(working, range(number % 3, 60, 3), f"{number}", 200)
        handle = committed(working, number, storage)
        assert handle.paths <= set(storage.list(""))
    old = set(storage.list("")) - handle.all_paths
    assert not old
    working.get_partitioned_state(TEXT)
    restored = opened(restore=[handle])
    assert held_by(restored, range(60)) == held_by(working, range(60))


def test_an_aborted_snapshot_leaves_no_file(opened, storage):
    """An aborted snapshot leaves no file, and the previous snapshot keeps its own."""
    working = opened(inline_threshold=100)
    put(working, range(10), "6", 100)
    handle = committed(working, 1, storage)
    put(working, range(10), "7", 100)
    working.snapshot(2, storage).result()
    working.notify_checkpoint_aborted(2)
    assert storage.list("") == [handle.metadata]
    put(working, range(10))
    assert held_by(opened(restore=[committed(working, 3, storage)]), range(10)) == held_by(
        working, range(10)
    )


def test_damage_to_what_a_handle_carries_is_noticed(opened, storage):
    """Changed, missing or undecodable embedded bytes are refused."""
    working = opened()
    put(working, range(50))
    handle = committed(working, 1, storage)
    (file,) = handle.files
    data = bytearray(base64.b64decode(file.inline))
    for at in range(0, len(data), 37):
        spoiled = bytes([*data[:at], data[at] ^ 4, *data[at + 1 :]])
        for wrong in (spoiled, data[:at], b""):
            text = base64.b64encode(wrong).decode() or "!"
            bad = attrs.evolve(handle, files=(attrs.evolve(file, inline=text),))
            with pytest.raises(CorruptSnapshotError):
                opened(restore=[bad])


@pytest.mark.parametrize("field", ["offset", "size", "footer"])
def test_impossible_places_are_refused(opened, storage, field):
    """A part cannot begin before its file, or end after it."""
    working = opened(inline_threshold=100)
    put(working, range(10), "8", 100)
    handle = committed(working, 1, storage)
    for wrong in (-1, 1 << 40, "1"):
        tree = json.loads(handle.to_json())
        tree["files"][0][field] = wrong
        with pytest.raises(CorruptSnapshotError):
            opened(restore=[mp.KeyedStateHandle.from_json(json.dumps(tree), storage)])


def test_a_file_of_parts_that_ends_otherwise_is_damage(opened, storage):
    """If a file does not end with its handle, tools report it as damaged and delete nothing."""
    working = opened(inline_threshold=100)
    put(working, range(10), "9", 100)
    path = committed(working, 1, storage).metadata
    whole = storage.read_all(path)
    huge = whole[:-12] + (1 << 31).to_bytes(4, "big") + whole[-8:]
    for bad in (whole[:-1], whole[:5], b"", whole + b"x", huge, whole[:-40] + b"x" + whole[-39:]):
        storage.write(path, [bad])
        catalog = read_catalog(storage)
        assert list(catalog.broken) == [path]
        with pytest.raises(CorruptSnapshotError, match="nothing is deleted"):
            orphans(catalog, 1)


def test_garbage_collection_keeps_what_an_idle_subtask_needs(opened, storage):
    """If an idle subtask's last batch had two attempts, `gc` keeps the files of both."""
    idle = opened(inline_threshold=0)
    put(idle, range(5))
    both = [idle.snapshot(1, storage).result().handle for _ in range(2)]
    catalog = read_catalog(storage)
    (subtask,) = catalog.subtasks
    other = attrs.evolve(
        subtask.handles[0], checkpoint_id=300, metadata="", files=(), retired=(), history=()
    )
    other = attrs.evolve(other, key_group_range=mp.KeyGroupRange(0, 0))
    later = attrs.evolve(subtask, folder="q/op/kg-0-0", handles=(other,), files={})
    unneeded = orphans(attrs.evolve(catalog, subtasks=(subtask, later)), 100)
    for handle in both:
        assert not handle.all_paths & set(unneeded)
