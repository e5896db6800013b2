"""A subtask's tasks in this process: their requests to the storage, and their effects on the worker."""

import gc

import attrs
import millpond as mp
import pandas as pd
import pytest
from millpond import errors
from millpond.operator_id import OperatorId
from millpond_spark.plan.layout import write_layout
from millpond_spark.plan.layout_decision import declared_layout
from millpond_spark.plan.pointer import POINTER_SCHEMA
from millpond_spark.session.group_labels import group_labels
from millpond_spark.values.schemas import GROUP_COLUMN
from millpond_spark.worker.task import run_subtask
from pyspark import TaskContext
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout
from pyspark.sql.types import StringType, StructType

from tests import s3_server
from tests.operator_plans import plan_of

SCHEMA = StructType().add("k", StringType())


@attrs.frozen
class Counts(mp.KeyedProcessFunction):
    """Function that counts rows, records whether the collector runs, and fails at a row with that name."""

    seen: list[bool] = attrs.field(factory=list)

    def open(self, context):
        object.__setattr__(self, "count", context.get_state(mp.ValueStateDescriptor("n", int)))

    def process_element(self, row, context):
        self.seen.append(gc.isenabled())
        if row.k == "fails":
            raise ValueError(row.k)
        self.count.update((self.count.value() or 0) + 1)
        yield row


class Tasks:
    """The tasks of an operator's only subtask, batch by batch, as Spark's worker runs them."""

    def __init__(self, function, config, backend, monkeypatch):
        self.plan = plan_of("counts", function, SCHEMA, config, backend)
        self._pointer, self._number = None, 0
        monkeypatch.setattr(TaskContext, "_taskContext", None)
        self._context = TaskContext()
        operator = OperatorId(f"query of {id(self)}", self.plan.uid)
        layout = declared_layout(self.plan, (self.plan.uid,))
        write_layout(self.plan.storage(), operator, layout)
        self._query = operator.query

    def batch(self, keys):
        """Yield a batch's output, and commit the pointer at its end."""
        self._context._localProperties = {
            "sql.streaming.queryId": self._query,
            "streaming.sql.batchId": str(self._number),
            "spark.jobGroup.id": "run",
        }
        state = GroupState(
            self._pointer,
            batchProcessingTimeMs=self._number,
            eventTimeWatermarkMs=-1,
            timeoutConf=GroupStateTimeout.EventTimeTimeout,
            hasTimedOut=False,
            watermarkPresent=False,
            defined=self._pointer is not None,
            updated=False,
            removed=False,
            timeoutTimestamp=-1,
            keyAsUnsafe=b"",
            valueSchema=POINTER_SCHEMA,
        )
        groups = [mp.assign_to_key_group(key, 128) for key in keys]
        frame = pd.DataFrame({"c0": keys, "nulls0": 0, GROUP_COLUMN: groups})
        yield from run_subtask(self.plan, group_labels(1)[0], [frame], state)
        self._pointer = state.get
        self._number += 1


@pytest.fixture
def tasks(tmp_path, monkeypatch):
    """Create tasks on heap whose snapshots go to a local directory."""
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))
    config = mp.Config({"checkpoint.dir": (tmp_path / "snapshots").as_uri()})
    return lambda function: Tasks(function, config, "heap", monkeypatch)


@pytest.mark.parametrize("last", ["b", "fails"])
def test_the_collector_runs_again_after_a_task_that_has_paused_it(last, tasks):
    """The garbage collector is off while rows are processed, and on after success and failure."""
    counts = Counts()
    batch = tasks(counts).batch(["a", last])
    if last == "fails":
        with pytest.raises(errors.UserFunctionError):
            list(batch)
    else:
        assert len(list(batch)) == 1
    assert set(counts.seen) == {False}
    assert gc.isenabled()


def test_a_task_that_is_given_up_leaves_the_collector_on(tasks):
    """If Spark abandons a task's output, the task is closed, and the collector is on."""
    given_up = tasks(Counts()).batch(["a"])
    assert len(next(given_up)) == 1
    assert not gc.isenabled()
    given_up.close()
    assert gc.isenabled()


@pytest.fixture
def in_s3(tmp_path, monkeypatch):
    """Create tasks whose snapshots go to S3, with the server and its requests."""
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))
    with s3_server.s3_server() as server, s3_server.heard_requests() as heard:
        server.make_bucket("steady")

        def make(backend, **settings):
            given = {
                "dir": "s3://steady/snapshots",
                "s3.endpoint": f"http://{server.address}",
                "s3.access-key": server.access_key,
                "s3.secret-key": server.secret_key,
            } | {name.replace("_", "-"): value for name, value in settings.items()}
            config = mp.Config({f"checkpoint.{name}": value for name, value in given.items()})
            return Tasks(Counts(), config, backend, monkeypatch)

        yield make, server, heard


ONE_WRITE = {"PUT"} if s3_server.IN_ONE_REQUEST else {"POST", "PUT"}


@pytest.mark.parametrize("backend", ["heap", "lmdb", "rocksdb"])
@pytest.mark.parametrize(
    ("threshold", "written"), [(0, ["snapshot"]), (1, ["snapshot"]), (20_000, [])]
)
def test_what_a_steady_batch_writes(in_s3, backend, threshold, written):
    """A steady batch writes one file with changes and metadata, or none."""
    make, server, heard = in_s3
    made = make(backend, inline_threshold=threshold)
    for keys in ("ab", "bc"):
        list(made.batch(list(keys)))
    before = set(server.files("steady"))
    heard.clear()
    list(made.batch(["b", "c", "d"]))
    assert {*heard} == (ONE_WRITE if written else set())
    found = set(server.files("steady")) - before
    assert sorted(path.partition(".")[2] for path in found) == written
