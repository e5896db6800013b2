"""One subtask's life: the function opened, rows processed key by key, errors with the key."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from millpond.backend import KeyedStateBackend
from millpond.backend.operator_state import OperatorStateBackend
from millpond.backend.timer_queue import Timer
from millpond.errors import FunctionResultError, UserFunctionError, brief
from millpond.runtime.broadcast import BroadcastContext, KeyedBroadcastProcessFunction
from millpond.runtime.checkpointed import (
    RawKeyedOutput,
    RawOperatorOutput,
    SnapshotContext,
    StateInitializationContext,
    initialize_state,
    snapshot_state,
)
from millpond.runtime.functions import (
    Context,
    KeyedProcessFunction,
    RuntimeContext,
    SubtaskInfo,
)
from millpond.runtime.results import rows_of, yields
from millpond.runtime.timer_service import TimeDomain, TimerService
from millpond.types import VOID_NAMESPACE

__all__ = ["KeyedOperator", "SubtaskInfo"]


_KEYED = ("process_element", "on_timer")


class KeyedOperator:
    """Runs a KeyedProcessFunction on a keyed backend.

    Args:
        operator_state: of the subtask; becomes part of the backend's snapshots.
        is_restored: whether the subtask starts from a snapshot.
        restored_checkpoint_id: of that snapshot, where it has one.

    Attributes:
        timers: the timers of the current key.
        timers_fired: how many so far.
    """

    def __init__(
        self,
        function: KeyedProcessFunction,
        backend: KeyedStateBackend,
        info: SubtaskInfo,
        operator_state: OperatorStateBackend,
        *,
        is_restored: bool = False,
        restored_checkpoint_id: int | None = None,
    ) -> None:
        backend.operator_state = operator_state
        self.timers_fired = 0
        self._operator_state = operator_state
        self._is_restored = is_restored
        self._restored_checkpoint_id = restored_checkpoint_id
        self._function = function
        self._backend = backend
        self._info = info
        self.timers = TimerService(backend, backend.parameters.clock, function.timer_namespace)
        self._context = Context(timers=self.timers, operator_state=operator_state)

    def open(self) -> None:
        """Have the function take over its operator state, and call its ``open``."""
        keyed = RuntimeContext(self._info, self._backend)
        context = StateInitializationContext(
            is_restored=self._is_restored,
            restored_checkpoint_id=self._restored_checkpoint_id,
            operator_state_store=self._operator_state,
            keyed_state_store=keyed,
            key_groups=self._backend.key_group_range,
        )
        try:
            initialize_state(self._function, context)
        except Exception as error:
            raise self._failure("initialize_state", error) from error
        try:
            self._function.open(keyed)
        except Exception as error:
            raise self._failure("open", error) from error

    def prepare_snapshot(self, checkpoint_id: int) -> None:
        """Have the function put what must last into its operator state."""
        context = SnapshotContext(
            checkpoint_id=checkpoint_id,
            timestamp=self.timers.current_processing_time(),
            raw_operator_output=RawOperatorOutput(),
            raw_keyed_output=RawKeyedOutput(self._backend.key_group_range),
        )
        try:
            snapshot_state(self._function, self._operator_state, context)
        except Exception as error:
            raise self._failure("snapshot_state", error) from error

    def process(self, key: Any, row: Any, timestamp: int | None, output: list[Any]) -> None:
        """Process one row of a key that is not checked yet."""
        self._backend.set_current_key(key)
        context = self._context
        context.current_key = self._backend.current_key
        context.timestamp = timestamp
        try:
            result = self._function.process_element(row, context)
            if result is not None:
                output.extend(rows_of(self._function.process_element, result))
        except Exception as error:
            raise self._failure("process_element", error) from error

    def process_broadcast(self, row: Any, timestamp: int | None, output: list[Any]) -> None:
        """Process one broadcast row; there is no current key meanwhile."""
        assert isinstance(self._function, KeyedBroadcastProcessFunction)
        context = BroadcastContext(self._backend, self._operator_state, self.timers, timestamp)
        self._backend.current.forget()
        self._context.current_key = None
        try:
            result = self._function.process_broadcast_element(row, context)
            if result is not None:
                output.extend(rows_of(self._function.process_broadcast_element, result))
        except Exception as error:
            raise self._failure("process_broadcast_element", error) from error

    def process_all(
        self, rows: Iterable[tuple[Any, int, Any, int | None]], output: list[Any]
    ) -> None:
        """Process rows, each with its checked key, key group and timestamp: the hot path."""
        context = self._context
        select = self._backend.current.select
        process = self._function.process_element
        generates = yields(process)
        extend = output.extend
        for key, group, row, timestamp in rows:
            select(key, group)
            context.current_key = key
            context.timestamp = timestamp
            try:
                result = process(row, context)
                if result is not None:
                    extend(result if generates else rows_of(process, result))
            except Exception as error:
                raise self._failure("process_element", error) from error

    def advance_watermark(self, timestamp: int, output: list[Any]) -> None:
        """Raise the watermark to a moment in ms and fire what is due."""
        self._fire(self.timers.advance_watermark(timestamp), TimeDomain.EVENT_TIME, output)

    def fire_processing_time(self, output: list[Any]) -> None:
        """Fire the processing-time timers that are due by the clock."""
        self._fire(self.timers.due_by_processing_time(), TimeDomain.PROCESSING_TIME, output)

    def end_key(self, output: list[Any]) -> None:
        """Fire the timers of the current key, whose last row was seen, in batch execution."""
        for domain in TimeDomain:
            self._fire(self.timers.end_key(domain), domain, output)

    def _fire(self, due: Iterable[Timer], domain: TimeDomain, output: list[Any]) -> None:
        context = self._context
        context.time_domain = domain
        try:
            for timer in due:
                self.timers_fired += 1
                self._backend.current.select(timer.key, timer.key_group)
                context.current_key = timer.key
                context.timestamp = timer.timestamp
                context.namespace = timer.namespace
                result = self._function.on_timer(timer.timestamp, context)
                if result is not None:
                    output.extend(rows_of(self._function.on_timer, result))
        except Exception as error:
            raise self._failure("on_timer", error) from error
        finally:
            context.time_domain = None
            context.namespace = VOID_NAMESPACE

    def _failure(self, method: str, error: Exception) -> UserFunctionError:
        info = self._info
        return UserFunctionError(
            operator_uid=info.operator_uid,
            subtask=info.index,
            key=brief(self._context.current_key) if method in _KEYED else "",
            method=f"{type(self._function).__name__}.{method}",
            reason=_told(error),
        )

    def close(self) -> None:
        """Call the function's ``close``."""
        try:
            self._function.close()
        except Exception as error:
            raise self._failure("close", error) from error


def _told(error: Exception) -> str:
    own = isinstance(error, FunctionResultError)
    return str(error) if own else f"{type(error).__name__}: {error}"
