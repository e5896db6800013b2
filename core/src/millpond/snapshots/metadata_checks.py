"""Checks of the metadata of snapshots and savepoints; a ValueError says what is wrong."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from millpond.backend.operator_state import Mode, OperatorStateMeta
from millpond.errors import brief
from millpond.keygroups import MAX_KEY_GROUPS
from millpond.state.names import misspelling
from millpond.state.state_kinds import StateKind
from millpond.state.state_meta import StateMeta

__all__ = [
    "check_counts",
    "check_operator_states",
    "check_states",
    "check_subtasks",
]


def check_states(metas: Sequence[StateMeta]) -> None:
    """Each state has its own name; map states, and no others, have a type of map keys."""
    _check_names([meta.name for meta in metas])
    for meta in metas:
        if (meta.kind is StateKind.MAP) != (meta.map_key is not None):
            raise ValueError(f"state {meta.name!r}: only a map state has a type of map keys")
        if meta.ttl_ms is not None and meta.ttl_ms <= 0:
            raise ValueError(f"state {meta.name!r} has a time to live of {meta.ttl_ms} ms")


def check_operator_states(metas: Sequence[OperatorStateMeta]) -> None:
    """The same for operator states: broadcast states are maps, and have names apart from lists."""
    for scope in ("list", "broadcast"):
        _check_names([meta.name for meta in metas if meta.scope == scope])
    for meta in metas:
        if (meta.mode is Mode.BROADCAST) != (meta.map_key is not None):
            raise ValueError(
                f"operator state {meta.name!r}: only a broadcast state has a type of map keys"
            )


def _check_names(names: Sequence[str]) -> None:
    if "" in names or len(set(names)) < len(names):
        raise ValueError("a state has no name, or two states have the same one")
    for name in names:
        if reason := misspelling(name):
            raise ValueError(f"state {brief(name)}: {reason}")


def check_counts(numbers: Iterable[int], limit: int = 1 << 62) -> None:
    """Sizes, counts and ids are not negative."""
    for number in numbers:
        if not 0 <= number <= limit:
            raise ValueError(f"expected a count, got {number}")


def check_subtasks(number: int) -> None:
    """No operator has more subtasks than key groups."""
    check_counts([number], MAX_KEY_GROUPS)
