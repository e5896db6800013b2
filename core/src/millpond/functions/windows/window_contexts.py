"""What the function of windows gets beside their elements: the window, time, and states."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from millpond.errors import StateConflictError, WindowStateError
from millpond.functions.functions import RuntimeContext
from millpond.functions.windows.operator_trigger_context import OperatorTriggerContext
from millpond.functions.windows.window import GLOBAL_WINDOW, TimeWindow
from millpond.functions.windows.window_contents import WindowContext
from millpond.state import StateDescriptor

__all__ = ["WindowContexts"]


class WindowContexts:
    """Makes the contexts of one subtask's windows, and knows which states they have given out.

    Args:
        runtime: where states of a key lie.
        namespaced: gives a state under a window.
        merging: the assigner's name, where its windows merge.
        own: the names of the states in which the windows themselves are kept.
    """

    def __init__(
        self,
        runtime: RuntimeContext,
        namespaced: Callable[[StateDescriptor, Any], Any],
        merging: str | None,
        own: Iterable[str],
    ) -> None:
        self._runtime = runtime
        self._namespaced = namespaced
        self._merging = merging
        self._uses = dict.fromkeys(own, "what the windows keep")

    def of(self, at: OperatorTriggerContext) -> WindowContext:
        """The context of the window that a trigger's context is at."""
        window = at.window

        def state(descriptor: StateDescriptor, of_window: bool) -> Any:  # noqa: FBT001 - internal
            if of_window and self._merging is not None:
                raise WindowStateError(descriptor.name, self._merging)
            use = "window_state" if of_window else "global_state"
            known = self._uses.setdefault(descriptor.name, use)
            if known != use:  # one state object, whose namespace the other use would change
                raise StateConflictError(descriptor.name, known, use)
            if of_window:
                return self._namespaced(descriptor, window)
            return self._runtime.get_namespaced_state(descriptor, GLOBAL_WINDOW, TimeWindow)

        return WindowContext(window, at.timers, state)
