"""Whether a function's states can be restored from what is stored, without running it."""

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
from millpond.errors import MillpondError, StateConflictError
from millpond.functions.checkpointed import (
    ListCheckpointed,
    StateInitializationContext,
    initialize_state,
    list_descriptor,
)
from millpond.functions.functions import KeyedFunction, RuntimeContext, SubtaskInfo
from millpond.keygroups import MAX_KEY_GROUPS, KeyGroupRange
from millpond.operator_id import OperatorId
from millpond.plugins import PluginRegistry
from millpond.snapshots.operator_state import write_operator_state
from millpond.state.descriptors import ListStateDescriptor, MapStateDescriptor, StateDescriptor
from millpond.state.interfaces import ListState
from millpond.state.state_meta import StateMeta
from millpond.types import (
    VOID_NAMESPACE,
    KeyCodec,
    Outcome,
    infer_key_type,
    key_codec_for,
)
from typing_extensions import TypeVar, override

K = TypeVar("K", default=Any)
V = TypeVar("V", default=Any)
T = TypeVar("T", default=Any)


@attrs.frozen
class Finding:
    """The verdict on one state.

    Attributes:
        outcome: one of ``Outcome``'s words, ``new`` for a state that is not stored yet, or
            ``unused`` for one that the function does not declare.
        fits: whether the job can start.
        reason: why not, with the field where there is one.
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

    def row(self) -> dict[str, str]:
        """The finding as a row of a table."""
        row: dict[str, str] = attrs.asdict(self)
        return row


class _Recorder:
    """Stands in for a backend while ``open`` asks for states."""

    def __init__(self, registry: PluginRegistry) -> None:
        self._find = registry.serializer
        self.declared: dict[str, StateMeta] = {}
        self.descriptors: dict[str, StateDescriptor] = {}
        self.namespaces: dict[str, KeyCodec] = {}

    def get_partitioned_state(
        self,
        descriptor: StateDescriptor,
        namespace: Any = VOID_NAMESPACE,
        namespace_type: Any = None,
    ) -> None:
        kind = infer_key_type(namespace) if namespace_type is None else namespace_type
        resolved = descriptor.resolved(self._find)
        self.descriptors[descriptor.name] = resolved
        codec = key_codec_for(kind, self._find)
        self.namespaces[descriptor.name] = codec
        self.declared[descriptor.name] = StateMeta.from_descriptor(resolved, codec)


class _OperatorRecorder(OperatorStateBackend):
    """Operator state without any elements, that remembers what was asked for."""

    def __init__(self, registry: PluginRegistry) -> None:
        super().__init__({}, partial(write_operator_state, OperatorId("", "")), registry.serializer)
        self.declared: dict[StateId, tuple[OperatorStateMeta, StateDescriptor]] = {}

    @override
    def get_list_state(self, descriptor: ListStateDescriptor[T]) -> ListState[T]:
        self._note(Mode.SPLIT, descriptor)
        return super().get_list_state(descriptor)

    @override
    def get_union_list_state(self, descriptor: ListStateDescriptor[T]) -> ListState[T]:
        self._note(Mode.UNION, descriptor)
        return super().get_union_list_state(descriptor)

    @override
    def get_broadcast_state(self, descriptor: MapStateDescriptor[K, V]) -> BroadcastState[K, V]:
        self._note(Mode.BROADCAST, descriptor)
        return super().get_broadcast_state(descriptor)

    def _note(self, mode: Mode, descriptor: StateDescriptor) -> None:
        resolved = descriptor.resolved(self._find)
        codec = resolved.map_key_codec()
        map_key = None if codec is None else codec.snapshot()
        value = resolved.value_serializer().snapshot()
        meta = OperatorStateMeta(descriptor.name, mode, value, map_key)
        self.declared[meta.id] = (meta, resolved)


def check_function(
    function: KeyedFunction,
    stored: Sequence[StateMeta],
    registry: PluginRegistry,
    operator_states: Sequence[OperatorStateMeta] = (),
) -> list[Finding]:
    """Open a function against nothing, and judge each state that it asks for.

    States that a function asks for only later, while it processes rows, are not seen.

    Args:
        function: the function; its ``initialize_state`` is called too, if it has one.
        stored: the keyed states that are stored.
        registry: the plugins that may provide serializers.
        operator_states: the operator states that are stored.
    """
    recorder = _Recorder(registry)
    own = _OperatorRecorder(registry)
    keyed = RuntimeContext(SubtaskInfo("check"), recorder)  # type: ignore[arg-type]
    if isinstance(function, ListCheckpointed):
        own.get_list_state(list_descriptor(function))
    everything = KeyGroupRange(0, MAX_KEY_GROUPS - 1)
    initialize_state(function, StateInitializationContext(False, None, own, keyed, everything))
    function.open(keyed)
    return _keyed_findings(recorder, stored) + _operator_findings(own, operator_states)


def _operator_findings(
    recorder: _OperatorRecorder, stored: Sequence[OperatorStateMeta]
) -> list[Finding]:
    known = {meta.id: meta for meta in stored}
    findings = [
        _judge_operator_state(known[each], meta, descriptor)
        if each in known
        else Finding(meta.name, "", str(meta.value), "new")
        for each, (meta, descriptor) in recorder.declared.items()
    ]
    unused = [meta for each, meta in known.items() if each not in recorder.declared]
    return findings + [Finding(meta.name, str(meta.value), "", "unused") for meta in unused]


def _judge_operator_state(
    stored: OperatorStateMeta, declared: OperatorStateMeta, descriptor: StateDescriptor
) -> Finding:
    try:
        if stored.mode is not declared.mode:
            raise StateConflictError(stored.name, stored.mode.value, declared.mode.value)
        codec = descriptor.map_key_codec()
        address = checked_change(stored.name, "map key", stored.map_key, codec)
    except MillpondError as error:
        old, new = str(stored.value), str(declared.value)
        return Finding(stored.name, old, new, Outcome.INCOMPATIBLE.value, str(error))
    return _of_values(stored, declared, descriptor, grown=address is not None)


def _keyed_findings(recorder: _Recorder, stored: Sequence[StateMeta]) -> list[Finding]:
    known = {meta.name: meta for meta in stored}
    findings = [
        _judge(known[name], meta, recorder.descriptors[name], recorder.namespaces[name])
        if name in known
        else Finding(name, "", str(meta.value), "new")
        for name, meta in recorder.declared.items()
    ]
    unused = [meta for name, meta in known.items() if name not in recorder.declared]
    return findings + [Finding(meta.name, str(meta.value), "", "unused") for meta in unused]


def _judge(
    stored: StateMeta, declared: StateMeta, descriptor: StateDescriptor, namespaces: KeyCodec
) -> Finding:
    old, new = str(stored.value), str(declared.value)
    try:
        check_kind(stored, declared)
        addresses = (
            checked_change(stored.name, "namespace", stored.namespace, namespaces),
            checked_change(stored.name, "map key", stored.map_key, descriptor.map_key_codec()),
        )
    except MillpondError as error:
        return Finding(stored.name, old, new, Outcome.INCOMPATIBLE.value, str(error))
    finding = _of_values(stored, declared, descriptor, grown=any(addresses))
    if finding.outcome == Outcome.AS_IS.value and stored.ttl != declared.ttl:
        reason = "TTL is switched on or off"
        return attrs.evolve(finding, outcome=Outcome.AFTER_MIGRATION.value, reason=reason)
    return finding


def _of_values(
    stored: StateMeta | OperatorStateMeta,
    declared: StateMeta | OperatorStateMeta,
    descriptor: StateDescriptor,
    *,
    grown: bool,
) -> Finding:
    """The verdict on the values of a state; its map keys or namespaces may have grown."""
    verdict = descriptor.value_serializer().compatibility(stored.value)
    where = f"field {verdict.field!r}: " if verdict.field else ""
    outcome, reason = verdict.outcome, where + verdict.reason
    if grown and outcome in (Outcome.AS_IS, Outcome.RECONFIGURED):
        outcome, reason = Outcome.AFTER_MIGRATION, "the type of namespaces or map keys has grown"
    return Finding(stored.name, str(stored.value), str(declared.value), outcome.value, reason)
