"""The metadata file ``savepoint.json`` of a savepoint, and the reservation of its place."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import posixpath
import re
import uuid
from collections.abc import Callable, Container, Iterable
from functools import partial
from os import PathLike, fspath
from pathlib import PurePosixPath
from typing import Any, Self
from urllib.parse import quote

import attrs

from millpond.backend.operator_state import OperatorStateMeta
from millpond.config import RestoreConfig
from millpond.errors import (
    CorruptSnapshotError,
    DirectoryNotEmptyError,
    RestoreError,
    StorageAccessError,
    TooManyStatesError,
)
from millpond.format_versions import SAVEPOINT
from millpond.keygroups import MAX_KEY_GROUPS, KeyGroupRange, check_range
from millpond.operator_id import SAVEPOINT_FILE, OperatorId
from millpond.safe_decoding import decoding, parse_json
from millpond.sealed_json import SealedJson
from millpond.snapshots.handles import (
    SavepointHandle,
    check_counts,
    check_operator_states,
    check_states,
    snapshot_converter,
)
from millpond.state.state_meta import StateMeta
from millpond.storage.checkpoint_storage import CheckpointStorage, check_path, public_uri
from millpond.storage.local_directory import LocalStorage, local_uri
from millpond.types import SerializerSnapshot

_LOG = logging.getLogger("millpond.checkpoint")
METADATA_FILE = SAVEPOINT_FILE
MARKER_ENDING = ".writing"
"""The ending of the name of a marker: a file that shows that a writer uses the directory."""
_OWN = "_millpond_"
"""The prefix of the names of Millpond's own states, for example of timers."""
_MAX_FOLDER = 255
"""Maximum length of a file name in most file systems, in bytes."""
_CUT, _DIGITS = 200, 32
_BROKEN_ESCAPE = re.compile("%.?$")
_NAMED_PLACES = 5
"""Maximum number of directories that a message names."""


@attrs.frozen
class TableFile:
    """The record of one Parquet file of a state.

    Attributes:
        path: the file, relative to the savepoint.
        size: the number of bytes.
        digest: the SHA-256 digest of the bytes.
        rows: the number of rows.
        first_group: the lowest key group of the rows.
        last_group: the highest key group of the rows.
    """

    path: str
    size: int
    digest: str
    rows: int
    first_group: int
    last_group: int


@attrs.frozen
class SavedState:
    """The record of a keyed state in a savepoint.

    Attributes:
        meta: the metadata of the state.
        files: the files with the rows of the state, by key group.
        exact: whether the table has the exact form, in which integers are strings of digits, and
            datetimes ISO strings. This form is used if a value does not fit the usual column type,
            such as int64.
    """

    meta: StateMeta
    files: tuple[TableFile, ...]
    exact: bool = False


@attrs.frozen
class SavedOperatorState:
    """The record of one operator state in a savepoint.

    Attributes:
        meta: the metadata of the state.
        subtasks: the number of the operator's subtasks when the savepoint was written.
        file: the file with all elements; None if there are no elements.
        exact: whether the table has the exact form; see ``SavedState``.
    """

    meta: OperatorStateMeta
    subtasks: int
    file: TableFile | None
    exact: bool = False


@attrs.frozen
class SavedOperator:
    """The record of an operator's states in a savepoint, for some or all of its key groups."""

    uid: str
    max_parallelism: int
    key_group_range: KeyGroupRange
    key: SerializerSnapshot
    states: tuple[SavedState, ...]
    operator_states: tuple[SavedOperatorState, ...] = ()

    @property
    def files(self) -> tuple[TableFile, ...]:
        """The files of all tables, of keyed states and of operator states."""
        of_operator = [state.file for state in self.operator_states if state.file is not None]
        return (*(file for state in self.states for file in state.files), *of_operator)

    @property
    def metas(self) -> tuple[StateMeta, ...]:
        """The metadata of each keyed state."""
        return tuple(state.meta for state in self.states)


@attrs.frozen
class Savepoint:
    """The metadata of a whole savepoint."""

    checkpoint_id: int
    operators: tuple[SavedOperator, ...]
    format_version: int = attrs.field(factory=lambda: SAVEPOINT.version)

    def operator(self, wanted: OperatorId) -> SavedOperator:
        """Return the record of the operator with the uid of `wanted`.

        If the savepoint has only one operator, return its record for every uid.

        Raises:
            RestoreError: no operator has this uid, and the savepoint has several operators or none.
        """
        named = [operator for operator in self.operators if operator.uid == wanted.uid]
        found = named or self.operators
        if len(found) != 1:
            known = ", ".join(repr(operator.uid) for operator in self.operators) or "none"
            fault = f"no operator {wanted.uid!r} in it" if wanted.uid else "no uid says whose state"
            raise RestoreError(wanted.label, (f"{fault}; there are: {known}",))
        return found[0]


def state_folder(uid: str, state: str, ending: str = "") -> str:
    """Return the folder for a new table of a state, relative to the savepoint.

    Characters that are special in paths are quoted. Long names are cut and end with a digest. No
    folder begins with ``_`` or a dot, because readers of data sets skip such folders. A state of
    Millpond itself never gets the folder of a user's state.

    Args:
        uid: the operator.
        state: the name of the state.
        ending: a text to append to the folder's name.
    """
    if state.startswith(_OWN):
        return f"{uid}/millpond!{state.removeprefix(_OWN)}{ending}"
    name = quote(state, safe=" +=@,")
    if name[0] in "_.":
        name = f"%{ord(name[0]):02X}{name[1:]}"
    if len(name) + len(ending) > _MAX_FOLDER:
        digest = hashlib.sha256(state.encode()).hexdigest()[:_DIGITS]
        name = f"{_BROKEN_ESCAPE.sub('', name[:_CUT])}~{digest}"
    return f"{uid}/{name}{ending}"


_CONVERTER = snapshot_converter()
_FEWER_TABLES = "save fewer operators or states in one savepoint"
_SEALED = SealedJson("a savepoint", "savepoint", readable=True, hint="; see mp.seal_savepoint")


def write_savepoint(handle: SavepointHandle, savepoint: Savepoint) -> None:
    """Write the metadata of a savepoint. With the metadata the savepoint is complete.

    Raises:
        CorruptSnapshotError: readers would refuse the metadata.
        TooManyStatesError, SnapshotTooLargeError: the metadata exceed a limit of readers.
    """
    most = handle.limits.max_states
    for operator in savepoint.operators:
        if len(operator.states) > most:
            state = operator.states[most].meta.name
            raise TooManyStatesError("", state, most, "restore.max-states")
    current = attrs.evolve(savepoint, format_version=SAVEPOINT.version)
    with decoding(handle.path(METADATA_FILE), "it would not be a savepoint"):
        _check(current)
    text = json.dumps(_CONVERTER.unstructure(current), indent=1)
    handle.storage.write_all(handle.path(METADATA_FILE), _SEALED.seal(text), _FEWER_TABLES)


def operator_to_json(operator: SavedOperator) -> str:
    """Return the record of an operator as JSON, which a Spark task sends to the driver."""
    return json.dumps(_CONVERTER.unstructure(operator))


def operator_from_json(text: str) -> SavedOperator:
    """Return the record of an operator from the JSON that ``operator_to_json`` has returned."""
    return _CONVERTER.structure(json.loads(text), SavedOperator)


def is_savepoint(handle: SavepointHandle) -> bool:
    """Return whether the directory of `handle` has a savepoint's metadata file or a link to one."""
    try:
        handle.storage.size(handle.path(METADATA_FILE))
    except CorruptSnapshotError:
        return False
    return True


def unfinished(handle: SavepointHandle) -> str:
    """Return an error message if `handle` has an unfinished savepoint, else an empty string."""
    root = handle.path("x")[:-1]
    held = [path.removeprefix(root) for path in handle.storage.list(handle.folder)]
    markers = [name for name in held if name.endswith(MARKER_ENDING) and "/" not in name]
    if not markers or METADATA_FILE in held:
        return ""
    return (
        f"a savepoint was begun there and is not finished, as {markers[0]} says: wait for its "
        "writer, or, if it has died, delete the directory and take the savepoint again"
    )


def why_no_savepoint(handle: SavepointHandle) -> str:
    """Return an error message for a directory that is not a savepoint.

    The message names the savepoints in folders below the directory, or says that the directory has
    an unfinished savepoint. The message is empty if neither is the case.
    """
    root, ending = handle.path("x")[:-1], f"/{METADATA_FILE}"
    below = [path for path in handle.storage.list(handle.folder) if path.endswith(ending)]
    found = [path.removeprefix(root).removesuffix(ending) for path in below]
    if not found:
        return unfinished(handle)
    more = f" and {len(found) - _NAMED_PLACES} more" if len(found) > _NAMED_PLACES else ""
    return (
        f"expected a savepoint here; found savepoints in {', '.join(found[:_NAMED_PLACES])}{more}"
    )


def read_savepoint(handle: SavepointHandle) -> Savepoint:
    """Read the metadata of a savepoint, and check them.

    Raises:
        CorruptSnapshotError: the metadata are missing, damaged, or name a path outside of the
            savepoint.
        ApiVersionError: the metadata were written by a newer Millpond.
    """
    path = f"{public_uri(handle.storage.uri)}/{handle.path(METADATA_FILE)}"
    try:
        data = handle.storage.read_all(handle.path(METADATA_FILE))
    except CorruptSnapshotError as error:
        raise CorruptSnapshotError(path, why_no_savepoint(handle) or error.reason) from error
    text = _SEALED.unseal(data, path)
    with decoding(path, "it is not a savepoint"):
        body: dict[str, Any] = parse_json(text)
        SAVEPOINT.check(body["format_version"], path)
        savepoint = _CONVERTER.structure(body, Savepoint)
        _check(savepoint)
    return savepoint


def _check(savepoint: Savepoint) -> None:
    """Raise an error if the metadata contradict themselves, or name a file outside the savepoint.

    Raises:
        ValueError: an entry is invalid or contradicts another one.
        CorruptSnapshotError: a path is outside of the savepoint.
    """
    check_counts([savepoint.checkpoint_id])
    uids = [operator.uid for operator in savepoint.operators]
    paths = [file.path for operator in savepoint.operators for file in operator.files]
    if len(set(uids)) < len(uids) or len(set(paths)) < len(paths):
        raise ValueError("an operator or a file is named twice")
    for operator in savepoint.operators:
        check_range(operator.key_group_range, operator.max_parallelism)
        check_states(operator.metas)
        check_operator_states([state.meta for state in operator.operator_states])
        for state in operator.operator_states:
            check_counts([state.subtasks], MAX_KEY_GROUPS)
        held = operator.key_group_range
        for file in (file for state in operator.states for file in state.files):
            if file.first_group not in held or file.last_group not in held:
                raise ValueError(f"the file {file.path!r} has other key groups than {held}")
        for file in operator.files:
            check_path(file.path)
            check_counts([file.size, file.rows, file.first_group, file.last_group])


def locate_savepoint(
    place: str | PathLike[str] | CheckpointStorage | SavepointHandle,
    open_uri: Callable[[str], CheckpointStorage],
    limits: RestoreConfig = RestoreConfig(),
) -> SavepointHandle:
    """Return the handle of a savepoint, from a path, a URI, a storage or a handle.

    Args:
        place: the path, URI, storage or handle.
        open_uri: a function that opens the storage of a URI.
        limits: the limits for the memory that the savepoint's files may need.
    """
    if isinstance(place, SavepointHandle):
        return attrs.evolve(place, limits=limits)
    if isinstance(place, CheckpointStorage):
        return SavepointHandle(0, "", place, limits=limits)
    text = fspath(place)
    scheme = text.partition(":")[0]
    is_uri = ":" in text and "/" not in scheme and len(scheme) > 1
    uri = text if is_uri else local_uri(text)
    return SavepointHandle(0, "", open_uri(uri), limits=limits)


def lies_within(target: CheckpointStorage, root: CheckpointStorage) -> bool:
    """Return whether the root of `target` is the root of the storage `root`, or below it."""
    inner, outer = _normal(target), _normal(root)
    return inner == outer or inner.startswith(f"{outer}/")


def _normal(storage: CheckpointStorage) -> str:
    """Return the path or URI of a storage's root in a form that can be compared.

    In a local path, symbolic links are followed.
    """
    if isinstance(storage, LocalStorage):
        return os.path.realpath(storage.directory)
    return posixpath.normpath(storage.uri)


@attrs.frozen
class Reservation:
    """A directory that is reserved for one writer of a new savepoint; a context manager.

    If the block of the context manager raises an error, the written files are deleted.

    Attributes:
        handle: the directory.
        uids: the operators of the savepoint.
        marker: the name of the file that shows other writers that the directory is reserved.
        remove_new: a function that deletes the directories that the reservation has created, if
            they are empty.
    """

    handle: SavepointHandle
    uids: frozenset[str]
    marker: str
    remove_new: Callable[[], None]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.release()
        else:
            self.abandon()

    def complete(self, savepoint: Savepoint) -> None:
        """Write the metadata of `savepoint`, after the deletion of tables that it does not name.

        Attempts have left such tables: failed tasks, and writers that began again with a state in
        the exact form. Readers of a state's folder would read the rows twice.
        """
        _delete_unnamed(self.handle, savepoint)
        write_savepoint(self.handle, savepoint)

    def release(self) -> None:
        """Delete the marker, and the directories that the reservation created if they are empty."""
        if self.handle.storage.delete_if_possible(self.handle.path(self.marker)):
            self.remove_new()

    def abandon(self) -> None:
        """Delete the written files and the marker. If a deletion fails, log a warning."""
        for step in (partial(delete_savepoint, self.handle, self.uids), self.release):
            try:
                step()
            except Exception as failed:  # noqa: BLE001 - any storage's; the first error counts
                place = _place(self.handle)
                _LOG.warning("%s: files of a failed savepoint remain: %s", place, failed)


def reserved(handle: SavepointHandle, uids: Iterable[str]) -> Reservation:
    """Reserve the empty directory of `handle` for a savepoint of the operators `uids`.

    A marker file is written first, and then the directory is listed. If several writers do this at
    the same time, each sees the markers or files of the others, and at most one writer continues.

    Raises:
        DirectoryNotEmptyError: the directory has files, or another writer has reserved it.
        StorageAccessError: the path is not a directory, or cannot be read.
    """
    marker = f"{uuid.uuid4().hex}{MARKER_ENDING}"
    storage = handle.storage
    remove_new = storage.remover_of_new(handle.folder)
    try:
        held = storage.list(handle.folder)
    except CorruptSnapshotError as error:
        cure = "Name a directory that does not exist yet"
        raise StorageAccessError(_place(handle), error.reason, cure) from error
    if not held:
        try:
            storage.write(handle.path(marker), [b""])
        except BaseException:
            remove_new()
            raise
        held = [path for path in storage.list(handle.folder) if path != handle.path(marker)]
        if not held:
            return Reservation(handle, frozenset(uids), marker, remove_new)
        storage.delete(handle.path(marker))
    held.sort(key=lambda path: not path.endswith(MARKER_ENDING))
    shown = (*held[:3], "…") if len(held) > 3 else tuple(held)  # noqa: PLR2004
    raise DirectoryNotEmptyError(_place(handle), shown, unfinished(handle))


def delete_savepoint(handle: SavepointHandle, uids: Container[str]) -> None:
    """Delete the tables and the metadata of a savepoint, and folders that become empty.

    Only tables of the operators `uids` are deleted.
    """
    paths = [PurePosixPath(path) for path in written_files(handle, uids)]
    for path in paths:
        handle.storage.delete_if_possible(str(path))
    root = PurePosixPath(handle.folder)
    folders = {parent for path in paths for parent in path.parents if root in parent.parents}
    handle.storage.delete_empty(map(str, folders))


def written_files(handle: SavepointHandle, uids: Container[str]) -> list[str]:
    """Return the paths of a savepoint's metadata file and of the tables of the operators `uids`."""
    root = PurePosixPath(handle.folder)

    def is_ours(path: PurePosixPath) -> bool:
        if path.suffix != ".parquet" or path.parents[2:3] != (root,):  # not uid/state/file
            return path == root / METADATA_FILE
        return path.parents[1].name in uids

    return [path for path in handle.storage.list(handle.folder) if is_ours(PurePosixPath(path))]


def _delete_unnamed(handle: SavepointHandle, savepoint: Savepoint) -> None:
    """Delete the tables in the folders of a savepoint's keyed states that it does not name."""
    operators = savepoint.operators
    named = {handle.path(file.path) for operator in operators for file in operator.files}
    folders = {
        handle.path(state_folder(operator.uid, meta.name))
        for operator in operators
        for meta in operator.metas
    }
    for path in written_files(handle, {operator.uid for operator in operators}):
        if path not in named and path.rpartition("/")[0] in folders:
            handle.storage.delete_if_possible(path)


def _place(handle: SavepointHandle) -> str:
    return "/".join(filter(None, (public_uri(handle.storage.uri), handle.folder)))
