"""Every hook of Millpond, grouped by life cycle.

Hooks register and resolve; no record ever passes through one. They run when a backend, a
state or a snapshot strategy is *made*. A plugin is a module (or object) with functions of
these names, marked ``@millpond.hookimpl``, that also sets ``MILLPOND_API = 1``; it is
announced by an entry point in the group ``millpond.plugins``. An implementation may take
fewer arguments than its specification.
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
"""The version of the hooks. A plugin's ``MILLPOND_API`` is the version it was written for."""

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


# ------------------------------------------------------------------ backends


@hookspec
def millpond_state_backends() -> Iterable[StateBackend]:  # type: ignore[empty-body]
    """Provide state backends.

    When called: once per process and set of plugin rules, when plugins are loaded.
    Result: the backends; each one's ``name`` is the word users write in
    ``millpond.state.backend`` and equals the entry-point name.
    First result only: no, all results are gathered.
    Errors: an exception marks the plugin as broken; the others go on.

    Example::

        @millpond.hookimpl
        def millpond_state_backends():
            return [PebbleBackend()]
    """


@hookspec(firstresult=True)
def millpond_create_state(
    backend: KeyedStates, descriptor: StateDescriptor, namespace_serializer: KeyCodec
) -> State | None:
    """Create the raw state object for a descriptor.

    When called: at the first ``get_partitioned_state`` of a name on an opened backend.
    Arguments: the backend; the descriptor as it is stored (with TTL its types are wrapped in
    an envelope); the codec of the namespaces.
    Result: a state of the descriptor's kind, or None to leave it to the next plugin. The
    core answers last, from the backend's tables. Under TTL, a map state also has ``walk()``,
    and accumulators ``get_internal()`` and ``update_internal()``, as the core's have.
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
"""The order of a wrapper, and the function from the state inside to the wrapped state."""


@hookspec
def millpond_wrap_state(  # type: ignore[empty-body]
    descriptor: StateDescriptor, context: StateContext
) -> Sequence[StateWrapper]:
    """Provide wrappers of a state, for instance to measure or to encrypt it.

    When called: once, before a state's wrappers are made.
    Arguments: the user's descriptor; the context (backend, clock, config).
    Result: pairs of an order and a function that wraps a state; no pairs to leave it as it is.
    The smallest order is innermost: the core's TTL has 0, its metrics have 100.
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

    When called: when a backend is opened; the one named by ``state.snapshot.strategy`` is used.
    Arguments: the opened backend.
    Result: strategies that work with it; each has a ``name``.
    First result only: no, all results are gathered.
    Errors: propagate to the one who opens the backend.

    Example::

        @millpond.hookimpl
        def millpond_snapshot_strategies(backend):
            return [PebbleIncremental(backend)] if isinstance(backend, PebbleKeyedBackend) else []
    """


@hookspec(firstresult=True)
def millpond_restore_operation(
    backend: RestoreTarget, handles: Sequence[Any]
) -> RestoreOperation | None:
    """Choose how a backend is filled from snapshots.

    When called: when a backend is opened with something to restore.
    Arguments: the new, empty backend, or rows in memory for a tool; the handles, all of one kind.
    Result: an operation with ``run()``, or None if the plugin does not know the kind.
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
    Result: URI scheme to a function that opens a storage for such a URI.
    First result only: no, all results are gathered; the first plugin wins a scheme.
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

    When called: once per process and set of plugin rules, when a state of a type that Millpond
    does not know is requested; a descriptor may have been made long before.
    Result: Python type to a function that makes its serializer. The type may then be a part of
        other types and of keys, too.
    First result only: no, all results are gathered; built-in types cannot be replaced.
    Errors: propagate to the one who requests the state.

    Example::

        @millpond.hookimpl
        def millpond_serializers():
            return {Point: PointSerializer}
    """


@hookspec
def millpond_metric_reporters(  # type: ignore[empty-body]
    config: Config,
) -> Mapping[str, Callable[[Mapping[str, float], Mapping[str, str]], None]]:
    """Provide receivers of metrics. Millpond uses the ones that ``metrics.reporters`` names.

    When called: at the end of a subtask's micro-batch, in the worker.
    Arguments: ``config``, the job's configuration.
    Result: reporter name to a function of a subtask's metrics by name, and of labels:
    ``operator``, ``subtask``, ``backend``.
    First result only: no, all results are gathered.
    Errors: logged; a reporter never fails a job. An unknown name is a ConfigError.

    Example::

        @millpond.hookimpl
        def millpond_metric_reporters():
            return {"print": lambda metrics, labels: print(labels, metrics)}
    """
