"""The command line, and the README's examples."""

import json
import os
import pickle
import re
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from millpond.errors import JobError
from millpond_cli.jobfile import load_function
from millpond_cli.main import commands
from pyspark import cloudpickle

ROOT = Path(__file__).resolve().parents[2]


def test_backends_as_json():
    """`millpond backends --json` gives name, distribution, version, capabilities, status and reason."""
    rows = json.loads(CliRunner().invoke(commands, ["backends", "--json"]).output)
    found = {row["name"]: row for row in rows}
    assert set(found) >= {"heap", "rocksdb", "lmdb"}
    keys = {"name", "distribution", "version", "capabilities", "status", "reason", "native"}
    assert all(set(row) == keys for row in rows)
    assert found["rocksdb"]["native"].startswith("rocksdict")
    assert found["lmdb"]["capabilities"] == ["async-snapshot", "local-copy"]


def test_backends_as_a_table(tmp_path):
    """The table shows a blocked plugin and the rule that blocks it."""
    (tmp_path / "millpond.toml").write_text('[millpond.plugins]\nblock = ["lmdb"]\n')
    result = CliRunner().invoke(
        commands, ["--config", str(tmp_path / "millpond.toml"), "backends"], env={"COLUMNS": "200"}
    )
    assert "blocked by plugins.block = lmdb" in " ".join(result.output.split())


@pytest.mark.skipif(not hasattr(click, "NoSuchCommand"), reason="this Click guesses no commands")
@pytest.mark.parametrize(
    ("given", "meant"),
    [("checkpont", "checkpoint"), ("savepont", "savepoint")],
)
def test_a_misspelt_command_is_told_with_the_one_that_is_meant(given, meant):
    """A misspelt command is refused with the nearest one."""
    result = CliRunner().invoke(commands, [given, "x"])
    assert result.exit_code == 2
    assert f"'{meant}'" in result.stderr.partition("Did you mean")[2]


def millpond(*arguments):
    """Run the command as users do."""
    code = "from millpond_cli.main import main; main()"
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "COLUMNS": "200"},
    )


INTERRUPTED = """
import signal, sys
from importlib.metadata import entry_points
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == sys.argv[1]:
            signal.raise_signal(signal.SIGINT)
sys.meta_path.insert(0, Interrupt())
(command,) = entry_points(group="console_scripts", name="millpond")
command.load()()
"""


@pytest.mark.parametrize("module", ["millpond", "pyarrow", "millpond_cli.state"])
def test_an_interrupt_while_modules_are_imported(module):
    """An interrupt during imports ends the installed command with a message and status 1."""
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, module], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (1, "millpond: interrupted\n")


def test_a_file_may_have_a_standard_modules_name(tmp_path):
    """A job's file may be called json.py: its classes can be pickled, and the module json is unchanged."""
    (tmp_path / "json.py").write_text(
        "import millpond as mp\n"
        "class Job(mp.KeyedProcessFunction):\n"
        "    def process_element(self, row, context):\n"
        "        return [row]\n"
    )
    made = load_function("json.py:Job", tmp_path)
    assert sys.modules["json"] is json
    restored = pickle.loads(cloudpickle.dumps(made))
    assert restored.process_element(1, None) == [1]


def test_a_module_out_of_reach_is_told_with_the_cure(tmp_path):
    """If Python does not find a job's module, the error gives the cure."""
    with pytest.raises(JobError) as caught:
        load_function("stock.totals:Totals", tmp_path)
    cure = "PYTHONPATH, or the file itself as path/stock/totals.py:Totals"
    assert "No module named 'stock'" in str(caught.value)
    assert cure in str(caught.value)


@pytest.mark.long
@pytest.mark.spark
def test_run_a_job_file_twice(spark, tmp_path):
    """A second `millpond run` continues with new input; another process saves its state."""
    for name in ("job.py", "job.toml"):
        shutil.copy(ROOT / "examples/orders" / name, tmp_path)
    generate = [sys.executable, str(ROOT / "examples/orders/generate.py"), str(tmp_path / "input")]
    subprocess.run([*generate, "--days", "1", "--lines", "300"], check=True, capture_output=True)
    first = millpond("run", str(tmp_path / "job.toml"), "--backend", "lmdb")
    assert first.returncode == 0, first.stderr
    assert re.search(r"batch 0: \d+ rows in", first.stdout)
    assert "customer-summary" in first.stdout
    subprocess.run([*generate, "--days", "2", "--lines", "300"], check=True, capture_output=True)
    second = millpond("run", str(tmp_path / "job.toml"), "--backend", "lmdb")
    assert second.returncode == 0, second.stderr
    assert re.search(r"batch 1: \d+ rows in", second.stdout)
    assert "batch 0:" not in second.stdout
    checkpoint, saved, snapshots = (
        str(tmp_path / name) for name in ("checkpoint", "s", "snapshots")
    )
    created = millpond("savepoint", "create", checkpoint, saved, "--snapshots", snapshots)
    assert created.returncode == 0, created.stderr
    assert (tmp_path / "s" / "customer-summary").is_dir()
    page = str(tmp_path / "report.html")
    reported = millpond("report", checkpoint, "--snapshots", snapshots, "-o", page)
    assert reported.returncode == 0, reported.stderr
    assert "Last batches" in Path(page).read_text()
    summaries = spark.read.json(str(tmp_path / "output"))
    per_customer = summaries.groupBy("customer").agg({"lines": "max", "*": "count"}).collect()
    assert all(row["max(lines)"] == row["count(1)"] for row in per_customer)


SOURCE = '[source]\nformat = "csv"\nschema = "a int"\npath = "in"\n'
JOB = '[job]\nuid = "a"\nfunction = "a.py:A"\nkey = "a"\noutput = "a int"\n'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "[source]: this section is missing"),
        ("[sorce]\n", "sorce: is not a known section"),
        (f'{SOURCE}[job]\nuid = "a"\nfunction = "a.py:A"\n', "job.key: is missing"),
        ("[millpond.state]\nbakend = 1\n[source]\n", "source.format: is missing"),
        ('[source]\nfromat = "csv"\n', "source.fromat: is not a known key. Did you mean"),
        (f'{SOURCE}[job]\nkye = ["a"]\n', "job.kye: is not a known key. Did you mean 'job.key'?"),
        (f'{SOURCE}{JOB}watermark = "1 second"\n', "job.watermark: is of a column"),
    ],
)
def test_wrong_job_files(tmp_path, text, message):
    """A missing or unknown section or key of a job file is refused by its place."""
    (tmp_path / "job.toml").write_text(text)
    call = ["run", str(tmp_path / "job.toml")]
    result = CliRunner().invoke(commands, call, env={"COLUMNS": "200"})
    assert (result.exit_code, type(result.exception)) == (1, SystemExit)
    assert message in result.stderr


@pytest.mark.spark
def test_the_readme_runs(spark, job_conf, tmp_path, monkeypatch):
    """The README's examples run with paths filled in."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert len(blocks) == 2
    assert len(blocks[0].strip().splitlines()) < 25
    (tmp_path / "input").mkdir()
    (tmp_path / "input" / "1.json").write_text(
        '{"customer": "ann", "quantity": 2, "price": 1.5}\n'
        '{"customer": "bob", "quantity": 1, "price": 9.0}\n'
    )
    names = {"SNAPSHOTS": "snapshots", "INPUT": "input", "OUTPUT": "output", "CHECKPOINT": "check"}
    space = {"__name__": "__main__"}
    space |= {name: (tmp_path / folder).as_uri() for name, folder in names.items()}
    before = dict(spark.conf.getAll)
    for block in blocks:
        exec(compile(block, "README.md", "exec"), space)
    found = spark.read.json(str(tmp_path / "output")).collect()
    assert sorted((row.customer, row.spent) for row in found) == [("ann", 3.0), ("bob", 9.0)]
    assert space["spark"] is spark
    for key, value in before.items():
        if spark.conf.isModifiable(key):
            spark.conf.set(key, value)
