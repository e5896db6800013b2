"""Handles of snapshots and savepoints, the file parts that they name, and checks of metadata."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import attrs
import cattrs
from cattrs.gen import make_dict_unstructure_fn, override

from millpond.arguments import INT64, check_type, typed
from millpond.backend.operator_state import Mode, OperatorStateMeta
from millpond.config import RestoreConfig
from millpond.errors import ArgumentValueError, CorruptSnapshotError, brief
from millpond.format_versions import OPERATOR_STATE_HANDLE, SNAPSHOT_HANDLE, Format
from millpond.keygroups import KeyGroupRange, check_range
from millpond.safe_decoding import decoding, exact_bool, exact_int, exact_text, parse_json
from millpond.snapshots.paths import BUNDLE_ENDING
from millpond.state.descriptors import StateKind
from millpond.state.names import name_fault
from millpond.state.state_meta import StateMeta
from millpond.storage.checkpoint_storage import CheckpointStorage, check_path, exactly
from millpond.types import SerializerSnapshot

H = TypeVar("H")

PORTABLE = "rows"
SAVEPOINT_FORMAT = "savepoint"


@attrs.frozen
class FilePart:
    """A range of bytes in a file, or bytes that are stored in the handle itself.

    Attributes:
        path: the file, relative to the storage's root. If the bytes are in the handle, errors still
            show this path.
        size: the number of bytes.
        digest: the SHA-256 digest of the bytes. For a row file the digest covers only the footer,
            which holds the digests of all segments.
        offset: the position of the first byte in the file.
        inline: the bytes in base64 if they are stored in the handle, else empty.
    """

    path: str
    size: int
    digest: str
    offset: int = attrs.field(default=0, kw_only=True)
    inline: str = attrs.field(default="", kw_only=True)

    def carried_bytes(self) -> bytes:
        """Return the bytes that are stored in the handle.

        Raises:
            CorruptSnapshotError: `inline` is not base64, or does not have `size` bytes.
        """
        with decoding(self.path, "the bytes in its handle cannot be read"):
            data = base64.b64decode(self.inline, validate=True)
        if len(data) != self.size:
            raise self._wrong_size()
        return data

    def reader(self, storage: CheckpointStorage) -> Callable[[int, int], bytes]:
        """Return a function ``read(offset, length)`` that returns bytes of the part.

        The offset counts from the start of the part. The function raises CorruptSnapshotError if
        the file is missing or too short.

        Raises:
            CorruptSnapshotError: the bytes in the handle are damaged, or the path is outside of the
                storage.
        """
        if self.inline:
            data = self.carried_bytes()
            return lambda at, length: exactly(self.path, data[at : at + length], length)
        check_path(self.path)
        return lambda at, length: storage.read(self.path, self.offset + at, length)

    def require_complete(self, storage: CheckpointStorage) -> None:
        """Raise CorruptSnapshotError if the file is missing, or if its size does not fit the part.

        Do nothing if the bytes are stored in the handle.
        """
        if self.inline:
            return
        size, end = storage.size(self.path), self.offset + self.size
        # A bundle holds several parts and metadata, so it may be longer than this part.
        if size < end or (size > end and not self.path.endswith(BUNDLE_ENDING)):
            raise self._wrong_size()

    def _wrong_size(self) -> CorruptSnapshotError:
        return CorruptSnapshotError(self.path, f"its size is not {self.size:,} bytes")

    def read_all(self, storage: CheckpointStorage, limits: RestoreConfig | None = None) -> bytes:
        """Return all bytes of the part, and check their digest.

        The part must not be a row file, because the digest of a row file covers only the footer.

        Raises:
            CorruptSnapshotError: the file is missing or damaged, or the part has more bytes than
                `limits` allow.
        """
        if limits is not None and self.size > limits.max_file_bytes:
            reason = f"its {self.size:,} bytes are more than restore.max-file-bytes allows"
            raise CorruptSnapshotError(self.path, reason)
        read = self.reader(storage)
        self.require_complete(storage)
        data = read(0, self.size)
        if hashlib.sha256(data).hexdigest() != self.digest:
            raise CorruptSnapshotError(self.path, "its digest is wrong")
        return data


@attrs.frozen
class SnapshotFile(FilePart):
    """One file of keyed state.

    Attributes:
        footer: the number of bytes of the footer, trailer included; 0 for a native file.
        kind: ``base`` (the whole state), ``delta`` (changes only), or another kind that a native
            format defines.
        version: the unique name of the state that is complete once this file was read.
        rows: the number of rows in the file; 0 if unknown.
    """

    footer: int = attrs.field(kw_only=True)
    kind: str = attrs.field(kw_only=True)
    version: str = attrs.field(default="", kw_only=True)
    rows: int = attrs.field(default=0, kw_only=True)


@attrs.frozen
class RetiredFile:
    """A file that the newest snapshot does not need, but that older snapshots may need.

    Attributes:
        path: the file, relative to the storage's root.
        checkpoint_id: the checkpoint id of the first snapshot that does not need the file.
    """

    path: str
    checkpoint_id: int


@attrs.frozen
class StoredOperatorState:
    """An operator state in a handle.

    Attributes:
        meta: the name, mode and types of the state.
        partitions: the numbers of the state's elements, as indexes into the handle's `offsets`.
    """

    meta: OperatorStateMeta
    partitions: tuple[int, ...]


@attrs.frozen
class OperatorStateHandle:
    """A handle of the operator state of one subtask.

    After a rescale the handle may hold only the part of an earlier subtask's state that a new
    subtask gets.

    Attributes:
        checkpoint_id: the checkpoint in which the state was written.
        file: the part with the bytes of all elements; None if no state has an element.
        offsets: the position of each element's first byte in the part.
        states: the states, each with the numbers of its elements.
        format_version: the version of the JSON format.
        storage: the storage of the file; not part of equality and of the JSON form.
    """

    checkpoint_id: int
    file: FilePart | None
    offsets: tuple[int, ...]
    states: tuple[StoredOperatorState, ...]
    format_version: int = attrs.field(factory=lambda: OPERATOR_STATE_HANDLE.version)
    storage: CheckpointStorage | None = attrs.field(default=None, eq=False, repr=False)

    @property
    def paths(self) -> frozenset[str]:
        """The path of the file; empty if there is no file, or if the bytes are in the handle."""
        return frozenset({self.file.path} if self.file and not self.file.inline else ())

    def to_json(self) -> str:
        """Return the handle as JSON, without its storage."""
        return handle_to_json(self)

    @classmethod
    def from_json(cls, text: str, storage: CheckpointStorage) -> OperatorStateHandle:
        """Read a handle whose file is in `storage`.

        Raises:
            CorruptSnapshotError: the JSON is damaged, or the file would be outside of the storage.
            ApiVersionError: the JSON was written by a newer Millpond.
        """
        check_type("storage", storage, CheckpointStorage)
        handle = handle_from_json(text, cls)
        for path in handle.paths:
            check_path(path)
        return attrs.evolve(handle, storage=storage)


@attrs.frozen
class KeyedStateHandle:
    """The description of one subtask's snapshot, from which keyed and operator state are restored.

    Attributes:
        checkpoint_id: the number that the caller has given to ``snapshot``.
        version: the unique name of the state that this snapshot holds.
        key_group_range: the key groups of the subtask.
        max_parallelism: the number of key groups of the operator.
        key: the description of the keys' type.
        states: the metadata of each state.
        files: a base (a file with the whole state) and the deltas (files with changes) after it, in
            order; or the files of a native format.
        history: the last few deltas before the base. With these deltas, an open backend that is
            only a few versions behind the base can catch up without reading the base.
        retired: files of earlier snapshots that are not deleted yet.
        metadata: the file that also contains this handle, for tools that look into a directory.
            Empty if the snapshot has no file, because its bytes are stored in this handle.
        format: ``rows`` for the portable files, else the name of the native format.
        format_version: the version of the JSON format.
        operator_state: the operator state of the subtask. If the subtask has not run since a
            rescale, these are its parts of the earlier subtasks' states.
        carries: whether Spark's pointers may contain whole snapshots. If so, there may be
            snapshots that are newer than all files in the directory.
        storage: the storage of the files; not part of equality and of the JSON form.
    """

    checkpoint_id: int
    version: str
    key_group_range: KeyGroupRange
    max_parallelism: int
    key: SerializerSnapshot
    states: tuple[StateMeta, ...]
    files: tuple[SnapshotFile, ...]
    history: tuple[SnapshotFile, ...] = ()
    retired: tuple[RetiredFile, ...] = ()
    metadata: str = ""
    format: str = PORTABLE
    format_version: int = attrs.field(factory=lambda: SNAPSHOT_HANDLE.version)
    operator_state: tuple[OperatorStateHandle, ...] = ()
    carries: bool = False
    storage: CheckpointStorage | None = attrs.field(default=None, eq=False, repr=False)

    @property
    def size(self) -> int:
        """The number of bytes that a restore of keyed state reads."""
        return sum(file.size for file in self.files)

    @property
    def needed_paths(self) -> frozenset[str]:
        """The files that every restore of this snapshot reads."""
        own = {file.path for file in self.files if not file.inline}
        return frozenset(own.union(*(part.paths for part in self.operator_state)))

    @property
    def paths(self) -> frozenset[str]:
        """The files that a restore may read: `needed_paths` and the files in `history`."""
        return self.needed_paths | {file.path for file in self.history if not file.inline}

    @property
    def all_paths(self) -> frozenset[str]:
        """All files that the handle names, including its metadata file and retired files."""
        own = {self.metadata} if self.metadata else set()
        return self.paths | own | {file.path for file in self.retired}

    def intersection(self, groups: KeyGroupRange) -> KeyedStateHandle | None:
        """Return a copy of the handle that is limited to its key groups within `groups`.

        Return None if the handle has no such key groups. The copy names all files of the handle,
        but has no operator state.
        """
        check_type("groups", groups, KeyGroupRange)
        common = self.key_group_range.intersection(groups)
        if common is None:
            return None
        return attrs.evolve(self, key_group_range=common, operator_state=())

    def without_files(self) -> KeyedStateHandle:
        """Return a copy of the handle without keyed state, so that only operator state is left."""
        return attrs.evolve(
            self, states=(), files=(), history=(), retired=(), metadata="", format=PORTABLE
        )

    def files_after(self, version: str | None) -> list[SnapshotFile] | None:
        """Return the deltas that turn the state named `version` into this snapshot's state.

        Return None if the handle does not name all of these deltas.
        """
        check_type("version", version, str | None)
        if self.format != PORTABLE:
            return None
        chain = [*self.history, *self.files[1:]]
        versions = [file.version for file in chain]
        if version in versions:
            return chain[versions.index(version) + 1 :]
        base = self.files[0].version if self.files else None
        return chain[len(self.history) :] if version == base else None

    def ancestors(self) -> frozenset[str]:
        """Return the versions from which :meth:`files_after` leads to this snapshot.

        For a native format, return only the version of this snapshot.
        """
        if self.format != PORTABLE:
            return frozenset({self.version})
        return frozenset(file.version for file in (*self.history, *self.files))

    def to_json(self) -> str:
        """Return the handle as JSON, without its storage."""
        return handle_to_json(self)

    @classmethod
    def from_json(cls, text: str, storage: CheckpointStorage) -> KeyedStateHandle:
        """Read a handle whose files are in `storage`.

        Raises:
            CorruptSnapshotError: the JSON is damaged, or a file would be outside of the storage.
            ApiVersionError: the JSON was written by a newer Millpond.
        """
        check_type("storage", storage, CheckpointStorage)
        handle = handle_from_json(text, cls)
        for path in sorted(handle.all_paths):
            check_path(path)
        shares = tuple(attrs.evolve(part, storage=storage) for part in handle.operator_state)
        return attrs.evolve(handle, storage=storage, operator_state=shares)


def _check_folder(_: Any, __: Any, folder: Any) -> None:
    """Raise ArgumentValueError if a savepoint's folder is outside of the storage."""
    check_type("folder", folder, str)
    try:
        check_path(folder or "savepoint")
    except CorruptSnapshotError:
        expected = "a relative path below the storage's root, or an empty one"
        raise ArgumentValueError("folder", expected, brief(folder)) from None


@attrs.frozen
class SavepointHandle:
    """The location of a savepoint.

    Attributes:
        checkpoint_id: the checkpoint id of the savepoint.
        folder: the savepoint's directory, relative to the storage's root; empty for the root.
        storage: the storage of the files.
        format: the name of the format.
        limits: the limits for the memory that a reader of the files may need. A writer obeys these
            limits, too, because a reader would refuse larger files.
    """

    checkpoint_id: int = attrs.field(validator=typed(int))
    folder: str = attrs.field(validator=_check_folder)
    storage: CheckpointStorage = attrs.field(repr=False, validator=typed(CheckpointStorage))
    format: str = attrs.field(default=SAVEPOINT_FORMAT, validator=typed(str))
    limits: RestoreConfig = attrs.field(
        default=RestoreConfig(), eq=False, repr=False, validator=typed(RestoreConfig)
    )

    def path(self, name: str) -> str:
        """Return the path of the savepoint's file `name`, relative to the storage's root.

        Raises:
            CorruptSnapshotError: the file would be outside of the savepoint.
        """
        check_type("name", name, str)
        check_path(name)
        return f"{self.folder}/{name}" if self.folder else name


_FORMATS: dict[type, Format] = {
    OperatorStateHandle: OPERATOR_STATE_HANDLE,
    KeyedStateHandle: SNAPSHOT_HANDLE,
}


def snapshot_converter() -> cattrs.Converter:
    """Return a cattrs converter that reads and writes metadata.

    The converter raises errors for unknown keys and for lossy conversions.
    """
    converter = cattrs.Converter(forbid_extra_keys=True)
    converter.register_structure_hook(CheckpointStorage | None, lambda value, _: value)
    for bound, form in _FORMATS.items():
        without: Any = make_dict_unstructure_fn(
            bound,
            converter,
            storage=override(omit=True),
            format_version=override(unstruct_hook=form.written),
        )
        converter.register_unstructure_hook(bound, without)
    converter.register_structure_hook(SerializerSnapshot, _structure_snapshot)
    converter.register_structure_hook(int, exact_int)
    converter.register_structure_hook(bool, exact_bool)
    converter.register_structure_hook(str, exact_text)
    return converter


def _structure_snapshot(value: Any, _: Any) -> SerializerSnapshot:
    """Return the description of a type; `value` is the parsed JSON of the description."""
    if set(value) != {"id", "version", "payload"}:
        raise ValueError("a type is described by id, version and payload")
    name, version = exact_text(value["id"], str), exact_int(value["version"], int)
    return SerializerSnapshot(name, version, value["payload"])


_CONVERTER = snapshot_converter()


def handle_to_json(handle: Any) -> str:
    """Return a handle as JSON, without its storage."""
    return json.dumps(_CONVERTER.unstructure(handle), separators=(",", ":"))


def handle_from_json(text: str, cls: type[H]) -> H:
    """Return the handle of class `cls` that the JSON `text` describes, without a storage.

    The caller must check the paths in the handle.

    Raises:
        CorruptSnapshotError: the JSON is damaged.
        ApiVersionError: the JSON was written by a newer Millpond.
    """
    with decoding("handle", "it cannot be read"):
        tree: dict[str, Any] = parse_json(text)
        _FORMATS[cls].check(tree["format_version"])
        for part in tree.get("operator_state", ()):
            OPERATOR_STATE_HANDLE.check(part["format_version"])
        handle = _CONVERTER.structure(tree, cls)
        _check(handle)
    return handle


def _check(handle: Any) -> None:
    """Raise ValueError if fields of a handle are invalid or contradict each other."""
    check_counts([handle.checkpoint_id])
    if isinstance(handle, OperatorStateHandle):
        check_operator_states([state.meta for state in handle.states])
        return
    check_range(handle.key_group_range, handle.max_parallelism)
    check_states(handle.states)
    for file in (*handle.files, *handle.history):
        check_counts([file.size, file.footer, file.rows, file.offset])
    check_counts(file.checkpoint_id for file in handle.retired)
    for part in handle.operator_state:
        _check(part)


def check_states(metas: Sequence[StateMeta]) -> None:
    """Raise ValueError if the metadata of keyed states is invalid.

    Names must be allowed and unique. Map states must have a type of map keys, and only map states.
    A time to live must be positive, and a watermark must fit into 64 bits.
    """
    _check_names([meta.name for meta in metas])
    for meta in metas:
        if (meta.kind is StateKind.MAP) != (meta.map_key is not None):
            raise ValueError(f"state {meta.name!r}: only a map state has a type of map keys")
        if meta.ttl_ms is not None and meta.ttl_ms <= 0:
            raise ValueError(f"state {meta.name!r} has a time to live of {meta.ttl_ms} ms")
        if meta.watermark is not None and not INT64[0] <= meta.watermark <= INT64[1]:
            raise ValueError(f"state {meta.name!r} has the watermark {meta.watermark}")


def check_operator_states(metas: Sequence[OperatorStateMeta]) -> None:
    """Raise ValueError if the metadata of operator states is invalid.

    Names must be allowed, and unique within their scope. Broadcast states must have a type of map
    keys, and only broadcast states.
    """
    for scope in ("list", "broadcast"):
        _check_names([meta.name for meta in metas if meta.scope == scope])
    for meta in metas:
        if (meta.mode is Mode.BROADCAST) != (meta.map_key is not None):
            reason = "only a broadcast state has a type of map keys"
            raise ValueError(f"operator state {meta.name!r}: {reason}")


def _check_names(names: Sequence[str]) -> None:
    """Raise ValueError if a name is not allowed or occurs twice."""
    if "" in names or len(set(names)) < len(names):
        raise ValueError("a state has no name, or two states have the same one")
    for name in names:
        if reason := name_fault(name):
            raise ValueError(f"state {brief(name)}: {reason}")


def check_counts(numbers: Iterable[int], limit: int = 1 << 62) -> None:
    """Raise ValueError if one of the `numbers` is negative or greater than `limit`."""
    for number in numbers:
        if not 0 <= number <= limit:
            raise ValueError(f"expected a count, got {number}")
