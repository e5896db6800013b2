"""Operator state: lists and maps of a subtask, not of a key; always in memory.

A split list is cut anew when the parallelism changes, of a union list every subtask gets all,
a broadcast map is the same in every subtask. Values are stored as they are and copied on their
way in and out, as keyed state is.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, overload

import attrs
from typing_extensions import TypeVar, override

from millpond.arguments import INT64, check_type, check_within
from millpond.backend.migration import refusal
from millpond.backend.snapshots import SnapshotResult
from millpond.closing import Closeable
from millpond.errors import (
    BackendClosedError,
    ConfigError,
    NullValueError,
    StateConflictError,
    StateMigrationError,
    StateTypeError,
    UnsupportedCapabilityError,
)
from millpond.state.descriptors import ListStateDescriptor, MapStateDescriptor, StateDescriptor
from millpond.state.interfaces import ListState, MapState
from millpond.storage.checkpoint_storage import CheckpointStorage
from millpond.types import (
    FindSerializer,
    KeyCodec,
    Outcome,
    PicklePermission,
    SerializerSnapshot,
    TypeSerializer,
    no_serializer,
)
from millpond.untrusted import decoding

__all__ = [
    "FrozenState",
    "Mode",
    "OperatorStateBackend",
    "OperatorStateMeta",
    "RestoredState",
    "SnapshotWriter",
]


K = TypeVar("K", default=Any)
V = TypeVar("V", default=Any)
T = TypeVar("T", default=Any)
D = TypeVar("D")


class Mode(enum.Enum):
    """How a state is given out when the parallelism changes."""

    SPLIT = "split"
    UNION = "union"
    BROADCAST = "broadcast"


@attrs.frozen
class OperatorStateMeta:
    """What a snapshot says of an operator state; ``map_key`` is of broadcast states."""

    name: str
    mode: Mode
    value: SerializerSnapshot
    map_key: SerializerSnapshot | None = None


@attrs.frozen
class FrozenState:
    """A state as a snapshot writes it: a partition for each list element or map entry."""

    meta: OperatorStateMeta
    partitions: tuple[bytes, ...]


RestoredState = FrozenState
"""A state as a snapshot gives it back, not requested yet."""

SnapshotWriter = Callable[[int, CheckpointStorage, Sequence[FrozenState]], "Future[SnapshotResult]"]
"""Writes frozen states to a storage: checkpoint id, storage, states; gives a result's future."""


def _checked(check: Callable[[Any], T], value: object, place: str) -> T:
    try:
        return check(value)
    except StateTypeError as error:
        error.place = place
        raise


def _check_plain(descriptor: StateDescriptor) -> None:
    """Refuse what operator state does not have, where it would do nothing."""
    for what, setting in (("TTL", descriptor.ttl_config), ("queryable", descriptor.query_name)):
        if setting is not None:
            raise ConfigError(descriptor.name, f"operator state has no {what}", "descriptor")


class OperatorListState(ListState[T]):
    """A list of the subtask."""

    def __init__(self, name: str, serializer: TypeSerializer[T], values: list[T]) -> None:
        self._place = f"operator state {name!r}"
        self._serializer = serializer
        self._values = values

    @override
    def get(self) -> list[T]:
        copy = self._serializer.copy
        return [copy(value) for value in self._values]

    @override
    def add(self, value: T) -> None:
        self._values.append(self._check(value))

    @override
    def add_all(self, values: Iterable[T]) -> None:
        self._values += self._check_all(values)

    @override
    def update(self, values: Iterable[T]) -> None:
        self._values[:] = self._check_all(values)

    @override
    def clear(self) -> None:
        self._values.clear()

    def frozen(self) -> tuple[bytes, ...]:
        """The elements' bytes."""
        return tuple(map(self._serializer.serialize, self._values))

    def _check_all(self, values: Iterable[T]) -> list[T]:
        if values is None:
            raise NullValueError("the list of elements", self._place)
        check_type("values", values, Iterable)
        return [self._check(value) for value in values]

    def _check(self, value: T) -> T:
        if value is None:
            raise NullValueError("an element", self._place)
        return _checked(self._serializer.check, value, self._place)

    @override
    def set_current_namespace(self, namespace: Any) -> None:
        """Operator state has no namespaces."""
        raise UnsupportedCapabilityError("operator state", "namespaces")

    @override
    def merge_namespaces(self, target: Any, sources: Iterable[Any]) -> None:
        """Operator state has no namespaces."""
        raise UnsupportedCapabilityError("operator state", "namespaces")


class BroadcastState(MapState[K, V]):
    """A map that is the same in every subtask."""

    def __init__(
        self,
        name: str,
        key_codec: KeyCodec,
        serializer: TypeSerializer[V],
        entries: dict[bytes, V],
    ) -> None:
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
    def put(self, key: K, value: V) -> None:
        encoded = self._encoded(key)
        self._entries[encoded] = _checked(self._serializer.check, value, self._place)

    @override
    def put_all(self, entries: Mapping[K, V]) -> None:
        if entries is None:
            raise NullValueError("the map of entries", self._place)
        check_type("entries", entries, Mapping)
        check, place = self._serializer.check, self._place
        checked = {self._encoded(k): _checked(check, v, place) for k, v in entries.items()}
        self._entries.update(checked)

    @override
    def remove(self, key: K) -> None:
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
        self._entries.clear()

    def frozen(self) -> tuple[bytes, ...]:
        """The entries' bytes: length of the key (4 bytes, big-endian), key, value."""
        serialize = self._serializer.serialize
        return tuple(
            len(key).to_bytes(4, "big") + key + serialize(value)
            for key, value in self._entries.items()
        )

    @override
    def set_current_namespace(self, namespace: Any) -> None:
        """Operator state has no namespaces."""
        raise UnsupportedCapabilityError("operator state", "namespaces")


class OperatorStateBackend(Closeable):
    """The operator state of one subtask; a context manager.

    Args:
        restored: what snapshots hold, the parts of one state joined.
        write: what writes a snapshot.
        find: gives the serializers that the job's plugins provide.
        allow_pickle: whether restored state may be decoded with pickle.
    """

    def __init__(
        self,
        restored: Mapping[str, RestoredState],
        write: SnapshotWriter,
        find: FindSerializer = no_serializer,
        *,
        allow_pickle: bool = False,
    ) -> None:
        self._find = find
        self._pickles = PicklePermission(allow_pickle, outside=bool(restored))
        self._restored = dict(restored)
        self._write = write
        self._states: dict[str, tuple[OperatorStateMeta, Any]] = {}
        self._closed = False

    def get_list_state(self, descriptor: ListStateDescriptor[T]) -> ListState[T]:
        """The split list of a descriptor: at another parallelism its elements are divided anew.

        Raises:
            StateConflictError: the name is used in another mode.
            StateMigrationError: stored elements have another type.
            ConfigError: the descriptor has a TTL or is queryable.
        """
        return self._list(descriptor, Mode.SPLIT)

    def get_union_list_state(self, descriptor: ListStateDescriptor[T]) -> ListState[T]:
        """The union list of a descriptor: at a restore every subtask gets all elements."""
        return self._list(descriptor, Mode.UNION)

    def get_broadcast_state(self, descriptor: MapStateDescriptor[K, V]) -> BroadcastState[K, V]:
        """The broadcast map of a descriptor, which is to be the same in every subtask."""
        check_type("descriptor", descriptor, MapStateDescriptor)
        _check_plain(descriptor)
        resolved = descriptor.resolved(self._find).bound(self._pickles)
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
            for data in partitions:
                end = 4 + int.from_bytes(data[:4], "big")
                with decoding("operator state", _undecodable(descriptor.name)):
                    codec.decode(data[4:end], 0)
                    entries[data[4:end]] = serializer.deserialize(convert(data[end:]))
            return BroadcastState(descriptor.name, codec, serializer, entries)

        state: BroadcastState[K, V] = self._get(meta, serializer, make)
        return state

    def _list(self, descriptor: ListStateDescriptor[T], mode: Mode) -> ListState[T]:
        check_type("descriptor", descriptor, ListStateDescriptor)
        _check_plain(descriptor)
        resolved = descriptor.resolved(self._find).bound(self._pickles)
        serializer = resolved.value_serializer()
        meta = OperatorStateMeta(descriptor.name, mode, serializer.snapshot())

        def make(
            partitions: Sequence[bytes], convert: Callable[[bytes], bytes]
        ) -> OperatorListState[T]:
            with decoding("operator state", _undecodable(descriptor.name)):
                values = [serializer.deserialize(convert(data)) for data in partitions]
            return OperatorListState(descriptor.name, serializer, values)

        state: ListState[T] = self._get(meta, serializer, make)
        return state

    def _get(self, meta: OperatorStateMeta, serializer: TypeSerializer[Any], make: Any) -> Any:
        if self._closed:
            raise BackendClosedError("operator state")
        known = self._states.get(meta.name)
        restored = self._restored.get(meta.name)
        previous = known[0] if known else restored.meta if restored else meta
        if previous.mode is not meta.mode:
            raise StateConflictError(meta.name, previous.mode.value, meta.mode.value)
        convert = _conversion(previous, meta, serializer)
        if known is not None:
            if previous != meta:
                raise StateConflictError(meta.name, str(previous.value), str(meta.value))
            return known[1]
        state = make(restored.partitions if restored else (), convert)
        self._states[meta.name] = (meta, state)
        self._restored.pop(meta.name, None)
        return state

    def registered_state_names(self) -> frozenset[str]:
        """All states, broadcast ones among them, restored ones that nobody asked for as well."""
        return frozenset(self._states) | frozenset(self._restored)

    def snapshot(self, checkpoint_id: int, storage: CheckpointStorage) -> Future[SnapshotResult]:
        """Take a snapshot of everything, restored states that nobody asked for as well.

        Returns:
            A future whose result has a ``handle``, None where there is no state.
        """
        check_within("checkpoint_id", checkpoint_id, *INT64)
        check_type("storage", storage, CheckpointStorage)
        return self._write(checkpoint_id, storage, self.freeze())

    def freeze(self) -> list[FrozenState]:
        """Everything as it is now, by name; later changes do not touch it."""
        if self._closed:
            raise BackendClosedError("operator state")
        frozen = [FrozenState(meta, state.frozen()) for meta, state in self._states.values()]
        return sorted([*frozen, *self._restored.values()], key=lambda state: state.meta.name)

    @override
    def close(self) -> None:
        """Forget everything; may be called twice."""
        self._closed = True
        self._states.clear()
        self._restored.clear()


def _same(data: bytes) -> bytes:
    return data


def _conversion(
    stored: OperatorStateMeta, declared: OperatorStateMeta, serializer: TypeSerializer[Any]
) -> Callable[[bytes], bytes]:
    """What brings stored values to the declared type; StateMigrationError where nothing does."""
    if stored.map_key != declared.map_key:
        old, new = str(stored.map_key), str(declared.map_key)
        raise StateMigrationError(stored.name, "map key", old, new)
    verdict = serializer.compatibility(stored.value)
    if verdict.outcome is Outcome.INCOMPATIBLE:
        raise refusal(stored.name, stored.value, declared.value, verdict)
    return verdict.migrate or _same


def _undecodable(name: str) -> str:
    return f"state {name!r}: an element cannot be decoded"
