"""Rows arrive exactly once in PostgreSQL, although drivers are killed around its commits."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import psycopg
import pytest

from tests.documentation import pages
from tests.postgres_server import postgres_server
from tests.spark import database_job

pytestmark = [pytest.mark.spark, pytest.mark.long]
JOB = Path(database_job.__file__)
BATCHES, CUSTOMERS = 4, 20


def orders(folder):
    """Write a file of rows per micro-batch; return the expected rows."""
    folder.mkdir()
    totals, expected = dict.fromkeys(map(str, range(CUSTOMERS)), 0), []
    for batch in range(BATCHES):
        lines = []
        for customer in totals:
            amount = 10**batch
            totals[customer] += amount
            lines.append(json.dumps({"customer": customer, "amount": amount}))
            expected.append((customer, totals[customer], batch))
        file = folder / f"{batch}.json"
        file.write_text("\n".join(lines))
        os.utime(file, (1_700_000_000 + batch,) * 2)
    return sorted(expected)


def run(folder, *arguments):
    """Run the job; return its exit status. SIGKILL also ends the JVM that a killed job leaves."""
    command = [sys.executable, str(JOB), str(folder), *map(str, arguments)]
    with (folder / "job.log").open("ab") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        status = process.wait()
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    return status


def test_killed_before_and_after_the_commit(tmp_path):
    """Each row is in the database once, after two killed drivers and with three different parallelisms."""
    expected = orders(tmp_path / "orders")
    with postgres_server() as address:
        code = pages.blocks(database_job.PAGE, "spark")[0][1]
        exec(compile(code, database_job.PAGE, "exec"), {"DATABASE": address})
        log = tmp_path / "job.log"
        assert run(tmp_path, address, 2, "before", 1) == -signal.SIGKILL, log.read_text()
        assert stored(address) == [row for row in expected if row[2] < 1]
        assert run(tmp_path, address, 3, "after", 2) == -signal.SIGKILL, log.read_text()
        assert stored(address) == [row for row in expected if row[2] < 3]
        assert run(tmp_path, address, 1) == 0, log.read_text()
        assert stored(address) == expected
        assert late_driver(address) == (BATCHES - 1, 0)


def late_driver(address):
    """Record batch 1 again, as a driver that was only slow; return the last batch, and the changed rows."""
    space = {}
    code = pages.blocks(database_job.PAGE, "spark")[1][1]
    exec(compile(code, database_job.PAGE, "exec"), space)
    with psycopg.connect(address) as connection:
        [(query, last)] = connection.execute("SELECT query, batch FROM last_batch").fetchall()
        return last, connection.execute(space["RECORD"], (query, 1)).rowcount


def stored(address):
    """Return all rows of the database."""
    with psycopg.connect(address) as connection:
        found = connection.execute("SELECT customer, total, batch FROM totals").fetchall()
    return sorted(found)
