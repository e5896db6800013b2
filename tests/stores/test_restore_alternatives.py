"""A subtask's backend comes from several sources in order; each failure is logged, and the last error names all."""

import logging

import attrs
import millpond as mp
import pytest
from millpond import errors
from millpond.snapshots.restore import restore_keyed
from millpond_spark.worker.backend_source import acquire_backend
from millpond_spark.worker.committed_state import CommittedState
from pyspark.sql.types import BinaryType, DoubleType, LongType, StringType, StructType

from tests.operator_plans import plan_of

TOTAL = mp.ValueStateDescriptor("total", int)
WHOLE = mp.KeyGroupRange(0, 127)
SCHEMA = StructType().add("k", StringType())


class Nothing(mp.KeyedProcessFunction):
    """A function that is never called."""

    def process_element(self, row, context):
        return None


@pytest.fixture
def storage(tmp_path):
    """A storage in files."""
    return mp.checkpoint_storage((tmp_path / "snapshots").as_uri())


@pytest.fixture
def get(tmp_path, storage, monkeypatch):
    """Get the backend for a committed handle, add one to a total, and take a snapshot."""
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path / "local"))

    def run(backend, handle, checkpoint_id, *, run="run", declared=TOTAL, **more):
        config = mp.Config({"checkpoint.dir": storage.uri, **more})
        plan = plan_of("totals", Nothing(), SCHEMA, config, backend)
        query = f"query-{tmp_path.name}"
        with acquire_backend(plan, query, run, WHOLE, CommittedState(0, handle), 0) as acquired:
            state = acquired.backend.get_partitioned_state(declared)
            acquired.backend.set_current_key("k")
            state.update((state.value() or 0) + 1)
            result = acquired.backend.snapshot(checkpoint_id, storage).result()
            acquired.succeeded = True
        return acquired.source, result.handle

    return run


def elsewhere(storage, handle):
    """Return the handle of another worker, which has written a new base and a delta."""
    config = mp.Config({"state.snapshot.max-deltas": 1, "checkpoint.claim": True})
    with mp.open_keyed_backend(
        "heap", key_type=str, restore=[handle], config=config, place="other"
    ) as backend:
        state = backend.get_partitioned_state(TOTAL)
        for checkpoint_id in (10, 11):
            backend.set_current_key("k")
            state.update(state.value() + 1)
            handle = backend.snapshot(checkpoint_id, storage).result().handle
            backend.notify_checkpoint_complete(checkpoint_id)
    return handle


def damage(directory, part):
    """Change a byte of a part of a snapshot."""
    path = directory / part.path
    data = bytearray(path.read_bytes())
    data[part.offset + part.size // 2] ^= 1
    path.write_bytes(data)


def total(storage, handle):
    """Return the total in a snapshot."""
    with mp.open_keyed_backend("heap", key_type=str, restore=[handle]) as backend:
        backend.set_current_key("k")
        return backend.get_partitioned_state(TOTAL).value()


@pytest.mark.parametrize(
    ("backend", "kept"), [("heap", "worker"), ("lmdb", "local"), ("rocksdb", "local")]
)
def test_the_cheapest_way_comes_first(get, storage, tmp_path, backend, kept):
    """The order is: new, the worker's backend, the local directory, deltas; a replay uses no newer copy."""
    source, first = get(backend, None, 1)
    assert source == "new"
    source, second = get(backend, first, 2)
    assert source == kept
    other = elsewhere(storage, second)
    source, third = get(backend, other, 12)
    assert source == "deltas"
    assert total(storage, third) == 5
    source, replayed = get(backend, first, 2)
    assert source == "snapshot"
    assert total(storage, replayed) == 2


@pytest.mark.parametrize("backend", ["lmdb", "rocksdb"])
def test_local_copies_lie_where_configured_unless_they_are_switched_off(get, tmp_path, backend):
    """Local copies are in ``local.dir``; with ``local.recovery`` off, tasks do not use them."""
    named = {"local.dir": f"{tmp_path}/one, {tmp_path}/two"}
    _, first = get(backend, None, 1, **named)
    source, second = get(backend, first, 2, **named)
    assert source == "local"
    assert not (tmp_path / "local").exists()
    assert any((tmp_path / name).exists() for name in ("one", "two"))
    source, third = get(backend, second, 3, **named, **{"local.recovery": False})
    assert source == "snapshot"
    assert get(backend, third, 4, **named)[0] == "local"
    with pytest.raises(errors.ConfigError, match=r"local\.dir: expected absolute paths"):
        mp.Config({"local.dir": "here"})


@pytest.mark.parametrize("backend", ["heap", "lmdb", "rocksdb"])
def test_a_damaged_delta_is_logged_and_the_snapshot_taken(get, storage, tmp_path, backend, caplog):
    """If a delta is damaged, the copy is replaced by the base, and the log gives the reason."""
    _, first = get(backend, None, 1)
    _, second = get(backend, first, 2)
    other = elsewhere(storage, second)
    damage(tmp_path / "snapshots", other.history[-1])
    with caplog.at_level(logging.WARNING, "millpond.restore"):
        source, handle = get(backend, other, 12)
    assert source == "snapshot"
    assert other.history[-1].path in caplog.text
    assert total(storage, handle) == 5


@pytest.mark.parametrize("backend", ["heap", "lmdb", "rocksdb"])
def test_all_failing_gives_one_error_with_all_causes(get, storage, tmp_path, backend):
    """If the copy and the snapshot fail, the error names both causes."""
    _, first = get(backend, None, 1)
    _, second = get(backend, first, 2)
    other = elsewhere(storage, second)
    storage.delete(other.history[-1].path)
    storage.delete(other.files[0].path)
    with pytest.raises(errors.RestoreError) as caught:
        get(backend, other, 12)
    assert len(caught.value.causes) == 2
    assert other.history[-1].path in caught.value.causes[0]
    assert other.files[0].path in caught.value.causes[1]


def test_a_broken_local_copy_is_only_a_copy(get, storage, tmp_path):
    """A truncated RocksDB copy is discarded, and the snapshot restored."""
    _, first = get("rocksdb", None, 1)
    for path in (tmp_path / "local").rglob("*.sst"):
        path.write_bytes(path.read_bytes()[:10])
    for path in (tmp_path / "local").rglob("MANIFEST-*"):
        path.write_bytes(b"")
    source, handle = get("rocksdb", first, 2)
    assert source == "snapshot"
    assert total(storage, handle) == 2


def test_restored_with_a_wrong_kind_of_handle_beside_it(storage, tmp_path):
    """Two snapshots with different types of a state are refused."""
    handles = []
    for index, kind in enumerate((int, str)):
        groups = mp.key_group_range(128, 2, index)
        with mp.open_keyed_backend("heap", key_type=str, key_group_range=groups) as backend:
            backend.get_partitioned_state(mp.ValueStateDescriptor("total", kind))
            handles.append(backend.snapshot(1, storage).result().handle)
    with (
        mp.open_keyed_backend("heap", key_type=str) as backend,
        pytest.raises(errors.RestoreError, match="'total' has type"),
    ):
        restore_keyed(backend, [attrs.evolve(handle) for handle in handles])


@pytest.mark.parametrize("backend", ["heap", "rocksdb", "lmdb"])
@pytest.mark.parametrize("kind", [LongType(), DoubleType(), BinaryType()])
def test_a_key_column_of_another_type_is_refused(tmp_path, storage, monkeypatch, backend, kind):
    """A key column of another type is refused, even if this worker still has the state."""
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path / "local"))

    def once(field, key, handle):
        schema = StructType().add("k", field)
        config = mp.Config({"checkpoint.dir": storage.uri})
        plan = plan_of("op", Nothing(), schema, config, backend)
        query = f"query-{tmp_path.name}"
        with acquire_backend(plan, query, "run", WHOLE, CommittedState(0, handle), 0) as acquired:
            state = acquired.backend.get_partitioned_state(TOTAL)
            acquired.backend.set_current_key(key)
            state.update((state.value() or 0) + 1)
            result = acquired.backend.snapshot(1, storage).result()
            acquired.succeeded = True
        return result.handle

    handle = once(StringType(), "k", None)
    key = {"bigint": 1, "double": 1.0, "binary": b"k"}[kind.simpleString()]
    with pytest.raises(errors.MillpondError, match="key"):
        once(kind, key, handle)
    once(StringType(), "k", handle)


@pytest.mark.parametrize("backend", ["heap", "lmdb", "rocksdb"])
def test_what_is_kept_serves_its_own_run(get, backend):
    """A run with changed code restores the snapshot, so that a wider type is migrated."""
    _, handle = get(backend, None, 1)
    source, handle = get(backend, handle, 2)
    assert source in {"worker", "local"}
    wider = mp.ValueStateDescriptor("total", float)
    source, handle = get(backend, handle, 3, run="another", declared=wider)
    assert source != "worker"
    source, _ = get(backend, handle, 4, run="another", declared=wider)
    assert source in {"worker", "local"}


@pytest.mark.parametrize("backend", ["heap", "lmdb", "rocksdb"])
def test_files_of_older_keys_are_deleted(tmp_path, storage, monkeypatch, backend):
    """After the retained batches, no file with the former key type is left."""
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path / "local"))
    query = f"query-{tmp_path.name}"
    with mp.open_keyed_backend("heap", key_type=tuple[str, int], place=f"{query}/op") as before:
        before.set_current_key(("k", 1))
        before.get_partitioned_state(TOTAL).update(1)
        handle = before.snapshot(1, storage).result().handle
    old = set(storage.list(""))
    schema = StructType().add("k", StringType()).add("n", LongType())
    config = mp.Config({"checkpoint.dir": storage.uri, "checkpoint.retained": 2})
    plan = attrs.evolve(
        plan_of("op", Nothing(), schema, config, backend),
        key_positions=(0, 1),
        key_fields=(StringType(), LongType()),
    )
    assert handle.key != plan.key_codec().snapshot()
    for number in range(2, 6):
        with acquire_backend(plan, query, "run", WHOLE, CommittedState(0, handle), 0) as acquired:
            state = acquired.backend.get_partitioned_state(TOTAL)
            acquired.backend.set_current_key(("k", 1))
            assert state.value() == number - 1
            state.update(number)
            handle = acquired.backend.snapshot(number, storage).result().handle
            acquired.succeeded = True
    assert old
    assert not old & set(storage.list(""))
