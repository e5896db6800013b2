"""Functions with operator state: what belongs to a subtask rather than to a key."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import attrs

from millpond.backend.operatorstate import OperatorStateBackend
from millpond.runtime.functions import RuntimeContext
from millpond.state import ListStateDescriptor

__all__ = [
    "CheckpointedFunction",
    "ListCheckpointed",
    "SnapshotContext",
    "StateInitializationContext",
    "initialize_state",
    "snapshot_state",
]

_SHORTCUT = "list-checkpointed"


@attrs.frozen
class StateInitializationContext:
    """What ``initialize_state`` gets.

    Attributes:
        is_restored: whether the subtask starts from a snapshot. On Spark that is so in every
            micro-batch but the first, for a function lives for one of them.
        operator_state_store: ``get_list_state``, ``get_union_list_state`` and
            ``get_broadcast_state``.
        keyed_state_store: the keyed states, as ``open`` gets them.
    """

    is_restored: bool
    operator_state_store: OperatorStateBackend
    keyed_state_store: RuntimeContext


@attrs.frozen
class SnapshotContext:
    """What ``snapshot_state`` gets.

    Attributes:
        checkpoint_id: of the snapshot that is about to be taken.
    """

    checkpoint_id: int


class CheckpointedFunction(ABC):
    """A function that keeps something of its own over snapshots; mixed into a keyed function.

    Names and order of calls are Flink's: ``initialize_state`` comes before ``open``,
    ``snapshot_state`` before each snapshot.
    """

    @abstractmethod
    def initialize_state(self, context: StateInitializationContext) -> None:
        """Get the operator states and take over what they hold."""

    @abstractmethod
    def snapshot_state(self, context: SnapshotContext) -> None:
        """Put what must last into the operator states."""


class ListCheckpointed(ABC):
    """The shortcut for a function whose own state is one list, divided anew at a rescale.

    Attributes:
        element_type: the type of the elements.
    """

    element_type: ClassVar[Any]

    @abstractmethod
    def snapshot_state(self, checkpoint_id: int) -> list[Any]:
        """The elements that must last."""

    @abstractmethod
    def restore_state(self, elements: list[Any]) -> None:
        """Take over elements; called before ``open`` where there are some."""


def _list_state(function: ListCheckpointed, store: OperatorStateBackend) -> Any:
    return store.get_list_state(ListStateDescriptor(_SHORTCUT, function.element_type))


def initialize_state(function: Any, context: StateInitializationContext) -> None:
    """Call a function's own initialization, if it has one."""
    if isinstance(function, CheckpointedFunction):
        function.initialize_state(context)
    elif isinstance(function, ListCheckpointed):
        elements = _list_state(function, context.operator_state_store).get()
        if elements:
            function.restore_state(elements)


def snapshot_state(function: Any, store: OperatorStateBackend, checkpoint_id: int) -> None:
    """Have a function put its own state into the store, if it has some."""
    if isinstance(function, CheckpointedFunction):
        function.snapshot_state(SnapshotContext(checkpoint_id))
    elif isinstance(function, ListCheckpointed):
        _list_state(function, store).update(function.snapshot_state(checkpoint_id))
