"""One Spark session for all tests, and what they share."""

from __future__ import annotations

import os
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.spark import streaming
from tests.spark.quick import QUICK_JVM, quick_settings

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)

# A tenth of what short queries cost is a heap that begins small.
os.environ.setdefault("SPARK_SUBMIT_OPTS", f"{QUICK_JVM} -Xms700m -Xmn300m -XX:MetaspaceSize=300m")

NO_DATA = "no data"
RETAIL = Path(__file__).resolve().parents[2] / "shared" / "data" / "online-retail"


def pytest_configure(config):
    """Ignore a warning that old versions of PySpark cause."""
    if version("pyspark").startswith(("4.0.", "4.1.")):
        # They leave the sockets by which they collect to be closed when those are collected.
        unclosed = "ignore:Exception ignored in. <socket:pytest.PytestUnraisableExceptionWarning"
        config.addinivalue_line("filterwarnings", unclosed)


@pytest.fixture(scope="session")
def spark(tmp_path_factory):
    """A local session with two cores; tests set Millpond's configuration on it."""
    from millpond.spark import configure
    from pyspark.sql import SparkSession

    builder = (
        SparkSession.builder.master("local[2]")
        .appName("millpond tests")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.session.timeZone", "America/New_York")
        .config("spark.sql.timeType.enabled", "true")
        .config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
        .config("spark.log.level", "FATAL")
    )
    for key, value in quick_settings().items():
        builder = builder.config(key, value)
    configure(builder, parallelism=2)
    session = builder.getOrCreate()
    yield session
    session.stop()


@pytest.fixture
def job_conf(spark, tmp_path):
    """Sets Millpond's keys for one test and takes them back."""
    before = spark.conf.getAll
    spark.conf.set("spark.millpond.checkpoint.dir", (tmp_path / "snapshots").as_uri())

    def set_conf(**settings):
        for name, value in settings.items():
            spark.conf.set("spark.millpond." + name.replace("_", "."), str(value))

    yield set_conf
    for key in spark.conf.getAll:
        if key.startswith("spark.millpond.") and key not in before:
            spark.conf.unset(key)
    for key, value in before.items():
        if key.startswith("spark.millpond."):
            spark.conf.set(key, value)


@pytest.fixture(scope="session")
def retail():
    """The folder of the retail data; where it is not there, the test is skipped and says so."""
    if not RETAIL.is_dir():
        pytest.skip(f"{NO_DATA}: the retail data is not beside this repository (../shared/data)")
    return RETAIL


def pytest_terminal_summary(terminalreporter):
    """Say at the end, visibly, what was skipped for want of data."""
    skipped = terminalreporter.stats.get("skipped", ())
    missing = sorted({report.nodeid for report in skipped if NO_DATA in str(report.longrepr)})
    if missing:
        title = f"{len(missing)} TESTS DID NOT RUN FOR WANT OF DATA (../shared/data)"
        terminalreporter.section(title, sep="!", yellow=True, bold=True)
        for name in missing:
            terminalreporter.line(name, yellow=True)


@pytest.fixture
def files(spark, tmp_path):
    """A streaming source that a test writes to."""
    return streaming.Files(spark, tmp_path / "input")
