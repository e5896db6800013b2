"""Spark's data source runs no code from hostile state, in a real session."""

import millpond as mp
import pytest

pytestmark = pytest.mark.spark
ALLOWED = {"serialization.allow-pickle": True}


class Unchecked(mp.PickleSerializer):
    """Serializer that stores the payload without checking it."""

    def check(self, value):
        return value


RAW = Unchecked()


class Payload:
    """An object whose pickle creates a file when it is read, in any process."""

    def __init__(self, mark):
        self.mark = str(mark)

    def __reduce__(self):
        return open, (self.mark, "w")


def fill(backend, payload):
    """Store a payload in each place that can contain a pickle."""
    backend.set_current_key("k")
    backend.get_partitioned_state(mp.ValueStateDescriptor("value", RAW)).update(payload)
    backend.get_partitioned_state(mp.ListStateDescriptor("list", RAW)).add(payload)
    backend.get_partitioned_state(mp.MapStateDescriptor("map", RAW, int)).put(payload, 1)
    spaced = mp.ValueStateDescriptor("spaced", int)
    backend.get_partitioned_state(spaced, payload, RAW).update(1)


def stored(name, strategy, folder, payload):
    """Return the path of a snapshot or savepoint with payloads."""
    config = mp.Config({**ALLOWED, "state.snapshot.strategy": strategy})
    with mp.open_keyed_backend(
        name, key_type=str, directory=folder / "local", place="q/op", config=config
    ) as backend:
        fill(backend, payload)
        storage = mp.checkpoint_storage(str(folder / "saved"))
        backend.strategy(strategy).snapshot(1, storage, "v").result()
    return next((folder / "saved").glob("savepoint-*"), folder / "saved")


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "strategy"),
    [("heap", "savepoint"), ("lmdb", "changelog"), ("rocksdb", "incremental")],
)
def test_the_data_source_runs_no_pickle(spark, tmp_path, name, strategy):
    """Pickled values, elements, map keys and namespaces are read as bytes, and run in no process."""
    mark = tmp_path / "ran"
    folder = str(stored(name, strategy, tmp_path, Payload(mark)))
    mark.unlink(missing_ok=True)
    data = RAW.serialize(Payload(mark))
    for state, column in (
        ("value", "value"),
        ("list", "value[0]"),
        ("map", "map_key"),
        ("spaced", "namespace"),
    ):
        df = spark.read.format("millpond").option("state", state).load(folder)
        found = df.selectExpr("key", column).collect()
        assert [(row[0], bytes(row[1])) for row in found] == [("k", data)]
        assert not mark.exists()
