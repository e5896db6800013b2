"""Spark's data source on state that others have written: in a real session nothing of it runs."""

import millpond as mp
import pytest

pytestmark = pytest.mark.spark
ALLOWED = {"serialization.allow-pickle": True}


class Unchecked(mp.PickleSerializer):
    """Stores the payload itself, which a check would have read."""

    def check(self, value):
        return value


RAW = Unchecked()


class Payload:
    """Its pickle makes a file when it is read, in whatever process."""

    def __init__(self, mark):
        self.mark = str(mark)

    def __reduce__(self):
        return open, (self.mark, "w")


def fill(backend, payload):
    """A payload in each place that a pickle can take."""
    backend.set_current_key("k")
    backend.get_partitioned_state(mp.ValueStateDescriptor("value", RAW)).update(payload)
    backend.get_partitioned_state(mp.ListStateDescriptor("list", RAW)).add(payload)
    backend.get_partitioned_state(mp.MapStateDescriptor("map", RAW, int)).put(payload, 1)
    spaced = mp.ValueStateDescriptor("spaced", int)
    backend.get_partitioned_state(spaced, payload, RAW).update(1)


def stored(name, strategy, folder, payload):
    """Where a snapshot with payloads lies; of ``savepoint``, its own folder."""
    config = mp.Config({**ALLOWED, "state.snapshot.strategy": strategy})
    with mp.open_keyed_backend(
        name, key_type=str, directory=folder / "local", place="q/op", config=config
    ) as backend:
        fill(backend, payload)
        storage = mp.checkpoint_storage(str(folder / "saved"))
        backend.strategy(strategy).snapshot(1, storage, "v").result()
    return next((folder / "saved").glob("savepoint-*"), folder / "saved")


@pytest.mark.parametrize(
    ("name", "strategy"),
    [("heap", "savepoint"), ("lmdb", "changelog"), ("rocksdb", "incremental")],
)
def test_the_data_source_runs_no_pickle(spark, tmp_path, name, strategy):
    """Pickles of values, elements, map keys and namespaces come as bytes, out of any process."""
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
