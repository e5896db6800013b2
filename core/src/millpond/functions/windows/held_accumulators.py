"""What rows add to the same windows one after the other: read once, and stored once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from millpond.backend.states.appending_states import RawAggregatingState, RawReducingState


class HeldAccumulators:
    """The accumulators of the windows that the last rows of a key went to.

    To find one and to store it costs more than to add (a sixth of a row's time in sliding windows
    on heap), so it is held until other windows, or another key, or a timer come.

    Args:
        state: what windows keep, of which ``are_possible`` is true.
    """

    def __init__(self, state: RawReducingState | RawAggregatingState) -> None:
        self._state = state
        self._namespaces: Sequence[Any] = ()
        self._accumulators: list[Any] = []

    @staticmethod
    def are_possible(state: Any) -> bool:
        """Whether nobody sees the difference: what is held cannot change, and no call is missed.

        What wraps a state, as metrics do, is to see each addition.
        """
        return type(state) in (RawReducingState, RawAggregatingState) and state.can_be_held

    def add(self, namespaces: Sequence[Any], select: Callable[[Any], Any], row: Any) -> None:
        """Add a row's value to the windows under some namespaces, the same until ``store``.

        It is selected for each window: one that is gone through once serves one window alone.
        """
        held = self._accumulators
        if not held:
            held = list(map(self._read, namespaces))
            self._namespaces, self._accumulators = namespaces, held
        added = self._state.added
        for at, accumulator in enumerate(held):
            held[at] = added(accumulator, select(row))

    def _read(self, namespace: Any) -> Any:
        self._state.set_current_namespace(namespace)
        return self._state.get_internal()

    def __bool__(self) -> bool:
        return bool(self._accumulators)

    def store(self) -> None:
        """Store what is held, under the key to which it belongs."""
        state, held = self._state, self._accumulators
        self._accumulators = []
        for namespace, accumulator in zip(self._namespaces, held, strict=True):
            state.set_current_namespace(namespace)
            state.update_internal(accumulator)
