"""Functions with operator state: what belongs to a subtask rather than to a key."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Generic

import attrs
from typing_extensions import TypeVar

from millpond.arguments import check_type, check_within
from millpond.backend.operator_state import RAW_KEYED_STREAM, OperatorStateBackend
from millpond.errors import ConfigError, KeyGroupRangeError
from millpond.functions.functions import RuntimeContext
from millpond.functions.user_code import check_ran
from millpond.keygroups import MAX_KEY_GROUPS, KeyGroupRange
from millpond.state import ListStateDescriptor
from millpond.types import DeclaredType

T = TypeVar("T", default=Any)

_SHORTCUT = "list-checkpointed"
_RAW_OPERATOR = ListStateDescriptor("raw-operator-stream", bytes)


@attrs.frozen
class StateInitializationContext:
    """What ``initialize_state`` gets.

    Attributes:
        is_restored: whether the subtask starts from a snapshot. On Spark that is so in every
            micro-batch but the first, for a function lives for one of them.
        restored_checkpoint_id: of that snapshot, after a rescale the highest of them; None where
            there is none, or only one without any state.
        operator_state_store: ``get_list_state``, ``get_union_list_state`` and
            ``get_broadcast_state``.
        keyed_state_store: the keyed states, as ``open`` gets them.
    """

    is_restored: bool
    restored_checkpoint_id: int | None
    operator_state_store: OperatorStateBackend
    keyed_state_store: RuntimeContext
    _key_groups: KeyGroupRange

    def raw_operator_inputs(self) -> list[bytes]:
        """The partitions that this subtask gets of what was written as raw operator state."""
        return self.operator_state_store.get_list_state(_RAW_OPERATOR).get()

    def raw_keyed_inputs(self) -> list[tuple[int, bytes]]:
        """Key group and bytes of what was written as raw keyed state of this subtask's groups."""
        stored = self.operator_state_store.get_union_list_state(RAW_KEYED_STREAM).get()
        return [(group, data) for group, data in stored if group in self._key_groups]


class RawOperatorOutput:
    """Bytes of a function's own, in partitions that are given out anew at a rescale."""

    def __init__(self) -> None:
        self.partitions: list[bytearray] = []

    def start_new_partition(self) -> None:
        """What is written from now on belongs to a further partition."""
        self.partitions.append(bytearray())

    def write(self, data: bytes) -> None:
        """Append to the current partition, the first one where none was started."""
        check_type("data", data, bytes)
        if not self.partitions:
            self.start_new_partition()
        self.partitions[-1] += data


class RawKeyedOutput:
    """Bytes of a function's own by key group, which rescale as keyed state does."""

    def __init__(self, groups: KeyGroupRange) -> None:
        self._groups = groups
        self.by_group: dict[int, bytearray] = {}
        self._current: int | None = None

    def start_new_key_group(self, key_group: int) -> None:
        """What is written from now on belongs to this key group; each comes at most once.

        Raises:
            KeyGroupRangeError: it is another subtask's, or was written before.
        """
        check_within("key_group", key_group, 0, MAX_KEY_GROUPS - 1)
        if key_group not in self._groups or key_group in self.by_group:
            reason = f"key group {key_group} was written before, or is not in {self._groups}"
            raise KeyGroupRangeError(reason)
        self.by_group[key_group] = bytearray()
        self._current = key_group

    def write(self, data: bytes) -> None:
        """Append to the current key group."""
        check_type("data", data, bytes)
        if self._current is None:
            raise KeyGroupRangeError("start a key group before writing to it")
        self.by_group[self._current] += data


@attrs.define
class SnapshotContext:
    """What ``snapshot_state`` gets.

    Attributes:
        checkpoint_id: of the snapshot that is about to be taken.
        timestamp: the processing time in ms at which it is taken; on Spark the batch's.
        raw_operator_output: for bytes of the function's own, in partitions.
        raw_keyed_output: the same by key group. What is not written again is gone.
    """

    checkpoint_id: int
    timestamp: int
    raw_operator_output: RawOperatorOutput
    raw_keyed_output: RawKeyedOutput


class CheckpointListener(ABC):
    """For functions that must know when a snapshot is committed, as a sink in two phases must."""

    @abstractmethod
    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """A snapshot counts: what was done until it was taken will not be done again.

        It is called at least once for the last snapshot that was taken after rows or timers, maybe
        more often, and never for one that was not committed. A higher number covers all lower ones.
        On Spark it is called in the next micro-batch, or in the next run, before all else but
        ``initialize_state`` and ``open``: only then is the one before known to be committed. The
        number is that of the micro-batch plus one.
        """


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


class ListCheckpointed(ABC, Generic[T]):
    """The shortcut for a function whose own state is one list, divided anew at a rescale.

    Attributes:
        element_type: the type of the elements.
    """

    element_type: ClassVar[DeclaredType[Any] | None] = None

    @abstractmethod
    def snapshot_state(self, checkpoint_id: int) -> list[T] | None:
        """The elements that must last; None or an empty list where there are none."""

    @abstractmethod
    def restore_state(self, elements: list[T]) -> None:
        """Take over elements; called before ``open`` after each restore, also with none."""


def list_descriptor(function: ListCheckpointed) -> ListStateDescriptor:
    """The state that the list of a function is kept in; ConfigError without an element type."""
    if function.element_type is None:
        reason = "ListCheckpointed needs the type of its elements as a class attribute"
        raise ConfigError("element_type", reason, type(function).__name__)
    return ListStateDescriptor(_SHORTCUT, function.element_type)


def initialize_state(function: object, context: StateInitializationContext) -> None:
    """Call a function's own initialization, if it has one."""
    if isinstance(function, CheckpointedFunction):
        check_ran(function.initialize_state(context))
    elif isinstance(function, ListCheckpointed):
        descriptor = list_descriptor(function)
        if context.is_restored:
            elements = context.operator_state_store.get_list_state(descriptor).get()
            check_ran(function.restore_state(elements))


def snapshot_state(function: object, store: OperatorStateBackend, context: SnapshotContext) -> None:
    """Have a function put its own state into the store, if it has some."""
    if isinstance(function, CheckpointedFunction):
        check_ran(function.snapshot_state(context))
        known = store.get_registered_state_names()
        partitions = context.raw_operator_output.partitions
        if partitions or _RAW_OPERATOR.name in known:
            store.get_list_state(_RAW_OPERATOR).update(map(bytes, partitions))
        by_group = context.raw_keyed_output.by_group
        if by_group or RAW_KEYED_STREAM.name in known:
            written = [(group, bytes(data)) for group, data in by_group.items()]
            store.get_union_list_state(RAW_KEYED_STREAM).update(written)
    elif isinstance(function, ListCheckpointed):
        elements = function.snapshot_state(context.checkpoint_id)
        store.get_list_state(list_descriptor(function)).update([] if elements is None else elements)
