"""Generated aggregations and ``dropDuplicates``: the migrated state equals Spark's own, row by row."""

import random
from collections import Counter
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import millpond as mp
import pyarrow.parquet as pq
import pytest
from millpond import errors
from millpond.spark import migrate
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

pytestmark = pytest.mark.spark
START = datetime(2026, 1, 1, tzinfo=UTC)
POOLS = {
    "bigint": [0, -1, 2**62, -(2**63)],
    "smallint": [7, -7, 0],
    "double": [0.0, -0.0, float("nan"), 1e300],
    "decimal(18,4)": [Decimal("1.5000"), Decimal("-0.0001"), Decimal(10) ** 13],
    "string": ["", "a", "ä\u2028'%s", "x" * 300],
    "binary": [b"", b"\x00\xff"],
    "boolean": [True, False],
    "date": [date(1, 1, 1), date(2026, 2, 3)],
    "timestamp": [START, START + timedelta(microseconds=1), START - timedelta(days=30_000)],
    "timestamp_ntz": [datetime(2026, 3, 29, 2, 30), datetime(1900, 1, 1)],
}
TYPES = {
    "bigint": int,
    "double": float,
    "string": str,
    "boolean": bool,
    "timestamp": datetime,
}
"""The types of states for the types of buffers, as in the table of the page about taking over."""


class Query:
    """A query over generated rows: two batches of random keys and values."""

    def __init__(self, spark, folder, seed):
        self.spark, self.folder, self.random = spark, folder, random.Random(seed)
        kinds = self.random.sample(sorted(POOLS), self.random.randint(1, 3))
        self.keys = {f"k {number}": kind for number, kind in enumerate(kinds)}
        columns = {
            **self.keys,
            "n": "bigint",
            "d": "decimal(10,2)",
            "s": "string",
            "t": "timestamp",
        }
        self.schema = ", ".join(f"`{name}` {kind}" for name, kind in columns.items())
        rows = spark.createDataFrame([self._row() for _ in range(80)], self.schema)
        rows.repartition(2).write.parquet(str(folder / "input"))

    def _row(self):
        """Return random keys, and values of which some are null."""
        chosen = self.random
        values = (
            chosen.randint(-(2**40), 2**40),
            Decimal(chosen.randint(-(10**6), 10**6)) / 100,
            chosen.choice(POOLS["string"]),
            START + timedelta(seconds=chosen.randint(-(10**6), 10**6)),
        )
        keys = (chosen.choice(POOLS[kind]) for kind in self.keys.values())
        return (*keys, *(None if chosen.random() < 0.4 else value for value in values))

    def run(self, change):
        """Run the query, and return Spark's state as a table of keys and buffers."""
        rows = self.spark.readStream.schema(self.schema).option("maxFilesPerTrigger", 1)
        finish(change(rows.parquet(str(self.folder / "input"))), self.checkpoint)
        return self.spark.read.format("statestore").load(self.checkpoint)

    @property
    def checkpoint(self):
        """The ``checkpointLocation``."""
        return str(self.folder / "checkpoint")

    def migrated(self, states):
        """Migrate the states, and return the rows of each: pairs of a key's parts and a value."""
        target = self.folder / "savepoint"
        migrate(self.spark, self.checkpoint, target, uid="old", states=states)
        found = {}
        for descriptor in states.values():
            rows = pq.read_table(target / "old" / descriptor.name).to_pylist()
            parts = [list(k.values()) if isinstance(k := row["key"], dict) else [k] for row in rows]
            pairs = zip(parts, (row["value"] for row in rows), strict=True)
            found[descriptor.name] = Counter((plain(key), plain(value)) for key, value in pairs)
        return found


def plain(value):
    """Return a text that is equal for equal values, whatever their type in Arrow or Spark is."""
    if isinstance(value, list):
        return tuple(map(plain, value))
    if isinstance(value, datetime):  # a savepoint has naive ones in UTC
        return repr(value.astimezone(UTC) if value.tzinfo else value.replace(tzinfo=UTC))
    return repr(str(value) if isinstance(value, Decimal) else value)  # as in a savepoint


def expected(table, part=None):
    """Return the rows of Spark's state that have a value in a buffer, as pairs of key and value."""
    value = F.lit(True) if part is None else F.col(f"value.{part}")
    rows = table.select("key", value.alias("value")).toArrow().to_pylist()
    return Counter(
        (plain(list(row["key"].values())), plain(row["value"]))
        for row in rows
        if row["value"] is not None
    )


def distinct(names):
    """Return names with ``_2`` and so on after one that occurs again, as `migrate` names them."""
    seen = Counter()
    for name in names:
        seen[name] += 1
        yield name if seen[name] == 1 else f"{name}_{seen[name]}"


@pytest.mark.sample(1)
@pytest.mark.parametrize("seed", range(12))
def test_an_aggregation(spark, job_conf, tmp_path, seed):
    """Each buffer of an aggregation becomes a state with the same values for the same keys."""
    query = Query(spark, tmp_path, seed)
    functions = [
        *(F.sum("n"), F.count("s"), F.max("t"), F.min("s"), F.avg("d"), F.sum("d"), F.max("d")),
        *(F.first("s"), F.last("n"), F.stddev("n"), F.avg("n"), F.bool_or(F.col("n") > 0)),
    ]
    chosen = query.random.sample(functions, 3)
    keys = [f"`{name}`" for name in query.keys]
    table = query.run(lambda rows: rows.groupBy(*keys).agg(*chosen))
    fields = table.schema["value"].dataType.fields
    kinds = dict(zip(distinct(each.name for each in fields), fields, strict=True))
    buffers = StructType([StructField(name, each.dataType) for name, each in kinds.items()])
    table = table.withColumn("value", F.col("value").cast(buffers))
    states = {
        each.name: mp.ValueStateDescriptor(
            f"state {each.name}", TYPES.get(each.dataType.simpleString(), Decimal)
        )
        for each in buffers
    }
    found = query.migrated(states)
    for name, descriptor in states.items():
        assert found[descriptor.name] == expected(table, name), name
    assert sum(each.total() for each in found.values()) > len(states)


@pytest.mark.sample(1)
@pytest.mark.parametrize("seed", range(6))
def test_dropped_duplicates(spark, job_conf, tmp_path, seed):
    """The migrated keys of ``dropDuplicates`` are exactly those that Spark remembers."""
    query = Query(spark, tmp_path, seed)
    table = query.run(lambda rows: rows.dropDuplicates([*query.keys]))
    found = query.migrated({"true": mp.ValueStateDescriptor("seen", bool)})
    assert found["seen"] == expected(table)
    assert found["seen"].total() > 1


def test_sums_of_short_decimals(spark, job_conf, tmp_path):
    """The expression of the page sets the point of a sum and of an average, in two sums of one name."""
    rows = [("a", Decimal("4.25"), Decimal("-0.01")), ("a", Decimal("0.50"), None)]
    schema = "k string, short decimal(8,2), longer decimal(11,2)"
    spark.createDataFrame(rows, schema).write.parquet(str(tmp_path / "input"))
    df = spark.readStream.schema(schema).parquet(str(tmp_path / "input"))
    finish(df.groupBy("k").agg(F.sum("short"), F.avg("longer")), tmp_path / "checkpoint")
    point = "cast({} AS decimal(18)) * 0.01"
    names = {point.format("sum"): "short", point.format("sum_2"): "longer"}
    states = {text: mp.ValueStateDescriptor(name, Decimal) for text, name in names.items()}
    migrate(spark, str(tmp_path / "checkpoint"), tmp_path / "savepoint", uid="old", states=states)
    tables = (pq.read_table(tmp_path / "savepoint/old" / name) for name in names.values())
    assert [table.to_pydict()["value"] for table in tables] == [["4.75"], ["-0.01"]]


def finish(df, checkpoint):
    """Run a query over all its files."""
    writer = df.writeStream.format("noop").outputMode("update")
    writer = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
    writer.start().awaitTermination()


def test_a_null_key(spark, job_conf, tmp_path):
    """A null in a key is refused with the cure, which works."""
    (tmp_path / "input").mkdir()
    (tmp_path / "input/0.json").write_text('{"k":"a"}\n{"k":null}\n{"k":null}\n')
    rows = spark.readStream.schema("k string").json(str(tmp_path / "input"))
    checkpoint, target = str(tmp_path / "checkpoint"), tmp_path / "savepoint"
    finish(rows.groupBy("k").count(), checkpoint)
    given = {"uid": "old", "states": {"count": mp.ValueStateDescriptor("n", int)}}
    with pytest.raises(errors.ConfigError, match=r"keys: a key .* is null; .*coalesce\(user"):
        migrate(spark, checkpoint, target, **given)
    assert not target.exists()
    migrate(spark, checkpoint, target, keys=["coalesce(k, '?') AS k"], **given)
    counts = pq.read_table(target / "old" / "n").to_pydict()
    assert dict(zip(counts["key"], counts["value"], strict=True)) == {"a": 1, "?": 2}
