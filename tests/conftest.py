"""The Spark session of all tests, and shared fixtures."""

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

# A small initial heap saves a tenth of the time of short queries.
os.environ.setdefault("SPARK_SUBMIT_OPTS", f"{QUICK_JVM} -Xms700m -Xmn300m -XX:MetaspaceSize=300m")

NO_DATA = "no data"
RETAIL = Path(__file__).resolve().parents[2] / "shared" / "data" / "online-retail"


def pytest_configure(config):
    """Ignore a warning that old versions of PySpark cause."""
    if version("pyspark").startswith(("4.0.", "4.1.")):
        # They close the sockets that they collect from only when these are garbage-collected.
        unclosed = "ignore:Exception ignored in. <socket:pytest.PytestUnraisableExceptionWarning"
        config.addinivalue_line("filterwarnings", unclosed)


@pytest.fixture(scope="session")
def spark(tmp_path_factory):
    """A local session with two cores, on which tests set Millpond's configuration."""
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
    """Set Millpond's keys for one test, and unset them afterwards."""
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
    """Return the folder of the retail data; skip the test with a message if it is missing."""
    if not RETAIL.is_dir():
        pytest.skip(f"{NO_DATA}: the retail data is not beside this repository (../shared/data)")
    return RETAIL


def pytest_terminal_summary(terminalreporter):
    """List the tests that were skipped because of missing data."""
    skipped = terminalreporter.stats.get("skipped", ())
    missing = sorted({report.nodeid for report in skipped if NO_DATA in str(report.longrepr)})
    if missing:
        title = f"{len(missing)} TESTS DID NOT RUN FOR WANT OF DATA (../shared/data)"
        terminalreporter.section(title, sep="!", yellow=True, bold=True)
        for name in missing:
            terminalreporter.line(name, yellow=True)


@pytest.fixture
def files(spark, tmp_path):
    """A streaming source of files that a test writes."""
    return streaming.Files(spark, tmp_path / "input")
