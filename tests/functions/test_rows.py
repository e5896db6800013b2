"""Rows in functions: by name, by position and as dicts, with any column names."""

import copy
import dataclasses
import gc
import pickle
import subprocess
import sys
from collections import OrderedDict, namedtuple
from types import SimpleNamespace

import attrs
import millpond as mp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from millpond import errors, windows
from millpond.functions.row_conversion import as_row
from millpond.types.rows import Row, is_attribute, row_type
from pyspark.sql import Row as SparkRow

ODD = [
    "order id", "1a", "class", "a.b", "`a`", "count", "index", "asDict", "_fields", "_make", "_1",
    "_replace", "__class__", "__len__", "__x", "self", "", " ", "ä", "😀", "a\nb", "mro", "A", "a",
]  # fmt: skip
NAMES = st.lists(st.sampled_from(ODD) | st.text(max_size=4), max_size=9)


def checked(names):
    """Check that a row gives each value in every possible way."""
    values = tuple(range(len(names)))
    row = row_type(names)(*values)
    assert row == values
    assert hash(row) == hash(values)
    assert [*row] == [*values]
    assert row[1:] == values[1:]
    assert row[-1:] == values[-1:]
    assert row.asDict() == dict(zip(names, values, strict=True))
    assert row._fields == tuple(names)
    for position, name in enumerate(names):
        first = names.index(name)
        assert row[position] == row[position - len(names)] == position
        assert row[name] == first
        assert name in row
        if is_attribute(name):
            assert getattr(row, name) == first
    for other in (copy.copy(row), copy.deepcopy(row), pickle.loads(pickle.dumps(row))):
        assert other == row
        assert type(other) is type(row)
    told = SparkRow(*names)(*values) if names else None
    assert repr(row) == (repr(told) if names else "Row()")


@settings(max_examples=100)
@given(NAMES)
def test_rows_of_any_names(names):
    """Values are found by name, position and attribute; copies, pickles and texts are like Spark's."""
    checked(names)


@pytest.mark.soak
@settings(max_examples=20_000)
@given(NAMES)
def test_rows_of_any_names_at_length(names):
    """Values of many generated rows are found by name, position and attribute."""
    checked(names)


@pytest.mark.parametrize("width", [0, 1, 254, 255, 256, 2000])
def test_rows_of_any_width(width):
    """Rows may have any number of columns; some are beyond limits of Python's functions."""
    checked([f"column {at}" for at in range(width)])


def test_names_that_rows_have_themselves():
    """Attributes that each row needs are not columns; brackets always give the column."""
    names = ["count", "index", "mro", "asDict", "_fields", "__class__"]
    row = row_type(names)(1, 2, 3, 4, 5, 6)
    assert (row.count, row.index, row.mro) == (1, 2, 3)
    assert row.asDict() == dict(zip(names, row, strict=True))
    assert [row[name] for name in names] == [1, 2, 3, 4, 5, 6]
    assert isinstance(row, Row)


def test_rows_within_rows_become_dicts_where_asked_for():
    """`asDict(recursive=True)` converts nested rows, also in lists and dicts, as in Spark."""
    inner = row_type(["x"])(1)
    row = row_type(["s", "xs", "m"])(inner, [inner], {"k": [inner]})
    assert row.asDict() == {"s": inner, "xs": [inner], "m": {"k": [inner]}}
    assert row.asDict(True) == {"s": {"x": 1}, "xs": [{"x": 1}], "m": {"k": [{"x": 1}]}}
    spark = SparkRow(s=SparkRow(x=1), xs=[SparkRow(x=1)], m={"k": [SparkRow(x=1)]})
    assert row.asDict(True) == spark.asDict(True)
    assert row.asDict(recursive=True)["s"].__class__ is dict


def test_a_column_that_is_not_there():
    """A missing name raises Millpond's error with the nearest spelling; a missing index is a tuple's error."""
    row = row_type(["customer", "order id"])("ann", 7)
    for wrong, meant in (("Customer", "customer"), ("orderid", "order id"), ("zzz", None)):
        with pytest.raises(errors.UnknownColumnError) as caught:
            row[wrong]
        error = caught.value
        assert (error.column, error.columns, error.suggestion) == (wrong, row._fields, meant)
        assert isinstance(error, KeyError)
        assert isinstance(error, ValueError)
        assert error.__context__ is None
        assert str(pickle.loads(pickle.dumps(error))) == str(error)
        assert ("Did you mean" in str(error)) == (meant is not None)
    with pytest.raises(IndexError) as out_of_bounds:
        row[2]
    assert out_of_bounds.value.__context__ is None
    with pytest.raises(TypeError):
        row[None]
    with pytest.raises(AttributeError):
        row.custmer  # noqa: B018 - it is what fails
    with pytest.raises(TypeError, match="1 values for 2 columns"):
        type(row)("ann")


def test_what_named_tuples_have():
    """Code for named tuples and patterns works."""
    row = row_type(["customer", "n"])("ann", 7)
    assert row._asdict() == {"customer": "ann", "n": 7}
    assert row._replace(n=8) == ("ann", 8)
    assert type(row)._make(("bob", 1)) == ("bob", 1)
    with pytest.raises(errors.UnknownColumnError, match="Did you mean 'customer'"):
        row._replace(custmer=1)
    match row:
        case Row(customer=name):
            assert name == "ann"
        case _:
            pytest.fail("no match")


def test_a_pickled_row_opens_in_another_process():
    """Another process can read a pickled row, and creates its type."""
    row = row_type(["order id"])(row_type(["x"])(1))
    code = "import pickle, sys; print(pickle.loads(sys.stdin.buffer.read())['order id'].x)"
    done = subprocess.run(
        [sys.executable, "-c", code], input=pickle.dumps(row), capture_output=True, check=True
    )
    assert done.stdout.strip() == b"1"


Named = namedtuple("Named", "k n")  # noqa: PYI024 - as users have them


@dataclasses.dataclass
class Data:
    k: str
    n: int


@attrs.frozen
class Attrs:
    k: str
    n: int


FORMS = {
    "dict": {"k": "a", "n": 1},
    "ordered dict": OrderedDict(k="a", n=1),
    "named tuple": Named("a", 1),
    "dataclass": Data("a", 1),
    "attrs": Attrs("a", 1),
    "row of Spark": SparkRow(k="a", n=1),
    "row of a row of Spark": SparkRow("k", "n")("a", 1),
    "row": row_type(["k", "n"])("a", 1),
}


class Seen(mp.KeyedBroadcastProcessFunction):
    """Function that yields its rows."""

    def process_element(self, row, context):
        yield context.current_key, row

    def process_broadcast_element(self, row, context):
        yield "broadcast", row


@pytest.mark.parametrize("form", FORMS)
def test_local_rows_are_those_of_spark(form):
    """In local runs and the harness, each object with names arrives as a row, broadcast ones too."""
    given = FORMS[form]
    expected = row_type(["k", "n"])("a", 1)
    seen = mp.local.run(Seen(), [given], key="k", broadcast=[given])
    with mp.testing.KeyedOperatorHarness(Seen(), key="k") as harness:
        harness.process_broadcast(given)
        harness.process(given)
    assert seen == harness.output == [("broadcast", expected), ("a", expected)]
    for _, row in seen + harness.output:
        assert isinstance(row, Row)
        assert row._fields == expected._fields


@pytest.mark.parametrize("plain", [7, None, "ab", ("a", 1), ["a", 1], SimpleNamespace(k="a")])
def test_what_has_no_names_stays_as_it_is(plain):
    """Values, tuples and other objects without names remain unchanged."""
    assert as_row(plain) is plain


@pytest.mark.parametrize("parameter", ["rows", "broadcast"])
def test_a_single_row_is_not_taken_for_rows(parameter):
    """A single dict instead of rows is refused by its parameter."""

    class Rules(mp.KeyedBroadcastProcessFunction):
        def process_element(self, row, context):
            yield row

        def process_broadcast_element(self, row, context):
            return []

    given = {"rows": [{"k": "a"}], "broadcast": [{"rule": 1}]}
    with pytest.raises(mp.errors.ArgumentTypeError, match=f"^{parameter}: expected several rows"):
        mp.local.run(Rules(), **{**given, parameter: {"k": "a"}}, key="k")


def test_names_of_local_rows_are_text():
    """A mapping with a key that is not a string is refused."""
    with pytest.raises(errors.ArgumentTypeError, match="a row's column: expected str, got int 1"):
        mp.local.run(Seen(), [{"k": "a", 1: 2}], key="k")


@pytest.mark.parametrize("name", ODD)
def test_keys_and_values_by_any_name(name):
    """Keys, event times and values of windows can have any column's name."""
    by_name = mp.local.run(Seen(), [{name: "a"}], key=name)
    assert by_name == [("a", ("a",))]
    hour = windows.window(windows.TumblingEventTimeWindows.of(10))
    summed = hour.reduce(int.__add__, int, name)
    rows = [{"key": "x", name: 3}, {"key": "x", name: 4}]
    assert mp.local.run(summed, rows, key="key", event_time=name) == [("x", 0, 10, 7)]


def test_a_misspelt_column_is_told_with_the_nearest():
    """A misspelt column is refused with the nearest name: as the key, by attribute and in brackets."""
    with pytest.raises(errors.ConfigError, match="Did you mean 'customer'"):
        mp.local.run(Seen(), [{"customer": "a"}], key="custmer")

    class Asks(mp.KeyedProcessFunction):
        def __init__(self, ask):
            self.ask = ask

        def process_element(self, row, context):
            return self.ask(row)

    for ask in (lambda row: row.Customer, lambda row: row["custmer"]):
        with pytest.raises(errors.UserFunctionError, match="Did you mean 'customer'"):
            mp.local.run(Asks(ask), [{"customer": "a"}], key="customer")


def test_a_collection_while_a_type_of_rows_is_made():
    """The garbage collector may run at any time while a row type is created."""
    thresholds = gc.get_threshold()
    gc.set_threshold(1)
    try:
        kinds = [
            row_type([f"collected{width}_{at}" for at in range(width)]) for width in range(200, 240)
        ]
    finally:
        gc.set_threshold(*thresholds)
    for width, kind in enumerate(kinds, 200):
        row = kind(*range(width))
        assert [getattr(row, name) for name in kind._fields] == list(range(width))
