"""Rows that a savepoint writer turns into state: read at each `write`, and grouped by the keys' bytes."""

from dataclasses import dataclass, field
from decimal import Decimal

import millpond as mp
import pyarrow as pa
import pytest
from millpond import errors
from millpond.operator.opening import open_filling_backend

ROWS = [{"k": "a", "n": 1}, {"k": "b", "n": 2}]
COUNTS = mp.ValueStateDescriptor("n", int)
FORMS = {
    "list": lambda: ROWS,
    "table": lambda: pa.Table.from_pylist(ROWS),
    "batch": lambda: pa.RecordBatch.from_pylist(ROWS),
    "frame": lambda: pa.Table.from_pylist(ROWS).to_pandas(),
    "generator": lambda: (row for row in ROWS),
    "map": lambda: map(dict, ROWS),
}


@dataclass(frozen=True)
class Place:
    """A key that Python compares only by its number."""

    number: int
    name: str = field(compare=False)


ALIKE = {
    Decimal: (Decimal(1), Decimal("1.0"), Decimal("1.00")),
    Place: (Place(1, "x"), Place(1, "y"), Place(1, "z")),
}


class Filled(mp.KeyedStateBootstrapFunction):
    """Bootstrap function that adds up the rows of a key."""

    def open(self, context):
        self.sum = context.get_state(COUNTS)

    def process_element(self, row, context):
        self.sum.update((self.sum.value() or 0) + row.n)


class Told(mp.KeyedProcessFunction):
    """Function that yields a key's state."""

    def open(self, context):
        self.state = context.get_state(COUNTS)

    def process_element(self, row, context):
        yield self.state.value()


def writer(rows, *states, max_parallelism=128, **given):
    new = mp.SavepointWriter.new_savepoint(max_parallelism)
    return new.with_operator("job", rows, *states, key="k", **given)


def job_output(place, keys, key_type):
    """Return a job's output that starts from a savepoint, by key."""
    rows = [{"k": key} for key in keys]
    return mp.local.run(Told(), rows, key="k", key_type=key_type, restore=place, uid="job")


@pytest.mark.parametrize("form", FORMS)
def test_a_writer_writes_the_same_twice(tmp_path, form):
    """A second `write` gets all rows again, from tables and iterators."""
    twice = writer(FORMS[form](), COUNTS)
    for name in ("one", "two"):
        twice.write(tmp_path / name)
        assert job_output(tmp_path / name, "ab", str) == [1, 2]


def test_maps_of_a_table_are_dicts(tmp_path):
    """A map in a column of Arrow fills a map state, and maps inside of other values are dicts too."""
    kind = pa.map_(pa.string(), pa.list_(pa.map_(pa.string(), pa.int64())))
    rows = pa.table(
        {"k": ["a", "b"], "m": pa.array([[("x", [[("y", 1)]]), ("z", [])], None], kind)}
    )
    held = mp.MapStateDescriptor("m", str, list[dict[str, int]])
    saved = writer(rows, held).write(tmp_path / "saved")
    with mp.open_keyed_backend("heap", key_type=str, restore=[saved]) as backend:
        state = backend.get_partitioned_state(held)
        backend.set_current_key("a")
        assert dict(state.items()) == {"x": [{"y": 1}], "z": []}
    twice = pa.table(
        {"k": ["a"], "m": pa.array([[("x", 1), ("x", 2)]], pa.map_("string", "int64"))}
    )
    with pytest.raises(errors.ArgumentValueError, match="a map has a key twice"):
        writer(twice, mp.MapStateDescriptor("m", str, int)).write(tmp_path / "twice")


def test_a_writer_writes_again_what_has_failed(tmp_path):
    """After a failed `write`, the next one gets all rows."""

    class Once(Filled):
        failed = False

        def close(self):
            if not self.failed:
                self.failed = True
                raise OSError("the disk is full")

    twice = writer(iter(ROWS), function=Once())
    with pytest.raises(errors.UserFunctionError, match="disk is full"):
        twice.write(tmp_path / "saved")
    twice.write(tmp_path / "saved")
    assert job_output(tmp_path / "saved", "ab", str) == [1, 2]


@pytest.mark.parametrize("groups", [1, 128])
@pytest.mark.parametrize("given", [(COUNTS,), ()])
@pytest.mark.parametrize("kind", ALIKE)
def test_keys_that_python_takes_for_equal_have_their_own_state(tmp_path, kind, given, groups):
    """Keys are the same state only if their bytes are equal, even if Python calls them equal."""
    keys = ALIKE[kind]
    rows = [{"k": key, "n": 1 << number} for number, key in enumerate(keys)]
    function = None if given else Filled()
    made = writer(rows, *given, max_parallelism=groups, function=function, key_type=kind)
    made.write(tmp_path / "saved")
    assert job_output(tmp_path / "saved", keys, kind) == [1, 2, 4]


@pytest.mark.parametrize("kind", ALIKE)
def test_a_second_value_of_such_a_key_is_refused(tmp_path, kind):
    """A second row for a key is refused, compared by bytes and not by Python's equality."""
    rows = [{"k": key, "n": 1} for key in ALIKE[kind]]
    with pytest.raises(errors.UserFunctionError, match="give one row a key"):
        writer([*rows, rows[0]], COUNTS, key_type=kind).write(tmp_path / "saved")
    writer([*rows, rows[0]], function=Filled(), key_type=kind).write(tmp_path / "saved")
    assert job_output(tmp_path / "saved", ALIKE[kind], kind) == [2, 1, 1]


MANY = [
    {"k": f"key-{number % 700}", "n": number, "items": [number, number + 1]}
    for number in range(2100)
]
FORMS_OF_MANY = {"list": MANY, "table": pa.Table.from_pylist(MANY)}


class Several(Filled):
    """Bootstrap function that adds up numbers, keeps a list and a map, and sets a timer."""

    def open(self, context):
        super().open(context)
        self.items = context.get_list_state(ITEMS)
        self.last = context.get_map_state(LAST)

    def process_element(self, row, context):
        super().process_element(row, context)
        self.items.add_all(row.items)
        self.last.put(row.n % 2, row.n)
        timers = context.timer_service()
        timers.register_event_time_timer(row.n)
        timers.delete_event_time_timer(row.n - 700)


class ToldAll(Told):
    """Function that yields all states of a key, and the times of its timers."""

    def open(self, context):
        super().open(context)
        self.items = context.get_list_state(ITEMS)
        self.last = context.get_map_state(LAST)

    def process_element(self, row, context):
        yield row.k, self.state.value(), tuple(self.items.get()), dict(self.last.items())

    def on_timer(self, timestamp, context):
        yield context.current_key, timestamp


ITEMS = mp.ListStateDescriptor("items", int)
LAST = mp.MapStateDescriptor("last", int, int)


@pytest.mark.parametrize("form", FORMS_OF_MANY)
@pytest.mark.parametrize("groups", [3, 128, 1000])
def test_many_keys_have_their_own_state_and_timers(tmp_path, form, groups):
    """Each key has exactly the state and the timers of its rows, however many keys there are."""
    made = writer(FORMS_OF_MANY[form], max_parallelism=groups, function=Several())
    place = made.write(tmp_path / "saved")
    keys = sorted({row["k"] for row in MANY})
    with mp.testing.KeyedOperatorHarness(
        ToldAll(), key="k", max_parallelism=groups, restore=place
    ) as harness:
        for key in keys:
            harness.process({"k": key})
        harness.advance_watermark(len(MANY))
        found = harness.output
    rows = {key: [row for row in MANY if row["k"] == key] for key in keys}
    expected = [
        (
            key,
            sum(row["n"] for row in mine),
            tuple(item for row in mine for item in row["items"]),
            {row["n"] % 2: row["n"] for row in mine},
        )
        for key, mine in rows.items()
    ]
    assert found[: len(keys)] == expected
    assert sorted(found[len(keys) :]) == sorted((key, mine[-1]["n"]) for key, mine in rows.items())


def test_a_row_that_fails_names_its_key(tmp_path):
    """The error for a second value names the key and the row, also after many other keys."""
    rows = [{"k": f"key-{number:03}", "n": number} for number in range(400)]
    with pytest.raises(errors.UserFunctionError, match="key-399.*give one row a key"):
        writer(pa.Table.from_pylist([*rows, rows[-1]]), COUNTS).write(tmp_path / "saved")


def test_timers_of_finished_keys_do_not_pile_up():
    """The timers of a key with very many timers are passed on when the next key is selected."""
    passed = []
    with open_filling_backend(
        lambda name, group, rows: passed.append((name, len(rows))),
        key_type=int, max_parallelism=16, config=mp.Config(), place="job",
    ) as backend:  # fmt: skip
        timers = backend.timer_queue("event-time")
        backend.set_current_key(1)
        for moment in range(300):
            timers.register(moment, mp.VOID_NAMESPACE)
        assert passed == []
        backend.set_current_key(2)
        assert passed == [("_millpond_timers_event-time", 300)]
