"""`millpond state edit` writes exactly the given value, or refuses it."""

import enum
import json
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import NamedTuple
from uuid import UUID

import attrs
import millpond as mp
import pytest
from click.testing import CliRunner
from millpond_cli.main import commands


class Colour(enum.Enum):
    """An enum that is stored by value and edited by name."""

    RED = "red"


@attrs.frozen
class Order:
    """A class whose instances are values."""

    item: str
    count: int
    note: str | None = None


class Point(NamedTuple):
    """A named tuple."""

    x: int
    y: float


TYPES = {
    "int": int,
    "float": float,
    "bool": bool,
    "text": str,
    "bytes": bytes,
    "decimal": Decimal,
    "moment": datetime,
    "day": date,
    "lasting": timedelta,
    "clock": time,
    "uuid": UUID,
    "order": Order,
    "point": Point,
    "counts": dict[str, int],
    "pairs": dict[int, int],
    "colour": Colour,
    "numbers": list[int],
    "group": set[int],
}
UID = "00000000-0000-0000-0000-00000000000a"
GIVEN = {
    "int": 1,
    "float": 1.5,
    "bool": True,
    "text": "a",
    "bytes": b"a",
    "decimal": Decimal("1.5"),
    "moment": datetime.fromisoformat("2024-01-01T00:00:00+00:00"),
    "day": date(2024, 1, 1),
    "lasting": timedelta(1),
    "clock": time(1),
    "uuid": UUID(UID),
    "order": Order("tea", 1),
    "point": Point(1, 2.5),
    "counts": {"a": 1},
    "pairs": {1: 1},
    "colour": Colour.RED,
    "numbers": [1],
    "group": {1},
}


def millpond(*arguments):
    """Run a command."""
    return CliRunner().invoke(commands, [str(each) for each in arguments])


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    """Snapshots of a value state of every type, and of a map, a list and states with TTL."""
    folder = tmp_path_factory.mktemp("types") / "snapshots"
    ttl = mp.StateTtlConfig(timedelta(days=1))
    with mp.open_keyed_backend("heap", key_type=int, place="q/typed") as backend:
        states = {
            name: backend.get_partitioned_state(mp.ValueStateDescriptor(name, kind))
            for name, kind in TYPES.items()
        }
        by_day = backend.get_partitioned_state(mp.MapStateDescriptor("by-day", date, int))
        seen = backend.get_partitioned_state(
            mp.ListStateDescriptor("seen", str).enable_time_to_live(ttl)
        )
        backend.set_current_key(2)
        for name, state in states.items():
            state.update(GIVEN[name])
        by_day.put(date(2024, 1, 1), 1)
        by_day.put(date(2024, 1, 2), 2)
        seen.update(["a", "b"])
        backend.snapshot(1, mp.checkpoint_storage(folder.as_uri())).result()
    return folder


def edited(directory, target, state, key, *arguments):
    """Return the rows of a key in the savepoint that an edit has written."""
    done = millpond("state", "edit", directory, state, key, target, *arguments)
    assert done.exit_code == 0, done.output
    return json.loads(millpond("state", "get", target, state, key, "--json").stdout)


@pytest.mark.parametrize(
    ("state", "value", "stored"),
    [
        ("int", "-9223372036854775808", -(2**63)),
        ("int", "170141183460469231731687303715884105728", "170141183460469231731687303715884105728"),
        ("float", "7", 7.0),
        ("float", '"inf"', "inf"),
        ("bool", "false", False),
        ("text", '"1"', "1"),
        ("bytes", '"AAE="', "AAE="),
        ("decimal", '"0.10"', "0.10"),
        ("moment", '"2024-05-01T12:00:00+02:00"', "2024-05-01T10:00:00+00:00"),
        ("moment", '"2024-05-01T12:00:00"', "2024-05-01T12:00:00"),
        ("day", '"2024-02-29"', "2024-02-29"),
        ("lasting", "1500000", 1_500_000),
        ("clock", '"23:59:59.000001"', "23:59:59.000001"),
        ("uuid", f'"{UID[:-1]}b"', f"{UID[:-1]}b"),
        ("order", '{"item": "jam", "count": 3, "note": null}', {"item": "jam", "count": 3, "note": None}),
        ("point", "[2, 3]", {"x": 2, "y": 3.0}),
        ("counts", '{"a": 2, "b": 3}', [["a", 2], ["b", 3]]),
        ("counts", '[["c", 4]]', [["c", 4]]),
        ("numbers", "[1, 2]", [1, 2]),
        ("numbers", "[]", []),
    ],
)  # fmt: skip
def test_a_value_is_stored_as_it_was_given(directory, tmp_path, state, value, stored):
    """A JSON value of the state's type is read back unchanged."""
    (row,) = edited(directory, tmp_path / "edited", state, "2", "--set", value)
    assert row["value"] == stored


@pytest.mark.parametrize(
    ("state", "value"),
    [
        ("int", "1.5"),
        ("int", "1.0"),
        ("int", "true"),
        ("int", '"1"'),
        ("int", "null"),
        ("float", "true"),
        ("bool", "1"),
        ("text", "1"),
        ("bytes", '"not base64!"'),
        ("decimal", "0.1"),
        ("decimal", '"a"'),
        ("group", "[1, 1]"),
        ("moment", "0"),
        ("day", '"2024-02-30"'),
        ("colour", '"red"'),
        ("pairs", "[[1, 2], [1, 3]]"),
        ("uuid", '"a"'),
        ("order", '{"item": "jam", "count": 3}'),
        ("order", '{"item": "jam", "count": 3, "note": null, "more": 1}'),
        ("order", '{"item": null, "count": 3, "note": null}'),
        ("order", '{"item": "jam", "count": 3.5, "note": null}'),
        ("order", "7"),
        ("point", "[2]"),
        ("point", "[2, 3, 4]"),
        ("counts", '{"a": "b"}'),
        ("counts", '{"a": null}'),
        ("counts", '[["a"]]'),
        ("numbers", "1"),
        ("numbers", "[1, null]"),
    ],
)
def test_what_does_not_fit_is_refused(directory, tmp_path, state, value):
    """A value of another type is refused, and nothing is written."""
    refused = millpond("state", "edit", directory, state, "2", tmp_path / "out", "--set", value)
    assert (refused.exit_code, refused.stdout) == (1, ""), refused.output
    assert f"state {state!r}" in " ".join(refused.stderr.split())
    assert not (tmp_path / "out").exists()


def test_a_member_that_is_not_there_is_told_the_others(directory, tmp_path):
    """The refusal of an unknown enum member lists the members."""
    refused = millpond("state", "edit", directory, "colour", "2", tmp_path / "x", "--set", '"red"')
    assert "expected one of RED" in " ".join(refused.stderr.split())


@pytest.mark.parametrize("value", ["", "{", "[" * 5000 + "]" * 5000])
def test_what_is_no_json_is_a_wrong_call(directory, tmp_path, value):
    """A text that is not JSON ends with status 2 and shows the text."""
    refused = millpond("state", "edit", directory, "int", "2", tmp_path / "out", f"--set={value}")
    assert refused.exit_code == 2
    assert "is not JSON" in refused.stderr


@pytest.mark.parametrize("key", ["2.9", "2.0", "true", "two", "null", "99999999999999999999", ""])
def test_a_key_of_another_type_is_no_key(directory, tmp_path, key):
    """Reading and editing refuse 2.9 as the key 2."""
    for call in (
        ("state", "get", directory, "int", key),
        ("state", "edit", directory, "int", key, tmp_path / "out", "--set", "3"),
    ):
        refused = millpond(*call)
        assert (refused.exit_code, refused.stdout) == (1, ""), refused.output
        assert "key" in refused.stderr
    assert not (tmp_path / "out").exists()


def test_entries_of_a_map(directory, tmp_path):
    """An entry of a map is changed, added or removed by its key of any type."""
    rows = edited(
        directory, tmp_path / "a", "by-day", "2", "--map-key", '"2024-01-02"', "--set", "5"
    )
    assert {row["map_key"]: row["value"] for row in rows} == {"2024-01-01": 1, "2024-01-02": 5}
    rows = edited(
        directory, tmp_path / "b", "by-day", "2", "--map-key", '"2024-01-03"', "--set", "6"
    )
    assert len(rows) == 3
    rows = edited(directory, tmp_path / "c", "by-day", "2", "--map-key", '"2024-01-01"', "--remove")
    assert [row["map_key"] for row in rows] == ["2024-01-02"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("by-day", "2", "OUT", "--set", "1"), "--map-key"),
        (("by-day", "2", "OUT", "--set", "1", "--map-key", "7"), "map key"),
        (("int", "2", "OUT", "--set", "1", "--map-key", "a"), "it is not a map state"),
        (("int", "3", "OUT", "--remove"), "there is nothing to remove"),
        (("seen", "2", "OUT", "--set", "[]"), "remove it"),
        (("int", "2", "SOURCE", "--set", "1"), "which this command reads"),
        (("int", "2", "SOURCE/below", "--set", "1"), "which this command reads"),
        (("int", "2", "FULL", "--set", "1"), "it is not empty"),
        (("int", "2", "FULL/file", "--set", "1"), "it cannot be listed: Not a directory"),
        (("int", "2", "LINK", "--set", "1"), "which this command reads"),
    ],
)
def test_edits_that_are_refused(directory, tmp_path, arguments, message):
    """A wrong edit is refused with its reason, and nothing is written."""
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("kept")
    (tmp_path / "link").symlink_to(directory)
    places = {"SOURCE": directory, "FULL": tmp_path / "full", "LINK": tmp_path / "link"}
    call = ["state", "edit", str(directory)]
    for each in arguments:
        head, _, rest = each.partition("/")
        call.append(
            str(places.get(head, tmp_path / "out" if head == "OUT" else head))
            + ("/" + rest if rest else "")
        )
    before = sorted(directory.rglob("*"))
    refused = millpond(*call)
    assert (refused.exit_code, refused.stdout) == (1, ""), refused.output
    assert message in " ".join(refused.stderr.split())
    assert sorted(directory.rglob("*")) == before
    assert sorted((tmp_path / "full").iterdir()) == [tmp_path / "full" / "file"]
    assert not (tmp_path / "out").exists()


def test_a_list_with_a_time_to_live_may_change_its_length(directory, tmp_path):
    """If a list with TTL changes its length, the new elements get the old elements' time stamps, or the current time."""
    (row,) = edited(directory, tmp_path / "a", "seen", "2", "--set", '["x", "y", "z"]')
    assert (row["value"], len(set(row["ttl_timestamp"]))) == (["x", "y", "z"], 1)
    (row,) = edited(directory, tmp_path / "b", "seen", "3", "--set", '["x"]')
    assert row["ttl_timestamp"][0] > 1_700_000_000_000


def test_a_key_that_begins_with_a_dash(directory):
    """A key that begins with a dash is taken for an option; the refusal shows the correct form."""
    refused = millpond("state", "get", directory, "int", "-7")
    assert refused.exit_code == 2
    assert "goes after --" in refused.stderr
    found = millpond("state", "get", "--", directory, "int", "-7")
    assert (found.exit_code, "'-7' holds nothing" in found.stderr) == (1, True), found.output


def test_an_empty_operator_is_none_of_those_there(tmp_path):
    """An empty uid, as from an unset variable, does not select the first operator."""
    writer = mp.SavepointWriter.new_savepoint()
    for uid in ("a", "b"):
        rows = [{"k": "x", "s": 1}]
        writer.with_operator(uid, rows, mp.ValueStateDescriptor("s", int), key="k")
    writer.write(tmp_path / "saved")
    for verb, *names in (("remove-state", "s"), ("rename-state", "s", "t")):
        call = ("savepoint", verb, tmp_path / "saved", *names, tmp_path / "new", "--operator", "")
        result = CliRunner().invoke(commands, list(map(str, call)))
        assert result.exit_code == 1
        assert "no operator" in result.stderr
    assert not (tmp_path / "new").exists()
