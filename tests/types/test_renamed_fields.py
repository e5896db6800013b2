"""Renamed fields get the value stored under the old name, or are refused."""

import dataclasses
import subprocess
import sys
from contextlib import nullcontext
from typing import NamedTuple

import attrs
import millpond as mp
import pytest
from millpond import errors
from pyspark import cloudpickle


@attrs.define
class Stored:
    """The stored class."""

    a: int
    b: int


def renamed(**old_names):
    """Return a class with fields and their old names; None for a field that keeps its name."""
    fields = {
        name: attrs.field(type=int, metadata={} if old is None else mp.renamed_from(old))
        for name, old in old_names.items()
    }
    return attrs.make_class("Renamed", fields)


def read_as(declared, stored):
    """Return a stored value read as another type, twice: the second time from a later snapshot."""
    storage, handle = mp.checkpoint_storage("memory:renamed"), None
    for kind in (type(stored), declared, declared):
        restore = [] if handle is None else [handle]
        with mp.open_keyed_backend("heap", key_type=str, restore=restore) as backend:
            backend.set_current_key("k")
            state = backend.get_partitioned_state(mp.ValueStateDescriptor("v", kind))
            if handle is None:
                state.update(stored)
            found = state.value()
            handle = backend.snapshot(1, storage).result().handle
    return found


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"a": None, "c": "b"}, (1, 2)),
        ({"c": "b", "d": "a"}, (2, 1)),
        ({"a": "a", "c": "b"}, (1, 2)),
        ({"a": "z", "b": None}, (1, 2)),
    ],
)
def test_a_renamed_field_takes_its_old_value(fields, expected):
    """A renamed field gets its old value at the first read, and keeps it under the same declaration."""
    assert attrs.astuple(read_as(renamed(**fields), Stored(1, 2))) == expected


@pytest.mark.parametrize(
    ("fields", "field", "reason"),
    [
        ({"a": "b"}, "a", "declared to have been 'b', and values are stored under both names"),
        ({"b": "a", "c": "b"}, "b", "to read 'a', give the field a third name"),
        ({"x": "a", "y": "a"}, "y", "it and the field 'x' would both read the stored field 'a'"),
        ({"a": None, "y": "a"}, "y", "it and the field 'a' would both read the stored field 'a'"),
    ],
)
def test_a_name_that_may_mean_two_stored_fields_is_refused(fields, field, reason):
    """A declaration is refused if a field could mean two stored fields, or two fields mean the same one."""
    with pytest.raises(errors.StateMigrationError, match=reason) as caught:
        read_as(renamed(**fields), Stored(1, 2))
    assert caught.value.field == field


@pytest.mark.parametrize("fields", [{"a": "b", "b": "a"}, {"a": "b", "b": "c", "c": "a"}])
def test_exchanged_names_are_refused(fields):
    """Exchanged names are refused at the declaration, because stored values cannot show the difference."""
    with pytest.raises(errors.ConfigError, match="declared to have exchanged their names"):
        read_as(renamed(**fields), Stored(1, 2))


def test_a_name_may_be_used_again_later():
    """A field keeps its value even if a new field has taken its old name since."""
    again = attrs.make_class(
        "Again",
        {
            "a": attrs.field(type=int, metadata=mp.renamed_from("b")),
            "b": attrs.field(type=int, default=0),
            "c": attrs.field(type=int, default=0),
        },
    )
    assert attrs.astuple(read_as(again, Stored(1, 2))) == (1, 2, 0)


KINDS = {
    "attrs": lambda fields: attrs.make_class(
        "Sent", {name: attrs.field(type=int) for name in fields}, frozen=True
    ),
    "dataclass": lambda fields: dataclasses.make_dataclass(
        "Sent", [(name, int) for name in fields], frozen=True
    ),
    "named tuple": lambda fields: NamedTuple("Sent", [(name, int) for name in fields]),
}

IN_A_WORKER = """
import pickle, sys
import millpond as mp
from millpond.errors import StateMigrationError

old, new, is_key = pickle.load(sys.stdin.buffer)
storage, handle, restore = mp.checkpoint_storage("memory:sent"), None, []
for kind in (old, new):
    try:
        with mp.open_keyed_backend("heap", key_type=kind if is_key else str, restore=restore) as backend:
            backend.set_current_key(old(1, 2) if kind is old and is_key else "k")
            value = mp.ValueStateDescriptor("v", int if is_key else kind)
            state = backend.get_partitioned_state(value)
            state.update(1 if is_key else old(1, 2))
            restore = [backend.snapshot(1, storage).result().handle]
    except StateMigrationError as error:
        print(f"{error.field}: {error.reason}")
"""


@pytest.mark.parametrize("is_key", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_a_class_that_spark_sends_has_the_fields_that_it_has_here(kind, is_key):
    """In a worker, a field without a default is refused; no default of the pickled class is used."""
    old = KINDS[kind](["a", "b"])
    new = KINDS[kind](["a", "b", "c"] if is_key else ["a", "c"])
    old.__module__ = new.__module__ = "__main__"
    sent = subprocess.run(
        [sys.executable, "-c", IN_A_WORKER],
        input=cloudpickle.dumps((old, new, is_key)),
        stdout=subprocess.PIPE,
        check=True,
    )
    expected = "a new part of it needs a type" if is_key else "c: the field is new and has"
    assert expected in sent.stdout.decode()


@attrs.define
class Demanding:
    """A class whose field has a default that the constructor does not use."""

    c: int = 0

    def __init__(self, c):
        self.c = c


@pytest.mark.parametrize("declared", [Demanding, Demanding | None])
def test_a_default_that_the_constructor_does_not_use_is_none(declared):
    """Such a new field is refused by name, without the constructor's own message."""
    storage, handle = mp.checkpoint_storage("memory:demanding"), []
    stored = Stored if declared is Demanding else Stored | None
    for kind, refusal in (
        (stored, nullcontext()),
        (declared, pytest.raises(errors.StateMigrationError)),
    ):
        with mp.open_keyed_backend("heap", key_type=str, restore=handle) as backend:
            backend.set_current_key("k")
            with refusal as caught:
                backend.get_partitioned_state(mp.ValueStateDescriptor("v", kind)).update(
                    Stored(1, 2)
                )
                handle = [backend.snapshot(1, storage).result().handle]
    assert caught.value.field == "c"
    assert "the field is new and has no default" in caught.value.reason
