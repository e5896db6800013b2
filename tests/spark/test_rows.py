"""Yielded rows on Spark: matched by name if they have names, otherwise by position."""

import random
from collections import OrderedDict, namedtuple
from dataclasses import make_dataclass

import attrs
import millpond as mp
import pytest
from millpond import errors, windows
from millpond.spark import key_by
from millpond.types.rows import row_type
from millpond.windows import ProcessWindowFunction
from millpond_spark.values.output_frames import OutputCodec
from millpond_spark.values.schemas import output_schema
from millpond_spark.values.side_outputs import SideRows
from pyspark.sql import DataFrame, Row
from pyspark.sql.types import ArrayType, BinaryType, DoubleType, LongType, StringType, StructType

COLUMNS = ("k", "n", "with space")
SCHEMA = StructType().add("k", StringType()).add("n", LongType()).add("with space", LongType())
CODEC = OutputCodec.from_schema(SCHEMA)


def spark_row(names, values):
    """Return a Row with names in the given order."""
    return Row(**dict(zip(names, values, strict=True)))


NAMED = {
    "row": spark_row,
    "row of a row": lambda names, values: Row(*names)(*values),
    "dict": lambda names, values: dict(zip(names, values, strict=True)),
    "ordered dict": lambda names, values: OrderedDict(zip(names, values, strict=True)),
    "input row": lambda names, values: row_type(names)(*values),
}
IDENTIFIERS = {
    "named tuple": lambda names, values: namedtuple("Out", names)(*values),  # noqa: PYI024
    "attrs": lambda names, values: attrs.make_class("Out", list(names))(*values),
    "dataclass": lambda names, values: make_dataclass("Out", names)(*values),
}
POSITIONAL = {
    "tuple": lambda _, values: tuple(values),
    "list": lambda _, values: list(values),
    "row without names": lambda _, values: Row(*values),
}


def packed(codec, rows):
    """Return the encoded values, which show the column of each value."""
    return [tuple(column.to_pylist()) for column in codec.columns(rows, "op")]


def generated(rng):
    """Return a random schema, and rows of random forms and orders with their values."""
    plain = rng.random() < 0.5
    names = rng.sample(["a", "b", "c", "d"] if plain else ["a b", "1", "class", "ä", "_x"], 3)
    schema = StructType()
    for name in names:
        schema = schema.add(name, LongType())
    forms = NAMED | POSITIONAL | (IDENTIFIERS if plain else {})
    rows, expected = [], []
    for _ in range(rng.randint(1, 6)):
        form = rng.choice(sorted(forms))
        held = {name: rng.randint(0, 99) for name in names}
        order = list(names) if form in POSITIONAL else rng.sample(names, 3)
        rows.append(forms[form](order, [held[name] for name in order]))
        expected.append(tuple(held[name] for name in names))
    return OutputCodec.from_schema(schema), rows, expected


@pytest.mark.parametrize("seed", range(300))
def test_any_form_in_any_order(seed):
    """Each named value reaches the column of its name, and each other value that of its position."""
    codec, rows, expected = generated(random.Random(seed))
    assert list(zip(*packed(codec, rows), strict=True)) == expected


@pytest.mark.parametrize(
    ("declared", "hold"),
    [
        (DoubleType(), lambda number: number),
        (ArrayType(DoubleType()), lambda number: [number]),
        (StructType().add("x", DoubleType()), lambda number: (number,)),
    ],
)
def test_ints_in_a_double_column(declared, hold):
    """An int in a double column is refused unless the double is exact."""
    codec = OutputCodec.from_schema(StructType().add("d", declared))
    codec.columns([(hold(2**53),), (hold(-(2**70)),), (hold(0.1),)], "op")
    for number in (2**53 + 1, -(2**53) - 1, 10**400):
        with pytest.raises(errors.OutputTypeError, match="exactly; declare Decimal"):
            codec.columns([(hold(number),)], "op")


@pytest.mark.soak
def test_any_form_in_any_order_at_length():
    """Over many random schemas, each yielded value reaches the column of its name or position."""
    for seed in range(30_000):
        codec, rows, expected = generated(random.Random(seed))
        assert list(zip(*packed(codec, rows), strict=True)) == expected, seed


@pytest.mark.parametrize("form", [*NAMED, *POSITIONAL])
def test_other_names_and_widths_are_refused(form):
    """The error names operator, columns, and missing and unknown names."""
    make = (NAMED | POSITIONAL)[form]
    for names, values in ((("k", "n"), ("a", 1)), (("k", "n", "with space", "x"), ("a", 1, 2, 3))):
        with pytest.raises(errors.OutputTypeError, match="'op'.*k, n, with space") as caught:
            CODEC.columns([("a", 1, 2), make(names, values)], "op")
        if form in POSITIONAL:
            assert caught.value.reason == f"{len(names)} values for 3 columns"
        else:
            extra = "missing: with space" if len(names) == 2 else "not a column: x"
            assert caught.value.reason == extra
    if form in NAMED:
        with pytest.raises(errors.OutputTypeError, match="missing: n; not a column: N"):
            CODEC.columns([make(("k", "N", "with space"), ("a", 1, 2))], "op")


@pytest.mark.parametrize(
    ("kind", "value"), [(StringType(), "a\ud800"), (ArrayType(StringType()), ["\udfff"])]
)
def test_half_a_surrogate_pair_is_refused(kind, value):
    """Half a surrogate pair cannot be encoded; the error names operator and column."""
    codec = OutputCodec.from_schema(StructType().add("k", StringType()).add("v", kind))
    fine = [("a", None), ("\U0001f600", None)]
    codec.columns(fine, "op")
    for rows in ([*fine, ("b", value)], [("b", value)]):
        with pytest.raises(errors.OutputTypeError, match="'op': output column 'v'.*surrogates"):
            codec.columns(rows, "op")


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (LongType(), [1, None, 2]),
        (StringType(), ["ab", "", None]),
        (DoubleType(), [1.5, 2]),
        (BinaryType(), [b"ab", bytearray(b"c")]),
    ],
)
def test_a_value_alone_is_a_row_of_one(kind, values):
    """If there is a single column, values without rows are accepted, also mixed with rows."""
    codec = OutputCodec.from_schema(StructType().add("v", kind))
    whole = [(value,) for value in values]
    assert packed(codec, values) == packed(codec, whole)
    mixed = [*values, whole[0], [values[0]], {"v": values[0]}]
    assert packed(codec, mixed) == packed(codec, [*whole, *3 * whole[:1]])
    with pytest.raises(errors.OutputTypeError, match="'op': output column 'v'"):
        codec.columns([object()], "op")
    with pytest.raises(errors.OutputTypeError, match="2 values for 1 columns"):
        codec.columns([*values, (values[0], values[0])], "op")


def test_a_value_alone_is_not_a_struct():
    """A struct of a single field needs a row, even if it is the only column."""
    codec = OutputCodec.from_schema(StructType().add("s", StructType().add("x", LongType())))
    assert packed(codec, [((1,),), {"s": {"x": 1}}]) == packed(codec, [((1,),), ((1,),)])
    with pytest.raises(errors.OutputTypeError, match="expected a tuple or a row with names"):
        codec.columns([(1,)], "op")


def test_wrong_names_are_told_with_the_nearest():
    """A wrong name is shown with the most similar column, if there is one."""
    for wrong, hint in (("with_space", "; did you mean with space by with_space"), ("q", "")):
        with pytest.raises(errors.OutputTypeError) as caught:
            CODEC.columns([{"k": "a", "n": 1, wrong: 2}], "op")
        missing = f"missing: with space; not a column: {wrong}"
        assert caught.value.reason == missing + (hint and hint + "?")


@pytest.mark.parametrize("row", ["abc", b"abc", 7, {1, 2, 3}, object(), None])
def test_what_is_no_row_is_refused(row):
    """A value that is neither a tuple nor has names is no row, even if its length is right."""
    with pytest.raises(errors.OutputTypeError, match="expected a tuple or a row with names"):
        CODEC.columns([row], "op")


def test_two_columns_of_one_name_need_a_tuple():
    """If two columns have the same name, only a tuple is accepted."""
    codec = OutputCodec.from_schema(StructType().add("a", LongType()).add("a", LongType()))
    assert packed(codec, [(1, 2)]) == [(1,), (2,)]
    with pytest.raises(errors.OutputTypeError, match="two columns have the same name"):
        codec.columns([Row("a", "a")(1, 2)], "op")


@pytest.mark.parametrize("form", [*NAMED, *IDENTIFIERS])
def test_structs_are_matched_by_name_too(form):
    """Named values in a struct column are matched by name, and wrong names are refused."""
    inner = StructType().add("x", LongType()).add("y", LongType())
    codec = OutputCodec.from_schema(StructType().add("s", inner))
    make = (NAMED | IDENTIFIERS)[form]
    assert packed(codec, [(make(("y", "x"), (2, 1)),)]) == packed(codec, [((1, 2),)])
    with pytest.raises(errors.OutputTypeError, match="not a column: z"):
        codec.columns([(make(("x", "z"), (1, 2)),)], "op")


@pytest.mark.parametrize("row", ["ab", {1, 2}, None, 7])
def test_what_is_no_row_is_refused_beside_late_rows(row):
    """With a column of late rows, a string, a set and a number are still no rows."""
    codec = SideRows.from_schema(SCHEMA, [mp.OutputTag("late")], SCHEMA)
    with pytest.raises(errors.OutputTypeError, match="expected a tuple or a row with names"):
        codec.parts([row], "op")


@pytest.mark.parametrize("row", [2.5, (2.5,), [2.5], {"v": 2.5}, Row(v=2.5)])
def test_a_value_alone_beside_late_rows(row):
    """With a column of late rows, a single value belongs to the only other column."""
    codec = SideRows.from_schema(
        StructType().add("v", DoubleType()), [mp.OutputTag("late")], SCHEMA
    )
    ((value, late),) = codec.parts([row], "op")
    assert (value.to_pylist(), late.to_pylist()) == ([2.5], [None])


@pytest.mark.parametrize("odd", [None, 7, ["k", "n"], StringType()])
def test_columns_are_named_by_text(odd):
    """Keys and outputs of a wrong type are refused by argument."""
    with pytest.raises(errors.ConfigError, match="expected a column.s name or a Column"):
        key_by(object.__new__(DataFrame), odd)
    with pytest.raises(errors.ConfigError, match="output: expected DDL text or a StructType"):
        output_schema(odd)


@attrs.frozen
class Sum:
    """Aggregate function that sums."""

    most: int
    k: str
    subtasks: int


class Swapped(mp.KeyedProcessFunction):
    """Function that yields the number of key groups, the key and the parallelism, by name."""

    def open(self, context):
        self.info = context.info

    def process_element(self, row, context):
        info = self.info
        yield Sum(most=info.max_parallelism, k=row.k, subtasks=info.parallelism)
        yield Row(subtasks=info.parallelism, most=info.max_parallelism, k=row.k)


class Windowed(ProcessWindowFunction):
    """Window function that yields a window's sum and key, by name."""

    def process(self, key, context, total):
        yield Row(total=total, k=key)
        yield key, total


@pytest.mark.sample(1)
@pytest.mark.spark
@pytest.mark.parametrize("mode", ["streaming", "batch"])
def test_names_on_spark(spark, job_conf, mode):
    """Named rows reach their columns, also with late rows; the function sees max-parallelism."""
    job_conf(state_backend="heap", parallelism=2)
    spark.conf.set("spark.millpond.max-parallelism", "64")
    df = spark.createDataFrame([("a", 1), ("b", 2)], "k string, n int")
    out = key_by(df, "k").process(
        Swapped(), output="k string, subtasks int, most int", uid="swapped", execution_mode=mode
    )
    assert sorted(map(tuple, out.collect())) == sorted(2 * [("a", 2, 64), ("b", 2, 64)])
    moments = df.selectExpr("k", "n", "timestamp_seconds(n) t")
    windowed = key_by(moments, "k").window(windows.TumblingEventTimeWindows.of(60_000))
    late = windowed.side_output_late_data("total")
    with pytest.raises(errors.ConfigError, match="total.*has a column of that name"):
        late.reduce(
            int.__add__, int, "n", output="k string, total int", uid="windowed", event_time="t"
        )
    sums = windowed.side_output_late_data().reduce(
        int.__add__,
        int,
        "n",
        Windowed(),
        output="k string, total int",
        uid="windowed",
        event_time="t",
        execution_mode=mode,
    )
    assert sorted(map(tuple, sums.collect())) == sorted(2 * [("a", 1, None), ("b", 2, None)])
