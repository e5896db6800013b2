"""The metadata of a savepoint: ``savepoint.json`` at its root."""

from __future__ import annotations

import hashlib
import json
import os
import posixpath
import re
from collections.abc import Callable
from os import PathLike, fspath
from typing import Any
from urllib.parse import quote

import attrs

from millpond.backend.operator_state import OperatorStateMeta
from millpond.config import RestoreConfig
from millpond.errors import (
    CorruptSnapshotError,
    RestoreError,
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

METADATA_FILE = SAVEPOINT_FILE
MARKER_ENDING = ".writing"
"""Of the file that says, in a savepoint's own directory, that somebody writes there."""
_OWN = "_millpond_"
"""How the names of states begin that are not the user's, as those of timers."""
_MAX_FOLDER = 255
"""Bytes of a name in most file systems."""
_CUT, _DIGITS = 200, 32
_BROKEN_ESCAPE = re.compile("%.?$")
_TOLD = 5
"""So many places are named in a message."""


@attrs.frozen
class TableFile:
    """One Parquet file of a state: path below the savepoint's root, bytes, SHA-256, extent."""

    path: str
    size: int
    digest: str
    rows: int
    first_group: int
    last_group: int


@attrs.frozen
class SavedState:
    """A state's table.

    Attributes:
        exact: ints are written as digits and datetimes as ISO texts, because some value does
            not fit the natural column type.
    """

    meta: StateMeta
    files: tuple[TableFile, ...]
    exact: bool = False


@attrs.frozen
class SavedOperatorState:
    """An operator state's table.

    Attributes:
        subtasks: how many there were.
        file: None where the state is empty.
        exact: see ``SavedState``.
    """

    meta: OperatorStateMeta
    subtasks: int
    file: TableFile | None
    exact: bool = False


@attrs.frozen
class SavedOperator:
    """The states of one operator, of some or all of its key groups."""

    uid: str
    max_parallelism: int
    key_group_range: KeyGroupRange
    key: SerializerSnapshot
    states: tuple[SavedState, ...]
    operator_states: tuple[SavedOperatorState, ...] = ()

    @property
    def files(self) -> tuple[TableFile, ...]:
        """The files of all tables."""
        of_operator = [state.file for state in self.operator_states if state.file is not None]
        return (*(file for state in self.states for file in state.files), *of_operator)

    @property
    def metas(self) -> tuple[StateMeta, ...]:
        """What is known of each state."""
        return tuple(state.meta for state in self.states)


@attrs.frozen
class Savepoint:
    """A whole savepoint."""

    checkpoint_id: int
    operators: tuple[SavedOperator, ...]
    format_version: int = attrs.field(factory=lambda: SAVEPOINT.version)

    def operator(self, wanted: OperatorId) -> SavedOperator:
        """The operator of that uid, or the only one there is.

        Raises:
            RestoreError: there are several, none of that uid.
        """
        named = [operator for operator in self.operators if operator.uid == wanted.uid]
        found = named or self.operators
        if len(found) != 1:
            known = ", ".join(repr(operator.uid) for operator in self.operators) or "none"
            fault = f"no operator {wanted.uid!r} in it" if wanted.uid else "no uid says whose state"
            raise RestoreError(wanted.label, (f"{fault}; there are: {known}",))
        return found[0]


def state_folder(uid: str, state: str, ending: str = "") -> str:
    """Where a new table of a state lies, an ending behind the folder's name.

    Readers of datasets skip folders that begin with _ or a dot. No user's state has the folder of
    one of Millpond's own states.
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
    """Write the metadata, which makes the savepoint complete.

    Raises:
        CorruptSnapshotError: it would be refused when it is read.
        TooManyStatesError, SnapshotTooLargeError: so would it, because of a limit.
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
    """What a task has written of an operator, for the one who puts the parts together."""
    return json.dumps(_CONVERTER.unstructure(operator))


def operator_from_json(text: str) -> SavedOperator:
    """The inverse of ``operator_to_json``."""
    return _CONVERTER.structure(json.loads(text), SavedOperator)


def is_savepoint(handle: SavepointHandle) -> bool:
    """Whether a place holds a savepoint's metadata, or a symbolic link to them."""
    try:
        handle.storage.size(handle.path(METADATA_FILE))
    except CorruptSnapshotError:
        return False
    return True


def unfinished(handle: SavepointHandle) -> str:
    """Why a place holds no savepoint, if somebody has begun to write one there; else empty."""
    root = handle.path("x")[:-1]
    held = [path.removeprefix(root) for path in handle.storage.list(handle.folder)]
    markers = [name for name in held if name.endswith(MARKER_ENDING) and "/" not in name]
    if not markers or METADATA_FILE in held:
        return ""
    return (
        f"a savepoint was begun there and is not finished, as {markers[0]} says: wait for its "
        "writer, or, where that has died, delete the directory and take the savepoint anew"
    )


def _metadata(handle: SavepointHandle, path: str) -> bytes:
    try:
        return handle.storage.read_all(handle.path(METADATA_FILE))
    except CorruptSnapshotError as error:
        raise CorruptSnapshotError(path, why_no_savepoint(handle) or error.reason) from error


def why_no_savepoint(handle: SavepointHandle) -> str:
    """What a place is that is not a savepoint; empty if nothing tells.

    Somebody has begun to write one there, or there are some below it.
    """
    root, ending = handle.path("x")[:-1], f"/{METADATA_FILE}"
    below = [path for path in handle.storage.list(handle.folder) if path.endswith(ending)]
    found = [path.removeprefix(root).removesuffix(ending) for path in below]
    if not found:
        return unfinished(handle)
    more = f" and {len(found) - _TOLD} more" if len(found) > _TOLD else ""
    return f"expected a savepoint here; found savepoints in {', '.join(found[:_TOLD])}{more}"


def read_savepoint(handle: SavepointHandle) -> Savepoint:
    """Read and check the metadata.

    Raises:
        CorruptSnapshotError: it is missing, damaged, or names a path outside of the savepoint.
        ApiVersionError: a newer Millpond wrote it.
    """
    path = f"{public_uri(handle.storage.uri)}/{handle.path(METADATA_FILE)}"
    data = _metadata(handle, path)
    text = _SEALED.unseal(data, path)
    with decoding(path, "it is not a savepoint"):
        body: dict[str, Any] = parse_json(text)
        SAVEPOINT.check(body["format_version"], path)
        savepoint = _CONVERTER.structure(body, Savepoint)
        _check(savepoint)
    return savepoint


def _check(savepoint: Savepoint) -> None:
    """Refuse metadata that contradicts itself, or names paths outside of the savepoint."""
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
        for file in operator.files:
            check_path(file.path)
            check_counts([file.size, file.rows, file.first_group, file.last_group])


def locate_savepoint(
    place: str | PathLike[str] | CheckpointStorage | SavepointHandle,
    open_uri: Callable[[str], CheckpointStorage],
    limits: RestoreConfig = RestoreConfig(),
) -> SavepointHandle:
    """The handle of a savepoint whose root is a directory, a URI or a storage's root.

    Args:
        place: the path, URI, storage or handle.
        open_uri: opens a storage.
        limits: what a writer of the savepoint must not exceed.
    """
    if isinstance(place, SavepointHandle):
        return place
    if isinstance(place, CheckpointStorage):
        return SavepointHandle(0, "", place, limits=limits)
    text = fspath(place)
    scheme = text.partition(":")[0]
    is_uri = ":" in text and "/" not in scheme and len(scheme) > 1
    uri = text if is_uri else local_uri(text)
    return SavepointHandle(0, "", open_uri(uri), limits=limits)


def lies_within(target: CheckpointStorage, root: CheckpointStorage) -> bool:
    """Whether a storage's place is that of another, or below it, wherever local links lead."""
    inner, outer = _normal(target), _normal(root)
    return inner == outer or inner.startswith(f"{outer}/")


def _normal(storage: CheckpointStorage) -> str:
    if isinstance(storage, LocalStorage):
        return os.path.realpath(storage.directory)
    return posixpath.normpath(storage.uri)
