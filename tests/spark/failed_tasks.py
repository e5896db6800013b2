"""Error messages of tasks with a failing function, without a session."""

import attrs
import millpond as mp
import numpy as np
import pytest
from millpond import errors
from millpond.functions.user_code import Place
from millpond.operator.operators import CHECKED_CALLS
from millpond_spark.session.group_labels import group_labels
from millpond_spark.values.schemas import GROUP_COLUMN, LABEL_COLUMN
from millpond_spark.worker.task import run_partition
from pyspark.sql.types import LongType, StringType, StructType

from tests.arriving import arriving
from tests.operator_plans import plan_of

ROWS = StructType().add("k", StringType()).add("n", LongType())
MADE = Place("/home/me/job.py", 30, "<module>")
MANY = [(f"k{at}", at) for at in range(CHECKED_CALLS + 3)]


def task_of(function, rows, *, batch=False):
    """Return the plan and the frames of a task that runs a function over rows."""
    plan = plan_of("totals", function, ROWS, mp.Config({}), "heap")
    plan = attrs.evolve(plan, made_at=MADE, batch=batch, max_parallelism=1)
    frame = arriving(plan.rows, plan.output.columns(rows, "input"))
    frame[GROUP_COLUMN] = np.zeros(len(frame), dtype=np.int32)
    frame[LABEL_COLUMN] = group_labels(plan.parallelism)[0]
    return plan, [frame]


def failure_of(function, rows, *, batch=False):
    """Return the error message of a task that runs a function over rows."""
    with pytest.raises(errors.UserFunctionError) as caught:
        list(run_partition(*task_of(function, rows, batch=batch)))
    return caught.value
