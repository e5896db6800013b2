"""Functions that call other services, and process other rows while they wait for an answer."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Awaitable, Generator, Iterable
from datetime import timedelta
from typing import Any, Generic, TypeAlias

from typing_extensions import TypeVar, override

from millpond.errors import ArgumentTypeError, ArgumentValueError, brief
from millpond.functions.functions import Context, KeyedFunction, KeylessFunction, ProcessContext
from millpond.functions.user_code import result_error, rows_of

K = TypeVar("K", default=Any)
T = TypeVar("T", default=Any)
IN = TypeVar("IN", default=Any)
OUT = TypeVar("OUT", default=Any)

RowsAndCalls: TypeAlias = Generator[T | Awaitable[Any], Any, None] | Iterable[T] | None
"""The result of an asynchronous function: output rows and awaitables, or a list of rows, or None.

The awaitables are calls: the ``yield`` of an awaitable returns its result.
"""


_PLAIN = (int, float, str, timedelta, type(None))
"""Types of settings that are checked when a class is defined."""


class AsyncCalls:
    """The settings and resources of a function that makes asynchronous calls.

    Attributes:
        capacity: the maximum number of calls at the same time.
        timeout: the longest time that a call may take; None for no limit. If a call takes longer,
            it is cancelled, and its ``yield`` raises ``TimeoutError``.
        ordered: whether the output has the order of the rows. Otherwise the output of a row
            follows as soon as the row is finished.
    """

    capacity: int = 100
    timeout: timedelta | None = timedelta(minutes=1)
    ordered: bool = True

    @override
    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        # Properties and fields of attrs have values in instances only.
        if all(isinstance(getattr(cls, name), _PLAIN) for name in AsyncCalls.__annotations__):
            check_settings(cls, cls.__qualname__)

    async def async_open(self) -> None:
        """Open resources of the calls, such as a client; called once per subtask, after ``open``.

        A client that needs a running event loop can be created here, but not in ``open``.
        """

    async def async_close(self) -> None:
        """Release the resources of the calls; called before ``close``, also after a failure."""


def check_settings(function: AsyncCalls | type[AsyncCalls], name: str) -> None:
    """Raise an error if a setting of an asynchronous function cannot be used.

    Args:
        function: the function or its class.
        name: the name of the class, for errors.
    """
    capacity, timeout, ordered = function.capacity, function.timeout, function.ordered
    if type(capacity) is not int or capacity < 1:
        raise ArgumentValueError(f"{name}.capacity", "an int of at least 1", brief(capacity))
    if timeout is not None and not isinstance(timeout, timedelta):
        raise ArgumentTypeError(f"{name}.timeout", "a timedelta or None", brief(timeout))
    if timeout is not None and timeout <= timedelta(0):
        raise ArgumentValueError(f"{name}.timeout", "more than zero", brief(timeout))
    if type(ordered) is not bool:
        raise ArgumentTypeError(f"{name}.ordered", "a bool", brief(ordered))


class KeyedAsyncFunction(AsyncCalls, KeyedFunction[K, OUT], Generic[K, IN, OUT]):
    """A keyed function whose calls to other services overlap.

    ``process_element`` and ``on_timer`` yield output rows, and awaitables such as coroutines. While
    an awaitable runs, rows of other keys are processed. Rows of the same key wait, so each key sees
    its rows one after the other, as in a ``KeyedProcessFunction``. The methods read and write state
    before and after a ``yield``; the coroutines cannot use state.

    Type checkers accept the types of the key, of the rows and of the output.
    """

    @abstractmethod
    def process_element(self, row: IN, context: Context[K]) -> RowsAndCalls[OUT]:
        """Handle a row of the current key.

        Yield output rows and awaitables: ``answer = yield self.fetch(row.url)``. If the awaitable
        raises an exception, the ``yield`` raises it.
        """


class AsyncFunction(AsyncCalls, KeylessFunction[OUT], Generic[IN, OUT]):
    """A function over rows without keys whose calls to other services overlap; Flink's name.

    Define ``async_invoke``. To use the result of several calls for a row, or to handle a timeout,
    override ``process_element`` too. Type checkers accept the types of the rows and of the output.
    """

    @abstractmethod
    async def async_invoke(self, row: IN) -> Iterable[OUT] | None:
        """Return the output rows of a row, as a list."""

    def process_element(self, row: IN, context: ProcessContext) -> RowsAndCalls[OUT]:  # type: ignore[return]  # of a generator
        """Handle a row: yield output rows and awaitables. By default, await ``async_invoke``."""
        call = self.async_invoke(row)
        if not isinstance(call, Awaitable):
            expected = "a coroutine that returns a list: use async def and return, without yield,"
            raise result_error(self.async_invoke, call, expected)
        rows = yield call
        if rows is not None:
            yield from rows_of(self.async_invoke, rows)
