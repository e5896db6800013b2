"""Rows that a savepoint writer turns into state: read at each `write`, and grouped by the keys' bytes."""

from dataclasses import dataclass, field
from decimal import Decimal

import millpond as mp
import pyarrow as pa
import pytest
from millpond import errors

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
