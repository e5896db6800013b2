"""Dead letters: the rows that a function cannot process, in a side output instead of an error."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, get_args

import attrs

from millpond.errors import (
    CallTimeoutError,
    ConfigError,
    MillpondError,
    NoEventTimeError,
    UserFunctionError,
    brief,
    printable,
    shown,
)
from millpond.functions.functions import INPUTS, OperatorFunction
from millpond.functions.side_outputs import OutputTag
from millpond.functions.user_code import format_users_frames
from millpond.functions.vectorized import VectorizedProcessFunction
from millpond.types import VOID_NAMESPACE

OnError = Literal["fail", "side_output"]
"""The treatment of a row whose ``process_element`` raises an exception."""

NullEventTimes = Literal["refuse", "drop", "side_output"]
"""The treatment of a row whose event time is null."""

_LONGEST = 10_000
_OF_A_VALUE = (TypeError, ValueError, LookupError, NoEventTimeError, CallTimeoutError)


class DeadLetter(NamedTuple):
    """A row of the side output ``DEAD_LETTERS``: a row that was not processed, and the reason.

    Attributes:
        operator: the operator's uid.
        key: the current key as text; None without keys.
        method: the called method with its class.
        error: the type and message of the exception.
        traceback: the exception as Python shows it, without frames of Millpond and Spark; None for
            a row whose event time is null.
        row: the row; None if it is a row of the second input.
        second_row: the row of the second input; else None. On Spark, operators with one input do
            not have this column.
    """

    operator: str
    key: str | None
    method: str
    error: str
    traceback: str | None
    row: Any
    second_row: Any = None


DEAD_LETTERS: OutputTag[DeadLetter] = OutputTag("dead_letters")
"""The side output of the rows that an operator cannot process.

``on_error="side_output"`` and ``null_event_times="side_output"`` put rows into this side output, as
instances of ``DeadLetter``. On Spark the columns are the fields of ``DeadLetter``, and ``row`` is a
struct of the input's columns.
"""


@attrs.frozen
class RowFaults:
    """The treatment of rows that a function cannot process.

    Attributes:
        on_error: the treatment of a row whose ``process_element`` raises an exception.
        null_event_times: the treatment of a row whose event time is null.
        timed: the methods whose rows have event times.
        taken: whether the job reads the side output. If it does not, such a row fails the job.
    """

    on_error: OnError = "fail"
    null_event_times: NullEventTimes = "refuse"
    timed: frozenset[str] = frozenset()
    taken: bool = True

    @property
    def has_letters(self) -> bool:
        """Whether there may be dead letters."""
        return "side_output" in (self.on_error, self.null_event_times)

    def check(self, function: OperatorFunction[Any], place: str) -> None:
        """Raise an error if an argument is wrong, or if the function does not get single rows.

        Args:
            function: the user's function.
            place: the call, for errors.

        Raises:
            ConfigError: an argument has an unknown value, the function is vectorized, or no input
                has an event time.
        """
        options = {"on_error": OnError, "null_event_times": NullEventTimes}
        for name, values in options.items():
            given = getattr(self, name)
            if not isinstance(given, str) or given not in get_args(values):
                reason = f"expected one of {', '.join(get_args(values))}, got {brief(given)}"
                raise ConfigError(name, reason, place)
            if given != get_args(values)[0] and isinstance(function, VectorizedProcessFunction):
                reason = "a vectorized function gets frames instead of single rows"
                raise ConfigError(name, reason, place)
        if self.null_event_times != "refuse" and not self.timed:
            reason = "no input has event times: name the column as event_time="
            raise ConfigError("null_event_times", reason, place)


DEFAULT_FAULTS = RowFaults()

UNTAKEN = (
    "The row would be a dead letter, but nothing takes the side output: use "
    "with_side_outputs(mp.DEAD_LETTERS)."
)
"""The note that is added to the error for a row if the job does not read the side output."""


def is_fault_of_row(error: BaseException) -> bool:
    """Return whether the row may have caused an exception of ``process_element``.

    The row cannot have caused an interrupt, a lack of memory, or an error of Millpond that is not
    about a value.
    """
    if isinstance(error, MillpondError):
        return isinstance(error, _OF_A_VALUE)
    return isinstance(error, Exception) and not isinstance(error, MemoryError)


def dead_letter(failure: UserFunctionError, method: str, key: Any, row: Any) -> DeadLetter:
    """Return the dead letter of a row.

    Args:
        failure: the error that would fail the job.
        method: the function's method that got the row.
        key: the key; None or ``VOID_NAMESPACE`` without keys.
        row: the row.
    """
    cause = failure.__cause__
    second = method == INPUTS[1]
    name = key if isinstance(key, str) else shown(key, _LONGEST)
    return DeadLetter(
        operator=failure.operator_uid,
        key=None if key is None or key is VOID_NAMESPACE else _text(name),
        method=failure.method,
        error=_text(failure.reason),
        traceback=None if cause is None else _text(format_users_frames(cause)),
        row=None if second else row,
        second_row=row if second else None,
    )


def _text(text: str) -> str:
    """Return a text that every sink can store: shortened, without control characters."""
    return printable(text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…")
