"""A Spark session without log output for commands, and short messages for Spark's errors."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from millpond.errors import JobError, MillpondError, PlaceError

from millpond_cli.output import working

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


QUIET = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.log.level": "FATAL",
}
"""Settings that disable Spark's log, which would repeat errors with their stack traces."""

_TRACE = "Traceback (most recent call last):"
_AFTER = re.compile(
    r"=== Streaming Query ===|== SQL ==|JVM stacktrace:|\n\s+at \S+\(|\nCaused by:"
    r"|SQLSTATE: \w{5};\n"  # the plan
    r"|\nBehind it, in Millpond:"
)
_OURS = re.compile(r"\bmillpond\.(?:\w+\.)*[A-Z]\w*: ")
"""A pattern for the class name that a traceback prints before the message of a Millpond error."""
_NOISE = re.compile(
    r"\s*SQLSTATE: \w{5}"
    r"|^.*?terminated with exception: "
    r"|^An error occurred while calling \S+\s*:\s*"
    r"|^millpond\.(?:\w+\.)*[A-Z]\w*: "
    r"|^(?:[a-z_]\w*\.)+(?=[A-Z]\w*:)"
    r"|^(?:\[\w+\] )?An exception was thrown from the Python worker:"
)


@contextmanager
def local_session(checkpoint: str) -> Iterator[SparkSession]:
    """Start a Spark session in this process, and stop it at the end of the block.

    Errors in the block are converted by `spark_words`, and name the directory `checkpoint`.
    """
    with working("asking Spark for the committed state"), spark_words(checkpoint):
        from pyspark.sql import SparkSession  # noqa: PLC0415 - an extra

        builder = SparkSession.builder.appName("millpond").master("local[1]")
        for key, value in QUIET.items():
            builder = builder.config(key, value)
        spark = builder.getOrCreate()
        try:
            yield spark
        finally:
            spark.stop()


@contextmanager
def spark_words(what: str) -> Iterator[None]:
    """Convert Spark's errors in the block to JobErrors with a short message.

    Args:
        what: the beginning of the messages, for example a path.

    Raises:
        JobError: Spark raised an error, or the user's function raised an error in a Spark worker.
        PlaceError: PySpark is not installed.
    """
    try:
        yield
    except ImportError as error:
        raise PlaceError("pyspark", f"{error}; pip install 'millpond[spark]'") from error
    except MillpondError:
        raise
    except Exception as error:
        if not type(error).__module__.startswith(("pyspark.", "py4j.")):
            raise
        raise JobError(what, reason(str(error))) from error


def reason(text: str) -> str:
    """Return the part of Spark's error message `text` that tells users the cause.

    If `text` contains an error of Millpond, return the message of this error. Otherwise return the
    last line of Python's traceback or, without a traceback, Spark's own message.
    """
    head = _AFTER.split(text.strip(), maxsplit=1)[0]
    before = head.partition(_TRACE)[0]
    if _OURS.search(before):
        head = before
    elif _TRACE in head:
        lines = head.rpartition(_TRACE)[2].strip("\n").splitlines()
        frames = next((at for at, line in enumerate(lines) if not line.startswith(" ")), 0)
        head = "\n".join(lines[frames:])
    while (shorter := _NOISE.sub("", head).strip()) != head:
        head = shorter
    return " ".join(head.split()) or "Spark gives no reason"
