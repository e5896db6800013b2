"""What cannot start or go on says what is wrong, where, and what to do; with input or without."""

import millpond as mp
import pytest
from millpond import errors
from millpond.local.harness import KeyedOperatorHarness
from millpond.spark import key_by, subtask_metrics
from pyspark.errors import StreamingQueryException

from tests.spark.streaming import RUNNING, Running, run


@pytest.fixture
def stream(files):
    """A source without any rows."""
    return files.stream()


def operator(df, uid="totals", function=Running):
    """The rows through a function."""
    return key_by(df, "k").process(function(), output=RUNNING, uid=uid)


def refused(df, tmp_path):
    """The message of a query that does not start, though there is nothing to process."""
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
    """The start names the key, the directory and what the system says."""
    job_conf(checkpoint_dir=place)
    said = refused(operator(stream), tmp_path)
    assert "Spark configuration: spark.millpond.checkpoint.dir: " in said
    assert place in said
    assert reason in said


@pytest.mark.spark
def test_a_directory_that_is_a_file(stream, job_conf, tmp_path):
    """It is refused where the operator is built, by key and path."""
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
    """The error says which setting is too high, where it stands and how high it may be."""
    job_conf(parallelism=8)
    spark.conf.set("spark.millpond.max-parallelism", "4")
    with pytest.raises(
        errors.ConfigError,
        match=r"^Spark configuration: spark\.millpond\.parallelism: 8 .*max-parallelism, 4: use at",
    ):
        operator(stream)


@pytest.mark.spark
def test_a_wrong_uid_at_a_restore_without_input(stream, job_conf, tmp_path):
    """The start is refused though no task ever runs, once, in the error's own words."""
    with KeyedOperatorHarness(Running(), key="k") as harness:
        harness.process({"k": "a", "n": 1})
        harness.savepoint(tmp_path / "saved")
    job_conf(checkpoint_restore=tmp_path / "saved")
    said = refused(operator(stream, "other"), tmp_path)
    assert "holds state of 'operator', but the query's operators are 'other'" in said
    assert "Could not restore" not in said


@pytest.mark.spark
def test_a_savepoint_that_is_none(stream, job_conf, tmp_path):
    """The start names the key and the place."""
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
    """The start says how a query's checkpoint is named."""
    query = tmp_path / "query"
    for path in ("metadata", "offsets/0"):
        (query / path).parent.mkdir(parents=True, exist_ok=True)
        (query / path).write_text("{}")
    job_conf(checkpoint_restore=f"{query}{ending}")
    assert f"as {query}@41" in refused(operator(stream), tmp_path)


class Failing(mp.KeyedProcessFunction):
    """Opens badly."""

    def open(self, context):
        raise ValueError("no network")

    def process_element(self, row, context):
        return None


class Tuples(mp.KeyedProcessFunction):
    """Returns a row instead of rows."""

    def process_element(self, row, context):
        return (row.k, 1, 1)


@pytest.mark.spark
def test_what_functions_do_wrong(spark, job_conf):
    """Errors of open name no key, and a returned row is refused as it is locally."""
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
    """Metrics of a place where no query is are refused, and nothing is made there."""
    place = tmp_path / "mistyped"
    if there:
        place.mkdir()
    with pytest.raises(errors.ConfigError, match=r"Spark cannot read it as a query.s checkpoint"):
        subtask_metrics(spark, str(place))
    assert [*tmp_path.rglob("*")] == [place] * there
