"""The paths and URIs that commands are called with: checkpoints, savepoints and queries."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import get_args

import click
from millpond.config import Config, RestoreConfig
from millpond.errors import (
    UNPLACED,
    ConfigError,
    CorruptSnapshotError,
    MillpondError,
    PlaceError,
    printable,
)
from millpond.operator_id import OperatorId
from millpond.plugins import PluginRegistry, get_registry
from millpond.savepoints.savepoint_file import (
    METADATA_FILE,
    is_savepoint,
    lies_within,
    unfinished,
    why_no_savepoint,
)
from millpond.snapshots.catalog import Catalog, OperatorChoice, operator_named, read_catalog
from millpond.snapshots.handles import KeyedStateHandle, SavepointHandle
from millpond.snapshots.spark_checkpoint import METADATA, is_spark_checkpoint, query_id
from millpond.snapshots.subtasks import Subtask
from millpond.state.names import Scope
from millpond.storage.local_directory import LocalStorage

from millpond_cli.inspection.stored_operator import (
    IN_POINTERS,
    StoredOperator,
    open_stored,
    operator_of_parts,
)
from millpond_cli.spark import local_session
from millpond_cli.terminal import complain


def tool_registry() -> PluginRegistry:
    """Return the registry of the plugins that the file given by ``millpond --config`` allows.

    Without the option, all installed plugins are allowed.
    """
    return get_registry(tool_config().plugins)


def directory_handle(path: str) -> SavepointHandle:
    """Return the handle of a directory in a storage that the file of ``millpond --config`` allows.

    Raises:
        PlaceError: no allowed storage can open the path or URI.
    """
    try:
        return tool_registry().savepoint(path, tool_config())
    except ConfigError as error:
        if error.place != UNPLACED or error.key != "checkpoint.dir":
            raise
        raise PlaceError(printable(path), error.reason) from error


def tool_limits() -> RestoreConfig:
    """Return the limits on stored files (``restore.*``) from the file of ``millpond --config``."""
    return tool_config().restore


def tool_config() -> Config:
    """Return the configuration from the file of ``millpond --config``, or the default one."""
    config = click.get_current_context().find_root().obj
    return config if isinstance(config, Config) else Config()


_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")


def place_text(value: str) -> str:
    """Return `value`, a path or URI; raise BadParameter if `value` is empty.

    An empty value usually comes from a shell variable that is not set.
    """
    if not value.strip():
        raise click.BadParameter("the path is empty")
    return value


def file_path(value: str) -> Path:
    """Return `value` as the path of a local file; raise BadParameter if it is empty or a URI."""
    if is_uri(place_text(value)):
        raise click.BadParameter(f"{value!r} is a URI; a local path is expected")
    return Path(value)


def is_uri(path: str) -> bool:
    """Return whether `path` begins with the scheme of a URI."""
    return _SCHEME.match(path) is not None


snapshots_option = click.option(
    "--snapshots",
    type=place_text,
    required=True,
    metavar="DIRECTORY",
    help="The directory that spark.millpond.checkpoint.dir names.",
)

query_snapshots_option = click.option(
    "--snapshots",
    type=place_text,
    metavar="DIRECTORY",
    help="The directory of spark.millpond.checkpoint.dir; then PATH is the checkpointLocation.",
)
scope_option = click.option(
    "--scope",
    type=click.Choice(get_args(Scope)),
    help="Kind of the state, if several have the name; list is operator state.",
)


@contextmanager
def naming_directory(path: str) -> Iterator[None]:
    """Add the directory `path` to Millpond's errors in the block that do not name it.

    Usually such an error names a file by its path within the directory.

    Raises:
        PlaceError: an error of the block, with the directory before the error's message.
    """
    try:
        yield
    except MillpondError as error:
        said = str(error)
        # If `path` has no slash, the message may contain this word for another reason.
        if path in vars(error).values() or ("/" in path and printable(path) in said):
            raise
        raise PlaceError(path, said.removesuffix(".")) from error


def source(path: str) -> SavepointHandle:
    """Return the handle of an existing directory, from which the command will read.

    Raises:
        PlaceError: the directory does not exist, or is a file.
    """
    handle = directory_handle(path)
    if isinstance(handle.storage, LocalStorage):
        root = handle.storage.directory
        if not root.exists():
            raise PlaceError(path, "there is no such directory")
        if not root.is_dir():
            raise PlaceError(path, "it is a file, not a directory")
    return handle


def savepoint_place(path: str) -> SavepointHandle:
    """Return the handle of an existing savepoint.

    Raises:
        PlaceError: the directory does not exist, or holds no savepoint.
    """
    handle = source(path)
    if not is_savepoint(handle):
        nothing = f"it is not a savepoint, which has a file named {METADATA_FILE}"
        raise PlaceError(path, why_no_savepoint(handle) or nothing)
    return handle


def catalog_of(path: str) -> Catalog:
    """Return the catalog of a checkpoint directory.

    Raises:
        PlaceError: the directory does not exist, or is not a checkpoint directory.
    """
    handle = source(path)
    with naming_directory(path):
        catalog = read_catalog(handle.storage)
    if not catalog.subtasks:
        reason = _other_kind(handle)
        if reason:
            raise PlaceError(path, reason)
    return catalog


def stored_operators(
    path: str,
    checkpoint_id: int | None = None,
    snapshots: str | None = None,
    operator: str | None = None,
    *,
    query: bool = False,
    refused: list[MillpondError] | None = None,
) -> list[StoredOperator]:
    """Return the operators stored in a savepoint or in one checkpoint of a directory.

    Args:
        path: the savepoint, the checkpoint directory, or a query's checkpointLocation.
        checkpoint_id: the checkpoint; by default the newest one.
        snapshots: the checkpoint directory, if `path` is a checkpointLocation. In this case the
            default of `checkpoint_id` is the last checkpoint that Spark has committed.
        operator: the uid, or query/uid, of the only operator to return. It is ignored if `path` is
            a savepoint or a checkpointLocation.
        query: whether to return all operators of the selected operator's query.
        refused: a list to which the errors of unreadable operators are appended if at least one
            operator can be read.

    Raises:
        PlaceError: the directory does not exist, or holds neither a savepoint nor snapshots.
        RestoreError, CorruptSnapshotError: a file in the directory cannot be read.
    """
    handle, wanted = source(path), operator_named(operator)
    if snapshots is not None:
        return _committed_operators(path, snapshots, checkpoint_id)
    if not is_savepoint(handle):
        subtasks = catalog_of(path).subtasks
        if not subtasks:
            nothing = f"it holds neither a savepoint nor snapshots{IN_POINTERS}"
            raise PlaceError(path, why_no_savepoint(handle) or nothing)
        queries = frozenset(each.operator.query for each in subtasks if wanted(each.operator))
        if query and queries:
            wanted = OperatorChoice(queries=queries)
        mine = [each for each in subtasks if each.operator.query in queries]
        check_id(mine, path, checkpoint_id)
        meant = [each for each in subtasks if wanted(each.operator)]
        if any(handle.carries for each in meant for handle in each.handles[-1:]):
            complain(f"{path}: there may be newer snapshots than it shows{IN_POINTERS}.")
    elif checkpoint_id is not None:
        raise PlaceError(path, "it is a savepoint, which holds one checkpoint: none can be chosen")
    with naming_directory(path):
        limits = tool_limits()
        return open_stored(handle, tool_registry(), checkpoint_id, limits, wanted, refused)


def committed_handles(
    checkpoint: str, snapshots: str, batch: int | None
) -> dict[str, list[KeyedStateHandle]]:
    """Return the snapshots that a query has committed, by the uid of the operator.

    Args:
        checkpoint: the query's checkpointLocation.
        snapshots: the checkpoint directory.
        batch: the batch; by default the last committed one.

    Raises:
        PlaceError: `checkpoint` is not the checkpointLocation of a query, or the query's snapshots
            are not in `snapshots`.
        JobError: Spark cannot read the checkpoint.
    """
    query_checkpoint(checkpoint)
    with local_session(checkpoint) as spark, naming_directory(checkpoint):
        from millpond_spark.driver.savepoints import query_handles  # noqa: PLC0415 - needs pyspark

        storage = source(snapshots).storage
        place = spark_path(checkpoint)
        try:
            return query_handles(spark, place, storage, batch, tool_limits())
        except CorruptSnapshotError as error:
            question = (
                f"Is this the directory that spark.millpond.checkpoint.dir names for {checkpoint}?"
            )
            raise PlaceError(snapshots, f"{error} {question}") from error


def _committed_operators(
    path: str, snapshots: str, checkpoint_id: int | None
) -> list[StoredOperator]:
    """Return the operators of a query from the snapshots that Spark has committed.

    Args:
        path: the query's checkpointLocation.
        snapshots: the checkpoint directory.
        checkpoint_id: the checkpoint; by default the last committed one.
    """
    if checkpoint_id == 0:
        raise PlaceError(path, "there is no checkpoint 0 in it; a query's first one is 1")
    batch = None if checkpoint_id is None else checkpoint_id - 1
    handles = committed_handles(path, snapshots, batch)
    query = query_id(source(path).storage)
    found = [
        operator_of_parts(
            OperatorId(query, uid),
            sorted(parts, key=lambda part: part.checkpoint_id, reverse=True),
            tool_registry(),
            tool_limits(),
        )
        for uid, parts in handles.items()
        if parts
    ]
    if not found:
        raise PlaceError(path, "Spark has committed no state in it")
    return found


def check_id(subtasks: Sequence[Subtask], path: str, checkpoint_id: int | None) -> None:
    """Raise PlaceError if `checkpoint_id` is lower or higher than all ids in the directory."""
    ids = {handle.checkpoint_id for each in subtasks for handle in each.handles}
    if ids:  # if all metadata is unreadable, reading it raises an error later
        ids |= {each.files[path] for each in subtasks for path in each.broken}
    if checkpoint_id is not None and ids and not min(ids) <= checkpoint_id <= max(ids):
        known = f"there are {min(ids)} to {max(ids)}"
        raise PlaceError(path, f"there is no checkpoint {checkpoint_id} in it; {known}")


def _other_kind(handle: SavepointHandle) -> str:
    """Return an error message if a directory is a savepoint or a query's checkpointLocation.

    Otherwise return an empty string: the directory may be an empty checkpoint directory.
    """
    if is_savepoint(handle):
        return (
            "it is a savepoint, not a checkpoint directory: use millpond savepoint show, or verify"
        )
    if is_spark_checkpoint(handle.storage):
        return (
            "it is the checkpointLocation of a Spark query; the state is in the directory of "
            "spark.millpond.checkpoint.dir"
        )
    return ""


def query_checkpoint(path: str) -> SavepointHandle:
    """Return the handle of a Spark query's checkpointLocation.

    Raises:
        PlaceError: the directory does not exist, or is not a checkpointLocation.
    """
    handle = source(path)
    try:
        handle.storage.size(METADATA)
    except CorruptSnapshotError:
        reason = (
            "it is not the checkpointLocation of a Spark query, which has a file named metadata"
        )
        raise PlaceError(path, reason) from None
    with naming_directory(path):
        query_id(handle.storage)
    return handle


def spark_path(path: str) -> str:
    """Return the directory `path` in the form that Spark understands.

    A local URI becomes a path, because Spark does not decode percent signs in URIs.
    """
    storage = directory_handle(path).storage
    return str(storage.directory) if isinstance(storage, LocalStorage) else path


def new_place(path: str, *sources: str | None) -> SavepointHandle:
    """Return the handle of a new directory for a savepoint.

    Args:
        path: the new directory.
        sources: the directories that the command reads.

    Raises:
        PlaceError: the directory is not empty, is a file, or is inside one of `sources`.
    """
    handle = directory_handle(path)
    _refuse_within(handle, path, sources, "directory")
    try:
        used = bool(handle.storage.list(""))
    except CorruptSnapshotError as error:
        raise PlaceError(path, error.reason) from error
    if used:
        reason = unfinished(handle) or "it is not empty; name a directory that does not exist yet"
        raise PlaceError(path, reason)
    return handle


def new_file(path: Path, *sources: str | None) -> None:
    """Raise PlaceError if the new file `path` is inside one of the directories `sources`."""
    handle = directory_handle(str(path.absolute()))
    _refuse_within(handle, str(path), sources, "file")


def _refuse_within(
    handle: SavepointHandle, path: str, sources: Sequence[str | None], kind: str
) -> None:
    """Raise PlaceError if a target is inside a directory that the command reads.

    Args:
        handle: the handle of the target.
        path: the target, for errors.
        sources: the directories that the command reads; None is skipped.
        kind: ``directory`` or ``file``, for errors.
    """
    for each in filter(None, sources):
        if lies_within(handle.storage, directory_handle(each).storage):
            raise PlaceError(
                path, f"it lies in {each}, which this command reads; name another {kind}"
            )
