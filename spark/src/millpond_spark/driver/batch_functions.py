"""The user's functions for ``foreachBatch``: their batches are noted, their errors shortened.

Spark hands an exception of such a function on as text, which begins with the frames of py4j and of
PySpark. It has the cause of an exception before these, so the sentence is made the cause.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from millpond.errors import ForeachBatchError, MillpondError, said
from millpond.functions.user_code import format_users_frames, notebook_cells
from pyspark.sql import DataFrame

from millpond_spark.plan.batch_identity import note_batch
from millpond_spark.worker.error_report import BEHIND, hide_traceback

_BatchFunction = Callable[[DataFrame, int], None]
_WORKER = "An exception was thrown from the Python worker:"


def watch_batches(writer: Any, *, remote: bool) -> None:
    """Replace the ``foreachBatch`` of PySpark's writer by one that watches the user's function.

    Args:
        writer: PySpark's class.
        remote: whether it is that of Spark Connect.
    """
    for_each = writer.foreachBatch

    @wraps(for_each)
    def foreach_batch(self: Any, func: _BatchFunction) -> Any:
        return for_each(self, _watched(func, remote=remote))

    writer.foreachBatch = foreach_batch


def _watched(func: _BatchFunction, *, remote: bool) -> _BatchFunction:
    def watched(df: DataFrame, batch_id: int) -> None:
        if not remote:
            note_batch(df, batch_id)
        try:
            func(df, batch_id)
        except Exception as error:
            told = _told(error, batch_id)
            if told is None:
                raise
            if remote:  # the process ends with the exception
                hide_traceback()
                raise told from None
            raise RuntimeError("the function of foreachBatch has failed, as told above") from told

    return watched


def _told(error: Exception, batch_id: int) -> ForeachBatchError | None:
    """Return the error to show for one that comes from Millpond; None for others."""
    text, behind, _ = said(error).partition(f"\n{BEHIND}\n")
    if behind:  # it is the text of a worker's error, and Spark's words before it
        reason, _, frames = text.rpartition(_WORKER)[2].strip().partition("\n")
    elif isinstance(error, MillpondError):
        reason, frames = f"{type(error).__name__}: {error}", format_users_frames(error)
    else:
        return None
    told = ForeachBatchError(batch_id, reason.strip(), *_place(error))
    told.add_note(frames)
    return told


def _place(error: Exception) -> tuple[str, int]:
    """Return the file and line of the user's function, which the watching one has called.

    What is below it may be frames of a worker, which Spark adds.
    """
    frame = error.__traceback__ and error.__traceback__.tb_next
    if frame is None:  # the call does not fit its signature
        return "", 0
    file = frame.tb_frame.f_code.co_filename
    return notebook_cells().get(file, file), frame.tb_lineno
