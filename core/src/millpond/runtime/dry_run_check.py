"""Whether a function's states can be restored from what is stored, without running it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs

from millpond.backend import StateMeta
from millpond.backend.address_change import checked_change
from millpond.backend.state_compatibility import check_kind
from millpond.errors import MillpondError
from millpond.plugins import PluginRegistry
from millpond.runtime.functions import KeyedFunction, RuntimeContext, SubtaskInfo
from millpond.state.descriptors import StateDescriptor
from millpond.types import (
    VOID_NAMESPACE,
    KeyCodec,
    Outcome,
    infer_key_type,
    key_codec_for,
)

__all__ = ["Finding", "check_function"]


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
        self.declared[descriptor.name] = StateMeta.of(resolved, codec)


def check_function(
    function: KeyedFunction, stored: Sequence[StateMeta], registry: PluginRegistry
) -> list[Finding]:
    """Open a function against nothing, and judge each state that it asks for.

    States that a function asks for only later, while it processes rows, are not seen.
    """
    recorder = _Recorder(registry)
    function.open(RuntimeContext(SubtaskInfo("check"), recorder))  # type: ignore[arg-type]
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
    verdict = descriptor.value_serializer().compatibility(stored.value)
    where = f"field {verdict.field!r}: " if verdict.field else ""
    reason = where + verdict.reason
    outcome = verdict.outcome
    if outcome is Outcome.AS_IS and stored.ttl != declared.ttl:
        outcome, reason = Outcome.AFTER_MIGRATION, "TTL is switched on or off"
    elif outcome in (Outcome.AS_IS, Outcome.RECONFIGURED) and any(addresses):
        outcome, reason = Outcome.AFTER_MIGRATION, "the type of namespaces or map keys has grown"
    return Finding(stored.name, old, new, outcome.value, reason)
