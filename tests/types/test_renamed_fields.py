"""Fields that have changed their names take what was stored under the old one, or are refused."""

import attrs
import millpond as mp
import pytest
from millpond import errors


@attrs.define
class Stored:
    """What is stored."""

    a: int
    b: int


def renamed(**old_names):
    """A class of fields with their old names; None for a field that keeps its name."""
    fields = {
        name: attrs.field(type=int, metadata={} if old is None else mp.renamed_from(old))
        for name, old in old_names.items()
    }
    return attrs.make_class("Renamed", fields)


def read_as(declared, stored):
    """What is read of a stored value under another type, and once more of a later snapshot."""
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
    """It does so when it is read first, and keeps it afterwards under the same declaration."""
    assert attrs.astuple(read_as(renamed(**fields), Stored(1, 2))) == expected


@pytest.mark.parametrize(
    ("fields", "field", "reason"),
    [
        ({"a": "b"}, "a", "declared to have been 'b', and values are stored under both names"),
        ({"b": "a", "c": "b"}, "b", "to take what is stored as 'a', give the field a name"),
        ({"x": "a", "y": "a"}, "y", "it and the field 'x' would both take what is stored as 'a'"),
        ({"a": None, "y": "a"}, "y", "it and the field 'a' would both take what is stored as 'a'"),
    ],
)
def test_a_name_that_may_mean_two_stored_fields_is_refused(fields, field, reason):
    """Nothing is guessed where a field may be one stored field or another, or share it."""
    with pytest.raises(errors.StateMigrationError, match=reason) as caught:
        read_as(renamed(**fields), Stored(1, 2))
    assert caught.value.field == field


@pytest.mark.parametrize("fields", [{"a": "b", "b": "a"}, {"a": "b", "b": "c", "c": "a"}])
def test_exchanged_names_are_refused(fields):
    """What is stored before and after looks alike, so the declaration itself is refused."""
    with pytest.raises(errors.ConfigError, match="declared to have exchanged their names"):
        read_as(renamed(**fields), Stored(1, 2))


def test_a_name_may_be_used_again_later():
    """A field whose old name a new field has taken since keeps its own value."""
    again = attrs.make_class(
        "Again",
        {
            "a": attrs.field(type=int, metadata=mp.renamed_from("b")),
            "b": attrs.field(type=int, default=0),
            "c": attrs.field(type=int, default=0),
        },
    )
    assert attrs.astuple(read_as(again, Stored(1, 2))) == (1, 2, 0)
