"""What windows give when their trigger fires: the rows of their function, around an evictor."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from millpond.functions.results import rows_of
from millpond.functions.windows.evictors import Eviction, TimestampedValue
from millpond.functions.windows.merging import NameOf
from millpond.functions.windows.operator_trigger_context import OperatorTriggerContext
from millpond.functions.windows.own_results import elements_left
from millpond.functions.windows.retracting import RunningAggregates
from millpond.functions.windows.window import TimeWindow
from millpond.functions.windows.window_contents import WindowContents, WindowContext

__all__ = ["WindowFiring"]


class WindowFiring:
    """Calls the windows' function, and keeps what an evictor leaves.

    Args:
        contents: what windows keep, and their function.
        name_of: by what two windows are the same.
        context_of: what the function gets beside the elements.
    """

    def __init__(
        self,
        contents: WindowContents,
        name_of: NameOf,
        context_of: Callable[[OperatorTriggerContext], WindowContext],
    ) -> None:
        self._contents = contents
        self._context_of = context_of
        eviction = contents.eviction
        retracting = None if eviction is None else eviction.retracting
        self._running = None if retracting is None else RunningAggregates(retracting, name_of)

    def rows(
        self, state: Any, namespace: TimeWindow, at: OperatorTriggerContext, key: Any
    ) -> Iterator[Any]:
        """The rows of a window; at their end the state is under the namespace again.

        Args:
            state: what the window holds, under the namespace.
            namespace: where the window's state lies.
            at: the triggers' context, whose window it is.
            key: the current key.
        """
        held, eviction = state.get(), self._contents.eviction
        if self._contents.is_empty(held):
            return
        if eviction is not None:
            yield from self._evicted(eviction, held, state, namespace, at, key)
            return
        yield from self._called(held, at, key)
        state.set_current_namespace(namespace)

    def forget(self, key: Any, *namespaces: TimeWindow) -> None:
        """The elements of these windows have been dropped, or put together."""
        if self._running is not None:
            self._running.forget(key, *namespaces)

    def _called(self, held: Any, at: OperatorTriggerContext, key: Any) -> Iterator[Any]:
        process = self._contents.function.process
        yield from rows_of(process, process(key, self._context_of(at), held))
        at.come_back()

    def _evicted(
        self,
        eviction: Eviction,
        held: list[Any],
        state: Any,
        namespace: TimeWindow,
        at: OperatorTriggerContext,
        key: Any,
    ) -> Iterator[Any]:
        """Call the function with what the evictor leaves, and keep what it leaves after that."""
        elements = [TimestampedValue(*element) for element in held]
        running = self._running
        # Evictors may change the list that they get.
        given = [] if running is None else list(elements)
        left = elements_left(eviction.evictor.evict_before, elements, at.window, at)
        at.come_back()
        if running is None:
            shown = eviction.result([element.value for element in left])
        else:
            shown = running.result(key, namespace, given, left)
        if shown is not None:
            yield from self._called(shown, at, key)
        given = [] if running is None else list(left)
        elements = elements_left(eviction.evictor.evict_after, left, at.window, at)
        at.come_back()
        if running is not None:
            running.evicted(key, namespace, given, elements)
        state.set_current_namespace(namespace)
        if len(elements) != len(held):
            state.update([tuple(element) for element in elements])
