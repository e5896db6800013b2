"""A query that cannot start or continue says what is wrong, where, and what to do, with and without input."""

import millpond as mp
import pytest
from millpond import errors
from millpond.local.harness import KeyedOperatorHarness
from millpond.spark import key_by, subtask_metrics
from pyspark.errors import StreamingQueryException

from tests.spark.streaming import RUNNING, Running, run


@pytest.fixture
def stream(files):
    """Return a source without rows."""
    return files.stream()


def operator(df, uid="totals", function=Running):
    """Return an operator over the rows."""
    return key_by(df, "k").process(function(), output=RUNNING, uid=uid)


def refused(df, tmp_path):
    """Return the message of a query that cannot start, although it has no input."""
    with pytest.raises(StreamingQueryException) as caught:
        run(df, tmp_path)
    message = caught.value.desc if hasattr(caught.value, "desc") else str(caught.value)
    return message.split("JVM stacktrace")[0]


@pytest.mark.sample(1)
@pytest.mark.spark
@pytest.mark.parametrize(
    ("place", "reason"),
    [("/proc/nowhere", "No such file or directory"), ("/sys/kernel/nope", "not permitted")],
)
def test_a_directory_that_cannot_be_written(stream, job_conf, tmp_path, place, reason):
    """If the directory cannot be written, the start names key, directory and the system's message."""
    job_conf(checkpoint_dir=place)
    said = refused(operator(stream), tmp_path)
    assert "Spark configuration: spark.millpond.checkpoint.dir: " in said
    assert place in said
    assert reason in said


@pytest.mark.spark
def test_a_directory_that_is_a_file(stream, job_conf, tmp_path):
    """A file in place of the directory is refused when the operator is built, with key and path."""
    (tmp_path / "file").write_text("")
    for place in (tmp_path / "file", tmp_path / "file" / "below"):
        job_conf(checkpoint_dir=place)
        with pytest.raises(
            errors.ConfigError,
            match=r"^Spark.*spark\.millpond\.checkpoint\.dir: .*/file.*Not a dir",
        ):
            operator(stream)


@pytest.mark.spark
def test_more_subtasks_than_key_groups(spark, stream, job_conf):
    """If there are more subtasks than key groups, the error names the setting, its source and its maximum."""
    job_conf(parallelism=8)
    spark.conf.set("spark.millpond.max-parallelism", "4")
    with pytest.raises(
        errors.ConfigError,
        match=r"^Spark configuration: spark\.millpond\.parallelism: 8 .*max-parallelism, 4: use at",
    ):
        operator(stream)


@pytest.mark.spark
def test_a_wrong_uid_at_a_restore_without_input(stream, job_conf, tmp_path):
    """A wrong uid at a restore is refused at the start, once, with Millpond's message."""
    with KeyedOperatorHarness(Running(), key="k") as harness:
        harness.process({"k": "a", "n": 1})
        harness.savepoint(tmp_path / "saved")
    job_conf(checkpoint_restore=tmp_path / "saved")
    said = refused(operator(stream, "other"), tmp_path)
    assert "holds state of 'operator', but the query's operators are 'other'" in said
    assert "Could not restore" not in said


@pytest.mark.spark
def test_a_savepoint_that_is_none(stream, job_conf, tmp_path):
    """If `checkpoint.restore` is not a savepoint, the start names key and path."""
    job_conf(checkpoint_restore=tmp_path / "none")
    said = refused(operator(stream), tmp_path)
    assert "spark.millpond.checkpoint.restore" in said
    assert str(tmp_path / "none") in said
    assert said.count("Could not restore") == 1
    job_conf(checkpoint_restore="s4://x")
    with pytest.raises(errors.ConfigError, match=r"spark\.millpond\.checkpoint\.restore: .*s4://x"):
        operator(stream)


@pytest.mark.sample(1)
@pytest.mark.spark
@pytest.mark.parametrize("ending", ["", "@", "@last"])
def test_a_checkpoint_without_its_batch(stream, job_conf, tmp_path, ending):
    """If `checkpoint.restore` is a checkpoint without a batch, the start shows the correct form."""
    query = tmp_path / "query"
    for path in ("metadata", "offsets/0"):
        (query / path).parent.mkdir(parents=True, exist_ok=True)
        (query / path).write_text("{}")
    job_conf(checkpoint_restore=f"{query}{ending}")
    assert f"as {query}@41" in refused(operator(stream), tmp_path)


class Failing(mp.KeyedProcessFunction):
    """Function whose `open` fails."""

    def open(self, context):
        raise ValueError("no network")

    def process_element(self, row, context):
        return None


class Tuples(mp.KeyedProcessFunction):
    """Function that returns a row instead of rows."""

    def process_element(self, row, context):
        return (row.k, 1, 1)


@pytest.mark.spark
def test_what_functions_do_wrong(spark, job_conf):
    """Errors in `open` have no key, and a returned row is refused as in a local run."""
    df = spark.createDataFrame([("a", 1)], "k string, n bigint")
    for function, message in (
        (
            Failing,
            r"Operator 'totals', subtask \d: Failing.open failed \(.*: ValueError: no network",
        ),
        (
            Tuples,
            r"test_refusals.py, line .*returned tuple \('a', 1, 1\) instead of rows: .*Tuples",
        ),
    ):
        with pytest.raises(Exception, match=message):
            operator(df, function=function).collect()


@pytest.mark.sample(1)
@pytest.mark.spark
@pytest.mark.parametrize("there", [False, True])
def test_a_checkpoint_without_a_query(spark, tmp_path, there):
    """Metrics of a directory without a query are refused, and the directory remains unchanged."""
    place = tmp_path / "mistyped"
    if there:
        place.mkdir()
    with pytest.raises(errors.ConfigError, match=r"Spark cannot read it as a query.s checkpoint"):
        subtask_metrics(spark, str(place))
    assert [*tmp_path.rglob("*")] == [place] * there
