"""Wrappers around the methods of PySpark's writer that start queries, and ``foreachBatch``.

Spark has no hook before a query starts, and its refusal of several operators does not say what to
do. An exception of a ``foreachBatch`` function reaches the user as text that begins with the frames
of py4j and PySpark. Spark puts an exception's cause before these, so our error becomes the cause.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, wraps
from typing import Any

from millpond.errors import ForeachBatchError, MillpondError, SeveralOperatorsError, said
from millpond.functions.user_code import format_users_frames, notebook_cells
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame

from millpond_spark.driver.several_operators import (
    output_mode_error,
    require_one_watermark_of_client,
    several_allowed,
    uids_in_plan,
    unchecked,
)
from millpond_spark.plan.batch_identity import note_batch
from millpond_spark.session.internals import session_of_writer, wrap_writer, written_plan
from millpond_spark.worker.error_report import BEHIND, hide_traceback

_BatchFunction = Callable[[DataFrame, int], None]
_REFUSAL = "Multiple applyInPandasWithState"
_WORKER = "An exception was thrown from the Python worker:"


@cache
def watch_writer(*, remote: bool) -> None:
    """Wrap the methods of PySpark's writer, once a process.

    Args:
        remote: whether to wrap the writer of Spark Connect instead of the classic one.
    """

    def wrap(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        if name == "foreachBatch":
            return _watched_batches(method, remote=remote)
        return _watched_start(method, remote=remote)

    wrap_writer(wrap, remote=remote)


def _watched_start(start: Callable[..., Any], *, remote: bool) -> Callable[..., Any]:
    """Wrap a method that starts a query: raise Millpond's errors for Spark's refusals.

    In a block of ``several_operators``, Spark's refusal of several operators is lifted.
    """

    @wraps(start)
    def watched(writer: Any, *args: Any, **kwargs: Any) -> Any:
        if remote:
            require_one_watermark_of_client(writer)
        try:
            return start(writer, *args, **kwargs)
        except AnalysisException as error:
            uids = () if remote else uids_in_plan(written_plan(writer))
            if (wrong := output_mode_error(error, uids)) is not None:
                raise wrong from error
            if _REFUSAL not in str(error):
                raise
            if remote:  # the client does not see the plan, nor may it ask Spark's check
                raise SeveralOperatorsError((), session="connect") from error
            if not uids:
                raise
            if not several_allowed.get():
                raise SeveralOperatorsError(uids) from error
        with unchecked(session_of_writer(writer)):
            return start(writer, *args, **kwargs)

    return watched


def _watched_batches(for_each: Callable[..., Any], *, remote: bool) -> Callable[..., Any]:
    """Wrap ``foreachBatch``: set the batch's id for its tasks, and report errors readably."""

    @wraps(for_each)
    def foreach_batch(writer: Any, func: _BatchFunction) -> Any:
        def watched(df: DataFrame, batch_id: int) -> None:
            if not remote:
                note_batch(df, batch_id)
            try:
                func(df, batch_id)
            except Exception as error:
                reported = _reported(error, batch_id)
                if reported is None:
                    raise
                if remote:  # the process ends with the exception
                    hide_traceback()
                    raise reported from None
                raise RuntimeError("the function of foreachBatch has failed") from reported

        return for_each(writer, watched)

    return foreach_batch


def _reported(error: Exception, batch_id: int) -> ForeachBatchError | None:
    """Return the error to show for an exception of a ``foreachBatch`` function.

    Returns None if the exception does not come from Millpond.
    """
    text, behind, _ = said(error).partition(f"\n{BEHIND}\n")
    if behind:  # it is the text of a worker's error, with Spark's words before it
        reason, _, frames = text.rpartition(_WORKER)[2].strip().partition("\n")
    elif isinstance(error, MillpondError):
        reason, frames = f"{type(error).__name__}: {error}", format_users_frames(error)
    else:
        return None
    # The second frame is the user's function. Frames below it may be a worker's, which Spark adds.
    frame = error.__traceback__ and error.__traceback__.tb_next
    if frame is None:  # the call does not fit the function's signature
        file, line = "", 0
    else:
        file, line = frame.tb_frame.f_code.co_filename, frame.tb_lineno
    reported = ForeachBatchError(batch_id, reason.strip(), notebook_cells().get(file, file), line)
    reported.add_note(frames)
    return reported
