"""Key codecs, which encode keys, namespaces and map keys as bytes that sort as the values do.

The end of each encoded key can be found without a stored length: integers have a fixed size, and
strings end in two zero bytes (a zero byte inside a string becomes ``00 FF``). So the parts of a
composite key are simply joined.

The hash of a key is Spark's ``xxhash64`` of the matching column type with the seed 42. In a
composite key, the hash of each part is the seed for the next part.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import attrs
import xxhash
from typing_extensions import TypeForm, TypeVar, override

from millpond.errors import NullValueError, StateTypeError, brief
from millpond.keygroups import key_group_of_hash
from millpond.types.base import PicklePermission, SerializerSnapshot, TypeSerializer
from millpond.types.custom_serializer import CustomSerializer
from millpond.types.foreign_scalars import is_missing

K = TypeVar("K", default=Any)

HASH_SEED = 42
_xxh64 = xxhash.xxh64_intdigest


class KeyCodec(ABC):
    """The base class of codecs, which encode and hash the keys of one type.

    Attributes:
        exact: whether two keys are equal by ``==`` exactly if their bytes are equal. Then the keys
            can be used in a dictionary instead of the bytes.
        ordered: whether the bytes sort as the keys do; False for types without an order.
        id: the name of the key type in snapshots.
    """

    exact: bool = True
    ordered: bool = True
    id: str = "key"

    @abstractmethod
    def check(self, key: Any) -> Any:
        """Return `key` in its canonical form; raise StateTypeError if it is of another type."""

    @abstractmethod
    def encode(self, key: Any) -> bytes:
        """Return the bytes of `key`, which ``check`` has returned.

        The bytes sort as the keys do if ``ordered`` is true. ``decode`` must find their end without
        a length.
        """

    def encode_bound(self, bound: Any) -> bytes:
        """Return bytes that sort after all keys less than `bound`, and not after any other key.

        For a composite key type, `bound` may be a tuple of only the first parts. A Decimal at the
        end of a bound is compared by its value only, without its scale.

        Raises:
            StateTypeError, NullValueError: `bound` is not of the key type.
        """
        return self.encode(self.check(bound))

    def encode_many(self, keys: list[Any]) -> list[bytes]:
        """Return the bytes of each of `keys`, which ``check`` has returned."""
        return list(map(self.encode, keys))

    @abstractmethod
    def decode(self, data: bytes, start: int) -> tuple[Any, int]:
        """Return the key that is encoded in `data` from `start` on, and the position after it."""

    def decode_many(self, data: list[bytes], start: int) -> list[Any]:
        """Return the key that is encoded in each of `data` from `start` to the end."""
        return [self.decode(each, start)[0] for each in data]

    @abstractmethod
    def hash(self, key: Any, seed: int = HASH_SEED) -> int:
        """Return the unsigned XXH64 hash of a checked key, as Spark computes it with this seed."""

    def check_with_group(self, key: Any, max_parallelism: int) -> tuple[Any, int]:
        """Return `key` in its canonical form, and its key group.

        Raises:
            StateTypeError: `key` is of another type.
        """
        checked = self.check(key)
        return checked, key_group_of_hash(self.hash(checked), max_parallelism)

    def snapshot(self) -> SerializerSnapshot:
        """Return the description of this codec that each checkpoint stores."""
        return SerializerSnapshot(self.id)

    def bind(self, permission: PicklePermission) -> KeyCodec:
        """Return a codec that decodes pickles only if `permission` allows it.

        See ``TypeSerializer.bind``.
        """
        return self


DeclaredKeyType: TypeAlias = TypeForm[K] | TypeSerializer[K] | KeyCodec
"""A declaration of the type of keys, namespaces and map keys."""


class VoidNamespace:
    """The type of ``VOID_NAMESPACE``, which is the namespace of states that use no namespaces."""

    @override
    def __reduce__(self) -> str:
        return "VOID_NAMESPACE"

    @override
    def __repr__(self) -> str:
        return "VOID_NAMESPACE"


VOID_NAMESPACE = VoidNamespace()


class VoidKeyCodec(KeyCodec):
    """The codec of ``VOID_NAMESPACE``, which is encoded as no bytes."""

    id = "void"

    @override
    def check(self, key: Any) -> Any:
        if key is not VOID_NAMESPACE:
            raise StateTypeError("VOID_NAMESPACE", brief(key))
        return key

    @override
    def encode(self, key: Any) -> bytes:
        return b""

    @override
    def decode(self, data: bytes, start: int) -> tuple[Any, int]:
        return VOID_NAMESPACE, start

    @override
    def hash(self, key: Any, seed: int = HASH_SEED) -> int:
        return seed


def escape(data: bytes) -> bytes:
    """Return `data` with an end mark, in a form that sorts as `data` does.

    A zero byte in `data` becomes ``00 FF``. The bytes ``00 00`` mark the end.
    """
    if b"\0" in data:
        data = data.replace(b"\0", b"\0\xff")
    return data + b"\0\0"


def unescape(data: bytes, start: int) -> tuple[bytes, int]:
    """Return the bytes that ``escape`` has encoded at `start` in `data`, and the position after."""
    end = data.index(b"\0", start)
    while data[end + 1] == 0xFF:  # noqa: PLR2004 - the escape mark
        end = data.index(b"\0", end + 2)
    return data[start:end].replace(b"\0\xff", b"\0"), end + 2


class NullableKeyCodec(KeyCodec):
    """The codec of a part of a composite key that may be None.

    As in Spark, a part that is None does not change the hash of the key.
    """

    id = "nullable"

    def __init__(self, inner: KeyCodec) -> None:
        self.inner = inner
        self.exact = inner.exact
        self.ordered = inner.ordered

    @override
    def check(self, key: Any) -> Any:
        if key is None:
            return None
        try:
            return self.inner.check(key)
        except StateTypeError:
            if is_missing(key):
                return None
            raise

    @override
    def encode(self, key: Any) -> bytes:
        return b"\0" if key is None else b"\1" + self.inner.encode(key)

    @override
    def encode_bound(self, bound: Any) -> bytes:
        return b"\0" if self.check(bound) is None else b"\1" + self.inner.encode_bound(bound)

    @override
    def decode(self, data: bytes, start: int) -> tuple[Any, int]:
        return (None, start + 1) if data[start] == 0 else self.inner.decode(data, start + 1)

    @override
    def bind(self, permission: PicklePermission) -> KeyCodec:
        return NullableKeyCodec(self.inner.bind(permission))

    @override
    def hash(self, key: Any, seed: int = HASH_SEED) -> int:
        return seed if key is None else self.inner.hash(key, seed)

    @override
    def snapshot(self) -> SerializerSnapshot:
        return SerializerSnapshot(self.id, payload=nested_form(self.inner.snapshot()))


def _require_tuple(key: Any) -> Sequence[Any]:
    if not isinstance(key, tuple):
        raise StateTypeError("a tuple", brief(key))
    return key


@attrs.define(eq=False, slots=False)
class TupleKeyCodec(KeyCodec):
    """The codec of composite keys: tuples, named tuples, frozen attrs classes and dataclasses.

    Attributes:
        parts: the codec of each part of the key.
        make: a function that creates a key from its parts.
        split: a function that returns the parts of a key without checking them. It raises
            StateTypeError if its argument is not such a key.
        names: the names of the parts; empty for a plain tuple.
        exact: see ``KeyCodec``; false if the codec of a part is not exact.
    """

    id = "tuple"
    parts: Sequence[KeyCodec]
    make: Callable[..., Any] = lambda *parts: parts
    split: Callable[[Any], Sequence[Any]] = _require_tuple
    names: Sequence[str] = ()
    exact: bool = attrs.field(default=True, kw_only=True)

    def __attrs_post_init__(self) -> None:
        self.exact = self.exact and all(part.exact for part in self.parts)
        self.ordered = all(part.ordered for part in self.parts)
        self._checks = tuple(part.check for part in self.parts)
        self._encoders = tuple(part.encode for part in self.parts)
        self._required = tuple(not isinstance(part, NullableKeyCodec) for part in self.parts)

    @override
    def check(self, key: Any) -> Any:
        values = self.split(key)
        if len(values) != len(self.parts):
            raise StateTypeError(f"{len(self.parts)} parts", brief(key))
        return self.make(*self._checked(values))

    def _checked(self, values: Sequence[Any]) -> list[Any]:
        """Check the first parts of a key, and return them in the form in which they are stored."""
        if type(None) in map(type, values):  # this test takes half the time of the loop
            for value, required in zip(values, self._required, strict=False):
                if value is None and required:
                    raise NullValueError("a part of a composite key")
        return [check(v) for check, v in zip(self._checks, values, strict=False)]

    def keys_from_columns(self, columns: Sequence[list[Any]]) -> list[Any]:
        """Return the keys that have the values of the i-th column as their i-th part.

        There must be at least one column.
        """
        return list(map(self.make, *columns))

    @override
    def encode(self, key: Any) -> bytes:
        values = zip(self._encoders, self.split(key), strict=True)
        return b"".join([encode(value) for encode, value in values])

    @override
    def encode_bound(self, bound: Any) -> bytes:
        if type(bound) is not tuple or len(bound) >= len(self.parts):
            values = self.split(self.check(bound))
        else:
            values = self._checked(bound)
        encoded = [
            encode(value) for encode, value in zip(self._encoders, values[:-1], strict=False)
        ]
        if values:
            encoded.append(self.parts[len(encoded)].encode_bound(values[-1]))
        return b"".join(encoded)

    @override
    def encode_many(self, keys: list[Any]) -> list[bytes]:
        # Encoding by column takes a quarter of the time of a call for each key (with two parts).
        columns = zip(*map(self.split, keys), strict=True)
        encoded = [p.encode_many(list(c)) for p, c in zip(self.parts, columns, strict=False)]
        return list(map(b"".join, zip(*encoded, strict=True)))

    @override
    def decode(self, data: bytes, start: int) -> tuple[Any, int]:
        values = []
        for part in self.parts:
            value, start = part.decode(data, start)
            values.append(value)
        return self.make(*values), start

    @override
    def bind(self, permission: PicklePermission) -> KeyCodec:
        return attrs.evolve(self, parts=[part.bind(permission) for part in self.parts])

    @override
    def hash(self, key: Any, seed: int = HASH_SEED) -> int:
        for part, value in zip(self.parts, self.split(key), strict=True):
            seed = part.hash(value, seed)
        return seed

    @override
    def snapshot(self) -> SerializerSnapshot:
        parts = [nested_form(part.snapshot()) for part in self.parts]
        return SerializerSnapshot(self.id, payload={"parts": parts, "names": list(self.names)})


class SerializedKeyCodec(KeyCodec):
    """The codec of keys that a custom serializer encodes. The keys sort by their encoded bytes."""

    exact = False
    ordered = False

    def __init__(self, serializer: TypeSerializer[Any]) -> None:
        self.serializer = CustomSerializer.wrapping(serializer)

    @override
    def check(self, key: Any) -> Any:
        return self.serializer.check(key)

    @override
    def encode(self, key: Any) -> bytes:
        return escape(self.serializer.serialize(key))

    @override
    def decode(self, data: bytes, start: int) -> tuple[Any, int]:
        raw, end = unescape(data, start)
        return self.serializer.deserialize(raw), end

    @override
    def bind(self, permission: PicklePermission) -> KeyCodec:
        return SerializedKeyCodec(self.serializer.bind(permission))

    @override
    def hash(self, key: Any, seed: int = HASH_SEED) -> int:
        return _xxh64(self.serializer.serialize(key), seed)

    @override
    def snapshot(self) -> SerializerSnapshot:
        return self.serializer.snapshot()


def nested_form(snapshot: SerializerSnapshot) -> Any:
    """Return `snapshot` as a plain JSON value, which can be part of another snapshot's payload."""
    if snapshot.version != 1:
        return [snapshot.id, snapshot.payload, snapshot.version]
    return snapshot.id if snapshot.payload is None else [snapshot.id, snapshot.payload]
