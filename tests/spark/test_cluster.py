"""The retail job on a standalone cluster: a master and two workers, each a process."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
from collections import Counter
from contextlib import ExitStack, contextmanager, suppress
from decimal import Decimal
from pathlib import Path

import pyspark
import pytest

from tests.documentation import pages
from tests.spark.quick import QUICK_JVM, quick_files
from tests.spark.retail_runs import PATIENCE_S, Job, check_output, last

pytestmark = pytest.mark.spark
SPARK_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"


class Daemon:
    """A daemon of Spark, with its log."""

    def __init__(self, log, name, *arguments, **environment):
        self.log = log
        command = [str(SPARK_CLASS), f"org.apache.spark.deploy.{name}", *arguments]
        with log.open("wb") as out:
            self.process = subprocess.Popen(
                [*command, "--host", "127.0.0.1", "--webui-port", "0"],
                stdout=out, stderr=out, start_new_session=True,
                env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1",
                     "SPARK_DAEMON_JAVA_OPTS": QUICK_JVM, **environment},
            )  # fmt: skip

    def says(self, pattern):
        """Wait for a line of the log."""
        for _ in range(PATIENCE_S * 20):
            found = re.search(pattern, self.log.read_text(errors="replace"))
            if found:
                return found[1]
            try:
                self.process.wait(0.05)
            except subprocess.TimeoutExpired:
                continue
            break
        pytest.fail(f"no {pattern!r}:\n{self.log.read_text(errors='replace')[-4000:]}")

    def stop(self):
        """Send SIGKILL; the processes that it has started end later."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


@contextmanager
def cluster(root):
    """A master and two workers with one core each; yields the master's URL and the workers."""
    disks = ",".join(str(root / f"disk{number}") for number in (1, 2))
    with ExitStack() as running:
        master = Daemon(root / "master.log", "master.Master", "--port", "0")
        running.callback(master.stop)
        url = master.says(r"Starting Spark master at (spark://\S+)")
        workers = []
        for number in (1, 2):
            worker = Daemon(
                root / f"worker{number}.log", "worker.Worker", url, "--cores", "1",
                "--memory", "1g", "--work-dir", str(root / f"work{number}"),
                SPARK_LOCAL_DIRS=disks,
            )  # fmt: skip
            running.callback(worker.stop)
            workers.append(worker)
        for worker in workers:
            worker.says("Successfully registered with (master)")
        yield url, workers


def executors(workers):
    """Return the process ids of all executors of the workers."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            parent = (entry / "stat").read_text().rpartition(")")[2].split()[1]
            command = (entry / "cmdline").read_bytes()
        except OSError:
            continue
        ours = int(parent) in {worker.process.pid for worker in workers}
        if ours and b"CoarseGrainedExecutorBackend" in command:
            found.append(int(entry.name))
    return found


def sales(folder):
    """Generated rows in files; returns the expected output of the job."""
    draw = random.Random(7)
    folder.mkdir()
    lines, totals = Counter(), {}
    head = "InvoiceNo,StockCode,Description,Quantity,InvoiceDate,UnitPrice,CustomerID,Country"
    for number in range(16):
        rows = []
        for at in range(100):
            customer = str(draw.randrange(12000, 12040)) if draw.random() < 0.9 else ""
            stock, quantity = f"S{draw.randrange(30)}", draw.randrange(-5, 50)
            price = Decimal(draw.randrange(1, 9999)) / 1000
            invoice = f"{number:03d}{at // 5:02d}"
            date = f"2011-01-{number + 1:02d} 10:00:00"
            rows.append(f"{invoice},{stock},thing,{quantity},{date},{price},{customer},Malta")
            lines[customer or None, invoice, stock, quantity] += 1
            if customer:
                count, spent = totals.get(customer, (0, Decimal(0)))
                totals[customer] = (count + 1, spent + quantity * price)
        (folder / f"{number:04d}.csv").write_text("\n".join([head, *rows, ""]))
    return lines, totals


@pytest.mark.long
def test_rescaled_and_an_executor_killed_it_is_exact(spark, tmp_path):
    """After a killed executor and a rescale the output is exact."""
    lines, totals = sales(tmp_path / "data")
    with cluster(tmp_path) as (url, workers):
        few = ["--master", url, "--files", "2"]
        job = Job("rocksdb", tmp_path, tmp_path / "data", *few)
        job.wait_in_batch(2)
        os.kill(executors(workers)[0], signal.SIGKILL)
        at = last(tmp_path, "commits")
        job.wait_until(lambda: last(tmp_path, "commits") >= at + 2, "batches after the kill")
        job.kill()
        job = Job(
            "rocksdb", tmp_path, tmp_path / "data", *few, "--parallelism", "3", "--to-the-end"
        )
        job.finish()
    check_output(spark, [tmp_path], (lines, totals, {}))


PAGE = pages.text("how-to/deploy.md")


def ours(text, folder, url=""):
    """Return a script or command of the page with the places of this test."""
    places = {
        r"s3a?://bucket": folder.as_uri(), "/opt/env/bin/python": sys.executable,
        "spark://host:7077": url, "=16": "=2",
    }  # fmt: skip
    for place, other in places.items():
        text = re.sub(place, other, text)
    return text


def submitted(folder, url):
    """Start the page's command in the folder with its script, on JVMs that start quickly."""
    settings = {**quick_files(), "spark.executor.extraJavaOptions": QUICK_JVM}
    lines = [f"{key} {value}\n" for key, value in settings.items()]
    (folder / "spark-defaults.conf").write_text("".join(lines))
    command = re.search(r"```sh\n(export .*?)```", PAGE, re.DOTALL)[1]
    environment = {
        **os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_SUBMIT_OPTS": QUICK_JVM,
        "SPARK_CONF_DIR": str(folder),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }  # fmt: skip
    with (folder / "job.log").open("ab") as log:
        return subprocess.Popen(
            ["bash", "-c", ours(command, folder, url)], cwd=folder, env=environment,
            stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip


@pytest.mark.long
def test_the_page_s_command_runs_the_page_s_job(spark, tmp_path):
    """The command of the page on deployment runs its script, until SIGTERM ends the driver."""
    script = re.search(r"```python job\n(.*?)```", PAGE, re.DOTALL)[1]
    (tmp_path / "job.py").write_text(ours(script, tmp_path))
    (tmp_path / "orders").mkdir()
    with cluster(tmp_path) as (url, _):
        process = submitted(tmp_path, url)
        for batch in range(2):
            rows = "".join(f'{{"customer": "c{n}", "amount": {batch + 1}}}\n' for n in range(9))
            (tmp_path / "new").write_text(rows)
            (tmp_path / "new").rename(tmp_path / "orders" / f"{batch}.json")
            while last(tmp_path, "commits") < batch:
                with suppress(subprocess.TimeoutExpired):
                    process.wait(0.1)
                    pytest.fail((tmp_path / "job.log").read_text()[-4000:])
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(PATIENCE_S)
    found = Counter(map(tuple, spark.read.parquet(str(tmp_path / "totals")).collect()))
    assert found == Counter((f"c{n}", total) for n in range(9) for total in (1.0, 3.0))
