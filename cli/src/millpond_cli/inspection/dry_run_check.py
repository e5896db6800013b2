"""The check whether stored state fits the descriptors of a function, before a job runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
from millpond.backend.migration import check_kind, checked_change
from millpond.backend.operator_state import OperatorStateBackend, OperatorStateMeta
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
from millpond.operator.opening import open_batch_backend, open_operator_backend
from millpond.state.descriptors import StateDescriptor
from millpond.state.state_meta import StateMeta
from millpond.types import KeyCodec, Outcome


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
    with (
        open_batch_backend(key_type=str, config=config, place="check") as backend,
        open_operator_backend(config=config) as own,
    ):
        _open(function, RuntimeContext(SubtaskInfo("check"), backend), own)
        own_states = own.declared()
        opened = {
            meta.name: (meta, state.descriptor, state.namespace_codec)
            for meta in backend.states.metas()
            if (state := backend.states.known(meta.name))
        }
    return [
        *_findings(opened, {meta.name: meta for meta in stored}),
        *_findings(own_states, {meta.id: meta for meta in operator_states}),
    ]


def _open(function: KeyedFunction, keyed: RuntimeContext, own: OperatorStateBackend) -> None:
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
