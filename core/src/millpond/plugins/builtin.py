"""The core's own plugin: raw states, TTL, state metrics, snapshots, storages, reporters."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from millpond.backend.keyed_backend import KeyedStateBackend
from millpond.backend.states.appending_states import (
    RawAggregatingState,
    RawFoldingState,
    RawListState,
    RawReducingState,
)
from millpond.backend.states.raw_states import RawMapState, RawSortedMapState, RawValueState
from millpond.config import Config
from millpond.reporters import log_metrics, record_metrics
from millpond.savepoints.collect import SavepointRestore, SavepointStrategy
from millpond.snapshots.handles import PORTABLE, SAVEPOINT_FORMAT
from millpond.snapshots.restore import RestoreOperation
from millpond.snapshots.strategies import ChangelogStrategy, FullStrategy
from millpond.snapshots.strategy import SnapshotStrategy
from millpond.spi.backend import KeyedStates, RestoreTarget, StateContext
from millpond.spi.hooks import StateWrapper, hookimpl
from millpond.state.descriptors import StateDescriptor, StateKind
from millpond.state.interfaces import State
from millpond.state.metrics.metered_states import wrap_with_metrics
from millpond.state.ttl.ttl_states import wrap_with_ttl
from millpond.storage.checkpoint_storage import CheckpointStorage
from millpond.storage.local_directory import open_local_storage
from millpond.storage.memory import MemoryStorage
from millpond.storage.remote_file_systems import PYARROW_SCHEMES, fsspec_schemes, open_file_storage
from millpond.types import VOID_NAMESPACE, KeyCodec

MILLPOND_API = 1

_RAW_STATES: dict[StateKind, Any] = {
    StateKind.VALUE: RawValueState,
    StateKind.LIST: RawListState,
    StateKind.MAP: RawMapState,
    StateKind.REDUCING: RawReducingState,
    StateKind.AGGREGATING: RawAggregatingState,
    StateKind.FOLDING: RawFoldingState,
}


@hookimpl(trylast=True)
def millpond_create_state(
    backend: KeyedStates, descriptor: StateDescriptor, namespace_serializer: KeyCodec
) -> State:
    """Return the state object of ``descriptor``, which reads and writes the backend's table."""
    table = backend.table_of(descriptor.name)
    raw = RawSortedMapState if descriptor.is_sorted else _RAW_STATES[descriptor.kind]
    state: State = raw(descriptor, namespace_serializer, table)
    if namespace_serializer.snapshot().id == "void":
        state.set_current_namespace(VOID_NAMESPACE)
    return state


@hookimpl
def millpond_wrap_state(
    descriptor: StateDescriptor, context: StateContext
) -> Sequence[StateWrapper]:
    """Return the wrappers of a state: for TTL, and for metrics of latencies and sizes."""
    wrappers: list[StateWrapper] = []
    ttl, times, tracks = descriptor.ttl_config, context.times, context.config.state
    if ttl is not None and times is not None:
        wrappers.append((0, lambda state: wrap_with_ttl(state, ttl, times)))
    if tracks.latency_track.enabled or tracks.size_track.enabled:
        wrappers.append((100, lambda state: wrap_with_metrics(state, descriptor, context)))
    return wrappers


@hookimpl
def millpond_snapshot_strategies(backend: KeyedStateBackend) -> Sequence[SnapshotStrategy]:
    """Provide ``full``, ``changelog`` and ``savepoint`` for every backend."""
    return [FullStrategy(backend), ChangelogStrategy(backend), SavepointStrategy(backend)]


@hookimpl(trylast=True)
def millpond_restore_operation(
    backend: RestoreTarget, handles: Sequence[Any]
) -> RestoreOperation | SavepointRestore | None:
    """Return the operation that restores portable snapshots or savepoints; None for others."""
    if handles[0].format == PORTABLE:
        return RestoreOperation(backend, handles)
    if handles[0].format == SAVEPOINT_FORMAT:
        return SavepointRestore(backend, handles)
    return None


@hookimpl
def millpond_checkpoint_storages(
    config: Config,
) -> Mapping[str, Callable[[str], CheckpointStorage]]:
    """Provide memory, local directories, pyarrow's file systems, and fsspec's if installed."""
    schemes = (*fsspec_schemes(), *PYARROW_SCHEMES)
    return {
        **dict.fromkeys(schemes, partial(open_file_storage, config=config)),
        "file": open_local_storage,
        "memory": MemoryStorage,
    }


@hookimpl
def millpond_metric_reporters() -> Mapping[str, Callable[..., None]]:
    """Provide ``log`` and ``opentelemetry``."""
    return {"log": log_metrics, "opentelemetry": record_metrics}
