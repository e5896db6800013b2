"""Public functions that need plugins but no backend; each takes the job's configuration."""

from __future__ import annotations

from os import PathLike
from typing import Any

from millpond import types
from millpond.arguments import check_type, checked
from millpond.config import Config
from millpond.keygroups import check_parallelism
from millpond.plugins import PluginRegistry, get_registry
from millpond.savepoints import seal
from millpond.snapshots.handles import SavepointHandle
from millpond.storage.checkpoint_storage import CheckpointStorage
from millpond.types import DeclaredKeyType, TypeSerializer

Place = str | PathLike[str] | CheckpointStorage | SavepointHandle
"""Where a savepoint is: a directory, a URI, a storage, or its handle."""


def _registry(config: Config | None) -> PluginRegistry:
    return get_registry((config or Config()).plugins)


@checked
def checkpoint_storage(
    uri: str | CheckpointStorage, *, config: Config | None = None
) -> CheckpointStorage:
    """Open a storage by URI: ``memory:``, ``file:/…``, an absolute path, ``s3://…``.

    Any other scheme that fsspec knows works too, where its package is installed.

    Args:
        uri: the URI; a storage is returned as it is.
        config: says which plugins may provide storages, and how S3 is reached.

    Raises:
        ConfigError: no plugin knows the scheme, or the place cannot be opened.
    """
    return _registry(config).storage(uri, config)


@checked
def seal_savepoint(
    path: Place, *, added: bool = False, config: Config | None = None
) -> SavepointHandle:
    """Accept what an edited savepoint's tables hold now, and seal it anew.

    It takes the files that the metadata names; of other Parquet files beside them a warning
    says that they are left out. Every row is checked: it must have the columns and types of
    the state; its ``key_group`` is computed from its key.

    Args:
        path: the savepoint's directory or URI.
        added: take all Parquet files in a state's folder instead, whatever their names.
        config: says which plugins may provide storages, and how much memory may be needed.

    Raises:
        CorruptSnapshotError: a file is gone, or a table holds something that cannot be stored,
            named by file and row; the savepoint stays as it was.
    """
    limits = (config or Config()).restore
    place = _registry(config).savepoint(path, config)
    return seal.seal_savepoint(place, added=added, limits=limits)


@checked
def rekey_savepoint(
    source: Place, target: Place, max_parallelism: int, *, config: Config | None = None
) -> SavepointHandle:
    """Write a savepoint anew with another number of key groups.

    Args:
        source: the savepoint to read; it stays as it is.
        target: a directory or URI for the new one.
        max_parallelism: the number of key groups from now on.
        config: says which plugins may provide storages, and what the source's files may ask for.

    Raises:
        CorruptSnapshotError: the source is damaged.
        DirectoryNotEmptyError: the target holds files.
        MaxParallelismError: it holds only a part of an operator's key groups.
    """
    check_parallelism(max_parallelism)
    registry = _registry(config)
    old, new = registry.savepoint(source, config), registry.savepoint(target, config)
    return seal.rekey_savepoint(old, new, max_parallelism, (config or Config()).restore)


def assign_to_key_group(
    key: Any,
    max_parallelism: int,
    key_type: DeclaredKeyType[Any] | None = None,
    *,
    config: Config | None = None,
) -> int:
    """The key group of a key: ``pmod(xxhash64(key), max_parallelism)``, as Spark computes it.

    Args:
        key: the key; a Python ``int`` is a ``bigint``.
        max_parallelism: the number of key groups.
        key_type: the declared type; taken from the key where it is None.
        config: says which plugins may provide serializers.

    Raises:
        NullValueError: the key is None.
        StateTypeError: the key does not fit the type.
    """
    if config is not None:
        check_type("config", config, Config)

    def find(declared: type) -> TypeSerializer[Any] | None:
        return _registry(config).serializer(declared)

    # Called for each of many keys: plugins are asked only about a type that is none of ours.
    return types.assign_to_key_group(key, max_parallelism, key_type, find)
