"""Handles of snapshots, and the checks of their metadata."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import attrs
import cattrs
from cattrs.gen import make_dict_unstructure_fn, override

from millpond.arguments import check_type
from millpond.backend.operator_state import Mode, OperatorStateMeta
from millpond.errors import brief
from millpond.format_versions import OPERATOR_STATE_HANDLE, SNAPSHOT_HANDLE, Format
from millpond.keygroups import MAX_KEY_GROUPS, KeyGroupRange, check_range
from millpond.safe_decoding import decoding, exact_bool, exact_int, exact_text, parse_json
from millpond.snapshots.output_streams import OperatorRawHandle
from millpond.state.descriptors import StateKind
from millpond.state.names import misspelling
from millpond.state.state_meta import StateMeta
from millpond.storage.checkpoint_storage import CheckpointStorage, check_path
from millpond.types import SerializerSnapshot


def check_states(metas: Sequence[StateMeta]) -> None:
    """Each state has its own name; map states, and no others, have a type of map keys."""
    _check_names([meta.name for meta in metas])
    for meta in metas:
        if (meta.kind is StateKind.MAP) != (meta.map_key is not None):
            raise ValueError(f"state {meta.name!r}: only a map state has a type of map keys")
        if meta.ttl_ms is not None and meta.ttl_ms <= 0:
            raise ValueError(f"state {meta.name!r} has a time to live of {meta.ttl_ms} ms")


def check_operator_states(metas: Sequence[OperatorStateMeta]) -> None:
    """The same for operator states: broadcast states are maps, and have names apart from lists."""
    for scope in ("list", "broadcast"):
        _check_names([meta.name for meta in metas if meta.scope == scope])
    for meta in metas:
        if (meta.mode is Mode.BROADCAST) != (meta.map_key is not None):
            raise ValueError(
                f"operator state {meta.name!r}: only a broadcast state has a type of map keys"
            )


def _check_names(names: Sequence[str]) -> None:
    if "" in names or len(set(names)) < len(names):
        raise ValueError("a state has no name, or two states have the same one")
    for name in names:
        if reason := misspelling(name):
            raise ValueError(f"state {brief(name)}: {reason}")


def check_counts(numbers: Iterable[int], limit: int = 1 << 62) -> None:
    """Sizes, counts and ids are not negative."""
    for number in numbers:
        if not 0 <= number <= limit:
            raise ValueError(f"expected a count, got {number}")


def check_subtasks(number: int) -> None:
    """No operator has more subtasks than key groups."""
    check_counts([number], MAX_KEY_GROUPS)


H = TypeVar("H")

PORTABLE = "rows"


@attrs.frozen
class SnapshotFile:
    """One file of a snapshot.

    Attributes:
        path: relative to the storage's root; of a part that the handle carries only a name.
        size: in bytes.
        footer: bytes of the footer at its end, trailer included; 0 for a native file.
        digest: SHA-256 of the footer, which holds the digests of all segments; of a native
            file, of all its bytes.
        kind: ``base`` or ``delta``, or what a native format calls it.
        version: the version of the state after this file was applied.
        rows: how many rows it holds, where that is known.
        inline: the bytes themselves in base64, where the handle carries them.
        offset: where it begins in the file.
    """

    path: str
    size: int
    footer: int
    digest: str
    kind: str
    version: str = ""
    rows: int = 0
    inline: str = ""
    offset: int = 0


@attrs.frozen
class RetiredFile:
    """A file that newer snapshots do without, kept for restores of older ones.

    Attributes:
        path: relative to the storage's root.
        checkpoint_id: the first snapshot that did without it.
    """

    path: str
    checkpoint_id: int


@attrs.frozen
class StoredOperatorState:
    """An operator state in a handle: which of the file's partitions are its own."""

    meta: OperatorStateMeta
    partitions: tuple[int, ...]


@attrs.frozen
class OperatorStateHandle:
    """A snapshot of the operator state of one subtask, or the part of it that another gets.

    Attributes:
        raw: the file and where its partitions begin; None where all states are empty.
        states: each with the numbers of its partitions in the file.
    """

    checkpoint_id: int
    raw: OperatorRawHandle | None
    states: tuple[StoredOperatorState, ...]
    format_version: int = attrs.field(factory=lambda: OPERATOR_STATE_HANDLE.version)
    storage: CheckpointStorage | None = attrs.field(default=None, eq=False, repr=False)

    @property
    def paths(self) -> frozenset[str]:
        """The file, if there is one; none where the handle carries its bytes."""
        stream = None if self.raw is None else self.raw.stream
        return frozenset() if stream is None or stream.inline else frozenset({stream.path})

    def to_json(self) -> str:
        """The handle without its storage."""
        return handle_to_json(self)

    @classmethod
    def from_json(cls, text: str, storage: CheckpointStorage) -> OperatorStateHandle:
        """Read a handle and bind it to a storage.

        Raises:
            CorruptSnapshotError: it is damaged, or its path leaves the storage.
            ApiVersionError: it was written by a newer Millpond.
        """
        check_type("storage", storage, CheckpointStorage)
        handle = handle_from_json(text, cls)
        for path in handle.paths:
            check_path(path)
        return attrs.evolve(handle, storage=storage)


@attrs.frozen
class KeyedStateHandle:
    """A snapshot of the keyed state of one subtask.

    Attributes:
        checkpoint_id: the number given to ``snapshot``.
        version: the unique name of the state that this snapshot holds.
        key: the key serializer.
        states: what is known of each state.
        files: a base and the deltas after it, in order; or the files of a native format.
        history: the deltas that led to the base, the last few: a copy that is only a little
            behind the base catches up by them.
        retired: files of snapshots before, not deleted yet.
        metadata: the file that holds this handle itself, for tools that look into a directory;
            empty where the handle carries what is new in it, and stands in Spark's pointer alone.
        format: ``rows`` for the portable files, else the native format's name.
        operator_state: the operator state of the subtask; of one that has not run since a rescale,
            its shares of the others' of before.
        carries: whether snapshots may be carried by handles alone, so that there may be newer
            ones than a directory shows.
        storage: where the files are; not part of equality and of the JSON form.
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
        """Bytes of all files that a restore reads."""
        return sum(file.size for file in self.files)

    @property
    def paths(self) -> frozenset[str]:
        """All files in the storage that a restore of this snapshot may read."""
        return self.needed_paths | {file.path for file in self.history if not file.inline}

    @property
    def needed_paths(self) -> frozenset[str]:
        """Those that every restore reads: all but the history's."""
        own = {file.path for file in self.files if not file.inline}
        return frozenset(own.union(*(part.paths for part in self.operator_state)))

    @property
    def all_paths(self) -> frozenset[str]:
        """Those, and the files that only older snapshots need."""
        own = {self.metadata} if self.metadata else set()
        return self.paths | own | {file.path for file in self.retired}

    def intersection(self, groups: KeyGroupRange) -> KeyedStateHandle | None:
        """The part within some key groups, without operator state; None where there is none."""
        check_type("groups", groups, KeyGroupRange)
        common = self.key_group_range.intersection(groups)
        if common is None:
            return None
        return attrs.evolve(self, key_group_range=common, operator_state=())

    def without_files(self) -> KeyedStateHandle:
        """A handle of the same operator that holds no keyed state."""
        return attrs.evolve(
            self, states=(), files=(), history=(), retired=(), metadata="", format=PORTABLE
        )

    def files_after(self, version: str | None) -> list[SnapshotFile] | None:
        """The deltas from a version to this snapshot; None where it is not an ancestor."""
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
        """The versions from which :meth:`files_after` leads here."""
        if self.format != PORTABLE:
            return frozenset({self.version})
        return frozenset(file.version for file in (*self.history, *self.files))

    def to_json(self) -> str:
        """The handle without its storage."""
        return handle_to_json(self)

    @classmethod
    def from_json(cls, text: str, storage: CheckpointStorage) -> KeyedStateHandle:
        """Read a handle and bind it to a storage.

        Raises:
            CorruptSnapshotError: it is damaged, or a path leaves the storage.
            ApiVersionError: it was written by a newer Millpond.
        """
        check_type("storage", storage, CheckpointStorage)
        handle = handle_from_json(text, cls)
        for path in sorted(handle.all_paths):
            check_path(path)
        shares = tuple(attrs.evolve(part, storage=storage) for part in handle.operator_state)
        return attrs.evolve(handle, storage=storage, operator_state=shares)


_FORMATS: dict[type, Format] = {
    OperatorStateHandle: OPERATOR_STATE_HANDLE,
    KeyedStateHandle: SNAPSHOT_HANDLE,
}


def snapshot_converter() -> cattrs.Converter:
    """The converter of all metadata: strict about keys, lossless about serializer snapshots."""
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
    if set(value) != {"id", "version", "payload"}:
        raise ValueError("a type is described by id, version and payload")
    name, version = exact_text(value["id"], str), exact_int(value["version"], int)
    return SerializerSnapshot(name, version, value["payload"])


_CONVERTER = snapshot_converter()


def handle_to_json(handle: Any) -> str:
    """Any handle as JSON, without its storage."""
    tree = _CONVERTER.unstructure(handle)
    return json.dumps(tree, separators=(",", ":"))


def handle_from_json(text: str, cls: type[H]) -> H:
    """A handle of a class, not bound to a storage and its paths not checked yet.

    Raises:
        CorruptSnapshotError: it is damaged.
        ApiVersionError: it was written by a newer Millpond.
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
