"""Functions with operator state, which belongs to a subtask instead of a key."""

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
    """The argument of ``initialize_state``.

    Attributes:
        is_restored: whether the subtask starts from a snapshot. On Spark it is true in every
            micro-batch but the first, because a function lives for one micro-batch.
        restored_checkpoint_id: the id of that snapshot; after a rescale the highest id of the old
            subtasks' snapshots; None if no snapshot has state.
        operator_state_store: the operator states, by ``get_list_state``, ``get_union_list_state``
            and ``get_broadcast_state``.
        keyed_state_store: the keyed states, as in ``open``.
    """

    is_restored: bool
    restored_checkpoint_id: int | None
    operator_state_store: OperatorStateBackend
    keyed_state_store: RuntimeContext
    _key_groups: KeyGroupRange

    def raw_operator_inputs(self) -> list[bytes]:
        """Return this subtask's partitions of the bytes that ``RawOperatorOutput`` has stored."""
        return self.operator_state_store.get_list_state(_RAW_OPERATOR).get()

    def raw_keyed_inputs(self) -> list[tuple[int, bytes]]:
        """Return the bytes that ``RawKeyedOutput`` has stored for this subtask's key groups.

        The result is a list of pairs of key group and bytes.
        """
        stored = self.operator_state_store.get_union_list_state(RAW_KEYED_STREAM).get()
        return [(group, data) for group, data in stored if group in self._key_groups]


class RawOperatorOutput:
    """Bytes that a function writes to a snapshot, in partitions that a rescale distributes."""

    def __init__(self) -> None:
        self.partitions: list[bytearray] = []

    def start_new_partition(self) -> None:
        """Start a partition, to which later calls of ``write`` append."""
        self.partitions.append(bytearray())

    def write(self, data: bytes) -> None:
        """Append ``data`` to the last partition; start the first one if there is none."""
        check_type("data", data, bytes)
        if not self.partitions:
            self.start_new_partition()
        self.partitions[-1] += data


class RawKeyedOutput:
    """Bytes that a function writes to a snapshot, for each key group.

    After a rescale, the subtask that owns a key group gets the bytes of this key group.
    """

    def __init__(self, groups: KeyGroupRange) -> None:
        self._groups = groups
        self.by_group: dict[int, bytearray] = {}
        self._current: int | None = None

    def start_new_key_group(self, key_group: int) -> None:
        """Start a key group; later calls of ``write`` append to this key group.

        Raises:
            KeyGroupRangeError: the key group belongs to another subtask, or was started before.
        """
        check_within("key_group", key_group, 0, MAX_KEY_GROUPS - 1)
        if key_group not in self._groups or key_group in self.by_group:
            reason = f"key group {key_group} was written before, or is not in {self._groups}"
            raise KeyGroupRangeError(reason)
        self.by_group[key_group] = bytearray()
        self._current = key_group

    def write(self, data: bytes) -> None:
        """Append ``data`` to the key group that was started last."""
        check_type("data", data, bytes)
        if self._current is None:
            raise KeyGroupRangeError("start a key group before writing to it")
        self.by_group[self._current] += data


@attrs.define
class SnapshotContext:
    """The argument of ``snapshot_state``.

    Attributes:
        checkpoint_id: the id of the snapshot that is about to be taken.
        timestamp: the processing time of the snapshot in ms; on Spark that of the micro-batch.
        raw_operator_output: takes bytes to store, in partitions.
        raw_keyed_output: takes bytes to store, by key group. Each snapshot holds only the bytes
            that were written for this snapshot.
    """

    checkpoint_id: int
    timestamp: int
    raw_operator_output: RawOperatorOutput
    raw_keyed_output: RawKeyedOutput


class CheckpointListener(ABC):
    """A function that is notified of committed snapshots, such as a two-phase sink."""

    @abstractmethod
    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """Handle a committed snapshot: the rows before the snapshot will not be processed again.

        This method is called at least once for the last snapshot that was taken after rows or
        timers, and never for a snapshot that was not committed. A call with an id also confirms
        all lower ids. On Spark the id is the batch id plus one. There the call comes in the next
        micro-batch or in the next run, after ``initialize_state`` and ``open``, because only then
        is the earlier micro-batch known to be committed.
        """


class CheckpointedFunction(ABC):
    """A mix-in for functions with operator state.

    Names and order of calls are Flink's: ``initialize_state`` comes before ``open``,
    ``snapshot_state`` before each snapshot.
    """

    @abstractmethod
    def initialize_state(self, context: StateInitializationContext) -> None:
        """Get the operator states and read their restored contents."""

    @abstractmethod
    def snapshot_state(self, context: SnapshotContext) -> None:
        """Store the function's lasting data in the operator states."""


class ListCheckpointed(ABC, Generic[T]):
    """A mix-in for functions whose operator state is one list; a rescale distributes its elements.

    Attributes:
        element_type: the type of the elements.
    """

    element_type: ClassVar[DeclaredType[Any] | None] = None

    @abstractmethod
    def snapshot_state(self, checkpoint_id: int) -> list[T] | None:
        """Return the elements to store; None or an empty list if there are none."""

    @abstractmethod
    def restore_state(self, elements: list[T]) -> None:
        """Take over the restored elements, maybe none. Called after a restore, before ``open``."""


def list_descriptor(function: ListCheckpointed) -> ListStateDescriptor:
    """Return the descriptor of the list state of ``function``.

    Raises:
        ConfigError: the function does not set ``element_type``.
    """
    if function.element_type is None:
        reason = "ListCheckpointed needs the type of its elements as a class attribute"
        raise ConfigError("element_type", reason, type(function).__name__)
    return ListStateDescriptor(_SHORTCUT, function.element_type)


def initialize_state(function: object, context: StateInitializationContext) -> None:
    """Call a function's ``initialize_state`` or ``restore_state``, if it has one."""
    if isinstance(function, CheckpointedFunction):
        check_ran(function.initialize_state(context))
    elif isinstance(function, ListCheckpointed):
        descriptor = list_descriptor(function)
        if context.is_restored:
            elements = context.operator_state_store.get_list_state(descriptor).get()
            check_ran(function.restore_state(elements))


def snapshot_state(function: object, store: OperatorStateBackend, context: SnapshotContext) -> None:
    """Call a function's ``snapshot_state``, if it has one, and store its result in ``store``.

    A ``ListCheckpointed`` returns the elements to store. A ``CheckpointedFunction`` may write raw
    bytes to ``context``.
    """
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
