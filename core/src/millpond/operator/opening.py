"""Functions that need plugins: for backends, snapshots, storages and savepoints. Most are public.

Each function takes the job's configuration. The configuration names the plugins that may be used.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any, Self, cast

import attrs

from millpond import types
from millpond.arguments import check_type, checked
from millpond.backend import KeyedStateBackend
from millpond.backend.operator_state import OperatorStateBackend
from millpond.backend.single_key import FillingBackend, SingleKeyBackend, Sink
from millpond.backend.working_directory import WorkingDirectory, close_in_forked_children
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
from millpond.savepoints import rewriting
from millpond.savepoints.operator_tables import operator_state_share
from millpond.savepoints.savepoint_file import SavedOperator, read_savepoint
from millpond.snapshots.handles import KeyedStateHandle, OperatorStateHandle, SavepointHandle
from millpond.snapshots.operator_state import read_operator_state, write_operator_state
from millpond.snapshots.restore import has_keys_of, restore_keyed
from millpond.spi import Capability, KeyedBackendParameters, StateBackend
from millpond.storage.checkpoint_storage import CheckpointStorage
from millpond.storage.local_directory import check_local_path
from millpond.types import DeclaredKeyType, TypeSerializer, key_codec_for

Restorable = KeyedStateHandle | SavepointHandle | str | PathLike[str]
"""A source of a restore: the handle of a snapshot or savepoint, or a savepoint's path or URI."""

Place = str | PathLike[str] | CheckpointStorage | SavepointHandle
"""The location of a savepoint: a directory, a URI, a storage, or the savepoint's handle."""


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
    """Return a new keyed backend. The backend is a context manager.

    Args:
        backend: the name of an installed backend, or ``module:attr``.
        key_type: the Python type of the keys.
        max_parallelism: the number of key groups.
        key_group_range: the key groups that the backend owns; by default all.
        directory: a local directory for the backend's files. It is emptied when the backend opens.
            The backend ``heap`` needs no directory.
        clock: the source of processing time; by default the system's clock.
        config: further configuration. The backend and the directory in it are ignored.
        restore: the snapshots to start from: handles of snapshots, or paths of savepoints. None
            stands for a snapshot without state. Key groups outside of ``key_group_range`` are
            ignored.
        place: the operator of the state, as ``uid`` or ``query/uid``. Errors show this name, and
            snapshots are written into a folder of this name.

    Raises:
        PluginError: the backend cannot be used; see ``millpond backends``.
        MaxParallelismError: a snapshot has another number of key groups.
        StateMigrationError: a snapshot has keys of another type.
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
    handles = [_restorable(given, registry, config) for given in restore if given is not None]
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
        opened = create_backend(registry.load(resolution), parameters)
        try:
            if handles:
                restore_keyed(opened, handles)
            strategy = opened.strategy(config.state.snapshot.strategy)
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
    """Return a backend that holds the state of one key at a time; the backend is a context manager.

    The caller must process all rows of a key before the rows of the next key. ``max_parallelism``
    is the number of key groups. ``place`` is the operator's uid for error messages.
    """
    return SingleKeyBackend(_without_files(key_type, max_parallelism, config or Config(), place))


def open_filling_backend(
    sink: Sink, *, key_type: DeclaredKeyType[Any], max_parallelism: int, config: Config, place: str
) -> FillingBackend:
    """Return a backend like ``open_batch_backend`` that passes each key's state to ``sink``."""
    return FillingBackend(_without_files(key_type, max_parallelism, config, place), sink)


def _without_files(
    key_type: DeclaredKeyType[Any], max_parallelism: int, config: Config, place: str
) -> KeyedBackendParameters:
    """Return the parameters of a backend without files, for all key groups."""
    registry = get_registry(config.plugins)
    return KeyedBackendParameters(
        key_codec=key_codec_for(key_type, registry.serializer),
        max_parallelism=max_parallelism,
        key_group_range=KeyGroupRange(0, max_parallelism - 1),
        clock=SystemClock(),
        config=config,
        registry=registry,
        operator=check_place(place, "bootstrap"),
    )


def create_backend(factory: StateBackend, parameters: KeyedBackendParameters) -> KeyedStateBackend:
    """Create a keyed backend with a plugin's factory; see ``StateBackend.create_keyed_backend``.

    The directory is locked, unless the factory's backends can share a directory within a process.
    State that an earlier backend left in the directory is used only if that backend was closed
    cleanly.

    Raises:
        UnsupportedCapabilityError: there are options for a single state, and the backend does
            not declare support for them.
        DirectoryInUseError: another open backend works in the directory.
        StoreAccessError: the directory cannot be used.
    """
    check_backend_options(factory, parameters.options, parameters.config)
    given = attrs.evolve(parameters, capabilities=factory.capabilities)
    if given.directory is None:
        backend = cast("KeyedStateBackend", factory.create_keyed_backend(given))
    else:
        workplace = WorkingDirectory(
            factory.name,
            given.directory,
            exclusive=Capability.IN_PROCESS_COPY not in factory.capabilities,
            keeps=Capability.LOCAL_COPY in factory.capabilities,
        )
        try:
            versions, discarded = workplace.take_over(given.reuse_versions)
            given = attrs.evolve(given, reuse_versions=versions)
            backend = cast("KeyedStateBackend", factory.create_keyed_backend(given))
        except BaseException:
            workplace.close()
            raise
        backend.take_directory(workplace, discarded)
    close_in_forked_children(backend)
    return backend


def configured_backend(config: Config, instead: str = "") -> Resolution:
    """Return the plugin of the configured backend, and check its options before the job begins.

    Args:
        config: the job's configuration.
        instead: the name of a backend to use instead of the configured one; empty for none.

    Raises:
        PluginError: the backend cannot be used; the error shows where it is configured.
        ConfigError: an option or a reporter is unknown or wrong.
        UnsupportedCapabilityError: there are options for a single state, and the backend does
            not support them.
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


def _restorable(
    given: object, registry: PluginRegistry, config: Config
) -> KeyedStateHandle | SavepointHandle:
    """Return ``given`` if it is a handle, or the handle of the savepoint at the path ``given``.

    Raises:
        RestoreError: ``given`` is neither a handle nor a path.
    """
    if isinstance(given, (KeyedStateHandle, SavepointHandle)):
        return given
    if isinstance(given, (str, PathLike)):
        return registry.savepoint(given, config)
    cause = f"expected a snapshot's handle or a savepoint's path, got {brief(given)}"
    raise RestoreError("keyed state", (cause,))


def _claimed(
    backend: KeyedStateBackend, handles: list[KeyedStateHandle | SavepointHandle]
) -> KeyedStateHandle | None:
    """Return the restored snapshot that the backend claims; None if it claims no snapshot.

    If the backend claims a snapshot, new snapshots may refer to its files, and the backend deletes
    its files once no snapshot needs them. Otherwise these files are only read.

    The backend claims a snapshot if ``checkpoint.claim`` is set, only this snapshot was restored,
    and it has exactly the backend's key groups. A savepoint is never claimed.
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
    """Return a backend with the operator state of one subtask. The backend is a context manager.

    Args:
        restore: handles of snapshots, as ``redistribute_operator_state`` returns them. None stands
            for a subtask without state.
        place: the operator of the state, as ``uid`` or ``query/uid``. Snapshots are written into a
            folder of this name.
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
        handles: the handles of the snapshots and savepoints.
        given: whether the caller named a source, even if that source has no state.
        limits: the limits for reading savepoints.
    """

    handles: tuple[KeyedStateHandle | SavepointHandle, ...]
    given: bool
    limits: RestoreConfig = RestoreConfig()

    @classmethod
    def from_argument(
        cls, restore: Restorable | Iterable[Restorable | None] | None, config: Config | None
    ) -> Self:
        """Return the starting point for a ``restore`` argument: one source or several.

        Raises:
            RestoreError: a source is neither a handle nor a savepoint's path.
        """
        if isinstance(restore, (KeyedStateHandle, SavepointHandle, str, PathLike)):
            restore = [restore]
        each = list(restore or ())
        config = config or Config()
        registry = get_registry(config.plugins)
        opened = (_restorable(one, registry, config) for one in each if one is not None)
        return cls(tuple(opened), bool(each), config.restore)

    @property
    def checkpoint_id(self) -> int | None:
        """The highest checkpoint id of the handles; None if there are no handles."""
        return max((handle.checkpoint_id for handle in self.handles), default=None)

    def stored_operator(self, uid: str) -> KeyedStateHandle | SavedOperator | None:
        """Return a snapshot or a savepoint's record of an operator; None if there are none.

        The caller reads the stored key type and the number of key groups from it.

        Args:
            uid: the operator. It may be empty if the savepoint has only one operator.

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
            raise RestoreError(uid, (f"no operator {uid!r} in the savepoint; there are: {there}",))
        return savepoint.operator(OperatorId(uid=uid))

    def operator_state(
        self, uid: str, index: int = 0, parallelism: int = 1
    ) -> list[OperatorStateHandle]:
        """Return the handles of the operator state for subtask ``index`` of ``parallelism``."""
        return operator_state_share(self.handles, uid, index, parallelism, self.limits)


# ---------------------------------------------------------------- storages and savepoints


def _registry(config: Config | None) -> PluginRegistry:
    return get_registry((config or Config()).plugins)


@checked
def checkpoint_storage(
    uri: str | CheckpointStorage, *, config: Config | None = None
) -> CheckpointStorage:
    """Open a storage by URI: ``memory:``, ``file:/…``, an absolute path, ``s3://…``.

    The other schemes of fsspec work too, if the package for the scheme is installed.

    Args:
        uri: the URI; a storage is returned unchanged.
        config: names the plugins that may provide storages, and configures S3.

    Raises:
        ConfigError: no plugin knows the scheme, or the storage cannot be opened.
    """
    return _registry(config).storage(uri, config)


@checked
def seal_savepoint(
    path: Place, *, added: bool = False, config: Config | None = None
) -> SavepointHandle:
    """Accept the edited tables of a savepoint, i.e. write their new digests to the metadata.

    A restore refuses edited tables until this function was called. The function reads the Parquet
    files that the metadata names, and logs a warning about further Parquet files next to these.
    Every row must have the columns and types of the state. The function computes the column
    ``key_group`` from the key.

    Args:
        path: the savepoint's directory or URI.
        added: whether to read all Parquet files in a state's folder, even if the metadata does not
            name them.
        config: names the plugins that may provide storages, and limits the memory.

    Raises:
        CorruptSnapshotError: a file is missing, or a row cannot be stored; the error names the
            file and the row. The savepoint remains unchanged.
    """
    return rewriting.seal_savepoint(_registry(config).savepoint(path, config), added=added)


@checked
def rekey_savepoint(
    source: Place, target: Place, max_parallelism: int, *, config: Config | None = None
) -> SavepointHandle:
    """Write a copy of a savepoint with another number of key groups.

    Args:
        source: the savepoint to read; it remains unchanged.
        target: a directory or URI for the copy.
        max_parallelism: the new number of key groups.
        config: names the plugins that may provide storages, and limits the memory.

    Raises:
        CorruptSnapshotError: the source is damaged.
        DirectoryNotEmptyError: the target contains files.
        MaxParallelismError: the source has only a part of an operator's key groups.
    """
    check_parallelism(max_parallelism)
    registry = _registry(config)
    old, new = registry.savepoint(source, config), registry.savepoint(target, config)
    return rewriting.rekey_savepoint(old, new, max_parallelism)


def assign_to_key_group(
    key: Any,
    max_parallelism: int,
    key_type: DeclaredKeyType[Any] | None = None,
    *,
    config: Config | None = None,
) -> int:
    """Return the key group of a key: ``pmod(xxhash64(key), max_parallelism)``, as on Spark.

    Args:
        key: the key; a Python ``int`` is a ``bigint``.
        max_parallelism: the number of key groups.
        key_type: the declared type; inferred from the key if it is None.
        config: names the plugins that may provide serializers.

    Raises:
        NullValueError: the key is None.
        StateTypeError: the key does not fit the type.
    """
    if config is not None:
        check_type("config", config, Config)

    def find(declared: type) -> TypeSerializer[Any] | None:
        return _registry(config).serializer(declared)

    # Callers pass many keys, so plugins are asked only about types that are not built in.
    return types.assign_to_key_group(key, max_parallelism, key_type, find)
