"""A quiet Spark session for commands, and Spark's errors in a sentence."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING

from millpond.errors import JobError, MillpondError, PlaceError

from millpond_cli.output import working
from millpond_cli.terminal import complain

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


QUIET = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.log.level": "FATAL",
}
"""Settings that silence Spark: its log would repeat errors with their traces."""

_TRACE = "Traceback (most recent call last):"
_AFTER = re.compile(
    r"=== Streaming Query ===|== SQL ==|JVM stacktrace:|\n\s+at \S+\(|\nCaused by:"
    r"|SQLSTATE: \w{5};\n"  # the plan
    r"|\nBehind it, in Millpond:"
)
_OURS = re.compile(r"\bmillpond\.(?:\w+\.)*[A-Z]\w*: ")
"""An error of ours, whose sentence comes before the user's frames."""
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
    """Start a session in this process to read a query's checkpoint, and stop it at the end.

    Raises:
        JobError, PlaceError: as ``spark_words`` does.
    """
    with working("asking Spark for the committed state"), spark_words(checkpoint):
        from pyspark.sql import SparkSession  # noqa: PLC0415 - an extra

        builder = SparkSession.builder.appName("millpond").master("local[1]")
        for key, value in QUIET.items():
            builder = builder.config(key, value)
        spark = start_session(builder)
        try:
            yield spark
        finally:
            spark.stop()


def start_session(builder: SparkSession.Builder) -> SparkSession:
    """Start a Spark session; the first interrupt waits until Java has started.

    Without this, Java would continue to run after an interrupt, and keep the command's output open.
    """
    before = signal.getsignal(signal.SIGINT)
    waiting: list[int] = []

    def wait(number: int, _: FrameType | None) -> None:
        if waiting:
            raise KeyboardInterrupt
        waiting.append(number)
        complain("waiting for Java to start, to end it; interrupt again to leave it behind")

    if callable(before):
        signal.signal(signal.SIGINT, wait)
    try:
        session = builder.getOrCreate()
    except Exception:
        if waiting:
            raise KeyboardInterrupt from None
        raise
    finally:
        if callable(before):
            signal.signal(signal.SIGINT, before)
    if waiting:
        session.stop()
        raise KeyboardInterrupt
    return session


@contextmanager
def spark_words(what: str) -> Iterator[None]:
    """Turn an error of Spark into one sentence of Millpond.

    Raises:
        JobError: for an error of Spark, or of the function in one of its workers.
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
    """Return one sentence from Spark's message: Millpond's, else Python's last, else Spark's."""
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
