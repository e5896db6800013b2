"""Every error that Millpond raises on purpose.

Each class carries its data as fields and can be pickled, because errors travel from Spark's workers
to the driver. The message says what was wrong, where, and what to do.
"""

from __future__ import annotations

from typing import Any, ClassVar

import attrs
from typing_extensions import dataclass_transform, override

_LONGEST = 20_000
"""The maximum length of a message, which may contain names and values of any length."""


@dataclass_transform(eq_default=False, field_specifiers=(attrs.field,))
@attrs.define(eq=False, slots=False)
class MillpondError(Exception):
    """The base class of all errors that Millpond raises on purpose.

    A subclass declares its data as annotated fields. attrs makes them the arguments of the
    constructor, so the error can be pickled. The text of the error is the template ``message``,
    filled with the fields; a subclass may override ``sentence`` instead. If the error has a field
    ``place`` that is not empty, the text begins with the place.
    """

    message: ClassVar[str] = "Millpond failed."

    @override
    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        attrs.define(cls, eq=False, slots=False)

    made_at = ""
    """The line of the user's program that created the failed operator; empty if the message already
    names a line of the user's code."""

    @override
    def __str__(self) -> str:
        place = getattr(self, "place", "")
        text = f"{place}: {self.sentence()}" if place else self.sentence()
        text = text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
        return printable(
            f"{text} (the operator is made at {self.made_at})" if self.made_at else text
        )

    def sentence(self) -> str:
        """Return the message, built from the fields."""
        return self.message.format_map(vars(self))


def _aside(reason: str) -> str:
    return f" ({reason})" if reason else ""


def _hint(suggestion: str | None) -> str:
    return f" Did you mean {suggestion!r}?" if suggestion else ""


def printable(text: str) -> str:
    """Return text with control and invisible characters escaped, except line ends and tabs.

    Messages contain names from untrusted files, which must not send commands to a terminal.
    """
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() or char in "\n\t" else ascii(char)[1:-1] for char in text
    )


def brief(value: Any, limit: int = 120) -> str:
    """Return the type and a short representation of a value for an error message."""
    return f"{type(value).__name__} {shown(value, limit)}"


def shown(value: Any, limit: int = 120) -> str:
    """Return the representation of a value, cut to ``limit`` characters."""
    try:
        text = f"{value!r}"
    except Exception as error:  # noqa: BLE001 - a user's __repr__ may do anything
        text = f"<repr failed: {said(error)}>"
    return text if len(text) <= limit else text[: limit - 1] + "…"


def said(error: BaseException) -> str:
    """Return the message of an exception, also if its ``__str__`` fails."""
    try:
        return str(error)
    except Exception as failure:  # noqa: BLE001 - a user's __str__ may do anything
        return f"<str failed: {type(failure).__name__}>"


# ---------------- arguments, configuration and tools


class _ArgumentError(MillpondError):
    message = "{parameter}: expected {expected}, got {given}."
    parameter: str
    expected: str
    given: str


class ArgumentTypeError(_ArgumentError, TypeError):
    """An argument is of a wrong type."""


class ArgumentValueError(_ArgumentError, ValueError):
    """An argument has the right type but cannot be used."""


UNPLACED = "configuration"
"""The initial ``ConfigError.place``, which ``OptionSource.locate`` replaces by the real source."""


class ConfigError(MillpondError, ValueError):
    """A configuration key or value cannot be used.

    Attributes:
        key: the key as it is written in its source, if that is known.
        place: the source: a file, Spark's configuration, a call.
    """

    key: str
    reason: str
    place: str = UNPLACED
    suggestion: str | None = None

    @override
    def sentence(self) -> str:
        return f"{self.key}: {self.reason}.{_hint(self.suggestion)}"


class PlaceError(MillpondError):
    """A command cannot use a directory or file that was named on the command line."""

    place: str
    reason: str

    @override
    def sentence(self) -> str:
        return self.reason if self.reason.endswith("?") else f"{self.reason}."


class JobError(MillpondError):
    """A job file, or a function that it names, failed because of the user's code.

    Attributes:
        what: the function or the file.
        reason: the error that the user's code raised, with its line if known.
    """

    message = "{what}: {reason}"

    what: str
    reason: str


# ---------------- users' functions and their rows


SHIP_MODULE = (
    "Install the module in the workers' Python, or send it with "
    "spark.sparkContext.addPyFile(path), over Spark Connect with "
    "spark.addArtifacts(path, pyfile=True)"
)
_LONGEST_LIST = 300
"""The length to which a message cuts a list of columns; a row may have a thousand columns."""


class UserFunctionError(MillpondError):
    """A user's function failed.

    Attributes:
        key: the representation of the current key, maybe shortened; empty without a key, as in
            ``open``.
        method: the called method with its class.
        reason: the type and message of the user's exception.
        row: the representation of the row; empty if there is none, as in ``on_timer``.
        file, line: the line of the user's code that raised the exception; empty and 0 if unknown.
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


class CallTimeoutError(MillpondError, TimeoutError):
    """An asynchronous call took longer than the function's ``timeout``.

    It is a ``TimeoutError``, which a function may catch around the ``yield`` of the call.

    Attributes:
        seconds: the timeout.
    """

    message = (
        "the call took longer than {seconds:g} s, which is the function's timeout: set another "
        "timeout, or catch TimeoutError around the yield of the call."
    )

    seconds: float


class OperatorNotLoadedError(MillpondError):
    """A worker cannot import the code of an operator.

    Attributes:
        function: the class of the user's function.
        reason: the type and message of Python's exception.
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
    """A function of ``foreachBatch`` failed because one of Millpond's operators failed.

    Attributes:
        batch_id: the micro-batch.
        reason: the type and message of the operator's error.
        file, line: the line of the function that ran the operator; empty and 0 if unknown.
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
    """A user's method returned an invalid result, such as a single value instead of rows.

    Attributes:
        method: the method.
        file, line: the first line of the method; empty and 0 if it is not written in Python.
        value: the representation of the result.
        expected: ``rows``, ``tables`` for a vectorized function, or a description of another
            expected result, such as a TriggerResult.
    """

    method: str
    file: str
    line: int
    value: str
    expected: str = "rows"

    @override
    def sentence(self) -> str:
        cures = {
            "rows": " instead of rows: yield each row, or return a list of rows,",
            "tables": " instead of tables: return a RecordBatch, a Table or a DataFrame, or yield "
            "several,",
        }
        cure = cures.get(self.expected, f": return {self.expected}")
        return f"it returned {self.value}{cure} from {self.method}."


class EndlessTimersError(MillpondError):
    """Due timers set further due timers without end.

    Attributes:
        timestamp: the time in ms of the last timer.
        limit: the number of such timers in a row after which the error is raised.
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
    """A window or a function needs the event time of a row, but the row has no event time."""

    message = (
        "The row has no event time: no column of event time is named (event_time= of process, "
        "or withWatermark before key_by), or that column is null in this row. Filter such rows "
        "before the operator."
    )


class HarnessNotOpenError(MillpondError):
    """A method of a KeyedOperatorHarness was called outside of the harness's ``with`` block."""

    message = (
        "{method}() needs the function to be open: use the harness as a context manager, "
        "with KeyedOperatorHarness(...) as harness, and inside of that block."
    )

    method: str


class NoKeysError(MillpondError):
    """A function over rows without keys requested keyed state or timers.

    Attributes:
        what: the state or the timers that were requested.
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

    In a running operator this error is the cause of a ``UserFunctionError``.

    Attributes:
        column: the column of the output.
        expected: the declared type of the column.
        value: the representation of the value.
        row: the beginning of the row that contains the value; empty if the row is the value.
        method, file, line: the ``yield`` of the row; empty and 0 if unknown.
        side_output: the name of the side output; empty for the main output.
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
    """A row has no column of the requested name.

    The error is a KeyError, like that of a dict, and a ValueError, like that of Spark's rows.

    Attributes:
        columns: the columns of the row.
        suggestion: the column with the most similar name; None if no name is similar.
    """

    column: str
    columns: tuple[str, ...]
    suggestion: str | None = None

    @override
    def sentence(self) -> str:
        there = ", ".join(self.columns)
        there = there if len(there) <= _LONGEST_LIST else f"{there[:_LONGEST_LIST]}…"
        meant = _hint(self.suggestion)
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
        start: the first time of the window in ms.
        end: the first time after the window in ms.
    """

    message = (
        "The window from {start} to {end} ms, of a row at {time} ms, exceeds "
        "the range of 64-bit times. Correct the row's time, or filter such rows."
    )

    time: int
    start: int
    end: int


class WindowStateError(MillpondError):
    """A function requested the state of a single window in windows that merge, such as sessions."""

    message = (
        "State {state!r} of a single window is not allowed with {assigner}, whose "
        "windows merge: a merged window would lose it. Use global_state, or the contents of the "
        "window."
    )

    state: str
    assigner: str


# ---------------- queries on Spark


class SeveralOperatorsError(MillpondError):
    """A streaming query has several of Millpond's operators, and Spark's check refuses the query.

    Attributes:
        uids: the uids of the operators, as far as they are known.
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
    """A query was started in an output mode that one of its operators does not support.

    Attributes:
        operator_mode: the operator's output mode; empty if the query's mode is neither append nor
            update.
        query_mode: the query's output mode.
    """

    operator_uid: str
    operator_mode: str
    query_mode: str

    @override
    def sentence(self) -> str:
        uid, own, other = self.operator_uid, self.operator_mode, self.query_mode
        if not own:
            return (
                f"The query is started with outputMode({other!r}), and operator {uid!r} outputs "
                "rows, not whole tables: start it with outputMode('append'), or with 'update' if "
                "process(..., output_mode='update') makes the operator."
            )
        return (
            f"The query is started with outputMode({other!r}), and operator {uid!r} is made for "
            f"{own!r}: make it by process(..., output_mode={other!r}), or start the query with "
            f"outputMode({own!r})."
        )


class UnsupportedQueryError(MillpondError):
    """A query would give wrong results, and Spark's check, which would refuse it, is disabled."""

    message = (
        "Spark does not support this query: {reason}. Spark's check of streaming queries would "
        "have refused it, but the check is switched off. The output would be wrong."
    )

    reason: str


class NoWatermarkError(MillpondError):
    """An operator of a stream uses event time without a watermark.

    Attributes:
        what: the windows, timers or states that need a watermark.
        column: the operator's column of event time; empty if it has none.
    """

    operator_uid: str
    what: str
    column: str = ""

    @override
    def sentence(self) -> str:
        named = f"the event time {self.column!r}" if self.column else "the stream"
        column = repr(self.column) if self.column else "column"
        return (
            f"Operator {self.operator_uid!r}: {self.what} need a watermark, and {named} has none: "
            f"nothing would ever fire or expire. Call withWatermark({column}, delay) right before "
            "key_by. The output of another operator has no watermark, nor has a column that is "
            "computed or comes with the schema of a file; a union has that of its first side."
        )


class TimeModeError(MillpondError):
    """A function sets a timer of processing time on a stream with a watermark.

    The timer could fire late. If a stream has a watermark, Spark by default runs a batch without
    rows only when the watermark has moved.
    """

    message = (
        "Operator {operator_uid!r} sets a processing-time timer on a stream with a "
        "watermark. While no row comes, Spark runs no batch in which it could fire. Choose by "
        "process(..., time_mode=...): with 'processing-time' Spark runs batch after batch, "
        "and timers of both kinds fire; with 'event-time' the timer fires in the next batch, "
        "which comes with a row or a moved watermark."
    )

    operator_uid: str


class EventTimeChainError(MillpondError):
    """The query's only watermark does not fit an operator behind another operator.

    Attributes:
        behind: the operator before.
        later: the operator behind it, if `behind` follows a join of two streams; empty if there is
            a call of ``withWatermark`` on the output of `behind` instead.
        policy: Spark's policy for several watermarks.
    """

    behind: str
    later: str
    policy: str

    @override
    def sentence(self) -> str:
        if self.later:
            return (
                f"Operator {self.later!r} works by event time, and reads the output of operator "
                f"{self.behind!r}, which follows a join of two streams. The watermark behind the "
                "join is lower than that of the query, and Spark does not pass it on to "
                f"{self.later!r}, so rows would be late. Write the output of the join or of "
                f"{self.behind!r} to a table or topic, and start a second query that reads it, "
                "with a watermark of its own."
            )
        if self.policy == "max":
            fault = (
                f"A watermark is set on the output of operator {self.behind!r}, and another one "
                "before it. The query's one watermark is the higher of the two (the setting "
                "spark.sql.streaming.multipleWatermarkPolicy is max), so rows would be late "
                "behind the operator"
            )
        else:
            fault = (
                f"A watermark is set on the output of operator {self.behind!r}, and another one "
                "before it. The query's one watermark is the lower of the two, so it would wait "
                "for rows that are given only when it has moved"
            )
        return (
            f"{fault}. Leave out the second withWatermark: the next Millpond operator gets the "
            f"watermark of {self.behind!r}, so name only its event_time=. For other steps, write "
            f"the output of {self.behind!r} to a table or topic, and start a second query that "
            "reads it, with a watermark of its own."
        )


# ---------------- values, keys and state


class NullValueError(MillpondError, ValueError):
    """None was given instead of a value."""

    message = "{what} must not be None. Nothing was changed."

    what: str
    place: str = ""


class NullKeyError(NullValueError):
    """A row of a keyed stream has a null key."""

    operator_uid: str = ""
    columns: tuple[str, ...] = ()
    row: str = ""

    @override
    def sentence(self) -> str:
        return (
            f"Operator {self.operator_uid!r}: the key ({', '.join(self.columns)}) of this row is "
            f"null: {self.row}. Filter such rows, or choose null_keys='drop' or 'aside'."
        )


class StateTypeError(MillpondError, TypeError):
    """A value does not fit the declared type of its state."""

    expected: str
    value: str
    place: str = ""
    reason: str = ""

    @override
    def sentence(self) -> str:
        found = f"expected {self.expected}, got {self.value}{_aside(self.reason)}"
        return f"{found}. Nothing was changed."


class SerializerResultError(MillpondError, TypeError):
    """A serializer of a user or a plugin returned an invalid result.

    Attributes:
        serializer: the name of its class.
        method: the method that returned the result.
        expected: the expected result.
        found: the result.
        place: the state; empty for keys, or if unknown.
    """

    message = "{serializer}.{method} returned {found}; expected {expected}. Correct the serializer."

    serializer: str
    method: str
    expected: str
    found: str
    place: str = ""


class BulkCallError(MillpondError, ValueError):
    """The arguments of a call for many keys do not fit each other, or a key is not in the frame.

    A frame is the batch of rows that a vectorized function gets.

    Attributes:
        state: the state's name; empty if the call is not about a single state.
    """

    state: str
    reason: str

    @override
    def sentence(self) -> str:
        where = f"state {self.state!r}: " if self.state else ""
        return f"{where}{self.reason}. Nothing was changed."


class StateNameError(MillpondError, ValueError):
    """A state name is empty or reserved."""

    message = "The state name {name!r} is refused: {reason}. Choose another name."

    name: str
    reason: str


class StateConflictError(MillpondError):
    """One state name is used for two kinds of state, or in two ways."""

    message = (
        "The state {name!r} is registered as {registered} and was requested as "
        "{requested}. Use one name for one kind of state."
    )

    name: str
    registered: str
    requested: str


class StateMigrationError(MillpondError):
    """Stored state has another type than the declared one, and cannot be converted.

    Attributes:
        part: the part of the state with that type: ``value``, ``map key``, ``namespace`` or
            ``key``.
        field: the field of a structured type that cannot be converted; empty otherwise.
    """

    state: str
    part: str
    stored: str
    declared: str
    field: str = ""
    reason: str = ""

    @override
    def sentence(self) -> str:
        where = f", field {self.field!r}" if self.field else ""
        return (
            f"State {self.state!r}: its {self.part} type is stored as {self.stored}, declared is "
            f"{self.declared}{where}{_aside(self.reason)}. The stored data is unchanged: declare "
            "the stored type, or one it can become."
        )


class NoCurrentKeyError(MillpondError):
    """Keyed state was accessed without a current key."""

    message = (
        "The backend {backend!r} has no current key: call set_current_key() first, or in "
        "a vectorized function at(key) of the state."
    )

    backend: str


class BackendClosedError(MillpondError):
    """A backend was used after it was closed."""

    message = "The backend {backend!r} is closed. Open it again to go on."

    backend: str


class StateInCallError(MillpondError):
    """The coroutine of an asynchronous function used state or timers.

    Attributes:
        state: the name of an operator state; empty for keyed state and timers.
    """

    message = (
        "A coroutine of an asynchronous function cannot use state and timers{named}, because "
        "other rows are processed while it waits: use them in process_element, "
        "before or after the yield of the coroutine."
    )

    state: str = ""

    @override
    def sentence(self) -> str:
        named = f" (operator state {self.state!r})" if self.state else ""
        return self.message.format(named=named)


class LateChangeError(MillpondError):
    """Operator state was changed in ``close``, after the last snapshot."""

    message = (
        "Operator state {state!r} cannot be changed in close: it comes after the last "
        "snapshot, so the change would be lost. Change it in snapshot_state, or before."
    )

    state: str


class BackendFailedError(MillpondError):
    """A backend failed while it wrote. Its state may be incomplete; the backend must be closed."""

    message = (
        "the backend {backend!r} has failed for good: {cause}. Its state may be incomplete: close "
        "it, and restore the last snapshot into another backend."
    )

    backend: str
    cause: str
    place: str = ""


class KeyGroupRangeError(MillpondError, ValueError):
    """A key group, a parallelism or a range of key groups is out of bounds."""

    message = "{reason}."

    reason: str


class MaxParallelismError(MillpondError):
    """A snapshot has another number of key groups than requested."""

    message = (
        "The snapshot has max-parallelism {stored}, {requested} was requested. The value "
        "is fixed for the life of the state: set max-parallelism = {stored}, and a parallelism "
        "of at most {stored}."
    )

    stored: int
    requested: int


# ---------------- snapshots and restore


class CorruptSnapshotError(MillpondError):
    """A file of a snapshot is damaged, missing or not a snapshot."""

    message = "The snapshot file {file!r} cannot be trusted: {reason}."

    file: str
    reason: str


class DirectoryNotEmptyError(MillpondError):
    """The directory of a new savepoint already contains files."""

    path: str
    found: tuple[str, ...]
    unfinished: str = ""

    @override
    def sentence(self) -> str:
        return (
            f"A savepoint needs a directory of its own, and {self.path!r} already holds "
            f"{', '.join(map(repr, self.found))}: "
            f"{self.unfinished or 'name a new directory, or empty this one'}."
        )


class RestoreError(MillpondError):
    """State could not be restored from any of its sources."""

    what: str
    causes: tuple[str, ...] = ()

    @override
    def sentence(self) -> str:
        if not self.causes:
            return super().sentence()
        return f"Could not restore {self.what}: " + "; ".join(self.causes)


class ApiVersionError(RestoreError):
    """A file has a format version that only a newer Millpond can read."""

    message = (
        "{what} has format version {found}, this Millpond reads up to "
        "{supported}: upgrade millpond."
    )

    found: int = 0
    supported: int = 0


class IncompleteCheckpointError(RestoreError):
    """A subtask's folder has files of a checkpoint but lacks the checkpoint's metadata file."""

    message = (
        "{what} is incomplete: {folder!r} has files of checkpoint {checkpoint_id} but no metadata "
        "file for them, because it is not written yet, was never written, or is lost: wait, or "
        "name an earlier checkpoint."
    )

    folder: str = ""
    checkpoint_id: int = 0


class NotInSavepointError(RestoreError):
    """A savepoint lacks the requested operator, or an operator lacks the requested state.

    Attributes:
        what: the searched savepoint or operator.
        kind: ``operator`` or ``state``.
        name: the missing name.
        known: the existing names.
        suggestion: the existing name that is most similar.
    """

    kind: str = ""
    name: str = ""
    known: tuple[str, ...] = ()
    suggestion: str | None = None

    @override
    def sentence(self) -> str:
        there = ", ".join(map(repr, self.known)) or "none"
        missing = f"{self.what} has no {self.kind} {self.name!r}"
        return f"{missing}; there are: {there}.{_hint(self.suggestion)}"


class SnapshotTooLargeError(MillpondError):
    """A file of a snapshot or savepoint is not written, because a reader would refuse its size.

    Attributes:
        path: the file.
        limit: the maximum size of the file in bytes, or the maximum memory for reading the file.
        state: the state whose rows exceed the limit; empty if unknown.
        cure: how to raise the limit or to remain below it.
    """

    path: str
    limit: int
    state: str = ""
    cure: str = "raise max-file-bytes, or set checkpoint.dir to a directory"

    @override
    def sentence(self) -> str:
        whose = f" with state {self.state!r}" if self.state else ""
        return (
            f"The file {self.path!r}{whose} is not written: it exceeds {self.limit:,} bytes, so "
            f"that no restart could read it: {self.cure}."
        )


class StorageAccessError(MillpondError):
    """A file of a checkpoint directory or savepoint cannot be read or written now.

    The file is not damaged: the disk is full, for example, or a permission is missing. ``cure`` is
    the advice in the message.
    """

    message = "The file {path!r} cannot be written or read: {reason}. {cure}."

    path: str
    reason: str
    cure: str


class UnclaimedStateError(RestoreError):
    """The checkpoint or savepoint has state of operators that the query does not have."""

    uids: tuple[str, ...] = ()
    operators: tuple[str, ...] = ()

    @override
    def sentence(self) -> str:
        names = ", ".join(map(repr, self.uids))
        have = ", ".join(map(repr, self.operators))
        return (
            f"{self.what} holds state of {names}, but the query's operators are {have}. An "
            "operator finds its state by its uid: give the operator its old uid, or set "
            "spark.millpond.checkpoint.ignore-unclaimed-state = true to discard that state."
        )


class UnsettledStartError(RestoreError):
    """Over Spark Connect, a query cannot continue until the user has run ``command``."""

    message = "{what} cannot continue: {reason}. While the query is stopped, run: {command}"

    reason: str = ""
    command: str = ""


# ---------------- local stores


class _StoreError(MillpondError):
    backend: str
    directory: str


class DirectoryInUseError(_StoreError):
    """A backend cannot be opened: another open backend works in its directory."""

    message = (
        "The backend {backend!r} cannot be opened in {directory}: another open "
        "backend, of this process or another one, works there. Close that one, or give each "
        "a directory of its own."
    )


class StoreFullError(_StoreError):
    """A local store cannot grow any further."""

    message = (
        "The backend {backend!r} cannot grow its store in {directory}: "
        "{reason}. Raise the memory or disk limit, or use more subtasks."
    )

    reason: str


class StoreAccessError(_StoreError):
    """The operating system denies access to a backend's directory; ``cure`` is advice for users."""

    message = "The backend {backend!r} cannot use its store in {directory}: {reason}. {cure}."

    reason: str
    cure: str


class StoreDamagedError(_StoreError):
    """A local store has other content than the backend wrote."""

    message = (
        "The backend {backend!r} found its store in {directory} damaged: "
        "{reason}. It is a copy: restore the state from its last snapshot, as a "
        "restarted query does by itself, and check the disk."
    )

    reason: str


class TooManyStatesError(MillpondError):
    """A store or a snapshot cannot take another state.

    Attributes:
        backend: the name of the backend whose store is full; empty if a snapshot is full.
        state: the state that exceeds the limit.
        limit: the highest number of states.
        option: the configuration key that sets the limit.
    """

    backend: str
    state: str
    limit: int
    option: str

    @override
    def sentence(self) -> str:
        holder = f"the backend {self.backend!r}" if self.backend else "a snapshot"
        return (
            f"State {self.state!r}: {holder} keeps at most {self.limit:,} states of a subtask. "
            f"Raise {self.option}, or keep several things in one state."
        )


# ---------------- plugins


class PluginError(MillpondError):
    """A plugin cannot be used."""

    name: str
    place: str = attrs.field(default="", init=False)
    """The source and key of the option that names the plugin; empty if no option does."""


class PluginNotFoundError(PluginError, LookupError):
    """No installed plugin has this name."""

    installed: tuple[str, ...] = ()
    suggestion: str | None = None
    known_distribution: str | None = None

    @override
    def sentence(self) -> str:
        have = ", ".join(self.installed) or "none"
        text = f"No state backend is called {self.name!r}; installed are: {have}."
        text += _hint(self.suggestion)
        if self.known_distribution:
            text += f" Install it with: pip install {self.known_distribution}"
        elif not self.suggestion:
            text += " Install the plugin that provides it, or name it as 'module:attr'."
        return text


class PluginLoadError(PluginError):
    """A plugin is installed but could not be imported."""

    message = (
        "The plugin {name!r} of {distribution} {version} ({target}) is "
        "installed but could not be loaded: {reason}. Reinstall {distribution} "
        "with its dependencies, or block it with plugins.block = {name}."
    )

    distribution: str
    version: str
    target: str
    reason: str


class PluginIncompatibleError(PluginError):
    """A plugin was built for another version of the plugin interface."""

    distribution: str
    version: str
    plugin_api: int
    core_api: int

    @override
    def sentence(self) -> str:
        older = self.plugin_api < self.core_api
        cure = f"upgrade {self.distribution}" if older else "upgrade millpond"
        return (
            f"The plugin {self.name!r} of {self.distribution} {self.version} speaks plugin API "
            f"{self.plugin_api}, this Millpond speaks {self.core_api}: {cure}."
        )


class PluginBlockedError(PluginError):
    """A plugin is installed, but the configuration forbids it."""

    message = "The plugin {name!r} is blocked by {rule}. Change that rule to use it."

    rule: str


class PluginConflictError(PluginError):
    """Two distributions provide a plugin of the same name."""

    distributions: tuple[str, ...]

    @override
    def sentence(self) -> str:
        both = " and ".join(self.distributions)
        return (
            f"The plugin name {self.name!r} is provided by {both}. Uninstall one of them, or name "
            f"the one to use as {self.name}@DISTRIBUTION."
        )


class BackendMismatchError(PluginError):
    """A worker has another version of a plugin than the driver resolved."""

    message = (
        "The driver resolved the backend {name!r} to {expected}, this worker has "
        "{found}. Install the same version on every node."
    )

    expected: str
    found: str


class UnsupportedCapabilityError(MillpondError, NotImplementedError):
    """A backend was asked for a capability that it does not declare."""

    message = (
        "The backend {backend!r} does not support {capability!r}. "
        "`millpond backends` lists the capabilities of each backend."
    )

    backend: str
    capability: str
