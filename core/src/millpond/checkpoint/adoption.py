"""Checking that a snapshot fits a backend, and taking over what it says of its states."""

from __future__ import annotations

from collections.abc import Iterable

from millpond.backend.address_change import KeyRewrite
from millpond.backend.changes import Change, Changes
from millpond.backend.key_layout import KeyLayout
from millpond.backend.restore_target import RestoreTarget
from millpond.backend.restored_bytes import Place
from millpond.errors import MaxParallelismError, RestoreError
from millpond.state.state_meta import StateMeta
from millpond.types import SerializerSnapshot

__all__ = ["adopt_metadata", "has_keys_of", "load_adopted"]


def adopt_metadata(
    backend: RestoreTarget,
    max_parallelism: int,
    key: SerializerSnapshot,
    states: Iterable[StateMeta],
) -> KeyRewrite | None:
    """Take over the states of a snapshot.

    Returns:
        What its rows need where its keys are of an older type than the backend's.

    Raises:
        MaxParallelismError: it has another number of key groups.
        StateMigrationError: its type of keys cannot become the backend's.
        RestoreError: a snapshot restored beside it has a state of another type under that name,
            or there are more states than ``restore.max-states``.
    """
    if max_parallelism != backend.max_parallelism:
        raise MaxParallelismError(max_parallelism, backend.max_parallelism)
    label = backend.parameters.operator.label
    rewrite = KeyRewrite.of(label, key, backend.key_codec, KeyLayout(max_parallelism))
    most = backend.parameters.config.restore.max_states
    for meta in states:
        known = backend.restored.setdefault(meta.name, meta)
        if known != meta:
            cause = (
                f"state {meta.name!r} has type {known.value} in one snapshot and {meta.value} in "
                "another; run all subtasks once before rescaling"
            )
            raise RestoreError(label, (cause,))
        if len(backend.restored) > most:
            cause = f"there are more than {most:,} states in it; if it has so many, raise "
            raise RestoreError(label, (f"{cause}restore.max-states",))
    backend.expect_states(backend.restored)
    return rewrite


def has_keys_of(backend: RestoreTarget, key: SerializerSnapshot) -> bool:
    """Whether the backend's keys are as a snapshot has them.

    If not, its rows were rewritten when they were restored, and nothing can build on it.
    """
    return key == backend.key_codec.snapshot()


def load_adopted(
    backend: RestoreTarget,
    place: Place,
    meta: StateMeta,
    rows: Iterable[Change],
    rewrite: KeyRewrite | None,
) -> int:
    """Load rows of an adopted state, their keys rewritten where they need it, and count them.

    Returns:
        The bytes of the rows.
    """
    rows = Changes.of(rows)
    size = rows.size
    backend.restored_bytes.add_rows(place, meta.name, size)
    backend.load_rows(meta.name, rows if rewrite is None else rewrite.rows(meta, rows))
    return size
