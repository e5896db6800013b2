"""Errors in a job file name line and key, and the correct form."""

import subprocess
import sys

import pytest
from click.testing import CliRunner
from millpond.errors import ConfigError
from millpond.functions.functions import KeyedProcessFunction
from millpond_cli.jobfile import JobFile
from millpond_cli.main import commands
from millpond_cli.run import start_query

from tests.tools.job_text import job_text

JOB = job_text('uid = "counts"', 'function = "counts.py:Counts"', 'output = "k string"')
JOB += "[millpond]\nparallelism = 2\n"


class Nothing(KeyedProcessFunction):
    """Function that yields nothing."""

    def process_element(self, row, context):
        """Yield nothing."""


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("millpond.parallelism = 3", "spark.millpond.parallelism: belongs in [millpond]: write pa"),
        ("spark.millpond.parallelism = 3", "spark.spark.millpond.parallelism: belongs in [mill"),
        ("spark.sql.x = 3", "spark.spark.sql.x: is given spark. by the section: write sql.x"),
    ],
)
def test_settings_of_spark_under_a_name_that_would_be_another(tmp_path, line, said):
    """Keys that belong to another section, or have a doubled prefix, are refused."""
    text = f"{JOB}[spark]\nmaster = 'local'\n{line}\n"
    (tmp_path / "job.toml").write_text(text)
    with pytest.raises(ConfigError) as caught:
        JobFile.read(tmp_path / "job.toml")
    assert f"job.toml: {said}" in str(caught.value)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('order-by = ["at", "zzz"]', "job.order-by: zzz: there is no such column"),
        ('order-by = ["y"]', "job.order-by: y: there is no such column"),
        ('order-by = ["uid"]', "job.order-by: uid: there is no such column"),
        ('event-time = "output"', "job.event-time: output: there is no such column"),
        ('key = ["null_keys"]', "job.key: null_keys: there is no such column"),
        ('event-time = "zzz"', "job.event-time: zzz: there is no such column"),
        ('event-time = "k"', "job.event-time: k: "),
        ('key = ["y"]', "job.key: y: there is no such column"),
        ('time-mode = "noon"', "job.time-mode: expected one of event-time, processing-time"),
        ('null-keys = "keep"', "job.null-keys: expected one of "),
        ('null-event-times = "keep"', "job.null-event-times: expected one of refuse, drop"),
    ],
)
def test_a_wrong_argument_of_a_job_is_told_by_its_key(spark, job_conf, tmp_path, line, said):
    """A wrong column in an argument is refused with the key that names it."""
    (tmp_path / "input").mkdir()
    text = JOB.replace('key = ["k"]\n', "") if line.startswith("key") else JOB
    text = text.replace("[job]", f"[job]\n{line}")
    (tmp_path / "job.toml").write_text(text)
    job = JobFile.read(tmp_path / "job.toml")
    with pytest.raises(ConfigError) as caught, job.locating_errors():
        start_query(spark, job, Nothing())
    assert f"job.toml: {said}" in str(caught.value)


def test_a_section_that_is_a_key_of_millpond_names_its_key(tmp_path):
    """A section that has a key's name is refused with the key in ``[millpond]``."""
    text = f"[millpond.local]\ndir = 'x'\n{JOB}[local]\ndir = 'y'\n"
    text = text.replace("[millpond]\nparallelism = 2\n", "")
    (tmp_path / "job.toml").write_text(text)
    with pytest.raises(ConfigError) as caught:
        JobFile.read(tmp_path / "job.toml")
    assert "job.toml: local: is not a known" in str(caught.value)


@pytest.mark.parametrize("given", ["[1]", '["k", 1]', "3"])
def test_what_is_no_list_of_texts_is_asked_for_texts(tmp_path, given):
    """A key that takes names refuses other values, and shows the correct form."""
    (tmp_path / "job.toml").write_text(JOB.replace('key = ["k"]', f"key = {given}"))
    with pytest.raises(ConfigError, match=r"job\.key: expected a text or a list of texts, got"):
        JobFile.read(tmp_path / "job.toml")


def test_a_key_in_both_spellings_is_given_twice(tmp_path):
    """A key with hyphen and with underscore in one file is refused."""
    second = 'null_keys = "aside"'
    text = JOB.replace("[job]", f'[job]\nnull-keys = "drop"\n{second}')
    (tmp_path / "job.toml").write_text(text)
    with pytest.raises(ConfigError) as caught:
        JobFile.read(tmp_path / "job.toml")
    assert "job.null_keys: is given twice" in str(caught.value)


@pytest.mark.parametrize("function", ["nofile.py:Counts", "no_such_module:Counts"])
def test_a_function_that_cannot_be_loaded_names_its_key(tmp_path, function):
    """If a function cannot be loaded, the message begins with the job file and the key."""
    line = f'function = "{function}"'
    text = JOB.replace('function = "counts.py:Counts"', line)
    (tmp_path / "job.toml").write_text(text)
    result = CliRunner().invoke(commands, ["run", str(tmp_path / "job.toml")])
    assert result.exit_code == 1
    said = f"job.toml: job.function: {function} cannot be loaded: "
    assert said in result.stderr


def without(text, *keys):
    """Return a job file whose section ``[source]`` lacks keys."""
    lines = text.partition("[job]")[0].splitlines()
    kept = "\n".join(line for line in lines if not line.startswith(keys))
    return f"{kept}\n[job]{text.partition('[job]')[2]}"


def test_a_source_may_have_neither_path_nor_schema(spark, job_conf, tmp_path):
    """A source may have neither path nor schema, like Kafka."""

    class Echo(KeyedProcessFunction):
        def process_element(self, row, context):
            yield str(row.value)

    text = without(JOB, "path", "schema").replace('"json"', '"rate-micro-batch"', 1)
    text = text.replace("[job]", "[source.options]\nrowsPerBatch = 3\nnumPartitions = 1\n[job]")
    (tmp_path / "job.toml").write_text(text.replace('key = ["k"]', 'key = ["value"]'))
    for _ in range(2):
        start_query(spark, JobFile.read(tmp_path / "job.toml"), Echo()).awaitTermination()
    found = {row.k for row in spark.read.json(str(tmp_path / "output")).collect()}
    assert {"0", "1", "2"} <= found


@pytest.mark.sample(3, of="Spark processes")
@pytest.mark.spark
def test_a_command_is_no_line_of_the_users(tmp_path):
    """Errors of `millpond run` do not name a line of Millpond or of its script as the operator's place."""
    (tmp_path / "counts.py").write_text(
        "import millpond as mp\n"
        "class Counts(mp.KeyedProcessFunction):\n"
        "    def process_element(self, row, context):\n"
        "        return None\n"
    )
    (tmp_path / "input").mkdir()
    (tmp_path / "input" / "1.json").write_text('{"k": null}\n')
    (tmp_path / "job.toml").write_text(JOB)
    (tmp_path / "script.py").write_text("from millpond_command import main\nmain()\n")
    call = [sys.executable, str(tmp_path / "script.py"), "run", str(tmp_path / "job.toml")]
    done = subprocess.run(call, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 1
    assert "choose null_keys='drop' or 'aside'" in done.stderr
    assert "made at" not in done.stderr
