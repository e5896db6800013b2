"""Types at the maximum nesting depth work; deeper and incomplete types are refused."""

import dataclasses
from typing import NamedTuple

import attrs
import millpond as mp
import pytest
from millpond import errors
from millpond.types.node_compiler import MAX_NESTING

from tests.types import type_language as tl


def _class_around(part):
    return dataclasses.make_dataclass("Level", [("part", part)], frozen=True)


def _optional_tuple(part):
    return tuple[part | None]


WRAPPERS = {
    "list": (lambda part: list[part], lambda value: [value]),
    "dict": (lambda part: dict[str, part], lambda value: {"a": value}),
    "tuple": (lambda part: tuple[part], lambda value: (value,)),
}
KEYS = {
    "tuple": (lambda part: tuple[part], lambda made, value: (value,)),
    "optional": (_optional_tuple, lambda made, value: (value,)),
    "class": (_class_around, lambda made, value: made(value)),
}


def _levels(wrap, fill, count):
    declared, value = int, 7
    for _ in range(count):
        declared = wrap(declared)
        value = fill(value)
    return declared, value


def _ways_out(backend, storage, restored):
    """Yield a value as read from the backend, its snapshot and its savepoint."""
    handles = [
        backend.snapshot(1, storage).result().handle,
        backend.savepoint(1, storage).result().handle,
    ]
    for handle in handles:
        with mp.open_keyed_backend("heap", **restored, restore=[handle]) as again:
            yield again


@pytest.mark.parametrize("name", WRAPPERS)
def test_the_deepest_values_come_back(name, tmp_path):
    """A value of a type at the limit passes through a snapshot and a savepoint."""
    declared, value = _levels(*WRAPPERS[name], MAX_NESTING)
    descriptor = mp.ValueStateDescriptor("v", declared)
    with mp.open_keyed_backend("heap", key_type=str) as backend:
        backend.set_current_key("k")
        backend.get_partitioned_state(descriptor).update(value)
        for again in _ways_out(
            backend, mp.checkpoint_storage(tmp_path.as_uri()), {"key_type": str}
        ):
            again.set_current_key("k")
            found = again.get_partitioned_state(descriptor).value()
            assert tl.fingerprint(found) == tl.fingerprint(value)


@pytest.mark.parametrize("name", KEYS)
def test_the_deepest_keys_come_back(name, tmp_path):
    """A key of a type at the limit passes through a snapshot and a savepoint."""
    wrap, fill = KEYS[name]
    key_type, key = int, 7
    for _ in range(MAX_NESTING):
        key_type = wrap(key_type)
        key = fill(key_type, key)
    with mp.open_keyed_backend("heap", key_type=key_type) as backend:
        backend.set_current_key(key)
        backend.get_partitioned_state(mp.ValueStateDescriptor("v", int)).update(1)
        storage = mp.checkpoint_storage(tmp_path.as_uri())
        for again in _ways_out(backend, storage, {"key_type": key_type}):
            assert list(again.keys("v", mp.VOID_NAMESPACE)) == [key]


@pytest.mark.parametrize("name", WRAPPERS)
@pytest.mark.parametrize("levels", [MAX_NESTING + 1, 3000])
def test_deeper_types_are_refused(name, levels):
    """One level too many, or thousands, is refused with a ConfigError, for values and keys."""
    declared, _ = _levels(*WRAPPERS[name], levels)
    with mp.open_keyed_backend("heap", key_type=str) as backend:
        with pytest.raises(errors.ConfigError, match="more than 20 levels deep"):
            backend.get_partitioned_state(mp.ValueStateDescriptor("v", declared))
        with pytest.raises(errors.ConfigError):
            backend.get_partitioned_state(mp.MapStateDescriptor("m", declared, int))


@dataclasses.dataclass(frozen=True)
class Chain:
    """A class that contains itself."""

    value: int
    rest: "Chain | None" = None


@dataclasses.dataclass(frozen=True)
class Unknown:
    """A class with an unknown type."""

    value: "Nowhere"  # noqa: F821


@dataclasses.dataclass(frozen=True)
class Broken:
    """A class with an invalid type expression."""

    value: "1 +"  # noqa: F722


class UnknownTuple(NamedTuple):
    """A named tuple with an unknown type."""

    value: "Nowhere"  # noqa: F821


@attrs.frozen
class Untyped:
    """A class with a field without a type."""

    value = attrs.field()


@pytest.mark.parametrize("declared", [Chain, Unknown, Broken, UnknownTuple, Untyped])
def test_key_classes_without_sound_types_are_refused(declared):
    """Keys, map keys and namespaces of such a class are refused by name."""
    with pytest.raises(errors.ConfigError, match=declared.__name__):
        mp.open_keyed_backend("heap", key_type=declared)
    with mp.open_keyed_backend("heap", key_type=str) as backend:
        backend.set_current_key("k")
        with pytest.raises(errors.ConfigError, match=declared.__name__):
            backend.get_partitioned_state(mp.MapStateDescriptor("m", declared, int))
        plain = mp.ValueStateDescriptor("v", int)
        with pytest.raises(errors.ConfigError, match=declared.__name__):
            backend.get_partitioned_state(plain, namespace=1, namespace_type=declared)


@pytest.mark.parametrize("key", [[1, "a"], {1: "a"}, "1a"])
def test_a_list_is_no_tuple_key(key):
    """A list is refused as a tuple key, because it would come back as an unequal tuple."""
    opened = mp.open_keyed_backend("heap", key_type=tuple[int, str])
    with opened as backend, pytest.raises(errors.StateTypeError, match="a tuple"):
        backend.set_current_key(key)
