"""Limits apply when files are written: Millpond can read each file that it writes."""

import attrs
import millpond as mp
import millpond.storage.checkpoint_storage as storages
import pytest
from millpond import errors
from millpond.config import RestoreConfig
from millpond.snapshots.bundle import read_sealed, write_sealed
from millpond.types.base import MAX_PAYLOAD_DEPTH, SerializerSnapshot
from millpond.types.node_compiler import MAX_NESTING

BACKENDS = ("heap", "rocksdb", "lmdb")
STRATEGIES = ("changelog", "full", "savepoint")
TEXT = mp.ValueStateDescriptor("text", str)
LIST = mp.ListStateDescriptor("texts", str)


def opened(tmp_path, backend="heap", restore=(), **limits):
    config = mp.Config({f"restore.{name.replace('_', '-')}": n for name, n in limits.items()})
    return mp.open_keyed_backend(
        backend,
        key_type=str,
        directory=tmp_path / str(len(list(tmp_path.iterdir()))),
        restore=restore,
        config=config,
    )


def saved(backend, tmp_path, strategy="changelog"):
    """Return the handle of a snapshot or savepoint in files."""
    storage = mp.checkpoint_storage(str(tmp_path / "checkpoints"))
    taken = (backend.savepoint if strategy == "savepoint" else backend.snapshot)(1, storage)
    return taken.result().handle


def with_states(backend, count):
    backend.set_current_key("k")
    for number in range(count):
        backend.get_partitioned_state(mp.ValueStateDescriptor(f"s{number}", int)).update(number)


def test_every_limit_of_restores_is_tested_here():
    """Each option `restore.*` has a test on both sides of its limit."""
    names = {field.name for field in attrs.fields(RestoreConfig)}
    assert names == {"max_file_bytes", "max_unpacked_bytes", "max_states"}


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("backend", BACKENDS)
def test_one_state_too_many_is_refused_at_once(tmp_path, backend, strategy):
    """The maximum number of states can be restored; one more is refused with `restore.max-states`."""
    with opened(tmp_path, backend, max_states=5) as held:
        with_states(held, 5)
        with pytest.raises(errors.TooManyStatesError, match=r"'s5'.*restore\.max-states"):
            with_states(held, 6)
        handle = saved(held, tmp_path, strategy)
    with opened(tmp_path, backend, [handle], max_states=5) as again:
        with_states(again, 5)
        with pytest.raises(errors.TooManyStatesError, match=r"restore\.max-states"):
            again.timer_queue("event-time")


def test_timers_count_as_states(tmp_path):
    """A timer queue counts as a state of the snapshot."""
    with opened(tmp_path, max_states=2) as held:
        held.timer_queue("event-time")
        with_states(held, 1)
        with pytest.raises(errors.TooManyStatesError):
            with_states(held, 2)
        with opened(tmp_path, "heap", [saved(held, tmp_path)], max_states=2) as again:
            assert len(again.restored) == 2


def test_a_limit_of_states_that_no_file_can_hold_is_refused():
    """A limit above 65,536 states is refused, because a snapshot numbers states with 16 bits."""
    assert mp.Config({"restore.max-states": 65536}).restore.max_states == 65536
    with pytest.raises(errors.ConfigError, match="max-states"):
        mp.Config({"restore.max-states": 65537})


def test_a_table_that_no_restore_reads_is_not_written(tmp_path):
    """A savepoint's file is at most `restore.max-file-bytes` large, or is refused."""
    with opened(tmp_path) as held:
        held.set_current_key("k")
        held.get_partitioned_state(TEXT).update("x" * 100_000)
        snapshot, savepoint = (saved(held, tmp_path, each) for each in ("full", "savepoint"))
    (path,) = [path for path in savepoint.storage.list("") if path.endswith(".parquet")]
    size = savepoint.storage.size(path)
    with opened(tmp_path, restore=[snapshot], max_file_bytes=size) as held:
        fitting = saved(held, tmp_path, "savepoint")
    with opened(tmp_path, restore=[fitting], max_file_bytes=size) as again:
        again.set_current_key("k")
        assert again.get_partitioned_state(TEXT).value() == "x" * 100_000
    with (
        opened(tmp_path, restore=[snapshot], max_file_bytes=size - 1) as held,
        pytest.raises(errors.SnapshotTooLargeError, match=r"restore\.max-file-bytes"),
    ):
        saved(held, tmp_path, "savepoint")


@pytest.mark.parametrize("allowed", [1999, 2000])
def test_operator_state_that_no_restore_reads_is_not_written(tmp_path, allowed):
    """A snapshot's operator state is at most `restore.max-file-bytes` large, or is refused."""
    config = mp.Config({"restore.max-file-bytes": allowed})
    storage = mp.checkpoint_storage(str(tmp_path))
    with mp.open_operator_backend(config=config) as own:
        own.get_list_state(LIST).add("x" * 1997)  # and its bytes say nothing about the text
        if allowed < sum(state.size for state in own.freeze()):
            with pytest.raises(errors.SnapshotTooLargeError, match=r"'texts'.*restore\.max-file"):
                own.snapshot(1, storage).result()
            return
        handle = own.snapshot(1, storage).result().handle
    with mp.open_operator_backend(restore=[handle], config=config) as again:
        assert again.get_list_state(LIST).get() == ["x" * 1997]


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("compression", ["lz4", "zstd", "none"])
@pytest.mark.parametrize("allowed", [1, 1000, 1 << 20])
def test_compressed_rows_unpack_within_the_configured_limit(
    tmp_path, strategy, compression, allowed
):
    """Rows that compress well can be restored under any `restore.max-unpacked-bytes`."""
    limits = {"restore.max-unpacked-bytes": allowed, "checkpoint.compression": compression}
    config = mp.Config({**limits, "state.snapshot.strategy": "changelog"})
    if strategy == "full":
        config = mp.Config({**limits, "state.snapshot.strategy": "full"})
    with mp.open_keyed_backend("heap", key_type=str, config=config) as held:
        for number in range(20):
            held.set_current_key(f"k{number}")
            held.get_partitioned_state(TEXT).update("x" * 200_000)
        handle = saved(held, tmp_path, strategy)
    with mp.open_keyed_backend("heap", key_type=str, config=config, restore=[handle]) as again:
        again.set_current_key("k7")
        assert again.get_partitioned_state(TEXT).value() == "x" * 200_000


@pytest.mark.parametrize(
    ("kind", "value", "fits"),
    [
        (list[bool], [True] * 900_000, True),
        (list[bool], [True] * 1_300_000, False),
        (dict[int, int], {n: n for n in range(600_000)}, True),
    ],
)
def test_a_value_that_no_restore_unpacks_is_not_written(tmp_path, kind, value, fits):
    """A value whose elements need more memory than a reader allows is refused by the savepoint."""
    descriptor = mp.ValueStateDescriptor("value", kind)
    with opened(tmp_path) as held:
        held.set_current_key("k")
        held.get_partitioned_state(descriptor).update(value)
        if not fits:
            with pytest.raises(errors.SnapshotTooLargeError, match=r"restore\.max-unpacked-bytes"):
                saved(held, tmp_path, "savepoint")
            return
        handle = saved(held, tmp_path, "savepoint")
    with opened(tmp_path, restore=[handle]) as again:
        again.set_current_key("k")
        assert again.get_partitioned_state(descriptor).value() == value


@pytest.mark.long
def test_rows_of_many_values_are_divided_until_a_restore_unpacks_them(tmp_path):
    """If the lists of a key group need too much memory together, they are written in smaller row groups."""
    descriptor = mp.ValueStateDescriptor("value", list[tuple[bool, bool, bool, bool]])
    with opened(tmp_path, max_unpacked_bytes="1mb") as held:
        for number in range(60):
            held.set_current_key(f"k{number}")
            held.get_partitioned_state(descriptor).update([(True, False, True, False)] * 5000)
        handle = saved(held, tmp_path, "savepoint")
    with opened(tmp_path, restore=[handle], max_unpacked_bytes="1mb") as again:
        again.set_current_key("k59")
        assert len(again.get_partitioned_state(descriptor).value()) == 5000


def test_metadata_that_no_restore_reads_is_not_written(tmp_path, monkeypatch):
    """Sealed files, handles at the end of snapshots and savepoint.json have the same limit."""
    storage = mp.checkpoint_storage(str(tmp_path / "checkpoints"))
    with opened(tmp_path) as held:
        with_states(held, 20)
        monkeypatch.setattr(storages, "MAX_WHOLE", 1000)
        for strategy in STRATEGIES:
            with pytest.raises(errors.SnapshotTooLargeError, match="1,000 bytes"):
                saved(held, tmp_path, strategy)
    with pytest.raises(errors.SnapshotTooLargeError, match="'layout-1'.*inline-threshold"):
        write_sealed(storage, "layout-1", "x" * 1000)
    assert storage.list("") == []
    write_sealed(storage, "layout-1", "x" * 800)
    assert read_sealed(storage, "layout-1") == "x" * 800


def nested(depth):
    payload = "int"
    for _ in range(depth):
        payload = [payload]
    return payload


def test_descriptions_of_types_are_within_what_is_read():
    """A payload that a handle's reader would refuse cannot be created."""
    assert MAX_PAYLOAD_DEPTH >= 4 * MAX_NESTING
    SerializerSnapshot("x", payload=nested(MAX_PAYLOAD_DEPTH))
    with pytest.raises(ValueError, match="nested too deeply"):
        SerializerSnapshot("x", payload=nested(MAX_PAYLOAD_DEPTH + 1))
    SerializerSnapshot("x", (1 << 63) - 1)
    for wrong in ({"version": 1 << 63}, {"payload": (1,)}, {"payload": "\ud800"}):
        with pytest.raises(ValueError, match=r"64 bits|JSON"):
            SerializerSnapshot("x", **wrong)


def test_the_deepest_type_is_written_and_restored(tmp_path):
    """A type of the maximum depth is written and restored, in keyed state and in a savepoint."""
    kind = int
    for _ in range(MAX_NESTING - 1):
        kind = dict[str, kind]
    descriptor = mp.ValueStateDescriptor("deep", kind)
    for strategy in STRATEGIES:
        with opened(tmp_path) as held:
            held.set_current_key("k")
            held.get_partitioned_state(descriptor).update({})
            handle = saved(held, tmp_path / strategy, strategy)
        with opened(tmp_path, restore=[handle]) as again:
            again.set_current_key("k")
            assert again.get_partitioned_state(descriptor).value() == {}
