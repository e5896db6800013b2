"""Results of custom serializers are checked immediately, in the same way on every backend."""

from fractions import Fraction
from typing import Any

import millpond as mp
import pytest
from millpond.errors import SerializerResultError, StateMigrationError
from millpond.types import key_codec_for, serializer_for
from millpond.types.custom_serializer import CustomSerializer

BACKENDS = ("heap", "rocksdb", "lmdb")


class Given(mp.TypeSerializer):
    """Serializer whose methods return the test's values."""

    def __init__(self, **results: Any) -> None:
        self.results = results

    def _result(self, name: str, value: Any) -> Any:
        return self.results[name](value) if name in self.results else value

    def check(self, value):
        return value

    def serialize(self, value):
        return self._result("serialize", str(value).encode())

    def deserialize(self, data):
        return Fraction(data.decode())

    def snapshot(self):
        return self._result("snapshot", mp.SerializerSnapshot("given"))

    def compatibility(self, old):
        return self._result("compatibility", super().compatibility(old))


def opened(name: str, tmp_path, **options: Any):
    return mp.open_keyed_backend(name, key_type=str, directory=tmp_path / name, **options)


def stored(name: str, tmp_path, serializer: Given) -> Any:
    """Return the handle of a snapshot with one value."""
    with opened(name, tmp_path) as backend:
        backend.set_current_key("k")
        descriptor = mp.ValueStateDescriptor("share", serializer)
        backend.get_partitioned_state(descriptor).update(Fraction(1, 3))
        backend.flush()
        return backend.snapshot(1, mp.checkpoint_storage("memory:results")).result().handle


WRONG_RESULTS = [
    ("serialize", lambda _: "text"),
    ("serialize", lambda _: None),
    ("snapshot", lambda _: None),
    ("snapshot", lambda _: mp.SerializerSnapshot("given", payload=("a", "tuple"))),
    ("snapshot", lambda _: mp.SerializerSnapshot("given", payload={1: "a"})),
    ("snapshot", lambda _: mp.SerializerSnapshot("given", payload={"a"})),
    ("snapshot", lambda _: mp.SerializerSnapshot("given", payload=float("nan"))),
    ("snapshot", lambda _: mp.SerializerSnapshot("given", payload="\ud800")),
    ("snapshot", lambda _: mp.SerializerSnapshot(b"given")),  # type: ignore[arg-type]
    ("snapshot", lambda _: mp.SerializerSnapshot("given", "1")),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(
    ("name", "method", "result"),
    [(name, method, result) for name in BACKENDS for method, result in WRONG_RESULTS],
)
def test_a_wrong_result_names_serializer_and_state(name, method, result, tmp_path):
    """The error comes from the request of the state, a flush or a snapshot, and names both."""
    wrong = Given(**{method: result})
    with pytest.raises(SerializerResultError) as caught:
        stored(name, tmp_path, wrong)
    assert caught.value.place == "state 'share'"
    assert f"Given.{method} returned" in str(caught.value)


@pytest.mark.parametrize("name", BACKENDS)
def test_migrated_bytes_are_checked(name, tmp_path):
    """Results of ``migrate`` become bytes too, or are refused."""
    handle = stored(name, tmp_path, Given())
    for migrate, fails in ((bytearray, False), (bytes.decode, True)):
        verdict = mp.Compatibility(mp.Outcome.AFTER_MIGRATION, migrate)
        changed = Given(
            snapshot=lambda _: mp.SerializerSnapshot("given", 2),
            compatibility=lambda _, verdict=verdict: verdict,
        )
        with opened(name, tmp_path / str(fails), restore=[handle]) as backend:
            backend.set_current_key("k")
            descriptor = mp.ValueStateDescriptor("share", changed)
            if fails:
                with pytest.raises(StateMigrationError, match="migrate returned str"):
                    backend.get_partitioned_state(descriptor)
            else:
                assert backend.get_partitioned_state(descriptor).value() == Fraction(1, 3)


def find(_: type) -> Any:
    return CustomSerializer.wrapping(Given(serialize=bytearray))


@pytest.mark.parametrize("kind", [list[Fraction], dict[str, Fraction], Fraction | None])
def test_parts_of_other_types_are_bytes_too(kind):
    """Inside a container, a plugin's bytearray is stored as bytes."""
    held: Any = {list[Fraction]: [Fraction(1, 3)], dict[str, Fraction]: {"a": Fraction(1, 3)}}.get(
        kind, Fraction(1, 3)
    )
    serializer = serializer_for(kind, find)
    plain = serializer_for(kind, lambda _: Given())
    assert serializer.serialize(held) == plain.serialize(held)


def test_keys_are_bytes_too():
    """A key's bytes can be hashed, whatever type the serializer returned."""
    codec = key_codec_for(Given(serialize=bytearray))
    assert type(codec.encode(Fraction(1, 3))) is bytes
    plain = key_codec_for(Given())
    assert codec.check_with_group(Fraction(1, 3), 128) == plain.check_with_group(
        Fraction(1, 3), 128
    )
    with pytest.raises(SerializerResultError, match=r"Given\.serialize returned str"):
        key_codec_for(Given(serialize=bytes.decode)).encode(Fraction(1, 3))
