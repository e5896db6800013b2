"""Operator states: list, union list and broadcast, and their snapshots."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, overload

import attrs
from typing_extensions import TypeVar, override

from millpond.arguments import check_elements, check_type
from millpond.errors import NullValueError, StateTypeError, UnsupportedCapabilityError
from millpond.safe_decoding import decoding
from millpond.state.descriptors import ListStateDescriptor
from millpond.state.interfaces import ListState, MapState
from millpond.state.names import Scope
from millpond.types import KeyCodec, SerializerSnapshot, TypeSerializer, serializer_for

StateId = tuple[str, Scope]
"""A state's name and scope."""


class Mode(enum.Enum):
    """How a state is distributed when the parallelism changes."""

    SPLIT = "split"
    UNION = "union"
    BROADCAST = "broadcast"


@attrs.frozen
class OperatorStateMeta:
    """A snapshot's description of an operator state; only broadcast states have ``map_key``."""

    name: str
    mode: Mode
    value: SerializerSnapshot
    map_key: SerializerSnapshot | None = None

    @property
    def scope(self) -> Scope:
        """Lists, split or union, share their names; broadcast states have theirs apart."""
        return "broadcast" if self.mode is Mode.BROADCAST else "list"

    @property
    def id(self) -> StateId:
        """The identity of the state in the operator; sorts by name."""
        return self.name, self.scope


@attrs.frozen
class FrozenState:
    """A state as a snapshot writes it: a partition for each list element or map entry."""

    meta: OperatorStateMeta
    partitions: tuple[bytes, ...]

    @property
    def size(self) -> int:
        """Bytes of all partitions."""
        return sum(map(len, self.partitions))


RestoredState = FrozenState
"""A state restored from a snapshot and not requested yet."""


RAW_KEYED_STREAM = ListStateDescriptor("raw-keyed-stream", tuple[int, bytes])
"""Elements are a key group and its bytes."""

_SERIALIZER = serializer_for(tuple[int, bytes])

RAW_KEYED = OperatorStateMeta(RAW_KEYED_STREAM.name, Mode.UNION, _SERIALIZER.snapshot())
"""The description of the raw keyed stream in snapshots."""


def key_group_of(data: bytes) -> int:
    """Return the key group of a stored element; CorruptSnapshotError if it has none."""
    with decoding("operator state", f"state {RAW_KEYED.name!r}: an element cannot be decoded"):
        group, _ = _SERIALIZER.deserialize(data)
        return int(group)


K = TypeVar("K", default=Any)
V = TypeVar("V", default=Any)
T = TypeVar("T", default=Any)
D = TypeVar("D")

MayChange = Callable[[str], None]
"""Raises if a state of that name cannot be changed now."""


def _checked(check: Callable[[Any], T], value: object, place: str) -> T:
    try:
        return check(value)
    except StateTypeError as error:
        error.place = place
        raise


class OperatorListState(ListState[T]):
    """A list of the subtask."""

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
    def add(self, value: T) -> None:
        self._may_change()
        self._values.append(self._check(value))

    @override
    def add_all(self, values: Iterable[T]) -> None:
        self._may_change()
        self._values += self._check_all(values)

    @override
    def update(self, values: Iterable[T]) -> None:
        self._may_change()
        self._values[:] = self._check_all(values)

    @override
    def clear(self) -> None:
        self._may_change()
        self._values.clear()

    def frozen(self) -> tuple[bytes, ...]:
        """Return the elements' bytes."""
        return tuple(map(self._serializer.serialize, self._values))

    def _check_all(self, values: Iterable[T]) -> list[T]:
        if values is None:
            raise NullValueError("the list of elements", self._place)
        check_type("values", values, Iterable)
        check_elements("values", values)
        return [self._check(value) for value in values]

    def _check(self, value: T) -> T:
        if value is None:
            raise NullValueError("an element", self._place)
        return _checked(self._serializer.check, value, self._place)

    @override
    def set_current_namespace(self, namespace: Any) -> None:
        """Refuse: operator state has no namespaces."""
        raise UnsupportedCapabilityError("operator state", "namespaces")

    @override
    def merge_namespaces(self, target: Any, sources: Iterable[Any]) -> None:
        """Refuse: operator state has no namespaces."""
        raise UnsupportedCapabilityError("operator state", "namespaces")


class BroadcastState(MapState[K, V]):
    """A map that is the same in every subtask."""

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
    def put(self, key: K, value: V) -> None:
        self._may_change()
        encoded = self._encoded(key)
        self._entries[encoded] = _checked(self._serializer.check, value, self._place)

    @override
    def put_all(self, entries: Mapping[K, V]) -> None:
        self._may_change()
        if entries is None:
            raise NullValueError("the map of entries", self._place)
        check_type("entries", entries, Mapping)
        check, place = self._serializer.check, self._place
        checked = {self._encoded(k): _checked(check, v, place) for k, v in entries.items()}
        self._entries.update(checked)

    @override
    def remove(self, key: K) -> None:
        self._may_change()
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
        self._may_change()
        self._entries.clear()

    def frozen(self) -> tuple[bytes, ...]:
        """Return the entries' bytes: length of the key (4 bytes, big-endian), key, value."""
        serialize = self._serializer.serialize
        return tuple(
            len(key).to_bytes(4, "big") + key + serialize(value)
            for key, value in self._entries.items()
        )

    @override
    def set_current_namespace(self, namespace: Any) -> None:
        """Refuse: operator state has no namespaces."""
        raise UnsupportedCapabilityError("operator state", "namespaces")
