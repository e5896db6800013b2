"""A task finds its query, run and batch, whatever thread has started its job."""

import uuid

import attrs
import millpond as mp
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from millpond import errors
from millpond.operator_id import OperatorId
from millpond.snapshots.bundle import write_sealed
from millpond.snapshots.paths import batch_path
from millpond_spark.plan.batch_identity import BatchIdentity, identify_batch
from millpond_spark.plan.pointer import Pointer
from millpond_spark.values.schemas import BATCH_COLUMN
from pyspark import TaskContext
from pyspark.sql.types import StringType, StructType

from tests.operator_plans import plan_of
from tests.spark.streaming import Running

IDENTITIES = st.builds(
    BatchIdentity,
    st.uuids().map(str),
    st.uuids().map(str),
    st.integers(min_value=0, max_value=2**63 - 1),
)


@pytest.fixture
def task(monkeypatch):
    """The local properties of this process's task, which are empty at first."""
    monkeypatch.setattr(TaskContext, "_taskContext", None)
    context = TaskContext()
    context._localProperties = {}
    return context._localProperties


@pytest.fixture
def plan(tmp_path):
    config = mp.Config({"checkpoint.dir": tmp_path.as_uri()})
    schema = StructType().add("k", StringType())
    return plan_of("running", Running(), schema, config, "heap")


def pointer(query):
    return Pointer("running", "", 1, 0, 127, "", "{}", 0, query)


def test_the_querys_own_thread(task, plan):
    """In the query's thread Spark's properties are used, not the rows."""
    task.update({"sql.streaming.queryId": "q", "streaming.sql.batchId": "3", "millpond.run": "r"})
    frames = [pd.DataFrame({BATCH_COLUMN: ["another run 9"]})]
    assert identify_batch(plan, frames, None) == (BatchIdentity("q", "r", 3), frames)


def test_the_querys_session(task, plan):
    """In another thread of a classic session its settings are used."""
    task.update({"spark.millpond-query.run": "q r", "spark.millpond-query.batch": "4"})
    assert identify_batch(plan, [], None)[0] == BatchIdentity("q", "r", 4)


@given(IDENTITIES, st.lists(st.integers(0, 3), min_size=1, max_size=5), st.data())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_rows_that_carry_it(task, plan, identity, sizes, data):
    """A copied row in any frame contains the identity, and all frames arrive in order."""
    frames = [pd.DataFrame({"n": range(size), BATCH_COLUMN: None}) for size in sizes]
    woken = data.draw(st.sampled_from(range(len(frames))))
    frames[woken] = pd.DataFrame({"n": [7, 8], BATCH_COLUMN: [None, str(identity)]})
    found, passed = identify_batch(plan, iter(frames), None)
    assert found == identity
    assert all(a is b for a, b in zip(passed, frames, strict=True))


def test_a_batch_without_rows(task, plan):
    """A subtask without rows finds the identity in the checkpoint directory, by its pointer."""
    identity = BatchIdentity(str(uuid.uuid4()), str(uuid.uuid4()), 5)
    path = batch_path(OperatorId(identity.query, "running"))
    for batch in (identity, attrs.evolve(identity, batch_id=6)):
        write_sealed(plan.storage(), path, str(batch))
        found = pointer(identity.query)
        made = attrs.evolve(plan, settles=True)
        assert identify_batch(made, [pd.DataFrame()], found)[0] == batch


@pytest.mark.parametrize("known", [None, pointer("q")])
def test_a_task_that_cannot_know_it(task, plan, known):
    """Without any of these sources the error names operator and cure."""
    with pytest.raises(errors.RestoreError, match=r"'running'.*call actions of the DataFrame"):
        identify_batch(plan, [pd.DataFrame({"n": [1]})], known)
