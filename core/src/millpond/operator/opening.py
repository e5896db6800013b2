"""Opening keyed backends and operator state, and the snapshots that they start from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any, Self, cast

import attrs

from millpond.arguments import check_type, checked
from millpond.backend import KeyedStateBackend
from millpond.backend.operator_state import OperatorStateBackend
from millpond.backend.ownership import WorkingDirectory, close_in_forked_children
from millpond.backend.single_key import SingleKeyBackend
from millpond.clock import Clock, SystemClock
from millpond.config import Config, RestoreConfig
from millpond.errors import (
    ArgumentTypeError,
    PluginError,
    RestoreError,
    UnsupportedCapabilityError,
    brief,
)
from millpond.keygroups import KeyGroupRange, check_parallelism
from millpond.operator_id import OperatorId, check_place
from millpond.plugins import PluginRegistry, Resolution, get_registry
from millpond.savepoints.operator_tables import operator_state_share
from millpond.savepoints.savepoint_file import SavedOperator, read_savepoint
from millpond.snapshots.handles import KeyedStateHandle, OperatorStateHandle, SavepointHandle
from millpond.snapshots.operator_state import read_operator_state, write_operator_state
from millpond.snapshots.restore import has_keys_of, restore_keyed
from millpond.spi import Capability, KeyedBackendParameters, StateBackend
from millpond.storage.local_directory import check_local_path
from millpond.types import DeclaredKeyType, key_codec_for

Restorable = KeyedStateHandle | SavepointHandle | str | PathLike[str]
"""A source of a restore: a handle, or a savepoint's path or URI."""


@checked
def open_keyed_backend(
    backend: str,
    *,
    key_type: DeclaredKeyType[Any],
    max_parallelism: int = 128,
    key_group_range: KeyGroupRange | None = None,
    directory: str | Path | None = None,
    clock: Clock | None = None,
    config: Config | None = None,
    restore: Iterable[Restorable | None] = (),
    place: str = "",
) -> KeyedStateBackend:
    """Open a keyed backend; a context manager.

    Args:
        backend: an installed backend's name, or ``module:attr``.
        key_type: the Python type of the keys.
        max_parallelism: the number of key groups.
        key_group_range: the groups to own; all of them by default.
        directory: local working space, emptied at opening; heap needs none.
        clock: the source of processing time; the system's by default.
        config: further configuration; its backend and directory are ignored.
        restore: snapshots to start from: handles, or paths of savepoints; None is an empty
            snapshot. Key groups outside of the range are ignored.
        place: the operator of the state, as ``uid`` or ``query/uid``: its name in errors, and the
            folder of its snapshots.

    Raises:
        PluginError: the backend cannot be used; see ``millpond backends``.
        MaxParallelismError, StateMigrationError: a snapshot does not fit.
        CorruptSnapshotError, RestoreError: a snapshot cannot be read.
    """
    check_parallelism(max_parallelism)
    operator = check_place(place, "open_keyed_backend(...)")
    config = config or Config()
    if directory is not None:
        check_local_path(directory)
    if isinstance(restore, str):
        raise ArgumentTypeError("restore", "handles or paths in a list", brief(restore))
    registry = get_registry(config.plugins)
    handles = [restorable(given, registry, config) for given in restore if given is not None]
    resolution = registry.resolve(backend)
    parameters = KeyedBackendParameters(
        key_codec=key_codec_for(key_type, registry.serializer),
        max_parallelism=max_parallelism,
        key_group_range=key_group_range or KeyGroupRange(0, max_parallelism - 1),
        clock=clock or SystemClock(),
        config=config,
        registry=registry,
        directory=None if directory is None else Path(directory),
        options=config.backend_options(resolution.name),
        operator=operator,
    )
    with config.locating_errors():
        return _opened(registry.load(resolution), parameters, handles)


def _opened(
    factory: StateBackend,
    parameters: KeyedBackendParameters,
    handles: list[KeyedStateHandle | SavepointHandle],
) -> KeyedStateBackend:
    opened = create_backend(factory, parameters)
    try:
        if handles:
            restore_keyed(opened, handles)
        strategy = opened.strategy(parameters.config.state.snapshot.strategy)
        strategy.start(_claimed(opened, handles))
    except BaseException:
        opened.close()
        raise
    return opened


def open_batch_backend(
    *,
    key_type: DeclaredKeyType[Any],
    max_parallelism: int = 128,
    config: Config | None = None,
    place: str = "",
) -> SingleKeyBackend:
    """Open state for one key at a time, for input that is sorted by key; a context manager."""
    config = config or Config()
    registry = get_registry(config.plugins)
    return SingleKeyBackend(
        KeyedBackendParameters(
            key_codec=key_codec_for(key_type, registry.serializer),
            max_parallelism=max_parallelism,
            key_group_range=KeyGroupRange(0, max_parallelism - 1),
            clock=SystemClock(),
            config=config,
            registry=registry,
            operator=check_place(place, "bootstrap"),
        )
    )


def create_backend(factory: StateBackend, parameters: KeyedBackendParameters) -> KeyedStateBackend:
    """Make a keyed backend; see ``StateBackend.create_keyed_backend``.

    Its directory is locked, unless it can be kept open between tasks. A local copy in it is
    opened only after a clean shutdown, which is marked when the backend is closed.

    Raises:
        UnsupportedCapabilityError: there are options for a single state, and the backend does
            not declare support for them.
        DirectoryInUseError: another open backend works in the directory.
        StoreAccessError: the directory cannot be used.
    """
    check_backend_options(factory, parameters.options, parameters.config)
    given = attrs.evolve(parameters, capabilities=factory.capabilities)
    if parameters.directory is None:
        backend = cast("KeyedStateBackend", factory.create_keyed_backend(given))
    else:
        backend = _created_in(parameters.directory, factory, given)
    close_in_forked_children(backend)
    return backend


def configured_backend(config: Config, instead: str = "") -> Resolution:
    """Return the configured backend, checked before its job begins.

    Args:
        config: the job's configuration.
        instead: the name of another backend to use.

    Raises:
        PluginError: the backend cannot be used; the error shows where it is configured.
        ConfigError: an option or a reporter is unknown or wrong.
        UnsupportedCapabilityError: there are options for a single state, which the backend does
            not support.
    """
    registry = get_registry(config.plugins)
    try:
        resolution = registry.resolve(instead or config.state.backend)
        factory = registry.load(resolution)
    except PluginError as error:
        error.place = "" if instead else config.place.location("state.backend")
        raise
    check_backend_options(factory, config.backend_options(resolution.name), config)
    with config.locating_errors():
        registry.reporters(config)
    return resolution


def check_backend_options(
    factory: StateBackend, options: Mapping[str, Any], config: Config
) -> None:
    """Check a backend's options before it is opened.

    Raises:
        ConfigError: an option is unknown or wrong; the error shows where it is configured.
        UnsupportedCapabilityError: there are options for a single state, and the backend does
            not declare support for them.
    """
    if "state" in options and Capability.PER_STATE_OPTIONS not in factory.capabilities:
        raise UnsupportedCapabilityError(factory.name, Capability.PER_STATE_OPTIONS.value)
    with config.locating_errors():
        factory.check_options(options)


def _created_in(
    directory: Path, factory: StateBackend, parameters: KeyedBackendParameters
) -> KeyedStateBackend:
    workplace = WorkingDirectory(
        factory.name,
        directory,
        exclusive=Capability.IN_PROCESS_COPY not in factory.capabilities,
        keeps=Capability.LOCAL_COPY in factory.capabilities,
    )
    try:
        versions, discarded = workplace.take_over(parameters.reuse_versions)
        made = factory.create_keyed_backend(attrs.evolve(parameters, reuse_versions=versions))
    except BaseException:
        workplace.close()
        raise
    backend = cast("KeyedStateBackend", made)
    backend.works_in(workplace, discarded)
    return backend


def restorable(
    given: object, registry: PluginRegistry, config: Config
) -> KeyedStateHandle | SavepointHandle:
    """Return the handle of a restore source; RestoreError for any other object."""
    if isinstance(given, (KeyedStateHandle, SavepointHandle)):
        return given
    if isinstance(given, (str, PathLike)):
        return registry.savepoint(given, config)
    cause = f"expected a snapshot's handle or a savepoint's path, got {brief(given)}"
    raise RestoreError("keyed state", (cause,))


def _claimed(
    backend: KeyedStateBackend, handles: list[KeyedStateHandle | SavepointHandle]
) -> KeyedStateHandle | None:
    """Return the claimed snapshot, on which later snapshots build and which they delete.

    Without a claim, the default, a restored snapshot belongs to its writer: later snapshots
    neither refer to its files nor delete them.
    """
    if len(handles) != 1 or not backend.parameters.config.checkpoint.claim:
        return None
    (handle,) = handles
    if isinstance(handle, SavepointHandle) or handle.key_group_range != backend.key_group_range:
        return None
    if has_keys_of(backend, handle.key):
        backend.flush(handle.version)
    return handle


@checked
def open_operator_backend(
    *,
    restore: Iterable[OperatorStateHandle | None] = (),
    place: str = "state",
    config: Config | None = None,
) -> OperatorStateBackend:
    """Open the operator state of one subtask; a context manager.

    Args:
        restore: handles of snapshots, as ``redistribute_operator_state`` returns them; None is a
            subtask without state.
        place: the operator of the state, as ``uid`` or ``query/uid``: the folder of its snapshots.
        config: further configuration.

    Raises:
        CorruptSnapshotError, RestoreError: a snapshot cannot be read.
    """
    operator = check_place(place, "open_operator_backend(...)")
    config = config or Config()
    handles = list(restore)
    for handle in handles:
        check_type("restore", handle, OperatorStateHandle | None)
    return OperatorStateBackend(
        read_operator_state(handles, config.restore),
        partial(write_operator_state, operator, limits=config.restore),
        get_registry(config.plugins).serializer,
        allow_pickle=config.serialization.allow_pickle,
    )


@attrs.frozen
class StartingPoint:
    """The snapshots or savepoints that an operator starts from.

    Attributes:
        handles: the opened handles.
        given: whether anything was given, including a snapshot without state.
        limits: the limits for reading savepoints.
    """

    handles: tuple[KeyedStateHandle | SavepointHandle, ...]
    given: bool
    limits: RestoreConfig = RestoreConfig()

    @classmethod
    def from_argument(
        cls, restore: Restorable | Iterable[Restorable | None] | None, config: Config | None
    ) -> Self:
        """Open the handles and savepoints of a ``restore`` argument.

        Raises:
            RestoreError: it is neither a handle nor a savepoint's path.
        """
        if restore is None:
            each: list[Restorable | None] = []
        elif isinstance(restore, (KeyedStateHandle, SavepointHandle, str, PathLike)):
            each = [restore]
        else:
            each = list(restore)
        config = config or Config()
        registry = get_registry(config.plugins)
        opened = (restorable(one, registry, config) for one in each if one is not None)
        return cls(tuple(opened), bool(each), config.restore)

    @property
    def checkpoint_id(self) -> int | None:
        """The checkpoint id of the newest handle; None without a handle."""
        return max((handle.checkpoint_id for handle in self.handles), default=None)

    def stored_operator(self, uid: str) -> KeyedStateHandle | SavedOperator | None:
        """Return the description of an operator's stored state: its key type and key groups.

        Raises:
            CorruptSnapshotError, RestoreError: a savepoint cannot be read, or lacks the operator.
        """
        if not self.handles:
            return None
        handle = self.handles[0]
        if isinstance(handle, KeyedStateHandle):
            return handle
        savepoint = read_savepoint(handle)
        known = [operator.uid for operator in savepoint.operators]
        if uid and uid not in known:
            there = ", ".join(map(repr, known))
            raise RestoreError(uid, (f"no operator {uid!r} in the savepoint; there: {there}",))
        return savepoint.operator(OperatorId(uid=uid))

    def operator_state(
        self, uid: str, index: int = 0, parallelism: int = 1
    ) -> list[OperatorStateHandle]:
        """Return a subtask's share of an operator's operator state."""
        return operator_state_share(self.handles, uid, index, parallelism, self.limits)
