"""The check whether stored state fits the descriptors of a function, before a job runs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import attrs
from millpond.backend.migration import check_kind, checked_change
from millpond.backend.operator_state import (
    BroadcastState,
    Mode,
    OperatorStateBackend,
    OperatorStateMeta,
    StateId,
)
from millpond.config import Config
from millpond.errors import MillpondError, StateConflictError
from millpond.functions.checkpointed import (
    ListCheckpointed,
    StateInitializationContext,
    initialize_state,
    list_descriptor,
)
from millpond.functions.functions import KeyedFunction, RuntimeContext, SubtaskInfo
from millpond.keygroups import MAX_KEY_GROUPS, KeyGroupRange
from millpond.operator.opening import open_batch_backend
from millpond.operator_id import OperatorId
from millpond.snapshots.operator_state import write_operator_state
from millpond.spi.parameters import PluginHooks
from millpond.state.descriptors import ListStateDescriptor, MapStateDescriptor, StateDescriptor
from millpond.state.interfaces import ListState
from millpond.state.state_meta import StateMeta
from millpond.types import KeyCodec, Outcome
from typing_extensions import TypeVar, override

K = TypeVar("K", default=Any)
V = TypeVar("V", default=Any)
T = TypeVar("T", default=Any)


@attrs.frozen
class Finding:
    """The verdict on one state.

    Attributes:
        state: the name of the state.
        stored: the stored type of the values; empty if the state is not stored yet.
        declared: the type of the values in the function; empty if the function does not declare the
            state.
        outcome: a value of ``Outcome``, ``new`` for a state that is not stored yet, or ``unused``
            for a state that the function does not declare.
        reason: the reason for the outcome. If a single field does not fit, the reason names it.
    """

    state: str
    stored: str
    declared: str
    outcome: str
    reason: str = ""

    @property
    def fits(self) -> bool:
        """Whether the job can start with this state."""
        return self.outcome != Outcome.INCOMPATIBLE.value


class _OperatorRecorder(OperatorStateBackend):
    """An empty operator state backend. It records the states that a function asks for."""

    def __init__(self, registry: PluginHooks) -> None:
        super().__init__({}, partial(write_operator_state, OperatorId("", "")), registry.serializer)
        self.declared: dict[StateId, tuple[OperatorStateMeta, StateDescriptor]] = {}

    @override
    def get_list_state(self, descriptor: ListStateDescriptor[T]) -> ListState[T]:
        self._record(Mode.SPLIT, descriptor)
        return super().get_list_state(descriptor)

    @override
    def get_union_list_state(self, descriptor: ListStateDescriptor[T]) -> ListState[T]:
        self._record(Mode.UNION, descriptor)
        return super().get_union_list_state(descriptor)

    @override
    def get_broadcast_state(self, descriptor: MapStateDescriptor[K, V]) -> BroadcastState[K, V]:
        self._record(Mode.BROADCAST, descriptor)
        return super().get_broadcast_state(descriptor)

    def _record(self, mode: Mode, descriptor: StateDescriptor) -> None:
        """Record an operator state with its mode and descriptor."""
        resolved = descriptor.resolved(self._find, self._pickles)
        codec = resolved.map_key_codec()
        map_key = None if codec is None else codec.snapshot()
        value = resolved.value_serializer().snapshot()
        meta = OperatorStateMeta(descriptor.name, mode, value, map_key)
        self.declared[meta.id] = meta, resolved


def check_function(
    function: KeyedFunction,
    stored: Sequence[StateMeta],
    config: Config,
    operator_states: Sequence[OperatorStateMeta] = (),
) -> list[Finding]:
    """Open a function without data, and return a verdict on each stored or declared state.

    If the function asks for a state only while it processes rows, the check does not notice this
    state. If the state is stored, it is reported as unused.

    Args:
        function: the function. Its methods ``initialize_state``, if any, and ``open`` are called.
        stored: the metadata of the stored keyed states.
        config: names the plugins that may provide serializers.
        operator_states: the metadata of the stored operator states.
    """
    with open_batch_backend(key_type=str, config=config, place="check") as backend:
        own = _OperatorRecorder(backend.parameters.registry)
        _open(function, RuntimeContext(SubtaskInfo("check"), backend), own)
        opened = {
            meta.name: (meta, state.descriptor, state.namespace_codec)
            for meta in backend.states.metas()
            if (state := backend.states.known(meta.name))
        }
    return [
        *_findings(opened, {meta.name: meta for meta in stored}),
        *_findings(own.declared, {meta.id: meta for meta in operator_states}),
    ]


def _open(function: KeyedFunction, keyed: RuntimeContext, own: _OperatorRecorder) -> None:
    """Call the methods of a function that ask for states."""
    if isinstance(function, ListCheckpointed):
        own.get_list_state(list_descriptor(function))
    everything = KeyGroupRange(0, MAX_KEY_GROUPS - 1)
    initialize_state(function, StateInitializationContext(False, None, own, keyed, everything))
    function.open(keyed)


def _findings(declared: dict[Any, Any], stored: dict[Any, Any]) -> list[Finding]:
    """Return a verdict on each declared state, and on each stored state that is not declared."""
    found = []
    for name, (meta, *declaration) in declared.items():
        if name in stored:
            found.append(_judge(stored[name], meta, *declaration))
        else:
            found.append(Finding(meta.name, "", str(meta.value), "new"))
    unused = [meta for name, meta in stored.items() if name not in declared]
    return found + [Finding(meta.name, str(meta.value), "", "unused") for meta in unused]


def _judge(
    stored: StateMeta | OperatorStateMeta,
    meta: StateMeta | OperatorStateMeta,
    descriptor: StateDescriptor,
    namespaces: KeyCodec | None = None,
) -> Finding:
    """Return the verdict on whether the state `stored` can be restored as the declared state.

    Args:
        stored: the metadata of the stored state.
        meta: the metadata that the declared state would have if it were stored now.
        descriptor: the function's descriptor.
        namespaces: the codec of the namespaces of a keyed state.
    """
    old, new = str(stored.value), str(meta.value)
    map_keys = descriptor.map_key_codec()
    try:
        changes = []
        if isinstance(stored, OperatorStateMeta) and isinstance(meta, OperatorStateMeta):
            if stored.mode is not meta.mode:
                raise StateConflictError(stored.name, stored.mode.value, meta.mode.value)
        elif isinstance(stored, StateMeta) and isinstance(meta, StateMeta):
            check_kind(stored, meta)
            changes.append(checked_change(stored.name, "namespace", stored.namespace, namespaces))
        changes.append(checked_change(stored.name, "map key", stored.map_key, map_keys))
    except MillpondError as error:
        return Finding(stored.name, old, new, Outcome.INCOMPATIBLE.value, str(error))
    verdict = descriptor.value_serializer().compatibility(stored.value)
    outcome = verdict.outcome
    reason = (f"field {verdict.field!r}: " if verdict.field else "") + verdict.reason
    if any(changes) and outcome in (Outcome.AS_IS, Outcome.RECONFIGURED):
        outcome, reason = Outcome.AFTER_MIGRATION, "the type of namespaces or map keys has grown"
    timed = [each.ttl for each in (stored, meta) if isinstance(each, StateMeta)]
    if outcome is Outcome.AS_IS and len(set(timed)) > 1:
        outcome, reason = Outcome.AFTER_MIGRATION, "TTL is switched on or off"
    return Finding(stored.name, old, new, outcome.value, reason)
