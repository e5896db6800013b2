"""Run the retail job in processes of its own, and check its output."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

HERE = Path(__file__).parent
PATIENCE_S = 900
"""Seconds after which a job counts as hanging; a busy machine needs less."""


class Job:
    """The retail job in a process group of its own."""

    def __init__(self, backend, root, data, *options):
        command = [sys.executable, str(HERE / "retail_job.py"), backend, str(root), str(data)]
        self.root = root
        with (root / "job.log").open("ab") as log:
            self.process = subprocess.Popen(
                [*command, *options], stdout=log, stderr=log, start_new_session=True
            )

    def wait_until(self, condition, what):
        """Poll until a condition of the checkpoint holds; fail if the job ends before."""
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < deadline, f"waited too long for {what}:\n{self.tail()}"
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(0.02)
                pytest.fail(f"ended before {what}:\n{self.tail()}")

    def wait_in_batch(self, batch):
        """Wait until a batch has begun and is not committed yet."""
        self.wait_until(
            lambda: last(self.root, "offsets") >= batch > last(self.root, "commits"),
            f"batch {batch}",
        )

    def kill(self):
        """Send SIGKILL to the driver, its JVM and its workers."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def kill_a_worker(self):
        """Send SIGKILL to one Python worker; return its id."""
        workers: list[int] = []

        def found():
            workers[:] = python_workers(self.process.pid)
            return bool(workers)

        self.wait_until(found, "a Python worker")
        os.kill(workers[0], signal.SIGKILL)
        return workers[0]

    def finish(self):
        """Wait for the end of the job."""
        assert self.process.wait(PATIENCE_S) == 0, self.tail()

    def tail(self):
        """Return the end of the job's log."""
        return (self.root / "job.log").read_text(errors="replace")[-4000:]


def last(root, folder):
    """Return the highest batch in a folder of the checkpoint; -1 if there is none."""
    names = (path.name for path in (root / "checkpoint" / folder).glob("[0-9]*"))
    return max((int(name) for name in names if name.isdigit()), default=-1)


def python_workers(session_id):
    """Return the processes that Spark's Python daemon of a session has forked."""
    parents, daemons = {}, set()
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            stat = (entry / "stat").read_text().rpartition(")")[2].split()
            command = (entry / "cmdline").read_bytes()
        except OSError:
            continue
        if int(stat[3]) == session_id and b"pyspark.daemon" in command:
            parents[int(entry.name)] = int(stat[1])
    daemons = {parent for parent in parents.values() if parent in parents}
    return sorted(pid for pid, parent in parents.items() if parent in daemons)


def tuples(df):
    """Return the rows of a DataFrame, collected as columns because that is much faster."""
    return list(zip(*(column.to_pylist() for column in df.toArrow().columns), strict=True))


def check_output(spark, roots, expected):
    """Check that no line is lost or doubled, running counts have no gap, and the last totals are correct."""
    lines, totals, _ = expected
    rows = [row for root in roots for row in tuples(written(spark, root))]
    assert Counter(row[:4] for row in rows) == lines
    known = [
        (customer, count, spent) for customer, *_, count, spent in rows if customer is not None
    ]
    assert set(Counter((customer, count) for customer, count, _ in known).values()) == {1}
    last_of = {name: (count, spent) for name, count, spent in known if count == totals[name][0]}
    assert last_of == totals


def written(spark, root):
    """Return the job's output, with columns in the order of the checks."""
    columns = ("customer", "invoice", "stock", "quantity", "lines", "spent")
    return spark.read.parquet(str(root / "output")).select(*columns)
