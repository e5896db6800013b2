"""A third-party backend, installed as a distribution, is found, selected, tested and used."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from millpond import errors
from millpond.errors import ConfigError
from millpond_cli.main import commands
from millpond_conformance.newbackend import write_tree

pytestmark = [pytest.mark.slow, pytest.mark.spark]
ROOT = Path(__file__).resolve().parents[2]
JOB = """
import sys
import millpond as mp
from millpond.spark import configure, key_by, subtask_metrics
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
sources = sorted(f.metrics["source"] for f in subtask_metrics(spark, f"{root}/checkpoint"))
print("RESULT", sorted(map(tuple, best)), sources)
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The example, built as a wheel and unpacked into a folder: a path and an environment."""
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
    """Run Python with the plugin installed; return its output."""
    done = subprocess.run(
        [sys.executable, *command], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_it_is_found_by_its_entry_point(installed):
    """`millpond backends` lists it with the others, as usable."""
    code = "import sys; from millpond_cli.main import main; sys.argv[1:] = ['backends', '--json']; main()"
    rows = {row["name"]: row for row in json.loads(run(installed, "-c", code))}
    assert rows["sqlite"]["status"] == "ok"
    assert rows["sqlite"]["distribution"] == "millpond-sqlite"
    assert {"heap", "rocksdb", "lmdb"} < set(rows)


def test_it_passes_the_contract_tests(installed):
    """A chapter of the kit runs under plain pytest for it, by name, and passes."""
    chapter = "millpond_conformance.clauses.test_kinds"
    out = run(installed, "-m", "pytest", "--pyargs", chapter, "--millpond-backend", "sqlite",
              "-q", "-p", "no:cacheprovider", "--rootdir", str(ROOT / "conformance"))  # fmt: skip
    assert " passed" in out
    assert "sqlite: 15/" in out


@pytest.mark.soak  # the command below runs the same clauses again
def test_its_own_tests_pass(installed, tmp_path):
    """The template's own test, one call of the kit, runs under pytest."""
    test = ROOT / "examples/sqlite-backend/tests/test_conformance.py"
    out = run(installed, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", os.devnull,
              "--rootdir", str(tmp_path), str(test))  # fmt: skip
    assert "1 passed" in out


@pytest.mark.sample(1, of="whole runs of the kit")
def test_the_command_proves_it(installed):
    """``millpond conformance`` gives it a certificate in the quick profile."""
    code = "import sys; from millpond_cli.main import main; sys.argv[1:] = sys.argv[1:]; main()"
    out = run(installed, "-c", code, "conformance", "sqlite", "--profile", "quick", "--json")
    report = json.loads(out)
    assert report["verdict"] == "PASS"
    assert report["environment"]["plugin"].startswith("millpond-sqlite ")


def test_the_example_is_what_the_template_makes(tmp_path, monkeypatch):
    """``millpond new-backend sqlite`` writes the example, file by file."""
    # Other tests of this process may have made the example importable.
    monkeypatch.setattr(sys, "path", [each for each in sys.path if "sqlite-backend" not in each])
    monkeypatch.delitem(sys.modules, "millpond_sqlite", raising=False)
    written = write_tree("sqlite", tmp_path / "made")
    example = ROOT / "examples/sqlite-backend"
    for path in written:
        relative = path.relative_to(tmp_path / "made")
        assert path.read_text() == (example / relative).read_text(), relative
    assert len(written) == 5


def test_senseless_names_of_backends_are_refused(tmp_path):
    """A name must be valid and free for a package; an existing folder is not overwritten."""
    refused = {
        "lower-case": ("My-Store", "", "1st", "a" * 40, "end_", "two__lines"),
        "keyword": ("class", "import"),
        "Millpond's; take another": ("byte", "keyed"),
        "installed and provides": ("heap", "rocksdb"),
        "distribution of Millpond's own": ("conformance",),
    }
    for reason, names in refused.items():
        for name in names:
            with pytest.raises(errors.ConfigError, match=reason):
                write_tree(name, tmp_path / "x")
    with pytest.raises(errors.ConfigError, match="exists"):
        write_tree("good", tmp_path)
    for wrong in (["bad name"], ["good", "--directory", str(tmp_path)]):
        result = CliRunner().invoke(commands, ["new-backend", *wrong])
        assert result.exit_code == 2, result.output


@pytest.mark.sample(3, of="Spark processes")
def test_a_spark_job_runs_on_it(installed, tmp_path):
    """A Spark job that configures it keeps its state in it, from batch to batch."""
    (tmp_path / "job.py").write_text(JOB)
    out = run(installed, str(tmp_path / "job.py"), str(tmp_path))
    assert "RESULT [(0, 6), (1, 6), (2, 6), (3, 6), (4, 6)] ['local', 'local']" in out


def test_it_is_under_200_lines():
    """The example has fewer than 200 lines."""
    sources = (ROOT / "examples/sqlite-backend/src").rglob("*.py")
    assert sum(len(path.read_text().splitlines()) for path in sources) < 200


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", ["heap", "conformance"])
def test_a_name_that_is_taken_is_refused(name, tmp_path):
    """A name that would hide an installed package is refused, and nothing is written."""
    with pytest.raises(ConfigError, match=f"millpond-{name} is .*take another name"):
        write_tree(name, tmp_path / "new")
    assert not (tmp_path / "new").exists()
