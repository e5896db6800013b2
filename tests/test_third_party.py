"""A third party's backend, installed as a distribution: found, selected, conforming, used."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.spark
ROOT = Path(__file__).resolve().parents[1]
JOB = """
import sys
import millpond as mp
from millpond.spark import configure, key_by, subtask_figures
from pyspark.sql import SparkSession

class Count(mp.KeyedProcessFunction):
    def open(self, context):
        self.count = context.get_state(mp.ValueStateDescriptor("count", int, default=0))
    def process_element(self, row, context):
        self.count.update(self.count.value() + 1)
        yield context.current_key, self.count.value()

root = sys.argv[1]
builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
builder = builder.config("spark.driver.bindAddress", "127.0.0.1")
builder = builder.config("spark.driver.host", "127.0.0.1").config("spark.log.level", "ERROR")
spark = configure(builder, parallelism=2, state_backend="sqlite",
                  checkpoint_dir=f"file://{root}/snapshots").getOrCreate()
for part in range(3):
    spark.range(part * 10, part * 10 + 10).selectExpr("id % 5 as k").coalesce(1).write.mode(
        "append").parquet(f"{root}/input")
rows = spark.readStream.schema("k bigint").option("maxFilesPerTrigger", 1).parquet(f"{root}/input")
out = key_by(rows, "k").process(Count(), output="k bigint, n bigint", uid="count")
out.writeStream.format("parquet").option("path", f"{root}/output").option(
    "checkpointLocation", f"{root}/checkpoint").trigger(availableNow=True).start().awaitTermination()
best = spark.read.parquet(f"{root}/output").groupBy("k").max("n").collect()
sources = sorted(f.figures["source"] for f in subtask_figures(spark, f"{root}/checkpoint"))
print("RESULT", sorted(map(tuple, best)), sources)
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The example built as a wheel and unpacked into a folder: a path and an environment."""
    folder = tmp_path_factory.mktemp("sqlite")
    uv = [str(ROOT / "tools" / "uv")]
    build = [*uv, "build", "--wheel", "--quiet", "--out-dir", str(folder)]
    subprocess.run([*build, str(ROOT / "examples/sqlite-backend")], check=True)
    (wheel,) = folder.glob("*.whl")
    target = folder / "site"
    install = [*uv, "pip", "install", "--quiet", "--no-deps", "--target", str(target), str(wheel)]
    subprocess.run([*install, "--python", sys.executable], check=True)
    return {**os.environ, "PYTHONPATH": str(target)}


def run(environment, *command):
    """Run Python with the plugin installed; returns what it printed."""
    done = subprocess.run(
        [sys.executable, *command], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_it_is_found_by_its_entry_point(installed):
    """`millpond backends` lists it beside the others, as usable."""
    code = "import sys; from millpond.cli.main import main; sys.argv[1:] = ['backends', '--json']; main()"
    rows = {row["name"]: row for row in json.loads(run(installed, "-c", code))}
    assert rows["sqlite"]["status"] == "ok"
    assert rows["sqlite"]["distribution"] == "millpond-sqlite"
    assert {"heap", "rocksdb", "lmdb"} < set(rows)


def test_it_passes_the_contract_tests(installed):
    """The kit runs against it by name, and passes."""
    out = run(installed, "-m", "pytest", "--pyargs", "millpond_conformance", "--backend", "sqlite",
              "-q", "-p", "no:cacheprovider", "--rootdir", str(ROOT / "conformance"))  # fmt: skip
    assert " passed" in out
    assert "skipped" not in out


def test_a_spark_job_runs_on_it(installed, tmp_path):
    """A Spark job that names it in its configuration keeps its state in it, from batch to batch."""
    (tmp_path / "job.py").write_text(JOB)
    out = run(installed, str(tmp_path / "job.py"), str(tmp_path))
    assert "RESULT [(0, 6), (1, 6), (2, 6), (3, 6), (4, 6)] ['local', 'local']" in out


def test_it_is_under_200_lines():
    """The example stays small: a backend needs about a hundred lines."""
    sources = (ROOT / "examples/sqlite-backend/src").rglob("*.py")
    assert sum(len(path.read_text().splitlines()) for path in sources) < 200
