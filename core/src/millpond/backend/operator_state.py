"""Operator state: lists and maps that belong to a subtask rather than to a key.

When the parallelism changes, the elements of a split list are divided among the new subtasks. Every
subtask gets all elements of a union list. A broadcast map has the same entries in every subtask.

Operator state is always in memory. Like keyed state, it stores objects and copies them when they
are written or read.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from typing import Any, overload

import attrs
from typing_extensions import TypeVar, override

from millpond.arguments import CHECKPOINT_IDS, check_elements, check_type, check_within
from millpond.backend.journal import Journal
from millpond.backend.migration import checked_change, incompatible_error
from millpond.closeable import Closeable
from millpond.errors import (
    BackendClosedError,
    ConfigError,
    MillpondError,
    NullValueError,
    StateConflictError,
    StateTypeError,
    UnsupportedCapabilityError,
)
from millpond.safe_decoding import decoding
from millpond.spi.snapshots import SnapshotResult
from millpond.state.descriptors import ListStateDescriptor, MapStateDescriptor, StateDescriptor
from millpond.state.interfaces import ListState, MapState
from millpond.state.names import Scope
from millpond.storage.checkpoint_storage import CheckpointStorage
from millpond.types import (
    FindSerializer,
    KeyCodec,
    Outcome,
    PicklePermission,
    SerializerSnapshot,
    TypeSerializer,
    no_serializer,
    serializer_for,
)

__all__ = ["BroadcastState", "OperatorStateBackend"]

StateId = tuple[str, Scope]
"""The name of a state and its scope."""


class Mode(enum.Enum):
    """The ways in which a state is distributed when the parallelism changes."""

    SPLIT = "split"
    UNION = "union"
    BROADCAST = "broadcast"


@attrs.frozen
class OperatorStateMeta:
    """The description of an operator state in snapshots. Only broadcast states have a map key."""

    name: str
    mode: Mode
    value: SerializerSnapshot
    map_key: SerializerSnapshot | None = None

    @property
    def scope(self) -> Scope:
        """The scope in which the name is unique. Split lists and union lists share one scope."""
        return "broadcast" if self.mode is Mode.BROADCAST else "list"

    @property
    def id(self) -> StateId:
        """The name and scope, which together identify the state in the operator."""
        return self.name, self.scope


@attrs.frozen
class FrozenState:
    """The content of a state for a snapshot, with the bytes of each list element or map entry."""

    meta: OperatorStateMeta
    partitions: tuple[bytes, ...]

    @property
    def size(self) -> int:
        """The total number of bytes."""
        return sum(map(len, self.partitions))


RestoredState = FrozenState
"""A state that was restored from a snapshot and that no function has requested yet."""


RAW_KEYED_STREAM = ListStateDescriptor("raw-keyed-stream", tuple[int, bytes])
"""The descriptor of the raw keyed stream. Its elements are a key group and bytes."""

_SERIALIZER = serializer_for(tuple[int, bytes])

RAW_KEYED = OperatorStateMeta(RAW_KEYED_STREAM.name, Mode.UNION, _SERIALIZER.snapshot())
"""The description of the raw keyed stream in snapshots."""


def key_group_of(data: bytes) -> int:
    """Return the key group of a stored element; raise CorruptSnapshotError if it has none."""
    with decoding("operator state", f"state {RAW_KEYED.name!r}: an element cannot be decoded"):
        group, _ = _SERIALIZER.deserialize(data)
        return int(group)


K = TypeVar("K", default=Any)
V = TypeVar("V", default=Any)
T = TypeVar("T", default=Any)
D = TypeVar("D")

Undo = Callable[[], object]
"""A function that undoes a change."""

MayChange = Callable[[str, Callable[[], Undo]], None]
"""A function that is called before each change, and raises if the state cannot be changed now.

The first argument is the name of the state. The second argument is a function that returns an
``Undo``. It is called only if the change is undone when the row fails.
"""


def _checked(check: Callable[[Any], T], value: object, place: str) -> T:
    try:
        return check(value)
    except StateTypeError as error:
        error.place = place
        raise


def _refuse_ttl(ttl: timedelta | None) -> None:
    if ttl is not None:
        raise UnsupportedCapabilityError("operator state", "a time to live")


class OperatorListState(ListState[T]):
    """A split or union list of a subtask."""

    def __init__(
        self, name: str, serializer: TypeSerializer[T], values: list[T], may_change: MayChange
    ) -> None:
        self._may_change = partial(may_change, name)
        self._place = f"operator state {name!r}"
        self._serializer = serializer
        self._values = values

    @override
    def get(self) -> list[T]:
        copy = self._serializer.copy
        return [copy(value) for value in self._values]

    @override
    def add(self, value: T, ttl: timedelta | None = None) -> None:
        _refuse_ttl(ttl)
        self._may_change(self._shortening)
        self._values.append(self._check(value))

    @override
    def add_all(self, values: Iterable[T], ttl: timedelta | None = None) -> None:
        _refuse_ttl(ttl)
        self._may_change(self._shortening)
        self._values += self._check_all(values)

    @override
    def update(self, values: Iterable[T], ttl: timedelta | None = None) -> None:
        _refuse_ttl(ttl)
        self._may_change(self._restoring)
        self._values[:] = self._check_all(values)

    @override
    def clear(self) -> None:
        self._may_change(self._restoring)
        self._values.clear()

    def _shortening(self) -> Undo:
        """Return a function that removes all elements that are added from now on."""
        return partial(self._values.__delitem__, slice(len(self._values), None))

    def _restoring(self) -> Undo:
        """Return a function that restores the current elements."""
        return partial(self._values.__setitem__, slice(None), list(self._values))

    def frozen(self) -> tuple[bytes, ...]:
        """Return the bytes of each element."""
        return tuple(map(self._serializer.serialize, self._values))

    def _check_all(self, values: Iterable[T]) -> list[T]:
        if values is None:
            raise NullValueError("the list of elements", self._place)
        check_elements("values", values)
        return [self._check(value) for value in values]

    def _check(self, value: T) -> T:
        if value is None:
            raise NullValueError("an element", self._place)
        return _checked(self._serializer.check, value, self._place)

    @override
    def set_current_namespace(self, namespace: Any) -> None:
        """Raise an error, because operator state has no namespaces."""
        raise UnsupportedCapabilityError("operator state", "namespaces")

    @override
    def merge_namespaces(self, target: Any, sources: Iterable[Any]) -> None:
        """Raise an error, because operator state has no namespaces."""
        raise UnsupportedCapabilityError("operator state", "namespaces")


class BroadcastState(MapState[K, V]):
    """A map that has the same entries in every subtask."""

    def __init__(
        self,
        name: str,
        key_codec: KeyCodec,
        serializer: TypeSerializer[V],
        entries: dict[bytes, V],
        may_change: MayChange,
    ) -> None:
        self._may_change = partial(may_change, name)
        self._place = f"broadcast state {name!r}"
        self._keys = key_codec
        self._serializer = serializer
        self._entries = entries

    def _encoded(self, key: K) -> bytes:
        if key is None:
            raise NullValueError("a map key", self._place)
        return self._keys.encode(_checked(self._keys.check, key, self._place))

    @overload
    def get(self, key: K) -> V | None: ...
    @overload
    def get(self, key: K, default: V | D) -> V | D: ...
    @override
    def get(self, key: K, default: D | None = None) -> V | D | None:
        encoded = self._encoded(key)
        if encoded not in self._entries:
            return default
        return self._serializer.copy(self._entries[encoded])

    @override
    def put(self, key: K, value: V, ttl: timedelta | None = None) -> None:
        _refuse_ttl(ttl)
        self._may_change(self._restoring)
        encoded = self._encoded(key)
        self._entries[encoded] = _checked(self._serializer.check, value, self._place)

    @override
    def put_all(self, entries: Mapping[K, V], ttl: timedelta | None = None) -> None:
        _refuse_ttl(ttl)
        self._may_change(self._restoring)
        if entries is None:
            raise NullValueError("the map of entries", self._place)
        check_type("entries", entries, Mapping)
        check, place = self._serializer.check, self._place
        checked = {self._encoded(k): _checked(check, v, place) for k, v in entries.items()}
        self._entries.update(checked)

    @override
    def remove(self, key: K) -> None:
        self._may_change(self._restoring)
        self._entries.pop(self._encoded(key), None)

    @override
    def contains(self, key: K) -> bool:
        return self._encoded(key) in self._entries

    @override
    def items(self) -> Iterator[tuple[K, V]]:
        for encoded in list(self._entries):
            if encoded in self._entries:
                value = self._serializer.copy(self._entries[encoded])
                yield self._keys.decode(encoded, 0)[0], value

    @override
    def clear(self) -> None:
        self._may_change(self._restoring)
        self._entries.clear()

    def _restoring(self) -> Undo:
        """Return a function that restores the current entries."""
        held = dict(self._entries)

        def restore() -> None:
            self._entries.clear()
            self._entries.update(held)

        return restore

    def frozen(self) -> tuple[bytes, ...]:
        """Return the bytes of each entry: the key's length (4 bytes, big-endian), key and value."""
        serialize = self._serializer.serialize
        return tuple(
            len(key).to_bytes(4, "big") + key + serialize(value)
            for key, value in self._entries.items()
        )

    @override
    def set_current_namespace(self, namespace: Any) -> None:
        """Raise an error, because operator state has no namespaces."""
        raise UnsupportedCapabilityError("operator state", "namespaces")


SnapshotWriter = Callable[[int, CheckpointStorage, Sequence[FrozenState]], "Future[SnapshotResult]"]
"""A function that writes the content of states.

It takes the checkpoint id, the storage and the states, and returns a future of the result.
"""


def _check_plain(descriptor: StateDescriptor) -> None:
    """Raise ConfigError if a descriptor has settings that operator state does not support."""
    for what, setting in (("TTL", descriptor.ttl_config), ("queryable", descriptor.query_name)):
        if setting is not None:
            raise ConfigError(descriptor.name, f"operator state has no {what}", "descriptor")


class OperatorStateBackend(Closeable):
    """The operator state of one subtask. It is a context manager.

    Args:
        restored: the restored states, each with the elements from all subtasks' snapshots.
        write: a function that writes a snapshot.
        find: a function that returns a plugin's serializer for a type.
        allow_pickle: whether restored state may be decoded with pickle.

    Attributes:
        journal: a record of how to undo the changes of a row; None if failed rows are not undone.
    """

    def __init__(
        self,
        restored: Mapping[StateId, RestoredState],
        write: SnapshotWriter,
        find: FindSerializer = no_serializer,
        *,
        allow_pickle: bool = False,
    ) -> None:
        self._find = find
        self._pickles = PicklePermission(allow_pickle, outside=bool(restored))
        self._restored = dict(restored)
        self._write = write
        self._states: dict[StateId, tuple[OperatorStateMeta, StateDescriptor, Any]] = {}
        self._closed = False
        self._refusal: Callable[[str], MillpondError] | None = None
        self.journal: Journal | None = None

    def get_list_state(self, descriptor: ListStateDescriptor[T]) -> ListState[T]:
        """Return the split list that a descriptor declares.

        When the parallelism changes, the elements are divided among the new subtasks.

        Raises:
            StateConflictError: a union list has the same name. (A broadcast state may have the same
                name.)
            StateMigrationError: the stored elements are of another type.
            ConfigError: the descriptor has a TTL or is queryable.
        """
        return self._list(descriptor, Mode.SPLIT)

    def get_union_list_state(self, descriptor: ListStateDescriptor[T]) -> ListState[T]:
        """Return the union list that a descriptor declares.

        After a restore, every subtask has the elements of all subtasks.
        """
        return self._list(descriptor, Mode.UNION)

    def get_broadcast_state(self, descriptor: MapStateDescriptor[K, V]) -> BroadcastState[K, V]:
        """Return the broadcast map that a descriptor declares.

        The job must make the same changes in every subtask. A list may have the same name.
        """
        check_type("descriptor", descriptor, MapStateDescriptor)
        _check_plain(descriptor)
        resolved = descriptor.resolved(self._find, self._pickles)
        codec = resolved.map_key_codec()
        assert codec is not None
        serializer = resolved.value_serializer()
        meta = OperatorStateMeta(
            descriptor.name, Mode.BROADCAST, serializer.snapshot(), codec.snapshot()
        )

        def make(
            partitions: Sequence[bytes], convert: Callable[[bytes], bytes]
        ) -> BroadcastState[K, V]:
            entries: dict[bytes, Any] = {}
            restored = self._restored.get(meta.id)
            stored_key = None if restored is None else restored.meta.map_key
            change = checked_change(descriptor.name, "map key", stored_key, codec)
            for data in partitions:
                end = 4 + int.from_bytes(data[:4], "big")
                with decoding("operator state", _undecodable(descriptor.name)):
                    key = data[4:end] if change is None else change(data[:end], 4)[0]
                    codec.decode(key, 0)
                    entries[key] = serializer.deserialize(convert(data[end:]))
            return BroadcastState(
                descriptor.name, codec, serializer, entries, self._require_changes
            )

        state: BroadcastState[K, V] = self._get(meta, resolved, make)
        return state

    def _list(self, descriptor: ListStateDescriptor[T], mode: Mode) -> ListState[T]:
        check_type("descriptor", descriptor, ListStateDescriptor)
        _check_plain(descriptor)
        resolved = descriptor.resolved(self._find, self._pickles)
        serializer = resolved.value_serializer()
        meta = OperatorStateMeta(descriptor.name, mode, serializer.snapshot())

        def make(
            partitions: Sequence[bytes], convert: Callable[[bytes], bytes]
        ) -> OperatorListState[T]:
            with decoding("operator state", _undecodable(descriptor.name)):
                values = [serializer.deserialize(convert(data)) for data in partitions]
            return OperatorListState(descriptor.name, serializer, values, self._require_changes)

        state: ListState[T] = self._get(meta, resolved, make)
        return state

    def _get(self, meta: OperatorStateMeta, resolved: StateDescriptor, make: Any) -> Any:
        if self._closed:
            raise BackendClosedError("operator state")
        known = self._states.get(meta.id)
        restored = self._restored.get(meta.id)
        previous = known[0] if known else restored.meta if restored else meta
        if previous.mode is not meta.mode:
            raise StateConflictError(meta.name, previous.mode.value, meta.mode.value)
        convert = _conversion(previous, meta, resolved.value_serializer())
        if known is not None:
            if previous != meta:
                part = "value" if previous.map_key == meta.map_key else "map_key"
                old, new = str(getattr(previous, part)), str(getattr(meta, part))
                raise StateConflictError(meta.name, old, new)
            return known[2]
        state = make(restored.partitions if restored else (), convert)
        self._states[meta.id] = (meta, resolved, state)
        self._restored.pop(meta.id, None)
        return state

    def get_registered_state_names(self) -> frozenset[str]:
        """Return the names of all lists.

        This includes restored lists that no function has requested.
        """
        return frozenset(meta.name for meta in self._metas() if meta.mode is not Mode.BROADCAST)

    def get_registered_broadcast_state_names(self) -> frozenset[str]:
        """Return the names of all broadcast states.

        This includes restored states that no function has requested.
        """
        return frozenset(meta.name for meta in self._metas() if meta.mode is Mode.BROADCAST)

    def declared(self) -> dict[StateId, tuple[OperatorStateMeta, StateDescriptor]]:
        """Return the requested states, each with its descriptor, in which all types are known."""
        return {known: (meta, resolved) for known, (meta, resolved, _) in self._states.items()}

    def _metas(self) -> list[OperatorStateMeta]:
        restored = [state.meta for state in self._restored.values()]
        return [*(meta for meta, _, _ in self._states.values()), *restored]

    def snapshot(self, checkpoint_id: int, storage: CheckpointStorage) -> Future[SnapshotResult]:
        """Take a snapshot of all states, including restored states that no function has requested.

        Returns:
            A future of the result, whose ``handle`` is None if there are no states.
        """
        check_within("checkpoint_id", checkpoint_id, *CHECKPOINT_IDS)
        check_type("storage", storage, CheckpointStorage)
        return self._write(checkpoint_id, storage, self.freeze())

    def freeze(self) -> list[FrozenState]:
        """Return the content of all states as of now, sorted by name and scope."""
        if self._closed:
            raise BackendClosedError("operator state")
        frozen = [FrozenState(meta, state.frozen()) for meta, _, state in self._states.values()]
        return sorted([*frozen, *self._restored.values()], key=lambda state: state.meta.id)

    def _require_changes(self, name: str, undo: Callable[[], Undo]) -> None:
        if self._closed:
            raise BackendClosedError("operator state")
        if self._refusal is not None:
            raise self._refusal(name)
        if self.journal is not None and self.journal.is_open:
            self.journal.record(undo())

    @contextmanager
    def refusing_changes(self, refusal: Callable[[str], MillpondError]) -> Iterator[None]:
        """Let every change in the ``with`` block raise an error. Reads are allowed.

        Args:
            refusal: takes the name of the state, and returns the error.
        """
        self._refusal = refusal
        try:
            yield
        finally:
            self._refusal = None

    @override
    def close(self) -> None:
        """Delete all states from memory. May be called twice."""
        self._closed = True
        self._states.clear()
        self._restored.clear()


def _conversion(
    stored: OperatorStateMeta, declared: OperatorStateMeta, serializer: TypeSerializer[Any]
) -> Callable[[bytes], bytes]:
    """Return a function that converts stored values to the declared type.

    Raises:
        StateMigrationError: the stored values cannot be converted.
    """
    verdict = serializer.compatibility(stored.value)
    if verdict.outcome is Outcome.INCOMPATIBLE:
        raise incompatible_error(stored.name, stored.value, declared.value, verdict)
    return verdict.migrate or bytes


def _undecodable(name: str) -> str:
    return f"state {name!r}: an element cannot be decoded"
