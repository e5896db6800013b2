"""Short forms of keyed functions, and rows as a type of state."""

import math
import random
from collections import namedtuple
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from typing import NamedTuple, Optional

import attrs
import millpond as mp
import pytest
from millpond import errors
from millpond.spark import key_by
from millpond.types import serializer_for
from millpond.types.rows import _row_type
from pyspark.sql.types import (
    ArrayType,
    DecimalType,
    DoubleType,
    LongType,
    MapType,
    StringType,
    StructType,
)

from tests.spark.streaming import Files, output, run

BACKENDS = pytest.mark.parametrize("backend", ["heap", "rocksdb", "lmdb"])
ROWS = [{"k": "a", "n": 3}, {"k": "b", "n": 1}, {"k": "a", "n": None}, {"k": "a", "n": 2}]
TYPE = "k string, n bigint"


class Twice(mp.RichMapFunction):
    """Function that doubles, and counts each key's rows."""

    def open(self, context):
        self.count = context.get_state(mp.ValueStateDescriptor("count", int, default=0))

    def map(self, value):
        self.count.update(self.count.value() + 1)
        return value.k, 2 * (value.n or 0), self.count.value()


def keep_greater(a, b):
    """Reduce function that returns rows as tuples."""
    return (a.k, max(a.n or 0, b.n or 0))


FORMS = {
    "map": (mp.keyed.map(Twice()), [("a", 6, 1), ("b", 2, 1), ("a", 0, 2), ("a", 4, 3)]),
    "map a callable": (mp.keyed.map(lambda row: row.n), [3, 1, None, 2]),
    "flat_map": (mp.keyed.flat_map(lambda row: [row.n] * (row.n or 0)), [3, 3, 3, 1, 2, 2]),
    "filter": (mp.keyed.filter(lambda row: row.n is None), [("a", None)]),
    "reduce": (mp.keyed.reduce(keep_greater, TYPE), [("a", 3), ("b", 1), ("a", 3), ("a", 3)]),
    "sum": (mp.keyed.sum("n", TYPE), [("a", 3), ("b", 1), ("a", 3), ("a", 5)]),
    "min": (mp.keyed.min("n", TYPE), [("a", 3), ("b", 1), ("a", 3), ("a", 2)]),
    "max": (mp.keyed.max("n", TYPE), [("a", 3), ("b", 1), ("a", 3), ("a", 3)]),
}


@BACKENDS
@pytest.mark.parametrize("form", FORMS)
def test_short_forms(backend, form):
    """Each short form gives its result, with plain functions and with classes."""
    function, wanted = FORMS[form]
    assert mp.local.run(function, ROWS, key="k", backend=backend) == wanted


def test_generated_reductions():
    """Over generated rows, reductions give the results of plain Python, also after a restore."""
    for seed in range(5):
        rng = random.Random(seed)
        rows = [
            {"k": rng.choice("ab"), "n": rng.choice([None, *range(9)]), "at": at}
            for at in range(40)
        ]
        kind = f"{TYPE}, at int"
        by_key = {}
        found = {name: [] for name in ("sum", "min", "max", "min_by", "max_by")}
        for row in rows:
            seen = by_key.setdefault(row["k"], [])
            seen.append(row)
            numbers = [each["n"] for each in seen if each["n"] is not None]
            for name, fold in (("sum", sum), ("min", min), ("max", max)):
                value = fold(numbers) if numbers else None
                found[name].append((row["k"], value, seen[0]["at"]))
            for name, best in (("min_by", min), ("max_by", max)):
                known = [each for each in seen if each["n"] is not None]
                chosen = best(known, key=lambda each: each["n"]) if known else seen[0]
                found[name].append((row["k"], chosen["n"], chosen["at"]))
        for name, wanted in found.items():
            assert mp.local.run(getattr(mp.keyed, name)("n", kind), rows, key="k") == wanted, name


@pytest.mark.parametrize(("number", "ddl"), [(float, "double"), (Decimal, "decimal(10,2)")])
def test_nan_is_the_greatest(number, ddl):
    """NaN is greater than all numbers, as in Flink and Spark, at any position."""
    for seed in range(5):
        rng = random.Random(seed)
        drawn = [None, *map(number, (math.nan, math.inf, *range(5)))]
        values = [rng.choice(drawn) for _ in range(30)]
        rows = [{"k": "a", "x": value, "at": at} for at, value in enumerate(values)]
        for name, best in (("min", min), ("max", max), ("min_by", min), ("max_by", max)):
            out = mp.local.run(
                getattr(mp.keyed, name)("x", f"k string, x {ddl}, at int"), rows, key="k"
            )
            for at, row in enumerate(out):
                known = [
                    (math.isnan(x), x, n) for n, x in enumerate(values[: at + 1]) if x is not None
                ]
                first = best(
                    known, key=lambda each: (each[0], 0 if each[0] else each[1]), default=None
                )
                wanted = (None, 0) if first is None else first[1:]
                assert repr(row.x) == repr(wanted[0]), (name, values[: at + 1])
                assert row.at == (wanted[1] if name.endswith("by") else 0)


@BACKENDS
def test_sums_of_decimals_are_exact(backend):
    """Sums of decimals are exact, although Python rounds to 28 digits and Spark's decimals have 38."""
    one, two = Decimal("1234567890123456789012345678.0123456789"), Decimal("1.0000000001")
    rows = [{"k": "a", "n": one}, {"k": "a", "n": two}, {"k": "a", "n": one.copy_negate()}]
    wanted = [one, Decimal("1234567890123456789012345679.0123456790"), two]
    sums = mp.keyed.sum("n", "k string, n decimal(38,10)")
    assert [row.n for row in mp.local.run(sums, rows, key="k", backend=backend)] == wanted


@attrs.define
class Sale:
    """A class of rows with a constructor."""

    k: str
    n: int


@attrs.frozen
class FrozenSale:
    """A frozen class whose fields have another order."""

    n: int
    k: str


@dataclass
class SaleData:
    """A dataclass of rows."""

    k: str
    n: int


class SaleTuple(NamedTuple):
    """A named tuple of rows."""

    k: str
    n: int


@attrs.define
class Numbered:
    """A class of rows that computes one of its fields."""

    k: str
    n: int
    twice: int = attrs.field(init=False)

    def __attrs_post_init__(self):
        self.twice = 2 * self.n


@dataclass
class NumberedData:
    """A dataclass of rows that computes one of its fields."""

    k: str
    n: int
    twice: int = field(init=False)

    def __post_init__(self):
        self.twice = 2 * self.n


@BACKENDS
@pytest.mark.parametrize("kind", [Numbered, NumberedData])
def test_rows_of_a_class_that_makes_a_field(backend, kind):
    """Rows may omit a field that the constructor computes, and keep its value if they have it."""
    rows = [{"k": "a", "n": 1}, {"twice": 7, "k": "a", "n": 5}, kind("a", 2)]
    found = mp.local.run(mp.keyed.max("twice", kind), rows, key="k", backend=backend)
    assert [(type(row), row.n, row.twice) for row in found] == [(kind, 1, n) for n in (2, 7, 7)]
    with pytest.raises(errors.UserFunctionError, match=r"\(missing: n\)"):
        mp.local.run(mp.keyed.max("n", kind), [{"k": "a", "twice": 1}], key="k")


@BACKENDS
@pytest.mark.parametrize("kind", [Sale, SaleData, SaleTuple])
def test_rows_of_an_optional_class(backend, kind):
    """`Class | None` is accepted for rows like the class itself."""
    rows = [{"k": "a", "n": 1}, kind("a", 5)]
    for declared in (kind | None, Optional[kind]):  # noqa: UP045 - it is another object
        found = mp.local.run(mp.keyed.sum("n", declared), rows, key="k", backend=backend)
        assert found == [kind("a", 1), kind("a", 6)]
    with pytest.raises(errors.ConfigError, match="there are: k, n. Did you mean 'n'"):
        mp.keyed.sum("N", kind | None)


@BACKENDS
@pytest.mark.parametrize("kind", [Sale, FrozenSale, SaleData, SaleTuple])
def test_rows_of_a_class(backend, kind):
    """Rows of any kind become instances of the declared class, as input and output."""
    rows = [kind(k="a", n=1), {"k": "a", "n": 5}, {"n": 2, "k": "a"}]

    def larger(a, b):
        assert (type(a), type(b)) == (kind, kind)
        return a if a.n > b.n else kind(k=b.k, n=b.n)

    for form, wanted in (
        (mp.keyed.reduce(larger, kind), [1, 5, 5]),
        (mp.keyed.sum("n", kind), [1, 6, 8]),
        (mp.keyed.min("n", kind), [1, 1, 1]),
        (mp.keyed.max_by("n", kind), [1, 5, 5]),
    ):
        found = mp.local.run(form, rows, key="k", backend=backend)
        assert found == [kind(k="a", n=n) for n in wanted]


def test_what_is_no_row_of_a_class():
    """A row with other names is refused, and a wrong field name before the first row."""
    with pytest.raises(errors.UserFunctionError, match="expected Sale, got Row .*missing: n; not"):
        mp.local.run(mp.keyed.sum("n", Sale), [{"k": "a", "m": 1}], key="k")
    with pytest.raises(errors.ConfigError, match="there are: k, n. Did you mean 'n'"):
        mp.keyed.sum("N", SaleData)
    with pytest.raises(errors.ConfigError, match="neither a number nor a duration"):
        mp.keyed.sum("k", SaleTuple)


def test_rows_are_not_reduced_to_nothing():
    """A reduce function that returns None is refused, because it would clear the result."""
    with pytest.raises(
        errors.UserFunctionError, match="result of the reduce function must not be None"
    ):
        mp.local.run(mp.keyed.reduce(lambda a, b: None, TYPE), ROWS, key="k")


def yielding(*given):
    """Function with a yield, which does not run when it is called."""
    yield given


async def waiting(*given):
    """Coroutine function."""


@pytest.mark.parametrize("function", [yielding, waiting, lambda row: (each for each in row)])
@pytest.mark.parametrize("form", ["map", "filter"])
def test_a_function_that_has_not_run_is_refused(form, function):
    """A generator or coroutine function is refused, because its result would count as a row or as true."""
    with pytest.raises(errors.UserFunctionError, match=r"return (one row|whether the row passes)"):
        mp.local.run(getattr(mp.keyed, form)(function), ROWS, key="k")


@pytest.mark.parametrize("method", ["open", "close"])
def test_the_life_of_a_short_form_has_no_yield(method):
    """`open` and `close` with a yield are refused, because they would not run."""
    function = type("Yielding", (Twice,), {method: yielding})()
    with pytest.raises(errors.UserFunctionError, match="yielding gives no rows.* leave the yield"):
        mp.local.run(mp.keyed.map(function), ROWS, key="k")


def test_what_a_short_form_refuses():
    """A value that is not a function, a type that cannot be state, and a missing field are refused."""
    with pytest.raises(errors.ArgumentTypeError, match="function.*MapFunction"):
        mp.keyed.map(7)
    with pytest.raises(errors.ArgumentTypeError, match="an instance of MapFunction"):
        mp.keyed.map(Twice)
    with pytest.raises(
        errors.ConfigError, match="no such column; there are: k, n. Did you mean 'n'"
    ):
        mp.keyed.max_by("N", TYPE)
    for kind in ("boolean", "date", "string", "array<int>"):
        with pytest.raises(errors.ConfigError, match="neither a number nor a duration"):
            mp.keyed.sum("n", f"k string, n {kind}")
    for odd in ({"k": "a"}, {"n": 1, "k": "a"}):
        with pytest.raises(errors.UserFunctionError, match="expected a row of k, n, got Row"):
            mp.local.run(mp.keyed.max("n", TYPE), [{**odd, "n": 1, "x": 2}], key="k")
    with pytest.raises(errors.ConfigError, match="not a Spark type that state supports"):
        mp.keyed.reduce(keep_greater, "k string, v variant")


DECLARED = (
    StructType().add("k", StringType(), nullable=False).add("with space", ArrayType(LongType()))
)
DECLARED = DECLARED.add("m", MapType(StringType(), DoubleType()))
DECLARED = DECLARED.add("s", StructType().add("a", DecimalType(10, 2)))
DDL = (
    "k STRING NOT NULL COMMENT 'it''s', `with space` array<bigint>, m map<string, double>, "
    "s struct<a: decimal(10, 2)>"
)


def test_declarations_of_rows():
    """DDL and a StructType declare the same; a single type declares a value; values come back equal."""
    from_ddl, from_spark = serializer_for(DDL.replace("''", "")), serializer_for(DECLARED)
    assert from_ddl.snapshot() == from_spark.snapshot()
    value = ("a", [1, None], {"x": 1.5}, (Decimal("1.20"),))
    back = from_spark.deserialize(from_spark.serialize(value))
    assert back == value
    assert back["with space"] == [1, None]
    assert from_spark.check(back) == back
    assert serializer_for("bigint") is serializer_for(int)
    moments = serializer_for("d date, t timestamp, b binary, f float, y boolean")
    held = (date(2020, 1, 2), datetime(2020, 1, 2), b"x", 1.5, True)
    assert moments.deserialize(moments.serialize(held)) == held


@pytest.mark.parametrize(
    "odd",
    ["", "k", "k strin", "k string,", "a int b int", "<", "struct<", "k string, k int", "array<>"],
)
def test_what_is_not_ddl(odd):
    """A string that is not DDL is refused when it is declared, with the expected form."""
    with pytest.raises(
        errors.ConfigError, match="expected a Python type, or DDL|not a Spark type|two columns"
    ):
        serializer_for(odd)


def test_rows_of_another_class():
    """The cache of row classes drops old ones after a thousand; rows of equal columns still fit."""
    declared = serializer_for(TYPE)
    (old,) = mp.local.run(mp.keyed.filter(bool), [{"k": "a", "n": 1}], key="k")
    _row_type.cache_clear()
    (new,) = mp.local.run(mp.keyed.filter(bool), [{"k": "a", "n": 1}], key="k")
    assert type(old) is not type(new)
    assert declared.check(old) == declared.check(new) == ("a", 1)


def test_what_is_not_such_a_row():
    """A row with another number of values, type or columns, or with a forbidden null, is refused."""
    declared = serializer_for("k string not null, n bigint")
    other = mp.local.run(mp.keyed.filter(bool), [{"x": 1, "y": 2}], key="x")
    for odd in (("a",), ("a", "b"), (None, 1), {"k": "a", "n": 1}, *other):
        with pytest.raises(errors.StateTypeError):
            declared.check(odd)


def test_a_column_is_added():
    """State of rows is read with additional nullable columns, and refused otherwise."""
    harness = mp.testing.KeyedOperatorHarness
    with harness(mp.keyed.sum("n", TYPE), key="k", backend="rocksdb") as old:
        old.process({"k": "a", "n": 1})
        handle = old.snapshot()
    with harness(mp.keyed.sum("n", f"{TYPE}, x string"), key="k", restore=handle) as new:
        new.process({"k": "a", "n": 2, "x": "b"})
        assert new.output == [("a", 3, None)]
    refused = harness(mp.keyed.sum("n", f"{TYPE}, x string not null"), key="k", restore=handle)
    with pytest.raises(errors.UserFunctionError, match="no default"):
        refused.__enter__()
    refused.close()


def test_a_plain_named_tuple():
    """A named tuple without types is refused; the error names typing.NamedTuple."""
    with pytest.raises(errors.ConfigError, match=r"its field 'x' has no type.*typing\.NamedTuple"):
        serializer_for(namedtuple("Point", "x y"))  # noqa: PYI024


@pytest.mark.sample(1)
@BACKENDS
def test_short_forms_of_a_query(spark, job_conf, tmp_path, backend):
    """On Spark short forms are methods; a reduction continues in the next run with another parallelism."""
    files = Files(spark, tmp_path / "in")
    for part, parallelism in (([("a", 1), ("b", 2)], 2), ([("a", 3), ("c", 5)], 1)):
        files.add(*part)
        job_conf(state_backend=backend, parallelism=parallelism)
        run(key_by(files.stream(), "k").sum("n", uid="sum"), tmp_path)
    assert output(spark, tmp_path) == [("a", 1), ("a", 4), ("b", 2), ("c", 5)]


def test_short_forms_of_a_plain_batch(spark, job_conf):
    """Each short form works over a DataFrame."""
    job_conf(state_backend="heap", parallelism=1)
    rows = [("a", 3), ("b", 1), ("a", 2)]
    keyed = key_by(spark.createDataFrame(rows, TYPE).coalesce(1), "k")
    found = {
        "map": keyed.map(Twice(), output="k string, n bigint, count int", uid="map"),
        "flat_map": keyed.flat_map(lambda row: [row.n] * row.n, output="bigint", uid="flat"),
        "filter": keyed.filter(lambda row: row.n > 1, uid="filter"),
        "reduce": keyed.reduce(keep_greater, uid="reduce"),
        "max_by": keyed.max_by("n", uid="max-by"),
    }
    assert {name: sorted(map(tuple, df.collect())) for name, df in found.items()} == {
        "map": [("a", 4, 2), ("a", 6, 1), ("b", 2, 1)],
        "flat_map": [(1,), (2,), (2,), (3,), (3,), (3,)],
        "filter": [("a", 2), ("a", 3)],
        "reduce": [("a", 3), ("a", 3), ("b", 1)],
        "max_by": [("a", 3), ("a", 3), ("b", 1)],
    }


class Looks(mp.keyed.ReduceFunction):
    """Reduce function that reads another key's state."""

    def open(self, context):
        self.seen = context.get_state(mp.ValueStateDescriptor("seen", int))

    def reduce(self, a, b):
        self.seen.at("z").value()
        return (a.k, a.n + b.n)


@BACKENDS
def test_a_reduction_that_chooses_another_key_is_stored_under_its_own(backend):
    """The result of a reduction is stored under its own key, even if the function selects another one by ``at``."""
    rows = [{"k": key, "n": n} for key, n in [("a", 1), ("b", 10), ("a", 2), ("a", 4), ("z", 9)]]
    made = mp.local.run(mp.keyed.reduce(Looks(), TYPE), rows, key="k", backend=backend)
    assert [row.n for row in made] == [1, 10, 3, 7, 9]


@pytest.mark.parametrize("form", ["min_by", "max_by", "sum", "max"])
def test_rows_in_another_order_of_fields_go_by_their_names(form):
    """Rows with another order of fields are matched by name, also in declared columns."""
    rows = [{"k": "a", "n": 3}, {"n": 7, "k": "a"}, {"n": 1, "k": "a"}]
    found = mp.local.run(getattr(mp.keyed, form)("n", TYPE), rows, key="k")
    expected = {"min_by": [3, 3, 1], "max_by": [3, 7, 7], "sum": [3, 10, 11], "max": [3, 7, 7]}
    assert [(row.k, row.n) for row in found] == [("a", n) for n in expected[form]]
