"""Measure savepoints of many keys: filling one from rows, collecting one, and restoring from one.

The state is an int per key, and keys are texts of 17 characters. `table` and `rows` are a
SavepointWriter in this process, from a table and from a list of dicts; `function` uses a bootstrap
function instead of columns. `spark` is a SavepointWriter over a DataFrame, with two tasks. `create`
collects the snapshots of two subtasks, like `millpond savepoint create`. `heap`, `rocksdb` and
`lmdb` restore a backend from a savepoint. Each case has a process of its own.

Usage: bootstrapping.py [--case CASE] [--output out/bench]
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import millpond as mp
import psutil
import pyarrow as pa
from millpond.plugins import get_registry
from millpond.savepoints.collect import collect_savepoint
from own_process import run_cases
from typing_extensions import override

TOTAL = mp.ValueStateDescriptor("total", int)
UID, GROUPS, SUBTASKS = "totals", 128, 2
LOCAL = ("table", "rows", "function")
BACKENDS = ("heap", "rocksdb", "lmdb")
FEW, MANY = 1_000_000, 3_000_000
CASES = tuple(
    f"{kind} {keys}"
    for kind, keys in (
        *itertools.product((*LOCAL, "spark", "create", *BACKENDS), (FEW,)),
        *itertools.product(("table", "spark", "create"), (MANY,)),
    )
)
"""Each kind with few keys, and three with many keys, to show that memory is bounded."""


class Totals(mp.KeyedStateBootstrapFunction):
    """A bootstrap function that adds up the rows of a key."""

    @override
    def open(self, context: mp.RuntimeContext) -> None:
        self.total = context.get_state(TOTAL)

    @override
    def process_element(self, row: Any, context: mp.Context) -> None:
        self.total.update((self.total.value() or 0) + row.total)


def table_of(keys: int) -> pa.Table:
    """Return a table with one row per key."""
    names = pa.array((f"customer-{number:08d}" for number in range(keys)), pa.string())
    return pa.table({"key": names, "total": pa.array(number % 1000 for number in range(keys))})


def write_local(rows: Any, path: Path, *, by_function: bool = False) -> None:
    """Write a savepoint from rows of this process."""
    filled: dict[str, Any] = {"function": Totals()} if by_function else {}
    states = () if by_function else (TOTAL,)
    writer = mp.SavepointWriter.new_savepoint(GROUPS)
    writer.with_operator(UID, rows, *states, key="key", key_type=str, **filled).write(path)


def write_table(keys: int, path: Path) -> None:
    """Write a savepoint from a table."""
    write_local(table_of(keys), path)


def write_snapshots(keys: int, folder: Path) -> list[Any]:
    """Write the snapshots of two subtasks on heap; return their handles."""
    write_table(keys, folder / "saved")
    storage = mp.checkpoint_storage((folder / "snapshots").as_uri())
    handles = []
    for index in range(SUBTASKS):
        groups = mp.key_group_range(GROUPS, SUBTASKS, index)
        with mp.open_keyed_backend(
            "heap",
            key_type=str,
            max_parallelism=GROUPS,
            key_group_range=groups,
            restore=[folder / "saved"],
            place=UID,
            config=mp.Config({"state.snapshot.strategy": "full"}),
        ) as backend:
            backend.get_partitioned_state(TOTAL)
            handles.append(backend.snapshot(1, storage).result().handle)
    return handles


def apart(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function in another process, so that its memory does not count."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(function, arguments)


def memory(process: psutil.Process) -> int:
    """Return the memory of a process without the pages of mapped files; 0 if it has ended."""
    try:
        found = process.memory_info()
        return int(found.rss - found.shared)
    except psutil.Error:
        return 0


def processor_s(me: psutil.Process) -> float:
    """Return the processor time of a process and its children, such as Spark's JVM and workers."""
    times = (each.cpu_times() for each in (me, *me.children(recursive=True)))
    return float(sum(each.user + each.system for each in times))


@contextmanager
def measuring(found: dict[str, float]) -> Iterator[None]:
    """Measure the processor time of the block, and the memory that this process and workers need.

    The memory is that by which this process grows, and the whole memory of workers.
    """
    me, done = psutil.Process(), threading.Event()
    before, highest = memory(me), 0

    def sample() -> None:
        nonlocal highest
        while not done.wait(0.05):
            workers = [p for p in me.children(recursive=True) if p.name().startswith("python")]
            highest = max(highest, memory(me) - before + sum(map(memory, workers)))

    thread = threading.Thread(target=sample)
    thread.start()
    started, processor = time.perf_counter(), processor_s(me)
    try:
        yield
    finally:
        found["seconds"] = time.perf_counter() - started
        found["processor"] = processor_s(me) - processor
        done.set()
        thread.join()
        found["memory"] = float(highest)


def on_spark(keys: int, folder: Path, found: dict[str, float]) -> None:
    """Write a savepoint from a DataFrame, after a small one in the same session."""
    from cases import session  # noqa: PLC0415 - only for this case
    from millpond.spark import key_by  # noqa: PLC0415 - only for this case

    spark = session("millpond-heap", folder / "checkpoint")
    key = "concat('customer-', lpad(cast(id as string), 8, '0')) key"

    def write(count: int, path: Path) -> None:
        rows = spark.range(count).selectExpr(key, "id % 1000 total")
        writer = mp.SavepointWriter.new_savepoint(GROUPS)
        writer.with_operator(UID, key_by(rows, "key"), TOTAL).write(path)

    write(1000, folder / "warm")
    with measuring(found):
        write(keys, folder / "spark")
    spark.stop()


def measured(case: str, _: argparse.Namespace) -> dict[str, float]:
    """Return the figures of a case."""
    kind, keys = case.split(maxsplit=1)[0], int(case.split()[1])
    found: dict[str, float] = {"keys": keys}
    with tempfile.TemporaryDirectory(prefix="millpond-bench-") as name:
        folder = Path(name)
        if kind == "spark":
            on_spark(keys, folder, found)
        elif kind in LOCAL:
            rows: Any = table_of(keys)
            rows = rows.to_pylist() if kind == "rows" else rows
            with measuring(found):
                write_local(rows, folder / "saved", by_function=kind == "function")
        elif kind == "create":
            handles = apart(write_snapshots, keys, folder)
            registry = get_registry()
            target = registry.savepoint(folder / "created")
            with measuring(found):
                collect_savepoint({UID: handles}, target, registry)
        else:
            apart(write_table, keys, folder / "saved")
            with (
                measuring(found),
                mp.open_keyed_backend(
                    kind,
                    key_type=str,
                    max_parallelism=GROUPS,
                    directory=folder / "job",
                    restore=[folder / "saved"],
                    place=UID,
                ) as backend,
            ):
                backend.get_partitioned_state(TOTAL)
    return found


def main() -> None:
    """Run each case in a process of its own; print and write the figures."""
    run_cases(argparse.ArgumentParser(description=__doc__), CASES, measured)


if __name__ == "__main__":
    main()
