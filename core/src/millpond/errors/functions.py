"""Errors of users' functions and of their rows."""

from __future__ import annotations

from typing_extensions import override

from millpond.errors.base import MillpondError, hint

SHIP_MODULE = (
    "Install the module in the workers' Python, or send it with "
    "spark.sparkContext.addPyFile(path), over Spark Connect with "
    "spark.addArtifacts(path, pyfile=True)"
)
_LONGEST_LIST = 300
"""A row may have a thousand columns; the message shows the first ones."""


class UserFunctionError(MillpondError):
    """A user's function failed.

    Attributes:
        key: the representation of the current key, cut to a length; empty without a key, as in
            ``open``.
        method: the class of the function and the called method.
        reason: the user's own error, with its type.
        row: the representation of the row; empty if there is none, as in a timer.
        file, line: the place in the user's code that raised the error; empty and 0 if unknown.
    """

    operator_uid: str
    subtask: int
    key: str
    method: str
    reason: str
    row: str = ""
    file: str = ""
    line: int = 0

    @override
    def sentence(self) -> str:
        key = f", key {self.key}" if self.key else ""
        row = f", row {self.row}" if self.row else ""
        place = f" ({self.file}, line {self.line})" if self.file else ""
        return (
            f"Operator {self.operator_uid!r}, subtask {self.subtask}{key}{row}: "
            f"{self.method} failed{place}: {self.reason}"
        )


class OperatorNotLoadedError(MillpondError):
    """A worker cannot import the code of an operator.

    Attributes:
        function: the class of the user's function.
        reason: Python's own error, with its type.
    """

    operator_uid: str
    function: str
    reason: str

    @override
    def sentence(self) -> str:
        return (
            f"Operator {self.operator_uid!r}: this worker cannot load {self.function}: "
            f"{self.reason}. {SHIP_MODULE}."
        )


class ForeachBatchError(MillpondError):
    """A function of ``foreachBatch`` failed because of an operator.

    Attributes:
        batch_id: the micro-batch.
        reason: the operator's error, with its type.
        file, line: the line of the function that raised the error; empty and 0 if unknown.
    """

    batch_id: int
    reason: str
    file: str = ""
    line: int = 0

    @override
    def sentence(self) -> str:
        place = f" ({self.file}, line {self.line})" if self.file else ""
        return f"foreachBatch failed in batch {self.batch_id}{place}: {self.reason}"


class FunctionResultError(MillpondError, TypeError):
    """A function returned something other than rows, or a part of windows an invalid result.

    Attributes:
        file, line: the beginning of the method; empty and 0 if it has no code of its own.
        expected: ``rows``, ``tables`` for a vectorized function, or another expected result.
    """

    method: str
    file: str
    line: int
    value: str
    expected: str = "rows"

    @override
    def sentence(self) -> str:
        if self.expected == "tables":
            return (
                f"it returned {self.value} instead of tables: return a RecordBatch, a "
                f"Table or a DataFrame, or yield several, from {self.method}."
            )
        if self.expected != "rows":
            return f"it returned {self.value}: return {self.expected} from {self.method}."
        return (
            f"it returned {self.value} instead of rows: yield each row, or return a list "
            f"of rows, from {self.method}."
        )


class EndlessTimersError(MillpondError):
    """Timers that are due set new timers without end.

    Attributes:
        timestamp: the time in ms of the last timer.
        limit: the number of timers that counts as endless.
    """

    message = (
        "{limit:,} timers in a row were each set by the timer before for a time that had "
        "been reached, the last one for {timestamp}: in on_timer, set a timer "
        "only for a time after context.timer_service().current_watermark() or "
        "current_processing_time(), and none once the watermark is mp.MAX_TIMESTAMP."
    )

    timestamp: int
    limit: int


class NoEventTimeError(MillpondError):
    """A function asked for the event time of a row that has none."""

    message = (
        "The row has no event time: no column of event time is named (event_time= of process, "
        "or withWatermark before key_by), or that column is null in this row."
    )


class HarnessNotOpenError(MillpondError):
    """A harness was used outside its ``with`` block."""

    message = (
        "{method}() needs the function to be open: use the harness as a context manager, "
        "with KeyedOperatorHarness(...) as harness, and inside of that block."
    )

    method: str


class NoKeysError(MillpondError):
    """A function over rows without keys requested keyed state or timers.

    Attributes:
        what: the state or the timers.
    """

    message = (
        "Operator {operator_uid!r} has no {what}, since its rows have no keys: key "
        "them, as key_by(...) does, for a KeyedProcessFunction; or keep operator state, by "
        "CheckpointedFunction or ListCheckpointed."
    )

    operator_uid: str
    what: str


class OutputTypeError(MillpondError, TypeError):
    """A function yielded a row that does not fit the declared output.

    In a running operator it is the cause of a ``UserFunctionError``.

    Attributes:
        row: the beginning of the row that contains the value; empty if the row is the value.
        method, file, line: the place of the yield; empty and 0 if unknown.
        side_output: the tag's name; empty for the main output.
    """

    operator_uid: str
    column: str
    expected: str
    value: str
    reason: str = ""
    row: str = ""
    method: str = ""
    file: str = ""
    line: int = 0
    side_output: str = ""

    @override
    def sentence(self) -> str:
        return f"Operator {self.operator_uid!r}: {self.fault}"

    @property
    def fault(self) -> str:
        """The message without the operator."""
        why = f" ({self.reason})" if self.reason not in ("", self.value) else ""
        where = f", in the row {self.row}" if self.row else ""
        side = f"side output {self.side_output!r}, " if self.side_output else "output "
        return (
            f"{side}column {self.column!r} is declared {self.expected}, the function yielded "
            f"{self.value}{why}{where}."
        )


class UnknownColumnError(MillpondError, KeyError, ValueError):
    """A row has no column of a name; a KeyError as for a dict, a ValueError as for Spark's rows.

    Attributes:
        columns: the columns of the row.
        suggestion: the column with the most similar name, if any.
    """

    column: str
    columns: tuple[str, ...]
    suggestion: str | None = None

    @override
    def sentence(self) -> str:
        there = ", ".join(self.columns)
        there = there if len(there) <= _LONGEST_LIST else f"{there[:_LONGEST_LIST]}…"
        meant = hint(self.suggestion)
        return f"The row has no column {self.column!r}.{meant} Its columns are: {there}."


class UnsupportedColumnError(MillpondError, TypeError):
    """A column has a Spark type that cannot pass through an operator without loss."""

    message = "Column {column!r} of type {spark_type}: {reason}. Cast or drop it."

    column: str
    spark_type: str
    reason: str = "this type cannot be carried to Python without loss"


class WindowRangeError(MillpondError, ValueError):
    """A row's window begins or ends outside the range of 64-bit times.

    Attributes:
        time: the row's time in ms.
        start: the window's first time.
        end: the first time after the window.
    """

    message = (
        "The window from {start} to {end} ms, of a row at {time} ms, exceeds "
        "the range of 64-bit times. Correct the row's time, or filter such rows."
    )

    time: int
    start: int
    end: int


class WindowStateError(MillpondError):
    """A function requested state of a single window, but the windows merge."""

    message = (
        "State {state!r} of a single window is not allowed with {assigner}, whose "
        "windows merge: a merged window would lose it. Use global_state, or the contents of the "
        "window."
    )

    state: str
    assigner: str


class SeveralOperatorsError(MillpondError):
    """A streaming query has several operators, which Spark's check refuses.

    Attributes:
        uids: the uids of the known operators.
        session: ``classic``, or ``connect`` over Spark Connect.
    """

    uids: tuple[str, ...]
    session: str = "classic"

    @override
    def sentence(self) -> str:
        names = f" ({', '.join(map(repr, self.uids))})" if self.uids else ""
        cure = (
            "Over Spark Connect this cannot be allowed: divide it into queries of one operator each"
            if self.session == "connect"
            else "To allow it for this query alone, start it in a block "
            "`with millpond.spark.several_operators():`; or divide it into queries of one "
            "operator each"
        )
        return (
            f"The query has {len(self.uids) or 'several'} of Millpond's operators{names}, and "
            "Spark's check of streaming queries refuses any two of their kind, even if the query "
            f"is correct. {cure}."
        )


class OutputModeError(MillpondError):
    """A query was started in an output mode that does not fit one of its operators.

    Attributes:
        operator_mode: the operator's mode; empty if the query's mode is neither append nor update.
        query_mode: the query's mode.
    """

    operator_uid: str
    operator_mode: str
    query_mode: str

    @override
    def sentence(self) -> str:
        uid, own, other = self.operator_uid, self.operator_mode, self.query_mode
        if not own:
            return (
                f"The query is started with outputMode({other!r}), and operator {uid!r} gives "
                "rows, not tables: start it with outputMode('append'), or with 'update' if "
                "process(..., output_mode='update') makes the operator."
            )
        return (
            f"The query is started with outputMode({other!r}), and operator {uid!r} is made for "
            f"{own!r}: make it by process(..., output_mode={other!r}), or start the query with "
            f"outputMode({own!r})."
        )


class UnsupportedQueryError(MillpondError):
    """A query runs without Spark's check, which would refuse it with reason."""

    message = (
        "Spark does not support such a query: {reason}. Its check of streaming queries "
        "was off, or it would have refused it; without it the output would be wrong."
    )

    reason: str
