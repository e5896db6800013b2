"""A session's directories: on S3 with its own settings and Hadoop's, and relative paths."""

from pathlib import Path

import pytest
from millpond import errors
from millpond.spark import create_savepoint, key_by
from millpond_spark.session.session import spark_configuration

from tests import s3_server
from tests.spark.streaming import RUNNING, Running, output, run

pytestmark = pytest.mark.spark
BUCKET = "jobs"


@pytest.fixture(scope="module")
def server():
    """Start an S3 server that checks credentials, with a bucket."""
    with s3_server.s3_server() as started:
        started.make_bucket(BUCKET)
        with s3_server.checked(started) as strict:
            yield strict


@pytest.fixture
def hadoop(spark):
    """Set Hadoop's settings in the session, as core-site.xml or its configuration would."""
    settings = spark.sparkContext._jsc.hadoopConfiguration()
    names = []

    def set_conf(**given):
        for name, value in given.items():
            names.append(name.replace("_", "."))
            settings.set(names[-1], value)

    yield set_conf
    for name in names:
        settings.unset(name)


def totals(files):
    return key_by(files.stream(), "k").process(Running(), output=RUNNING, uid="running")


@pytest.mark.long
def test_a_job_on_s3(spark, job_conf, hadoop, server, files, tmp_path):
    """A query starts with Millpond's settings and is rescaled with Hadoop's; another starts from its savepoint."""
    job_conf(state_backend="rocksdb", checkpoint_dir=f"s3://{BUCKET}/one", parallelism=2)
    own = {
        "endpoint": f"http://{server.address}",
        "region": s3_server.REGION,
        "access-key": server.access_key,
        "secret-key": server.secret_key,
    }
    for key, value in own.items():
        spark.conf.set(f"spark.millpond.checkpoint.s3.{key}", value)
    files.add(("a", 1), ("a", 3), ("b", 2))
    run(totals(files), tmp_path)
    for key in own:
        spark.conf.unset(f"spark.millpond.checkpoint.s3.{key}")
    hadoop(
        fs_s3a_endpoint=f"http://{server.address}",
        fs_s3a_access_key="somebody",
        fs_s3a_secret_key="else",
        **{f"fs.s3a.bucket.{BUCKET}.access.key": server.access_key},
        **{f"fs.s3a.bucket.{BUCKET}.secret.key": server.secret_key},
    )
    job_conf(checkpoint_dir=f"s3a://{BUCKET}/one", parallelism=3)
    files.add(("a", 5), ("b", 7))
    run(totals(files), tmp_path)
    rows = [("a", 3, 9), ("b", 1, 2), ("b", 2, 9)]
    assert output(spark, tmp_path)[2:] == rows
    create_savepoint(spark, str(tmp_path / "query" / "checkpoint"), f"s3a://{BUCKET}/saved")
    job_conf(checkpoint_dir=f"s3a://{BUCKET}/two", checkpoint_restore=f"s3a://{BUCKET}/saved")
    run(totals(files), tmp_path, name="again")
    assert ("a", 6, 18) in output(spark, tmp_path, "again")
    kinds = {name.partition("/")[0] for name in server.files(BUCKET)}
    assert kinds == {"one", "two", "saved"}
    plan = totals(files)._jdf.queryExecution().analyzed().toString()
    assert server.secret_key not in f"{plan}{spark_configuration(spark)!r}"


def test_wrong_credentials_stop_a_job_when_it_is_built(spark, job_conf, server, files):
    """Wrong credentials stop a job when it is built; the error names URI and cure, not the secret."""
    job_conf(checkpoint_dir=f"s3://{BUCKET}/one")
    given = {"endpoint": f"http://{server.address}", "access-key": "me", "secret-key": "guessed"}
    for key, value in given.items():
        spark.conf.set(f"spark.millpond.checkpoint.s3.{key}", value)
    with pytest.raises(errors.ConfigError, match=f"s3://{BUCKET}/one cannot be used") as caught:
        totals(files)
    assert "right to list, read, write and delete" in str(caught.value)
    assert "guessed" not in str(caught.value)


def test_a_relative_directory_lies_in_the_working_directory(
    spark, job_conf, files, tmp_path, monkeypatch
):
    """A relative directory is below the driver's working directory, also for the workers."""
    monkeypatch.chdir(tmp_path)
    job_conf(state_backend="heap", checkpoint_dir="./state/x y")
    files.add(("a", 1))
    run(totals(files), tmp_path)
    assert list((tmp_path / "state" / "x y").iterdir())
    job_conf(checkpoint_dir="~/state")
    with pytest.raises(errors.ConfigError, match=f"write '{Path.home()}/state'"):
        totals(files)
    assert not (tmp_path / "~").exists()


def test_plain_paths_lie_on_sparks_default_file_system(spark, job_conf, hadoop):
    """An absolute path belongs to Spark's default file system; a relative one there is refused."""
    job_conf(checkpoint_dir="/state/x y")
    assert spark_configuration(spark).checkpoint.dir == "/state/x y"
    hadoop(fs_defaultFS="hdfs://name:9000/")
    assert spark_configuration(spark).checkpoint.dir == "hdfs://name:9000/state/x%20y"
    job_conf(checkpoint_dir="file:/mnt/state")
    assert spark_configuration(spark).checkpoint.dir == "file:/mnt/state"
    job_conf(checkpoint_dir="state")
    with pytest.raises(errors.ConfigError, match="write 'hdfs://name:9000/state', or file:/"):
        spark_configuration(spark)
