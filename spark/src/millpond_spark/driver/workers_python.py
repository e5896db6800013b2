"""Whether the Python that Spark starts as workers has Millpond, where the driver can tell."""

from __future__ import annotations

import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

from millpond.errors import ConfigError
from pyspark.sql import SparkSession

from millpond_spark.session.session import is_connect

# Where Millpond is only looked for, not imported, so that this takes tens of milliseconds.
_LOOK = "import importlib.util, sys; sys.exit(importlib.util.find_spec('millpond') is None)"


def check_workers_python(spark: SparkSession) -> None:
    """Raise ConfigError if the workers of a local session run a Python without Millpond.

    Spark runs ``python3`` of the path unless PYSPARK_PYTHON says otherwise when the session's
    context is made. In an environment that is not activated that is another Python, whose failure
    says nothing but ``No module named 'millpond'``, behind Spark's own frames.
    """
    if is_connect(spark):
        return
    context = spark.sparkContext
    master = context.master or ""
    if not master.startswith("local") or master.startswith("local-cluster"):
        return
    if not _has_millpond(context.pythonExec):
        reason = (
            f"the session's workers run {context.pythonExec}, which has no Millpond: before the "
            f"session is made, set the environment variable to {sys.executable}, "
            "or let millpond.spark.configure(SparkSession.builder, …) do so"
        )
        raise ConfigError("PYSPARK_PYTHON", reason, "environment")


@cache
def _has_millpond(executable: str) -> bool:
    found = shutil.which(executable)
    if found is None or Path(found) == Path(sys.executable):
        return True  # a Python that cannot be started is Spark's to report
    look = subprocess.run([found, "-c", _LOOK], check=False, capture_output=True)  # noqa: S603 - Spark starts it too
    return look.returncode == 0
