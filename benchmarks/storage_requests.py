"""Count the requests of a steady batch of one subtask to the checkpoint storage.

The worker's real task runs over 1,000 rows of 700 keys, batch after batch, each with the pointer
of the one before. In a local directory, the script counts the system calls that name a path in it;
on S3, the requests to a server on loopback. A count is the mean of the last batches. Each storage
runs with the default threshold, with one that the changes exceed now and then, with pointers alone,
and with so few retained checkpoints that each batch deletes files.

Usage: storage_requests.py [--batches 24] [--output out/bench]
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import millpond as mp
import numpy as np
import pandas as pd
from cases import Totals
from millpond.operator_id import OperatorId
from millpond.plugins import get_registry
from millpond_spark.plan.layout import write_layout
from millpond_spark.plan.layout_decision import declared_layout
from millpond_spark.plan.plan import OperatorPlan
from millpond_spark.plan.pointer import POINTER_SCHEMA
from millpond_spark.session.group_labels import group_labels
from millpond_spark.values.frames import RowCodec
from millpond_spark.values.output_frames import OutputCodec
from millpond_spark.values.schemas import GROUP_COLUMN
from millpond_spark.worker.task import run_subtask
from pyspark import TaskContext
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout
from pyspark.sql.types import DoubleType, LongType, StructType

ROWS, TOUCHED, KEYS, GROUPS = 1_000, 700, 10_000, 128
STEADY = 12
BACKENDS = ("heap", "lmdb", "rocksdb")
SETTINGS: dict[str, dict[str, Any]] = {
    "files": {},
    "threshold 20kb": {"checkpoint.inline-threshold": "20kb"},
    "pointer": {"checkpoint.storage": "pointer"},
    "deletions": {"checkpoint.retained": 3, "state.snapshot.max-deltas": 2},
}
SCHEMA = StructType().add("customer", LongType()).add("amount", DoubleType())
CALLS = {
    "open": "open",
    "os.mkdir": "mkdir",
    "os.rename": "rename",
    "os.remove": "delete",
    "os.listdir": "list",
    "os.scandir": "list",
}
"""The audit events of system calls, by their names in the table."""


class LocalCalls:
    """A counter of the calls that name a path below a directory."""

    def __init__(self) -> None:
        self.below: str | None = None
        self.heard: list[str] = []
        sys.addaudithook(self._hear)

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.below is None or event not in CALLS:
            return
        place = os.fsdecode(arguments[0]) if isinstance(arguments[0], (str, bytes)) else ""
        if not place.startswith(self.below):
            return
        flags = arguments[2] if event == "open" else 0
        write = event == "open" and isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR)
        self.heard.append("write" if write else "read" if event == "open" else CALLS[event])


def plan_of(backend: str, config: mp.Config) -> OperatorPlan:
    """Return the plan of the running total as one subtask."""
    return OperatorPlan(
        uid="totals",
        function=Totals(),
        rows=RowCodec.from_schema(SCHEMA),
        output=OutputCodec.from_schema(SCHEMA),
        key_positions=(0,),
        key_fields=(LongType(),),
        event_time=None,
        order_by=(),
        parallelism=1,
        config=config,
        resolution=get_registry().resolve(backend),
    )


def frames(chance: np.random.Generator) -> list[pd.DataFrame]:
    """Return the frames of a batch as Spark passes them."""
    chosen = chance.choice(KEYS, size=TOUCHED, replace=False)
    keys = np.concatenate([chosen, chance.choice(chosen, size=ROWS - TOUCHED)])
    groups = [mp.assign_to_key_group(int(key), GROUPS) for key in keys]
    columns = {"c0": keys, "c1": np.ones(ROWS), "nulls0": 0, GROUP_COLUMN: groups}
    return [pd.DataFrame(columns)]


def batches(plan: OperatorPlan, query: str, count: int) -> Iterator[float]:
    """Run batches; yield the seconds of each until its commit."""
    operator = OperatorId(query, plan.uid)
    write_layout(plan.storage(), operator, declared_layout(plan, (plan.uid,)))
    context = TaskContext._getOrCreate()  # noqa: SLF001 - as pyspark's worker does
    label = group_labels(plan.parallelism)[0]
    chance = np.random.default_rng(7)
    pointer = None
    for number in range(count):
        context._localProperties = {  # noqa: SLF001
            "sql.streaming.queryId": query,
            "streaming.sql.batchId": str(number),
            "spark.jobGroup.id": "run",
        }
        state = GroupState(
            pointer,  # type: ignore[arg-type]  # None at first
            batchProcessingTimeMs=number,
            eventTimeWatermarkMs=-1,
            timeoutConf=GroupStateTimeout.EventTimeTimeout,
            hasTimedOut=False,
            watermarkPresent=False,
            defined=pointer is not None,
            updated=False,
            removed=False,
            timeoutTimestamp=-1,
            keyAsUnsafe=b"",
            valueSchema=POINTER_SCHEMA,
        )
        rows = frames(chance)
        started = time.perf_counter()
        for _ in run_subtask(plan, label, rows, state):
            pass
        pointer = state.get
        yield time.perf_counter() - started


def steady(plan: OperatorPlan, query: str, count: int, heard: list[str]) -> dict[str, Any]:
    """Return the requests per batch in the last batches, and the median of their milliseconds."""
    took = []
    for number, seconds in enumerate(batches(plan, query, count)):
        if number == count - STEADY - 1:
            heard.clear()
        took.append(seconds)
    requests = {name: round(held / STEADY, 1) for name, held in sorted(Counter(heard).items())}
    milliseconds = sorted(took[-STEADY:])[STEADY // 2] * 1000
    return {"requests": requests, "milliseconds": round(milliseconds, 1)}


def measured(count: int, stack: ExitStack) -> dict[str, dict[str, Any]]:
    """Measure the requests and the time of a batch for each storage and backend."""
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="millpond-bench-")))
    os.environ["SPARK_LOCAL_DIRS"] = str(folder / "local")
    found: dict[str, dict[str, Any]] = {}
    calls = LocalCalls()
    for backend, (name, settings) in itertools.product(BACKENDS, SETTINGS.items()):
        calls.below = str(folder / backend / name.replace(" ", "-"))
        plan = plan_of(backend, mp.Config({"checkpoint.dir": f"file:{calls.below}"} | settings))
        query = f"local-{backend}-{name}"
        found[f"local, {backend}, {name}"] = steady(plan, query, count, calls.heard)
    calls.below = None
    sys.path.append(str(Path(__file__).parent.parent))
    from tests import s3_server  # noqa: PLC0415 - the tests' own

    server = stack.enter_context(s3_server.s3_server())
    heard = stack.enter_context(s3_server.heard_requests())
    server.make_bucket("bench")
    for backend, (name, settings) in itertools.product(BACKENDS, SETTINGS.items()):
        given = settings | {
            "checkpoint.dir": f"s3://bench/{backend}/{name.replace(' ', '-')}",
            "checkpoint.s3.endpoint": f"http://{server.address}",
            "checkpoint.s3.access-key": server.access_key,
            "checkpoint.s3.secret-key": server.secret_key,
        }
        plan = plan_of(backend, mp.Config(given))
        found[f"s3, {backend}, {name}"] = steady(plan, f"s3-{backend}-{name}", count, heard)
    return found


def main() -> None:
    """Measure, print a table, write JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batches", type=int, default=24)
    parser.add_argument("--output", type=Path, default=Path("out/bench"))
    given = parser.parse_args()
    with ExitStack() as stack:
        report = measured(given.batches, stack)
    for case, figures in report.items():
        requests = "  ".join(f"{name} {count}" for name, count in figures["requests"].items())
        print(f"{case:30} {figures['milliseconds']:6.1f} ms a batch:  {requests}")
    given.output.mkdir(parents=True, exist_ok=True)
    (given.output / "storage_requests.json").write_text(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
