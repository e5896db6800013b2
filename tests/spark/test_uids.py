"""State belongs to an operator's uid, not to its position in Spark's plan."""

import millpond as mp
import pytest
from millpond import errors
from millpond.operator_id import OperatorId
from millpond.spark import create_savepoint, key_by, several_operators
from millpond_spark.plan.layout import Layout, current_layout, write_layout
from millpond_spark.plan.pointer import Pointer
from millpond_spark.worker.committed_state import own_pointer
from pyspark.errors import StreamingQueryException
from pyspark.sql.types import StringType, StructType

from tests.operator_plans import plan_of
from tests.spark.streaming import RUNNING, Running, output, run

REFUSED = (
    r"state of 'old', but.* are 'new'.* or set spark\.millpond\.checkpoint\.ignore-unclaimed-state"
)
KEYS = [f"k{number}" for number in range(10)]


class Broken(Running):
    """Function that fails at its first row."""

    def process_element(self, row, context):
        raise ZeroDivisionError


def start(stream, tmp_path, *uids, function=Running):
    """Run operators side by side, each with its own multiple of the sums."""
    factors = {"hundreds": 100}
    outs = [
        key_by(stream.selectExpr("k", f"n * {factors.get(uid, 1)} n"), "k")
        .process(function(), output=RUNNING, uid=uid)
        .selectExpr(f"'{uid}:' || k k", "rows", "sum")
        for uid in uids
    ]
    united = outs[0]
    for out in outs[1:]:
        united = united.union(out)
    with several_operators():
        return run(united, tmp_path)


def saved(spark, tmp_path, name):
    """Return the uids in a savepoint of the query, and the counts by uid and key."""
    checkpoint = str(tmp_path / "query" / "checkpoint")
    handle = create_savepoint(spark, checkpoint, tmp_path / name)
    found = {}
    for uid in sorted(path.name for path in (tmp_path / name).iterdir() if path.is_dir()):
        rows = spark.read.parquet(str(tmp_path / name / uid / "count")).collect()
        found[uid] = {row.key: row.value for row in rows}
    assert handle is not None
    return found


@pytest.mark.long
@pytest.mark.spark
def test_operators_change_places(spark, job_conf, files, tmp_path):
    """If operators change places, each keeps its state, also at a rescale."""
    job_conf(state_backend="heap", parallelism=2)
    files.add(*((key, 1) for key in KEYS))
    start(files.stream(), tmp_path, "ones", "hundreds")
    files.add((KEYS[0], 1))
    start(files.stream(), tmp_path, "hundreds", "ones")
    expected = {key: 2 if key == KEYS[0] else 1 for key in KEYS}
    assert saved(spark, tmp_path, "saved") == {"hundreds": expected, "ones": expected}
    job_conf(parallelism=3)
    files.add(*((key, 1) for key in KEYS))
    start(files.stream(), tmp_path, "ones", "hundreds")
    finals = {}
    for key, rows, total in output(spark, tmp_path):
        finals[key] = max(finals.get(key, (0, 0)), (rows, total))
    counts = {key: 3 if key == KEYS[0] else 2 for key in KEYS}
    assert finals == {
        **{f"ones:{key}": (count, count) for key, count in counts.items()},
        **{f"hundreds:{key}": (count, 100 * count) for key, count in counts.items()},
    }


@pytest.mark.long
@pytest.mark.spark
def test_a_changed_uid(spark, job_conf, files, tmp_path):
    """A changed uid is refused, also at a rescale; if its state may be dropped, the operator starts empty."""
    job_conf(state_backend="heap", parallelism=2)
    files.add(*((key, 1) for key in KEYS))
    start(files.stream(), tmp_path, "old")
    files.add((KEYS[0], 1))
    for parallelism in (2, 3):
        job_conf(parallelism=parallelism)
        with pytest.raises(StreamingQueryException, match=REFUSED):
            start(files.stream(), tmp_path, "new")
    job_conf(parallelism=2)
    spark.conf.set("spark.millpond.checkpoint.ignore-unclaimed-state", "true")
    with pytest.raises(StreamingQueryException, match="ZeroDivisionError"):
        start(files.stream(), tmp_path, "new", function=Broken)
    # Nothing of that run is committed, so the state is not dropped yet.
    spark.conf.unset("spark.millpond.checkpoint.ignore-unclaimed-state")
    start(files.stream(), tmp_path, "old")
    assert ("old:k0", 2, 2) in output(spark, tmp_path)
    spark.conf.set("spark.millpond.checkpoint.ignore-unclaimed-state", "true")
    files.add((KEYS[0], 1))
    start(files.stream(), tmp_path, "new")
    spark.conf.unset("spark.millpond.checkpoint.ignore-unclaimed-state")
    files.add((KEYS[0], 1))
    start(files.stream(), tmp_path, "new")
    assert {row for row in output(spark, tmp_path) if row[0].startswith("new")} == {
        ("new:k0", 1, 1),
        ("new:k0", 2, 2),
    }
    assert saved(spark, tmp_path, "saved") == {"new": {"k0": 2}}
    files.add((KEYS[0], 1))
    with pytest.raises(StreamingQueryException, match="state of 'new', but.* are 'old'"):
        start(files.stream(), tmp_path, "old")


@pytest.mark.spark
def test_a_uid_stands_once_in_a_query(job_conf, files, tmp_path):
    """Two operators with the same uid are refused, and so is one operator's output that is used twice."""
    job_conf(state_backend="heap", parallelism=2)
    files.add(("a", 1))
    with pytest.raises(StreamingQueryException, match="uid 'same': is used more than once"):
        start(files.stream(), tmp_path, "same", "same")
    out = key_by(files.stream(), "k").process(Running(), output=RUNNING, uid="twice")
    refused = pytest.raises(StreamingQueryException, match="uid 'twice': is used more than once")
    with several_operators(), refused:
        run(out.union(out), tmp_path, name="other")


@pytest.mark.spark
def test_a_claim_is_refused(spark, job_conf):
    """checkpoint.claim is refused on Spark with the reason."""
    job_conf(checkpoint_claim="true")
    df = spark.createDataFrame([("a", 1)], "k string, n bigint")
    with pytest.raises(errors.ConfigError, match=r"checkpoint\.claim: cannot be used on Spark"):
        key_by(df, "k").process(Running(), output=RUNNING, uid="x")


SCHEMA = StructType().add("k", StringType())


@pytest.mark.parametrize(
    ("uid", "layout", "outcome"),
    [
        ("mine", 2, "own"),
        ("mine", 1, None),
        ("mine", 3, "names layout 3, but the last one is 2"),
        ("theirs", 4, None),
        ("theirs", 5, "hands it the state of operator 'theirs'"),
        ("theirs", 6, "names layout 6, but the last one is 5"),
        ("unknown", 0, "names layout 0, but there is none"),
    ],
)
def test_the_worker_looks_at_the_uid(tmp_path, uid, layout, outcome):
    """A worker ignores another operator's outdated pointer, and refuses a valid one."""
    storage = mp.checkpoint_storage(tmp_path.as_uri())
    write_layout(storage, OperatorId("q", "mine"), Layout(2, 1, 128))
    write_layout(storage, OperatorId("q", "theirs"), Layout(5, 1, 128))
    config = mp.Config({"checkpoint.dir": storage.uri})
    plan = plan_of("mine", Running(), SCHEMA, config, "heap")
    mine = current_layout(storage, OperatorId("q", "mine"))
    pointer = Pointer(uid, "v", 1, 0, 127, "", "{}", layout)

    def look():
        return own_pointer(plan, "q", mine, pointer)

    if outcome in ("own", None):
        assert look() == (pointer if outcome else None)
    else:
        with pytest.raises(errors.RestoreError, match=outcome):
            look()
    assert own_pointer(plan, "q", mine, None) is None
