"""The hooks, which are functions that a plugin implements and Millpond calls.

Millpond calls hooks when it creates a backend, a state or a snapshot strategy, and never for single
rows. A plugin is a module or an object with functions of these names, each decorated with
``@millpond.hookimpl``. It also sets ``MILLPOND_API = 1``. An entry point in the group
``millpond.plugins`` refers to the plugin. An implementation may take fewer arguments than the hook.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pluggy

from millpond.config import Config
from millpond.spi.backend import EntryStore, KeyedStates, RestoreTarget, StateBackend, StateContext
from millpond.spi.snapshots import RestoreOperation, Strategy
from millpond.state.descriptors import StateDescriptor
from millpond.state.interfaces import State
from millpond.storage.checkpoint_storage import CheckpointStorage
from millpond.types.base import TypeSerializer
from millpond.types.key_codecs import KeyCodec

PROJECT = "millpond"
API_VERSION = 1
"""The version of the hooks. A plugin sets ``MILLPOND_API`` to the version it was written for."""

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


# ------------------------------------------------------------------ backends


@hookspec
def millpond_state_backends() -> Iterable[StateBackend]:  # type: ignore[empty-body]
    """Provide state backends.

    When called: when plugins are loaded; once in each process for each setting of the options
    ``plugins.*``.
    Result: the backends. Users write the ``name`` of a backend in ``millpond.state.backend``. The
    name must be equal to the name of the plugin's entry point.
    First result only: no, all results are gathered.
    Errors: an exception marks the plugin as broken; Millpond continues with the other plugins.

    Example::

        @millpond.hookimpl
        def millpond_state_backends():
            return [PebbleBackend()]
    """


@hookspec(firstresult=True)
def millpond_create_state(
    backend: KeyedStates, descriptor: StateDescriptor, namespace_serializer: KeyCodec
) -> State | None:
    """Create the state object for a descriptor, without the wrappers for TTL and metrics.

    When called: at the first ``get_partitioned_state`` of a name on an opened backend.
    Arguments: the backend; the descriptor of the stored values (with TTL, a stored value is a pair
    of the user's value and a timestamp); the codec of the namespaces.
    Result: a state of the descriptor's kind, or None to leave it to the next plugin. If all plugins
    return None, Millpond creates the state over the backend's tables. With TTL, a map state must
    also have ``walk()``, and a reducing, aggregating or folding state ``get_internal()`` and
    ``update_internal()``, as Millpond's own states have.
    First result only: yes.
    Errors: propagate to the caller of ``get_partitioned_state``.

    Example::

        @millpond.hookimpl
        def millpond_create_state(backend, descriptor):
            is_list = isinstance(descriptor, millpond.ListStateDescriptor)
            if is_list and isinstance(backend, PebbleKeyedBackend):
                return PebbleListState(backend, descriptor)
    """


# ------------------------------------------------------------------ states


StateWrapper = tuple[int, Callable[[State], State]]
"""The order of a wrapper, and a function that takes a state and returns the wrapped state."""


@hookspec
def millpond_wrap_state(  # type: ignore[empty-body]
    descriptor: StateDescriptor, context: StateContext
) -> Sequence[StateWrapper]:
    """Provide wrappers of a state, for instance to measure or to encrypt it.

    When called: once for each state, before it is wrapped.
    Arguments: the user's descriptor; the context (backend, clock, config).
    Result: pairs of an order and a function that takes a state and returns the wrapped state; no
    pairs to leave the state unchanged. Wrappers are applied in ascending order. Millpond's wrapper
    for TTL has the order 0, and the wrapper for metrics has 100.
    First result only: no, all results are gathered.
    Errors: propagate to the caller of ``get_partitioned_state``.

    Example::

        @millpond.hookimpl
        def millpond_wrap_state(descriptor):
            return [(50, AuditedState)] if descriptor.name.startswith("audit-") else []
    """


# ------------------------------------------------------------------ snapshots


@hookspec
def millpond_snapshot_strategies(backend: EntryStore) -> Sequence[Strategy]:  # type: ignore[empty-body]
    """Provide snapshot strategies for a backend.

    When called: when a backend is opened. ``state.snapshot.strategy`` selects one strategy by name.
    Arguments: the opened backend.
    Result: the strategies that work with this backend. Each has a ``name``.
    First result only: no, all results are gathered.
    Errors: propagate to the caller that opens the backend.

    Example::

        @millpond.hookimpl
        def millpond_snapshot_strategies(backend):
            return [PebbleIncremental(backend)] if isinstance(backend, PebbleKeyedBackend) else []
    """


@hookspec(firstresult=True)
def millpond_restore_operation(
    backend: RestoreTarget, handles: Sequence[Any]
) -> RestoreOperation | None:
    """Provide the operation that fills a backend from snapshots.

    When called: when a backend is opened and there is a snapshot to restore.
    Arguments: the target, which is a new, empty backend or a tool's rows in memory; the handles
    of the snapshots, all of one format.
    Result: an operation with ``run()``, or None if the plugin does not know the format.
    First result only: yes.
    Errors: the operation raises CorruptSnapshotError or RestoreError.

    Example::

        @millpond.hookimpl
        def millpond_restore_operation(backend, handles):
            if handles[0].format == "pebble-native":
                return PebbleRestore(backend, handles)
    """


@hookspec
def millpond_checkpoint_storages(  # type: ignore[empty-body]
    config: Config,
) -> Mapping[str, Callable[[str], CheckpointStorage]]:
    """Provide checkpoint storages.

    When called: when a storage is opened by URI.
    Arguments: ``config``, the configuration of the job or command; a function that opens a storage
    may keep it.
    Result: a dict from URI schemes to functions. A function takes a URI and returns the storage.
    First result only: no, all results are gathered. If two plugins have a scheme, the first wins.
    Errors: a ConfigError from the function reaches the user.

    Example::

        @millpond.hookimpl
        def millpond_checkpoint_storages():
            return {"vault": VaultStorage.open}
    """


# ------------------------------------------------------------------ types and metrics


@hookspec
def millpond_serializers() -> Mapping[type, Callable[[], TypeSerializer[Any]]]:  # type: ignore[empty-body]
    """Provide serializers for types that Millpond does not know.

    When called: when a function requests a state and Millpond does not know its type; once in
    each process for each setting of the options ``plugins.*``. The descriptor of the state may
    have been created long before.
    Result: a dict from Python types to functions that return the serializer of the type. The type
    may then also be nested in other types and in keys.
    First result only: no, all results are gathered; built-in types cannot be replaced.
    Errors: propagate to the caller that requests the state.

    Example::

        @millpond.hookimpl
        def millpond_serializers():
            return {Point: PointSerializer}
    """


@hookspec
def millpond_metric_reporters(  # type: ignore[empty-body]
    config: Config,
) -> Mapping[str, Callable[[Mapping[str, float], Mapping[str, str]], None]]:
    """Provide receivers of metrics. ``metrics.reporters`` selects the receivers to use by name.

    When called: at the end of a subtask's micro-batch, in the worker.
    Arguments: ``config``, the job's configuration.
    Result: a dict from reporter names to functions. A function takes the metrics of a subtask by
    name, and the labels ``operator``, ``subtask`` and ``backend``.
    First result only: no, all results are gathered.
    Errors: logged; a reporter never fails a job. An unknown name is a ConfigError.

    Example::

        @millpond.hookimpl
        def millpond_metric_reporters():
            return {"print": lambda metrics, labels: print(labels, metrics)}
    """
