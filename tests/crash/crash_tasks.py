"""Tasks of the crash matrix, run as in a Spark worker, over a damaged local copy."""

from __future__ import annotations

import os
import signal

import millpond as mp
from millpond.plugins import get_registry
from millpond_spark.plan.plan import OperatorPlan
from millpond_spark.values.frames import RowCodec
from millpond_spark.values.output_frames import OutputCodec
from millpond_spark.worker.backend_source import acquire_backend
from millpond_spark.worker.committed_state import CommittedState
from pyspark.sql.types import StringType, StructType

from tests.crash.crash_faults import damage
from tests.crash.crash_model import DAMAGES, FAULT_ROUND, ROUNDS, change, require

SCHEMA = StructType().add("k", StringType())
WHOLE = mp.KeyGroupRange(0, 127)


class Nothing(mp.KeyedProcessFunction):
    """A function that is never called."""

    def process_element(self, row, context):
        return None


class TaskError(Exception):
    """The error that makes an attempt fail."""


def plan_of(case):
    """Return an operator over the case's backend."""
    return OperatorPlan(
        uid="totals",
        function=Nothing(),
        rows=RowCodec.from_schema(SCHEMA),
        output=OutputCodec.from_schema(SCHEMA),
        key_positions=(0,),
        key_fields=(StringType(),),
        event_time=None,
        order_by=(),
        parallelism=1,
        config=case.config,
        resolution=get_registry().resolve(case.backend),
    )


def attempt(plan, storage, number, handle, fault=""):
    """Make one attempt at a round; return its handle, and the source of the backend."""
    with acquire_backend(plan, "query", "run", WHOLE, CommittedState(0, handle), 0) as acquired:
        require(acquired.backend, number - 1)
        if number <= ROUNDS:
            change(acquired.backend, number)
        if fault:
            acquired.backend.flush()
            if fault == "SIGKILL":
                os.kill(os.getpid(), signal.SIGKILL)
            raise TaskError
        result = acquired.backend.snapshot(number, storage).result()
        acquired.succeeded = True
    return result.handle, acquired


def failing_attempts(case, plan, storage, root, handle):
    """In the round of the fault, make attempts that find a damaged copy and then fail."""
    for _ in range(2):
        copy = [path for path in (root / "local").rglob("copy/**/*") if path.is_file()]
        if case.fault in DAMAGES:
            for path in copy:
                damage(path, case.fault)
        try:
            attempt(plan, storage, FAULT_ROUND, handle, case.fault)
        except TaskError:
            continue
    _, acquired = attempt(plan, storage, FAULT_ROUND, handle)
    if (acquired.source, acquired.copies_discarded) != ("snapshot", 1):
        raise AssertionError(f"the broken copy was used again: {acquired.source}")


def work_in_tasks(case, root, storage, handles, note, *, armed):
    """Continue from the last recorded round to the last one, with a task per round."""
    os.environ["SPARK_LOCAL_DIRS"] = str(root / "local")
    plan = plan_of(case)
    handle = handles[-1] if handles else None
    for number in range(len(handles) + 1, ROUNDS + 1):
        if armed and number == FAULT_ROUND:
            failing_attempts(case, plan, storage, root, handle)
        handle, acquired = attempt(plan, storage, number, handle)
        if not armed and number == FAULT_ROUND and acquired.source != "snapshot":
            raise AssertionError(f"a killed task's copy was used: {acquired.source}")
        note(handle)
    attempt(plan, storage, ROUNDS + 1, handle)
