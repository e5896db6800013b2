"""Checks of queries when they start, and readable errors of ``foreachBatch``.

Spark has no hook before a query starts, and its error for a query with several operators does not
say what to do. Therefore Millpond wraps the methods of PySpark's writer that start queries.

Spark's check of streaming queries refuses several operators. The check can only be switched off as
a whole, by a setting that Spark reads while a query starts. Millpond switches it off only while a
query with several operators starts. Afterwards Millpond calls the check for each operator by
itself, on a plan in which the outputs of all other operators are replaced by plain streams.

Spark computes one watermark per query. An operator may hold rows back until the watermark has
passed them. If another watermark is set on the output of this operator, the query's watermark waits
for these rows, and the rows wait for the watermark.

An exception of a ``foreachBatch`` function reaches the user as text that begins with the frames of
py4j and PySpark. Spark prints the exception's cause before these frames. Therefore Millpond makes
its own error the cause.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache, wraps
from threading import Lock
from typing import Any

from millpond.errors import (
    EventTimeChainError,
    ForeachBatchError,
    MillpondError,
    OutputModeError,
    SeveralOperatorsError,
    UnsupportedQueryError,
    said,
)
from millpond.functions.user_code import format_users_frames, notebook_cells
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from millpond_spark.plan.batch_identity import note_batch
from millpond_spark.plan.plan import OperatorPlan
from millpond_spark.session import internals
from millpond_spark.worker.error_report import BEHIND, hide_traceback

_OTHER_MODE = re.compile(
    r"applyInPandasWithState in (\w+) mode is not supported with (\w+) output mode"
)
_CHECK = "spark.sql.streaming.unsupportedOperationCheck"
_POLICY = "spark.sql.streaming.multipleWatermarkPolicy"

several_allowed: ContextVar[bool] = ContextVar("millpond_several_operators", default=False)
"""Whether this thread is in a block of ``several_operators``."""
_setting = Lock()


@contextmanager
def several_operators() -> Iterator[None]:
    """Allow queries that are started in the ``with`` block to have several Millpond operators.

    By default Spark refuses such a query. In the block, Millpond calls Spark's check of streaming
    queries for each operator by itself. The check still refuses unsupported steps, such as sorting,
    and output modes that do not fit an operator. It remains unchanged for all other queries.

    Over Spark Connect the block has no effect, because only the server can call the check.
    """
    token = several_allowed.set(True)
    try:
        yield
    finally:
        several_allowed.reset(token)


def output_mode_error(error: AnalysisException, uids: Sequence[str]) -> OutputModeError | None:
    """Return Millpond's error if `error` says that Spark refuses an output mode, else None.

    Args:
        error: Spark's error. Its text names the refused operator's function.
        uids: the uids of the query's operators; empty if they are not known.
    """
    said = str(error)
    if modes := _OTHER_MODE.search(said):
        operator = internals.OPERATOR_NAME.search(said)
        return OutputModeError(operator[1], modes[1], modes[2].lower()) if operator else None
    if uids and "Invalid streaming output mode: complete" in said:
        return OutputModeError(uids[0], "", "complete")
    return None


def uids_in_plan(plan: Any) -> tuple[str, ...]:
    """Return the uids of a plan's operators; an empty tuple if an operator is not Millpond's."""
    found = [internals.OPERATOR_NAME.fullmatch(name) for name in internals.operator_names(plan)]
    return tuple(each[1] for each in found if each) if all(found) else ()


@contextmanager
def unchecked(spark: SparkSession) -> Iterator[None]:
    """Switch off Spark's check of streaming queries while one query starts.

    A lock lets only one query start at a time. Otherwise one start could restore the setting while
    another one needs it.
    """
    with _setting:
        before = spark.conf.getAll.get(_CHECK)
        spark.conf.set(_CHECK, "false")
        try:
            yield
        finally:
            if before is None:
                spark.conf.unset(_CHECK)
            else:
                spark.conf.set(_CHECK, before)


def require_supported(spark: SparkSession, stream: Any) -> None:
    """Call Spark's check for each operator of a query, if the check was off at the query's start.

    Args:
        spark: the session.
        stream: the query's JVM object.

    Raises:
        OutputModeError: an operator was made for another output mode.
        UnsupportedQueryError: Spark does not support the query for another reason.
    """
    if internals.query_settings(stream).get(_CHECK, "true") == "true":
        return
    try:
        internals.check_operators_alone(spark, stream)
    except AnalysisException as error:
        uids = uids_in_plan(internals.query_plan(stream))
        if (wrong := output_mode_error(error, uids)) is not None:
            raise wrong from error
        reason = " ".join(str(error).partition(";")[0].split())
        raise UnsupportedQueryError(reason) from error


def require_one_watermark(stream: Any, plans: Mapping[str, OperatorPlan]) -> None:
    """Raise an error if the operators of a query cannot share the query's one watermark.

    Args:
        stream: the query's JVM object.
        plans: the operators' plans by the names of their functions in Spark's plan.

    Raises:
        EventTimeChainError: a watermark is computed from the output of an operator.
    """
    policy = str(internals.query_settings(stream).get(_POLICY, "min"))

    def checked(node: Any) -> list[OperatorPlan | None]:
        """Check `node` and all nodes below it.

        Returns a list with the plan of each operator, and None for each step that sets a watermark.
        """
        below = [step for child in internals.children(node) for step in checked(child)]
        operators = [step for step in below if step is not None]
        timed = [each.uid for each in operators if each.by_event_time]
        own = plans.get(internals.function_name(node))
        if node.nodeName() != internals.SETS_WATERMARK:
            return below if own is None else [*below, own]
        # Spark uses the lower of two watermarks, which is right unless rows wait for it. In a join
        # of two streams, rows without a match wait until the watermark has passed them.
        waits = None in below and (policy == "max" or internals.keeps_columns(node))
        if timed or (operators and waits):
            raise EventTimeChainError((timed or [operators[-1].uid])[-1], "", policy)
        return [*below, None]

    checked(internals.query_plan(stream))


def require_no_watermark_behind(writer: Any) -> None:
    """Raise an error if a Spark Connect query sets a watermark on the output of an operator.

    The client does not know which operators have timers. So an operator counts as one of event time
    if there is a watermark before it.

    Args:
        writer: PySpark's writer of the stream.

    Raises:
        EventTimeChainError: the operator is one of event time.
    """

    def checked(node: Any) -> tuple[bool, str]:
        """Return whether there is a watermark, and the last operator behind it or ""."""
        below = [checked(each) for each in internals.client_inputs(node)]
        is_marked = any(marked for marked, _ in below)
        uid = next((uid for _, uid in below if uid), "")
        if type(node).__name__ == "WithWatermark":
            if uid:
                raise EventTimeChainError(uid, "", "min")
            return True, ""
        own = internals.OPERATOR_NAME.fullmatch(internals.client_function_name(node))
        return is_marked, own[1] if own and is_marked else uid

    checked(internals.client_written_plan(writer))


_BatchFunction = Callable[[DataFrame, int], None]
_REFUSAL = "Multiple applyInPandasWithState"
_WORKER = "An exception was thrown from the Python worker:"


@cache
def watch_writer(*, remote: bool) -> None:
    """Wrap PySpark's methods that start queries, and ``foreachBatch``, once per process.

    Args:
        remote: whether to wrap the writer of Spark Connect instead of the classic one.
    """

    def wrap(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        if name == "foreachBatch":
            return _watched_batches(method, remote=remote)
        return _watched_start(method, remote=remote)

    internals.wrap_writer(wrap, remote=remote)


def _watched_start(start: Callable[..., Any], *, remote: bool) -> Callable[..., Any]:
    """Return a wrapper of `start` that raises Millpond's errors in place of some of Spark's.

    In a block of ``several_operators``, the wrapper lets a query with several operators start.
    """

    @wraps(start)
    def watched(writer: Any, *args: Any, **kwargs: Any) -> Any:
        if remote:
            require_no_watermark_behind(writer)
        try:
            return start(writer, *args, **kwargs)
        except AnalysisException as error:
            uids = () if remote else uids_in_plan(internals.written_plan(writer))
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
        with unchecked(internals.session_of_writer(writer)):
            return start(writer, *args, **kwargs)

    return watched


def _watched_batches(for_each: Callable[..., Any], *, remote: bool) -> Callable[..., Any]:
    """Return a wrapper of ``foreachBatch`` that sets the batch id and makes errors readable."""

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

    Return None if the exception does not come from Millpond.
    """
    text, behind, _ = said(error).partition(f"\n{BEHIND}\n")
    if behind:  # it is the text of a worker's error, with Spark's words before it
        reason, _, frames = text.rpartition(_WORKER)[2].strip().partition("\n")
    elif isinstance(error, MillpondError):
        reason, frames = f"{type(error).__name__}: {error}", format_users_frames(error)
    else:
        return None
    # The second frame is that of the user's function. Later frames may be a worker's.
    frame = error.__traceback__ and error.__traceback__.tb_next
    if frame is None:  # the call does not fit the function's signature
        file, line = "", 0
    else:
        file, line = frame.tb_frame.f_code.co_filename, frame.tb_lineno
    reported = ForeachBatchError(batch_id, reason.strip(), notebook_cells().get(file, file), line)
    reported.add_note(frames)
    return reported
