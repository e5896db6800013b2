"""Metrics of the bytes that restores read, by place and state."""

import millpond as mp
import pytest
from millpond_spark.worker.backend_source import acquire_backend
from millpond_spark.worker.committed_state import CommittedState
from millpond_spark.worker.task import BatchMetrics
from pyspark.sql.types import StringType, StructType

from tests.operator_plans import plan_of

SMALL = mp.ValueStateDescriptor("small", str)
LARGE = mp.ListStateDescriptor("large", str)
WHOLE = mp.KeyGroupRange(0, 127)
BACKENDS = pytest.mark.parametrize("backend", ["heap", "rocksdb", "lmdb"])


class Nothing(mp.KeyedProcessFunction):
    """A function that is never called."""

    def process_element(self, row, context):
        return None


def fill(backend):
    """Write some thousand bytes to one state, and a few to the other."""
    for number in range(20):
        backend.set_current_key(f"k{number}")
        backend.get_partitioned_state(SMALL).update("x")
        backend.get_partitioned_state(LARGE).add_all(["y" * 100] * 10)


@pytest.fixture
def storage(tmp_path):
    """A storage in files."""
    return mp.checkpoint_storage((tmp_path / "snapshots").as_uri())


@BACKENDS
@pytest.mark.parametrize("way", ["checkpoint", "savepoint"])
def test_by_place_and_state(tmp_path, storage, backend, way):
    """Rows are counted for their state, and all of them for the place."""
    with mp.open_keyed_backend(backend, key_type=str, directory=tmp_path / "one") as first:
        fill(first)
        take = first.snapshot if way == "checkpoint" else first.savepoint
        handle = take(1, storage).result().handle
        assert first.restored_bytes.figures() == {}
    with mp.open_keyed_backend(
        "heap", key_type=str, directory=tmp_path / "two", restore=[handle]
    ) as second:
        found = second.restored_bytes.figures()
    assert set(found) == {f"restored_bytes.{way}", "small.restored_bytes", "large.restored_bytes"}
    assert found["large.restored_bytes"] > 20_000 > found["small.restored_bytes"] > 20
    assert found[f"restored_bytes.{way}"] == sum(second.restored_bytes.by_state.values())


def test_files_of_rocksdb_mix_states(tmp_path, storage):
    """RocksDB's own files are counted only for the place, with their size."""
    config = mp.Config({"state.snapshot.strategy": "incremental"})
    options = {"key_type": str, "config": config}
    with mp.open_keyed_backend("rocksdb", directory=tmp_path / "one", **options) as first:
        fill(first)
        handle = first.snapshot(1, storage).result().handle
    with mp.open_keyed_backend(
        "rocksdb", directory=tmp_path / "two", restore=[handle], **options
    ) as second:
        assert second.restored_bytes.figures() == {"restored_bytes.checkpoint": handle.size}


@BACKENDS
def test_the_way_of_a_task(tmp_path, storage, backend, monkeypatch):
    """A restored snapshot counts; a backend that the worker kept costs nothing, a local copy its files."""
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path / "local"))
    with mp.open_keyed_backend("heap", key_type=str) as first:
        fill(first)
        handle = first.snapshot(1, storage).result().handle
    config = mp.Config({"checkpoint.dir": storage.uri})
    schema = StructType().add("k", StringType())
    plan = plan_of("totals", Nothing(), schema, config, backend)
    found = []
    for checkpoint_id in (2, 3):
        committed = CommittedState(0, handle)
        with acquire_backend(plan, f"q-{tmp_path.name}", "run", WHOLE, committed, 0) as acquired:
            acquired.backend.set_current_key("k0")
            acquired.backend.get_partitioned_state(SMALL).update("z")
            result = acquired.backend.snapshot(checkpoint_id, storage).result()
            handle, acquired.succeeded = result.handle, True
            metrics = BatchMetrics().finish(acquired.backend, result, acquired.source, native=False)
        found.append({name: n for name, n in metrics.items() if "restored_bytes" in name})
    first, second = found
    assert first["restored_bytes.checkpoint"] > 20_000
    assert first["large.restored_bytes"] > 20_000
    assert set(second) == (set() if backend == "heap" else {"restored_bytes.local"})
    assert all(size > 20_000 for size in second.values())
