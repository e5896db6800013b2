"""The operator of asynchronous functions: the calls of different rows overlap."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from types import GeneratorType
from typing import Any, NamedTuple, TypeVar

import attrs
from typing_extensions import override

from millpond.arguments import unstarted_kind
from millpond.backend.journal import Journal, RowChanges
from millpond.backend.timer_queue import Timer
from millpond.clock import NoRow
from millpond.errors import CallTimeoutError, ConfigError, StateInCallError, UserFunctionError
from millpond.functions.async_functions import check_settings
from millpond.functions.functions import Context, KeylessFunction, ProcessContext
from millpond.functions.timer_service import TimeDomain
from millpond.functions.user_code import check_row, result_error, rows_of
from millpond.operator.failures import users_method_behind
from millpond.operator.operators import KeyedOperator, KeyedRow

T = TypeVar("T")

_HELD_ROWS = 10_000
"""The maximum number of rows that wait: for a call, for their key, or for their turn of output."""


class Outcome(NamedTuple):
    """The result of a call, or the exception that the call has raised."""

    result: Any = None
    error: BaseException | None = None


_NO_CALL = Outcome()


# ---------------------------------------------------------------- the event loop


class CallLoop:
    """An event loop that runs calls only while the caller waits for one of them.

    So a call and the caller's code never run at the same time. The loop needs no thread, except for
    functions that calls pass to ``asyncio.to_thread``, and if another event loop runs in the
    caller's thread, as in notebooks.

    Args:
        threads: the maximum number of threads for ``asyncio.to_thread``.
    """

    def __init__(self, threads: int) -> None:
        self._runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
        self._loop = self._runner.get_loop()
        self._loop.set_default_executor(ThreadPoolExecutor(threads, "millpond-call"))
        self._calls: dict[asyncio.Task[Any], Any] = {}
        self._ended: deque[asyncio.Task[Any]] = deque()
        self._timers: dict[asyncio.Task[Any], asyncio.TimerHandle] = {}
        self._expired: dict[asyncio.Task[Any], float] = {}

    def __len__(self) -> int:
        """Return the number of calls that ``next_ended`` has not returned yet."""
        return len(self._calls)

    def start(self, call: Awaitable[Any], seconds: float | None, owner: Any) -> None:
        """Start a call, which must end within ``seconds``; ``next_ended`` returns its owner."""
        coroutine = call if isinstance(call, Coroutine) else _awaiting(call)
        task = self._loop.create_task(coroutine)
        self._calls[task] = owner
        task.add_done_callback(self._end)
        if seconds is not None:
            # Not yet: the caller's code may take longer than ``seconds`` before the call begins.
            self._loop.call_soon(self._limit, task, seconds)

    def _limit(self, task: asyncio.Task[Any], seconds: float) -> None:
        if not task.done():
            self._timers[task] = self._loop.call_later(seconds, self._expire, task, seconds)

    def _expire(self, task: asyncio.Task[Any], seconds: float) -> None:
        self._expired[task] = seconds
        task.cancel()

    def _end(self, task: asyncio.Task[Any]) -> None:
        if task in self._timers:
            self._timers.pop(task).cancel()
        self._ended.append(task)
        self._loop.stop()

    def next_ended(self) -> tuple[Any, Outcome]:
        """Wait until a call has ended, and return its owner and its outcome."""
        self._wait_for(1)
        task = self._ended.popleft()
        owner, seconds = self._calls.pop(task), self._expired.pop(task, None)
        if task.cancelled() and seconds is not None:
            return owner, Outcome(error=CallTimeoutError(seconds))
        if task.cancelled():
            return owner, Outcome(error=RuntimeError("the call was cancelled"))
        error = task.exception()
        return owner, Outcome(error=error) if error is not None else Outcome(task.result())

    def _wait_for(self, count: int) -> None:
        """Wait until ``count`` calls have ended."""
        while len(self._ended) < count:
            # sys.exit() in a call is the outcome of this call.
            with suppress(SystemExit):
                self._without_other_loop(self._loop.run_forever)

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine and return its result. No call may be running."""
        return self._without_other_loop(lambda: self._loop.run_until_complete(coroutine))

    def cancel(self) -> list[Any]:
        """Cancel all calls, wait until they have ended, and return their owners."""
        for task in self._calls:
            task.cancel()
        self._wait_for(len(self._calls))
        for task in self._calls:
            if not task.cancelled():
                task.exception()  # otherwise asyncio would log the exception
        owners = list(self._calls.values())
        self._calls.clear()
        self._ended.clear()
        return owners

    def close(self) -> None:
        """Cancel all tasks that calls have left, wait for the threads, and close the loop."""
        self._without_other_loop(self._runner.close)

    def _without_other_loop(self, action: Callable[[], T]) -> T:
        """Call a function that runs the loop, in a thread in which no other loop runs."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            is_running = False
        else:
            is_running = True
        if not is_running:  # not within ``except``, which would be the context of users' errors
            return action()
        with ThreadPoolExecutor(1) as helper:
            return helper.submit(action).result()


async def _awaiting(call: Awaitable[Any]) -> Any:
    return await call


# ---------------------------------------------------------------- the operator


@attrs.define(eq=False)
class _Entry:
    """A row or a timer that is being processed, or that waits for its key.

    Attributes:
        method: the function's method that processes it.
        argument: the first argument of the method: the row, or the timer's timestamp.
        group: the key group.
        context: the second argument of the method. Calls may keep it, so each entry has its own.
        address: the encoded key; None in a function without keys.
        now_ms: the time for TTL of event time.
        steps: the generator of output rows and calls; None before the method is called.
        is_checked: whether the output rows are checked one by one.
        output: the output rows so far.
        is_finished: whether all output rows are known.
        changes: the changes of state before the call that the entry waits for, with dead letters.
    """

    method: str
    argument: Any
    group: int
    context: Any
    address: bytes | None
    now_ms: int
    steps: Generator[Any, Any, None] | None = None
    is_checked: bool = False
    output: list[Any] = attrs.field(factory=list)
    is_finished: bool = False
    changes: RowChanges | None = None

    @property
    def is_row(self) -> bool:
        """Whether the entry is a row."""
        return self.method != "on_timer"

    @property
    def key(self) -> Any:
        """The key; None in a function without keys."""
        return getattr(self.context, "current_key", None)


class AsyncOperator(KeyedOperator):
    """Runs a function that makes asynchronous calls.

    A row whose call runs is suspended at the ``yield`` of the call, and the operator processes rows
    of other keys. It processes a row of the same key when the earlier row is finished. So for each
    key, state and output are the same as without overlap.
    """

    def __init__(self, function: Any, *arguments: Any, **options: Any) -> None:
        super().__init__(function, *arguments, **options)
        check_settings(function, type(function).__qualname__)
        self._keyed = not isinstance(function, KeylessFunction)
        timeout = function.timeout
        self._seconds = None if timeout is None else timeout.total_seconds()
        self._loop: CallLoop  # made by ``open``
        self._has_opened = False
        self._waiting: dict[bytes, deque[_Entry]] = {}  # by the keys of unfinished entries
        self._in_order: deque[_Entry] = deque()
        self._held = 0

    # ---------------------------------------------------------------- from open to close

    @override
    def open(self) -> None:
        self._loop = CallLoop(self._function.capacity)
        super().open()
        self._has_opened = True
        with self._calling("async_open"), self._refusing_state():
            self._loop.run(self._function.async_open())

    @override
    def close(self) -> None:
        try:
            if self._has_opened:
                self._abandon()
                with self._calling("async_close"), self._refusing_state():
                    self._loop.run(self._function.async_close())
        finally:
            try:
                super().close()
            finally:
                self._loop.close()

    def _abandon(self) -> None:
        """Cancel all calls, and close the rows that wait for them."""
        with self._refusing_state():
            for entry in self._loop.cancel():
                with suppress(Exception):  # an earlier error is the cause of the end
                    entry.steps.close()
        self._waiting.clear()
        self._in_order.clear()

    @contextmanager
    def _refusing_state(self) -> Iterator[None]:
        """Let every use of state and timers in the ``with`` block raise StateInCallError."""
        with (
            self._backend.current.refusing(StateInCallError),
            self._operator_state.refusing_changes(StateInCallError),
        ):
            yield

    # ---------------------------------------------------------------- rows and timers

    @override
    def _process_rows(self, rows: Iterable[KeyedRow], output: list[Any], method: str) -> None:
        for key, group, row, timestamp in rows:
            self._admit(self._entry(method, key, group, row, timestamp), output)

    @override
    def _process_each(
        self, journal: Journal, rows: Iterable[KeyedRow], output: list[Any], method: str
    ) -> None:
        self._process_rows(rows, output, method)

    @override
    def advance_watermark(self, timestamp: int, output: list[Any]) -> None:
        # As in Flink, the watermark does not overtake rows.
        self.drain(output)
        super().advance_watermark(timestamp, output)

    @override
    def _fire(self, due: Iterable[Timer], domain: TimeDomain, output: list[Any]) -> None:
        by_event = domain is TimeDomain.EVENT_TIME
        now = self.timers.current_processing_time()
        while self._fire_once(due, domain, output):
            # The last calls may have set timers that are due too.
            limit = self.timers.current_watermark() if by_event else now - 1
            due = self.timers.due(domain, limit)

    def _fire_once(self, due: Iterable[Timer], domain: TimeDomain, output: list[Any]) -> bool:
        """Fire due timers, wait for their calls, and return whether there were any timers."""
        has_fired, last = False, 0
        for timer in due:
            if not has_fired and len(self._loop):
                # The rows that run may still delete this timer, or set an earlier one.
                self._put_back(timer, domain)
                self.drain(output)
                continue
            is_later = has_fired and timer.timestamp != last
            if is_later and len(self._loop) and self._keeps_event_time():
                # The timer would raise the event time, by which entries of other keys expire.
                self._put_back(timer, domain)
                self.drain(output)
                continue
            has_fired, last = True, timer.timestamp
            if domain is TimeDomain.EVENT_TIME:
                self._event_time.advance(timer.timestamp)
            entry = self._entry(
                "on_timer", timer.key, timer.key_group, timer.timestamp, timer.timestamp
            )
            entry.context.time_domain, entry.context.namespace = domain, timer.namespace
            if entry.address in self._waiting:
                # An earlier timer of the key may still delete this one.
                self._put_back(timer, domain)
                while entry.address in self._waiting:
                    self._finish_call(output)
                continue
            self.timers_fired += 1
            self._admit(entry, output)
        if has_fired:
            self.drain(output)
        return has_fired

    def _keeps_event_time(self) -> bool:
        """Return whether a state has TTL of event time."""
        return any(meta.watermark is not None for meta in self._backend.states.metas())

    def _put_back(self, timer: Timer, domain: TimeDomain) -> None:
        self._backend.current.select(timer.key, timer.key_group)
        self.timers.put_back(domain, timer)

    def _entry(
        self, method: str, key: Any, group: int, argument: Any, timestamp: int | None
    ) -> _Entry:
        now_ms = self._event_time.now_ms
        given: dict[str, Any] = {"timers": self.timers, "operator_state": self._operator_state}
        if not self._keyed:
            context: ProcessContext = ProcessContext(timestamp, **given)
            return _Entry(method, argument, group, context, None, now_ms)
        context = Context(timestamp, current_key=key, **given)
        address = self._backend.current.codec.encode(key)
        return _Entry(method, argument, group, context, address, now_ms)

    @override
    def drain(self, output: list[Any]) -> None:
        while len(self._loop):
            self._finish_call(output)

    def _finish_call(self, output: list[Any]) -> None:
        """Wait until a call has ended, and continue the row that waits for it."""
        with self._refusing_state():
            entry, outcome = self._loop.next_ended()
        self._proceed(entry, outcome, output)

    def _admit(self, entry: _Entry, output: list[Any]) -> None:
        """Process an entry until its first call, or let it wait for its key."""
        while len(self._loop) >= self._function.capacity or self._held >= _HELD_ROWS:
            self._finish_call(output)
        self._held += 1
        if self._function.ordered:
            self._in_order.append(entry)
        if entry.address is not None:
            waiting = self._waiting.get(entry.address)
            if waiting is not None:
                waiting.append(entry)
                return
            self._waiting[entry.address] = deque()
        self._proceed(entry, _NO_CALL, output)

    def _proceed(self, entry: _Entry | None, outcome: Outcome, output: list[Any]) -> None:
        """Process an entry until its next call; if it ends, also the entries that wait for its key.

        Args:
            entry: the entry.
            outcome: the outcome of the call that the entry waits for.
            output: gets the output rows that are next.
        """
        while entry is not None:
            call = self._next_call(entry, outcome)
            if call is not None:
                self._loop.start(call, self._seconds, entry)
                return
            entry.is_finished = True
            self._put_out(entry, output)
            entry, outcome = self._next_of_key(entry), _NO_CALL

    def _put_out(self, entry: _Entry, output: list[Any]) -> None:
        """Append the rows of a finished entry to ``output``, or of all entries whose turn it is."""
        if not self._function.ordered:
            self._held -= 1
            output.extend(entry.output)
        while self._in_order and self._in_order[0].is_finished:
            self._held -= 1
            output.extend(self._in_order.popleft().output)

    def _next_of_key(self, entry: _Entry) -> _Entry | None:
        """Return the entry that waits for the end of ``entry``, which has the same key, or None."""
        if entry.address is None:
            return None
        waiting = self._waiting[entry.address]
        if waiting:
            return waiting.popleft()
        del self._waiting[entry.address]
        return None

    # ---------------------------------------------------------------- one entry

    def _next_call(self, entry: _Entry, outcome: Outcome) -> Awaitable[Any] | None:
        """Process an entry until its next call, and return the call; None at the entry's end.

        If the entry fails and has dead letters, undo its changes of state and end the entry.
        """
        self._context = entry.context
        by_clock = getattr(entry.context, "time_domain", None) is TimeDomain.PROCESSING_TIME
        self._event_time.row = NoRow() if by_clock else entry.context
        self._event_time.now_ms = entry.now_ms
        if self._keyed:
            self._backend.current.select(entry.key, entry.group)
        journal = self._journal if entry.is_row else None
        if journal is None:
            return self._run(entry, outcome)
        if entry.changes is None:
            journal.begin()
        else:
            journal.resume(entry.changes)
        try:
            call = self._run(entry, outcome)
        except UserFunctionError as failure:
            entry.output.clear()
            row = (entry.key, entry.group, entry.argument, entry.context.timestamp)
            self._undo_row(journal, failure, row, entry.output, entry.method)
            return None
        finally:
            journal.is_open = False
        if not journal.changes_only(entry.key):
            if call is not None:
                self._loop.start(call, self._seconds, entry)  # ``close`` cancels it
            raise ConfigError("on_error", _FOREIGN, f"operator {self._info.operator_uid!r}")
        if call is None:
            journal.commit()
        else:
            entry.changes = journal.suspend()
        return call

    def _run(self, entry: _Entry, outcome: Outcome) -> Awaitable[Any] | None:
        """Do the work of ``_next_call`` without dead letters."""
        try:
            return self._run_steps(entry, outcome)
        except BaseException as error:
            row = entry.argument if entry.is_row else None
            raise self._failure(entry.method, error, row) from error

    def _run_steps(self, entry: _Entry, outcome: Outcome) -> Awaitable[Any] | None:
        steps = entry.steps
        if steps is None:
            steps = entry.steps = self._begin(entry)
            if steps is None:
                return None
        users = users_method_behind(self._function, entry.method)
        try:
            while True:
                made = (
                    steps.send(outcome.result)
                    if outcome.error is None
                    else steps.throw(outcome.error)
                )
                if hasattr(type(made), "__await__"):
                    call: Awaitable[Any] = made
                    return call
                if entry.is_checked and self._check is not None:
                    check_row(made, users, steps, self._check)
                entry.output.append(made)
                outcome = _NO_CALL
        except StopIteration:
            return None

    def _begin(self, entry: _Entry) -> Generator[Any, Any, None] | None:
        """Call the method of an entry, and return the generator of its output rows and calls."""
        method = getattr(self._function, entry.method)
        self._calls[entry.method] += 1
        entry.is_checked = self._calls[entry.method] <= self._checked_calls
        result = method(entry.argument, entry.context)
        if result is None or isinstance(result, GeneratorType):
            return result
        if unstarted_kind(result):
            expected = "a generator of rows and coroutines: define the method without async"
            raise result_error(method, result, expected)
        return (row for row in rows_of(method, result))


_FOREIGN = (
    "with dead letters an asynchronous function may change only the keyed state of its row's key, "
    "because other rows are processed before the change might be undone: leave the other changes "
    "out, or on_error"
)
