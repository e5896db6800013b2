"""Public functions that need plugins but no backend; each takes the job's configuration."""

from __future__ import annotations

from os import PathLike
from typing import Any

from millpond import types
from millpond.arguments import check_type, checked
from millpond.config import Config
from millpond.keygroups import check_parallelism
from millpond.plugins import PluginRegistry, get_registry
from millpond.savepoints import rewriting
from millpond.snapshots.handles import SavepointHandle
from millpond.storage.checkpoint_storage import CheckpointStorage
from millpond.types import DeclaredKeyType, TypeSerializer

Place = str | PathLike[str] | CheckpointStorage | SavepointHandle
"""The location of a savepoint: a directory, a URI, a storage, or a handle."""


def _registry(config: Config | None) -> PluginRegistry:
    return get_registry((config or Config()).plugins)


@checked
def checkpoint_storage(
    uri: str | CheckpointStorage, *, config: Config | None = None
) -> CheckpointStorage:
    """Open a storage by URI: ``memory:``, ``file:/…``, an absolute path, ``s3://…``.

    Any other scheme of fsspec works too, if its package is installed.

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
    """Accept the edited tables of a savepoint, and seal it again.

    It reads the files that the metadata names, and warns about other Parquet files next to them.
    Every row must have the columns and types of the state; its ``key_group`` is computed from its
    key.

    Args:
        path: the savepoint's directory or URI.
        added: whether to read all Parquet files in a state's folder instead.
        config: names the plugins that may provide storages, and limits the memory.

    Raises:
        CorruptSnapshotError: a file is missing, or a row cannot be stored; the error names file
            and row, and the savepoint remains unchanged.
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

    # Called for each of many keys, so plugins are only asked about types that are not built in.
    return types.assign_to_key_group(key, max_parallelism, key_type, find)
