"""Operators of functions without keys, and the choice of an operator for a function."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NoReturn

import attrs
from typing_extensions import override

from millpond.backend.keyed_states import StatesAndTimers, StatesOfKeys
from millpond.backend.timer_queue import Timer
from millpond.errors import NoKeysError
from millpond.functions.functions import OperatorFunction, ProcessContext
from millpond.functions.process_functions import ProcessFunction
from millpond.functions.results import rows_of, yields
from millpond.functions.timer_service import TimeDomain
from millpond.functions.vectorized import VectorizedProcessFunction
from millpond.operator.keyed_operator import KeyedOperator
from millpond.operator.vectorized_operator import VectorizedOperator
from millpond.state import StateDescriptor


@attrs.frozen
class _NoKeys:
    """Stands where keyed states are, and refuses all that needs a key."""

    operator_uid: str

    @property
    def current(self) -> NoReturn:
        raise NoKeysError(self.operator_uid, "the current key")

    def get_partitioned_state(
        self, descriptor: StateDescriptor[Any], namespace: Any = None, namespace_type: Any = None
    ) -> NoReturn:
        raise NoKeysError(self.operator_uid, f"keyed state {descriptor.name!r}")

    def apply_to_all_keys(self, descriptor: StateDescriptor[Any], function: Any) -> NoReturn:
        raise NoKeysError(self.operator_uid, f"keyed state {descriptor.name!r}")

    def timer_queue(self, domain: str, namespace_type: Any = None) -> NoReturn:
        raise NoKeysError(self.operator_uid, "timers")

    def has_timers(self, domain: str) -> bool:
        return False


class ProcessOperator(KeyedOperator):
    """Runs a ProcessFunction; the backend's part is to keep the operator state in snapshots."""

    context_class = ProcessContext
    _function: ProcessFunction

    @override
    def _reachable(self, backend: StatesAndTimers) -> StatesOfKeys:
        return _NoKeys(self._info.operator_uid)

    @override
    def _select(self, key: Any) -> None:
        """There are no keys."""

    @override
    def _forget(self) -> None:
        """There are no keys."""

    @override
    def _process_each(
        self,
        rows: Iterable[tuple[Any, int, Any, int | None]],
        process: Callable[[Any, Any], Any],
        output: list[Any],
        method: str,
    ) -> None:
        context = self._context
        generates = yields(process)
        extend = output.extend
        for _, _, row, timestamp in rows:
            context.timestamp = timestamp
            try:
                result = process(row, context)
                if result is not None:
                    extend(result if generates else rows_of(process, result))
            except BaseException as error:
                raise self._failure(method, error, row) from error

    @override
    def _fire(self, due: Iterable[Timer], domain: TimeDomain, output: list[Any]) -> None:
        """Time goes on, and there are no timers."""
        assert not list(due)


def operator_of(function: OperatorFunction) -> type[KeyedOperator]:
    """What runs a function."""
    if isinstance(function, ProcessFunction):
        return ProcessOperator
    vectorized = isinstance(function, VectorizedProcessFunction)
    return VectorizedOperator if vectorized else KeyedOperator
