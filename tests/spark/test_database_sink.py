"""Rows arrive exactly once in PostgreSQL, although drivers are killed around its commits."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest

from tests.documentation import pages
from tests.postgres_server import postgres_server
from tests.spark import database_job

JOB = Path(database_job.__file__)
BATCHES, CUSTOMERS = 4, 20
WAITING = "SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock'"


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


@pytest.fixture(scope="module")
def address():
    """The connection string of a server with the page's tables."""
    with postgres_server() as address:
        block(0, {"DATABASE": address})
        yield address


def block(number, space):
    """Run a block of the page."""
    code = pages.blocks(database_job.PAGE, "spark")[number][1]
    exec(compile(code, database_job.PAGE, "exec"), space)


@pytest.mark.spark
@pytest.mark.long
def test_killed_before_and_after_the_commit(address, tmp_path):
    """Each row is in the database once, after two killed drivers and with three different parallelisms."""
    expected, log = orders(tmp_path / "orders"), tmp_path / "job.log"
    assert run(tmp_path, address, 2, "before", 1) == -signal.SIGKILL, log.read_text()
    assert stored(address) == [row for row in expected if row[2] < 1]
    assert run(tmp_path, address, 3, "after", 2) == -signal.SIGKILL, log.read_text()
    assert stored(address) == [row for row in expected if row[2] < 3]
    assert run(tmp_path, address, 1) == 0, log.read_text()
    assert stored(address) == expected


def test_two_drivers_of_one_query(address):
    """A driver waits for another one that writes its batch, then writes nothing; a late driver writes nothing."""
    block(1, space := {})
    query = uuid4()

    def record(batch):
        with psycopg.connect(address) as connection:
            return connection.execute(space["RECORD"], (query, batch)).rowcount

    assert record(6) == 1
    with ThreadPoolExecutor() as pool, psycopg.connect(address) as first:
        assert first.execute(space["RECORD"], (query, 7)).rowcount == 1
        second = pool.submit(record, 7)
        with psycopg.connect(address, autocommit=True) as watching:
            while not watching.execute(WAITING).fetchone():
                assert not second.done()
        first.commit()
        assert second.result() == 0
    assert record(6) == 0
    assert record(8) == 1


def test_go_back_with_two_queries(address, tmp_path):
    """Only the later rows of the query that goes back are deleted."""
    query, other = uuid4(), uuid4()
    (tmp_path / "query").mkdir()
    (tmp_path / "query" / "metadata").write_text(json.dumps({"id": str(query)}))
    with psycopg.connect(address) as connection:
        for writer in query, other:
            connection.execute("INSERT INTO last_batch VALUES (%s, 1)", (writer,))
            connection.execute(
                "INSERT INTO totals VALUES ('ann', 5, %s, 0), ('ann', 7, %s, 1)", (writer, writer)
            )
    block(4, {"DATABASE": address, "FOLDER": tmp_path, "psycopg": psycopg, "Path": Path})
    with psycopg.connect(address) as connection:
        kept = connection.execute(
            "DELETE FROM totals WHERE query IN (%s, %s) RETURNING query, batch", (query, other)
        ).fetchall()
    assert sorted(kept) == sorted([(query, 0), (other, 0), (other, 1)])


def stored(address):
    """Return all rows of the database."""
    with psycopg.connect(address) as connection:
        found = connection.execute("SELECT customer, total, batch FROM totals").fetchall()
    return sorted(found)
