"""Savepoints of Spark queries, starts from them, and the data source."""

import json
import shutil

import millpond as mp
import pytest
from millpond.operator_id import OperatorId
from millpond.snapshots.bundle import write_sealed
from millpond.snapshots.paths import layout_path
from millpond.spark import create_savepoint, key_by
from millpond_spark.plan.pointer import id_of_query
from pyspark.errors import AnalysisException, StreamingQueryException

from tests.spark.streaming import RUNNING, Running, output, run

pytestmark = pytest.mark.spark
KEYS = [f"k{number}" for number in range(20)]


def go_on(files, tmp_path, name="query"):
    """Run the operator over new input."""
    out = key_by(files.stream(), "k").process(Running(), output=RUNNING, uid="running")
    return run(out, tmp_path, name=name)


def counts(handle):
    """Return the state ``count`` of a savepoint, by key."""
    with mp.open_keyed_backend("heap", key_type=str, place="running", restore=[handle]) as backend:
        state = backend.get_partitioned_state(mp.ValueStateDescriptor("count", int, default=0))
        found = {}
        for key in list(backend.keys("count")):
            backend.set_current_key(key)
            found[key] = state.value()
        return found


def test_a_savepoint_of_any_batch(spark, job_conf, files, tmp_path):
    """A savepoint contains the last batch or an earlier one, across a rescale; a missing batch is refused."""
    job_conf(state_backend="heap", parallelism=2)
    files.add(*((key, 1) for key in KEYS))
    files.add(*((key, 1) for key in KEYS))
    go_on(files, tmp_path)
    job_conf(parallelism=3)
    files.add((KEYS[0], 1))
    go_on(files, tmp_path)
    checkpoint = str(tmp_path / "query" / "checkpoint")
    latest = create_savepoint(spark, checkpoint, tmp_path / "latest")
    assert counts(latest) == {**dict.fromkeys(KEYS, 2), KEYS[0]: 3}
    first = create_savepoint(spark, checkpoint, tmp_path / "first", batch_id=0)
    assert counts(first) == dict.fromkeys(KEYS, 1)
    with pytest.raises(mp.errors.ConfigError, match="batch 77 is not committed there; there are 0"):
        create_savepoint(spark, checkpoint, tmp_path / "none", batch_id=77)


def test_the_configured_limits_bound_what_a_savepoint_reads(spark, job_conf, files, tmp_path):
    """`create_savepoint` observes the session's options `restore.*`."""
    job_conf(state_backend="heap", parallelism=1)
    files.add(*((key, 1) for key in KEYS))
    go_on(files, tmp_path)
    spark.conf.set("spark.millpond.restore.max-unpacked-bytes", "1")
    with pytest.raises(mp.errors.CorruptSnapshotError, match="restore.max-unpacked-bytes"):
        create_savepoint(spark, str(tmp_path / "query" / "checkpoint"), tmp_path / "saved")
    spark.conf.unset("spark.millpond.restore.max-unpacked-bytes")
    create_savepoint(spark, str(tmp_path / "query" / "checkpoint"), tmp_path / "saved")


def test_places_that_cannot_be_a_querys_savepoint(spark, job_conf, files, tmp_path):
    """Unsuitable targets, and a directory with other snapshots, are refused."""
    job_conf(state_backend="heap", parallelism=2)
    files.add(("a", 1))
    go_on(files, tmp_path)
    checkpoint = tmp_path / "query" / "checkpoint"
    snapshots = spark.conf.get("spark.millpond.checkpoint.dir")
    for read in (str(checkpoint), snapshots):
        with pytest.raises(mp.errors.ConfigError, match=f"target: it lies in {read}"):
            create_savepoint(spark, str(checkpoint), f"{read}/saved")
    (tmp_path / "file").write_text("mine")
    with pytest.raises(mp.errors.StorageAccessError, match="Name a directory"):
        create_savepoint(spark, str(checkpoint), tmp_path / "file")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("mine")
    with pytest.raises(mp.errors.DirectoryNotEmptyError, match="'file'"):
        create_savepoint(spark, str(checkpoint), tmp_path / "full")
    wrong = tmp_path / "wrong"
    with pytest.raises(mp.errors.StorageAccessError, match=f"{wrong}.*operator 'running'") as told:
        create_savepoint(spark, str(checkpoint), tmp_path / "new", snapshots=str(wrong))
    assert "layout" not in str(told.value)
    assert not (tmp_path / "new").exists()


def test_another_query_starts_from_a_savepoint_on_another_backend(spark, job_conf, files, tmp_path):
    """State moves from heap to RocksDB, into a new query with another parallelism, and remains."""
    job_conf(state_backend="heap", parallelism=2)
    files.add(*((key, 1) for key in KEYS))
    go_on(files, tmp_path)
    create_savepoint(spark, str(tmp_path / "query" / "checkpoint"), tmp_path / "saved")
    for path in files.folder.iterdir():
        path.unlink()
    job_conf(state_backend="rocksdb", parallelism=3, checkpoint_restore=tmp_path / "saved")
    files.add(*((key, 2) for key in KEYS))
    go_on(files, tmp_path, name="second")
    files.add(*((key, 3) for key in KEYS))
    go_on(files, tmp_path, name="second")
    expected = sorted((key, n, total) for key in KEYS for n, total in ((2, 3), (3, 6)))
    assert output(spark, tmp_path, name="second") == expected


def test_another_query_starts_from_a_retained_checkpoint(spark, job_conf, files, tmp_path):
    """A new query starts from a batch of another one, and then no longer needs its files."""
    job_conf(state_backend="heap", parallelism=2)
    files.add(*((key, 1) for key in KEYS))
    files.add(*((key, 5) for key in KEYS))
    go_on(files, tmp_path)
    checkpoint = tmp_path / "query" / "checkpoint"
    for path in files.folder.iterdir():
        path.unlink()
    job_conf(state_backend="rocksdb", parallelism=3, checkpoint_restore=f"{checkpoint}@0")
    spark.conf.set("spark.millpond.state.snapshot.strategy", "incremental")
    files.add((KEYS[0], 2))
    go_on(files, tmp_path, name="second")
    assert output(spark, tmp_path, name="second") == [(KEYS[0], 2, 3)]
    shutil.rmtree(tmp_path / "snapshots" / id_of_query(spark, str(checkpoint)))
    shutil.rmtree(checkpoint)
    job_conf(parallelism=2)
    files.add(*((key, 3) for key in KEYS))
    go_on(files, tmp_path, name="second")
    expected = [(KEYS[0], 2, 3), (KEYS[0], 3, 6), *((key, 2, 4) for key in KEYS[1:])]
    assert output(spark, tmp_path, name="second") == sorted(expected)


class Failing(Running):
    """Function that fails in the first batch, so that none is committed."""

    def process_element(self, row, context):
        raise ValueError("a bad row")


@pytest.mark.long
def test_a_savepoint_that_is_named_after_a_start_that_failed(spark, job_conf, files, tmp_path):
    """If no batch was committed, the next start uses the savepoint that it names."""
    job_conf(state_backend="heap", parallelism=2)
    files.add(("a", 5))
    go_on(files, tmp_path)
    checkpoint = tmp_path / "query" / "checkpoint"
    create_savepoint(spark, str(checkpoint), tmp_path / "saved")
    failing = key_by(files.stream(), "k").process(Failing(), output=RUNNING, uid="running")
    for name, named in (("second", tmp_path / "saved"), ("third", f"{checkpoint}@0")):
        spark.conf.unset("spark.millpond.checkpoint.restore")
        with pytest.raises(StreamingQueryException, match="a bad row"):
            run(failing, tmp_path, name=name)
        job_conf(checkpoint_restore=named)
        go_on(files, tmp_path, name=name)
        assert output(spark, tmp_path, name=name) == [("a", 2, 10)]


def test_retained_checkpoints_that_cannot_be_used(spark, job_conf, files, tmp_path):
    """A missing batch, another snapshot directory and another operator's checkpoint are refused."""
    job_conf(state_backend="heap", parallelism=2)
    files.add(("a", 1))
    go_on(files, tmp_path)
    checkpoint = tmp_path / "query" / "checkpoint"
    job_conf(checkpoint_restore=f"{checkpoint}@7")
    with pytest.raises(StreamingQueryException, match=f"the checkpoint {checkpoint}@7 of spark.m"):
        go_on(files, tmp_path, name="second")
    job_conf(checkpoint_restore=f"{checkpoint}@0")
    misspelt = key_by(files.stream(), "k").process(Running(), output=RUNNING, uid="runing")
    with pytest.raises(StreamingQueryException, match="@0 holds state of 'running', but"):
        run(misspelt, tmp_path, name="third")
    job_conf(checkpoint_dir=tmp_path / "elsewhere", checkpoint_restore=f"{checkpoint}@0")
    with pytest.raises(StreamingQueryException, match="must have the same spark.millpond.check"):
        go_on(files, tmp_path, name="fourth")


def test_a_savepoint_of_another_operator(spark, job_conf, files, tmp_path):
    """An uid that the savepoint does not contain is refused, unless its state may be dropped."""
    job_conf(state_backend="heap", parallelism=2)
    files.add(("a", 1))
    go_on(files, tmp_path)
    create_savepoint(spark, str(tmp_path / "query" / "checkpoint"), tmp_path / "saved")
    job_conf(checkpoint_restore=tmp_path / "saved")
    misspelt = key_by(files.stream(), "k").process(Running(), output=RUNNING, uid="runing")
    with pytest.raises(StreamingQueryException, match="state of 'running', but.* are 'runing'"):
        run(misspelt, tmp_path, name="second")
    spark.conf.set("spark.millpond.checkpoint.ignore-unclaimed-state", "true")
    misspelt = key_by(files.stream(), "k").process(Running(), output=RUNNING, uid="runing")
    run(misspelt, tmp_path, name="second")
    assert output(spark, tmp_path, name="second") == [("a", 1, 1)]


@pytest.mark.long
def test_no_subtask_of_a_savepoint_is_left_behind(spark, job_conf, files, tmp_path):
    """Subtasks without rows since the start keep the savepoint's state at a rescale."""
    job_conf(state_backend="heap", parallelism=2)
    files.add(*((key, 1) for key in KEYS))
    go_on(files, tmp_path)
    create_savepoint(spark, str(tmp_path / "query" / "checkpoint"), tmp_path / "saved")
    for path in files.folder.iterdir():
        path.unlink()
    job_conf(checkpoint_restore=tmp_path / "saved")
    files.add((KEYS[0], 1))
    go_on(files, tmp_path, name="second")
    job_conf(parallelism=3)
    files.add(*((key, 1) for key in KEYS))
    go_on(files, tmp_path, name="second")
    found = output(spark, tmp_path, name="second")
    assert set(found) == {(KEYS[0], 2, 2), (KEYS[0], 3, 3), *((key, 2, 2) for key in KEYS[1:])}


@pytest.mark.long
def test_the_data_source(spark, job_conf, files, tmp_path):
    """State is a DataFrame with typed columns, of a query at any batch, and of a savepoint."""
    job_conf(state_backend="lmdb", parallelism=2)
    files.add(*((key, 5) for key in KEYS))
    files.add((KEYS[0], 5))
    go_on(files, tmp_path)
    checkpoint = str(tmp_path / "query" / "checkpoint")
    reader = spark.read.format("millpond").option("state", "sum")
    reader = reader.option("snapshots", (tmp_path / "snapshots").as_uri())
    df = reader.load(checkpoint)
    assert df.schema.simpleString() == "struct<key_group:int,key:string,value:bigint>"
    assert {row.key: row.value for row in df.collect()} == {**dict.fromkeys(KEYS, 5), KEYS[0]: 10}
    before = reader.option("batchId", 0).load(checkpoint)
    assert {row.value for row in before.collect()} == {5}
    with pytest.raises(AnalysisException, match="there is no batch 2; there are 0 to 1"):
        reader.option("batchId", 2).load(checkpoint)
    create_savepoint(spark, checkpoint, tmp_path / "saved")
    saved = spark.read.format("millpond").option("state", "count").load(str(tmp_path / "saved"))
    assert saved.where("value = 2").select("key").first()[0] == KEYS[0]
    table = spark.read.parquet(str(tmp_path / "saved" / "running" / "count"))
    assert sorted(map(tuple, table.collect())) == sorted(map(tuple, saved.collect()))


@pytest.mark.long
def test_wrong_options_of_the_data_source_are_named(spark, job_conf, files, tmp_path):
    """A missing state is refused with the existing ones; an unknown option is refused."""
    job_conf(state_backend="heap", parallelism=2)
    files.add(("a", 1))
    go_on(files, tmp_path)
    reader = spark.read.format("millpond")
    folder = str(tmp_path / "snapshots")
    with pytest.raises(AnalysisException, match="name one of: count, sum"):
        reader.load(folder)
    with pytest.raises(AnalysisException, match="no state 'cuont'"):
        reader.option("state", "cuont").load(folder)
    with pytest.raises(AnalysisException, match="is not an option"):
        spark.read.format("millpond").option("stat", "count").load(folder)
    for batch, told in ((1000, "there is no batch 1000; there are 0 to 0"), ("abc", "a batch's")):
        with pytest.raises(AnalysisException, match=told):
            reader.option("state", "count").option("batchId", batch).load(folder)
    create_savepoint(spark, str(tmp_path / "query" / "checkpoint"), tmp_path / "saved")
    with pytest.raises(AnalysisException, match="a savepoint holds one batch"):
        reader.option("batchId", 0).load(str(tmp_path / "saved"))


def test_the_scope_of_a_name_that_stands_for_two_states(spark, tmp_path):
    """If two states have the same name, the data source needs `scope`."""

    class Noting(mp.KeyedProcessFunction, mp.CheckpointedFunction):
        def initialize_state(self, context):
            store = context.operator_state_store
            store.get_list_state(mp.ListStateDescriptor("seen", int)).add(1)
            store.get_broadcast_state(mp.MapStateDescriptor("seen", str, int)).put("a", 2)

        def process_element(self, row, context):
            """Do nothing."""

        def snapshot_state(self, context):
            """Do nothing: the states are complete."""

    with mp.testing.KeyedOperatorHarness(Noting(), key="k") as harness:
        harness.savepoint(tmp_path / "saved")
    reader = spark.read.format("millpond").option("state", "seen")
    with pytest.raises(AnalysisException, match="in scope broadcast, list"):
        reader.load(str(tmp_path / "saved"))
    with pytest.raises(AnalysisException, match="expected one of keyed, list, broadcast"):
        reader.option("scope", "union").load(str(tmp_path / "saved"))
    for scope, row in (("list", (0, 1)), ("broadcast", (0, "a", 2))):
        assert list(
            map(tuple, reader.option("scope", scope).load(str(tmp_path / "saved")).collect())
        ) == [row]


def test_a_savepoint_that_is_not_there_stops_the_query(spark, job_conf, files, tmp_path):
    """A missing savepoint stops the query with its name; with a correct one the query starts."""
    job_conf(state_backend="heap", checkpoint_restore=tmp_path / "nowhere")
    files.add(("a", 1))
    with pytest.raises(StreamingQueryException, match="nowhere/savepoint.json"):
        go_on(files, tmp_path)
    spark.conf.unset("spark.millpond.checkpoint.restore")
    go_on(files, tmp_path)
    assert output(spark, tmp_path) == [("a", 1, 1)]


def test_batches_of_the_data_source_are_the_operators_own(spark, tmp_path):
    """A batch is refused if a subtask's snapshot is deleted, or the query never had it."""
    storage = mp.checkpoint_storage(str(tmp_path))
    config = {"state.snapshot.strategy": "full", "checkpoint.retained": 2}
    halves = mp.KeyGroupRange(0, 63), mp.KeyGroupRange(64, 127)
    for place, groups, last in (("a/busy", 0, 6), ("a/busy", 1, 1), ("b/short", 0, 1)):
        owner = OperatorId.from_text(place)
        write_sealed(storage, layout_path(owner, 1), json.dumps({"sources": []}))
        given = {"place": place, "key_group_range": halves[groups], "config": mp.Config(config)}
        key = next(k for k in range(99) if mp.assign_to_key_group(k, 128) in halves[groups])
        with mp.open_keyed_backend("heap", key_type=int, **given) as backend:
            backend.set_current_key(key)
            state = backend.get_partitioned_state(mp.ValueStateDescriptor("n", int))
            for number in range(1, last + 1):
                state.update(number)
                backend.snapshot(number, storage).result()
                backend.notify_checkpoint_complete(number)
    reader = spark.read.format("millpond").option("state", "n")

    def values(uid, batch):
        found = reader.option("operator", uid).option("batchId", batch).load(str(tmp_path))
        return {row.value for row in found.collect()}

    with pytest.raises(AnalysisException, match="newer snapshots only"):
        values("busy", 1)
    assert values("busy", 5) == {1, 6}
    with pytest.raises(AnalysisException, match="there is no batch 4; there are 0 to 0"):
        values("short", 4)
    assert values("short", 0) == {1}
