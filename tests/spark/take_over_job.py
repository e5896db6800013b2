"""Migrate variables with a time to live and processing-time timers of transformWithStateInPandas."""

import json
import shutil
from datetime import timedelta
from pathlib import Path

import millpond as mp
import pandas as pd
import pytest
from millpond import errors
from millpond.spark import key_by, migrate
from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor

HOUR = 3_600_000
TTL = mp.StateTtlConfig(timedelta(hours=9))
STATES = {
    "both.n": mp.ValueStateDescriptor("n", int),
    "value": mp.ValueStateDescriptor("value", int).enable_time_to_live(TTL),
    "list": mp.ListStateDescriptor("list", int).enable_time_to_live(TTL),
    "map": mp.MapStateDescriptor("map", str, int).enable_time_to_live(TTL),
    "value + 1": mp.ValueStateDescriptor("more", int),
}


class Kept(StatefulProcessor):
    """Processor with a variable of each kind."""

    def init(self, handle):
        self.handle = handle
        self.both = handle.getValueState("both", "n bigint, s string")
        self.value = handle.getValueState("value", "n bigint", ttlDurationMs=HOUR)
        self.list = handle.getListState("list", "n bigint", ttlDurationMs=HOUR)
        self.map = handle.getMapState("map", "k string", "n bigint", ttlDurationMs=HOUR)

    def handleInputRows(self, key, rows, timerValues):  # noqa: N802, N803 - Spark calls it so
        self.both.update((7, "x"))
        self.value.update((1,))
        self.list.put([(1,), (2,)])
        self.map.updateValue(("a",), (3,))
        self.handle.registerTimer(timerValues.getCurrentProcessingTimeInMs() + HOUR)
        yield pd.DataFrame({"user": [key[0]]})


READ = "user string, n bigint, value bigint, list array<bigint>, map map<string, bigint>"


class Read(mp.KeyedProcessFunction):
    """Function that reads the migrated states."""

    def open(self, context):
        self.n, self.value = (context.get_state(STATES[name]) for name in ("both.n", "value"))
        self.list, self.map = (
            context.get_list_state(STATES["list"]),
            context.get_map_state(STATES["map"]),
        )

    def process_element(self, row, context):
        n, value = self.n.value(), self.value.value()
        yield row.user, n, value, list(self.list.get()), dict(self.map.items())


def main(spark, folder):
    """Run the query, migrate its state, and check the savepoint."""
    Path(f"{folder}/users").mkdir()
    Path(f"{folder}/users/a b é+%.json").write_text('{"user": "ann"}')
    rows = spark.readStream.schema("user string").json(f"{folder}/users")
    old = rows.groupBy("user")
    old = old.transformWithStateInPandas(Kept(), "user string", "Update", "ProcessingTime")
    run(old, f"{folder}/kept")
    begun = json.loads(Path(f"{folder}/kept/offsets/0").read_text().split("\n")[1])
    now = begun["batchTimestampMs"]

    def moved(to, **given):
        arguments = {"uid": "kept", "states": STATES, "processing_time_timers": "timers", **given}
        return migrate(spark, f"{folder}/kept", f"{folder}/{to}", **arguments)

    start = moved("saved")
    tables = {path.parent.name: path for path in Path(f"{folder}/saved").rglob("*.parquet")}
    kept = {name: pd.read_parquet(path) for name, path in tables.items()}
    assert [kept[name]["value"].tolist() for name in ("n", "value", "map", "more")] == [
        [7],
        [1],
        [3],
        [2],
    ]
    for name in ("value", "map", "list"):
        expiry = pd.Series(kept[name]["ttl_timestamp"][0]) % (1 << 62)  # an own time to live
        assert ((expiry - now - HOUR).abs() < 1000).all(), (name, kept[name])
    (timers,) = (table for name, table in kept.items() if "timer" in name)
    assert now + HOUR in timers.to_numpy().ravel().tolist()
    with pytest.raises(errors.ConfigError, match="the old state has timers"):
        moved("untimed", processing_time_timers=None)
    for wrong in ("vale", "1 +", "", "sum(value)"):
        with pytest.raises(errors.ConfigError, match="states: "):
            moved("wrong", states={wrong: STATES["value"]})
    for wrong in ("map", "current_timestamp()", "array('1')"):
        with pytest.raises(errors.ConfigError, match="processing_time_timers: .* whole numbers"):
            moved("wrong", processing_time_timers=wrong)
    with pytest.raises(errors.ArgumentTypeError, match="keys: "):
        moved("wrong", keys="user")
    with pytest.raises(errors.ConfigError, match="it has 0"):
        moved("other", operator=1)
    with pytest.raises(errors.DirectoryNotEmptyError):
        moved("saved")
    Path(f"{folder}/users/new.json").write_text('{"user": "bob"}')
    assert run(start.sources[0].unread(rows), f"{folder}/unread") == [("bob",)]
    Path(f"{folder}/users/more.json").write_text('{"user": "ann"}')
    spark.conf.set("spark.millpond.checkpoint.restore", f"{folder}/saved")
    new = key_by(start.sources[0].unread(rows), "user")
    new = new.process(Read(), output=READ, uid="kept", output_mode="update")
    assert sorted(run(new, f"{folder}/continued")) == [
        ("ann", 7, 1, [1, 2], {"a": 3}),
        ("bob", None, None, [], {}),
    ]
    spark.conf.unset("spark.millpond.checkpoint.restore")

    copied = shutil.copytree(f"{folder}/kept", f"{folder}/a b")
    with pytest.raises(errors.ConfigError, match="copy the directory"):
        migrate(spark, copied, f"{folder}/wrong", uid="kept", states=STATES)
    odd_names(spark, rows, folder)
    duplicates(spark, rows, folder)
    due_timers(spark, folder)


def odd_names(spark, rows, folder):
    """Migrate an aggregation whose keys are named like a buffer and with odd characters."""
    rows = rows.selectExpr("user AS `a ``b.c`", "length(user) AS Count")
    run(rows.groupBy("`a ``b.c`", "Count").count(), f"{folder}/odd names")
    states = {"count_2": mp.ValueStateDescriptor("n", int)}
    migrate(spark, f"{folder}/odd names", f"{folder}/odd", uid="odd", states=states)
    assert saved(f"{folder}/odd/odd/n", "value") == [
        ({"a `b.c": "ann", "Count": 3}, 2),
        ({"a `b.c": "bob", "Count": 3}, 1),
    ]
    for missing, reason in (("missing", "checkpoint: "), ("unread", "it has no state")):
        with pytest.raises(errors.ConfigError, match=reason):
            migrate(spark, f"{folder}/{missing}", f"{folder}/wrong", uid="odd", states=states)


def duplicates(spark, rows, folder):
    """Migrate ``dropDuplicatesWithinWatermark``; the expiry of a key becomes its timer."""
    rows = rows.selectExpr("user", "timestamp_seconds(length(user)) AS at")
    rows = rows.withWatermark("at", "5 seconds").dropDuplicatesWithinWatermark(["user"])
    run(rows, f"{folder}/within")
    states = {"true": mp.ValueStateDescriptor("seen", bool)}
    given = {"uid": "seen", "states": states, "event_time_timers": "expires"}
    migrate(spark, f"{folder}/within", f"{folder}/seen", **given)
    assert saved(f"{folder}/seen/seen/seen", "value") == [("ann", True), ("bob", True)]
    timers = saved(f"{folder}/seen/seen/millpond!timers_event-time", "timestamp")
    assert timers == [("ann", 8_000), ("bob", 8_000)]


COUNT = mp.ValueStateDescriptor("count", int)
ALARM = "user string, n bigint, at bigint"


class Alarms(StatefulProcessor):
    """Processor of ``transformWithState`` that counts rows, and yields the number ten seconds later."""

    def init(self, handle):
        self.handle, self.count = handle, handle.getValueState("count", "n bigint")

    def handleInputRows(self, key, rows, timerValues):  # noqa: N802, N803 - Spark calls it so
        times = [row.ms for row in rows]
        before = self.count.get()[0] if self.count.exists() else 0
        self.count.update((before + len(times),))
        self.handle.registerTimer(max(times) + 10_000)
        return iter([])

    def handleExpiredTimer(self, key, timerValues, expiredTimerInfo):  # noqa: N802, N803
        yield Row(user=key[0], n=self.count.get()[0], at=expiredTimerInfo.getExpiryTimeInMs())


class Ringing(mp.KeyedProcessFunction):
    """The same function in Millpond."""

    def open(self, context):
        self.count = context.get_state(COUNT)

    def process_element(self, row, context):
        self.count.update((self.count.value() or 0) + 1)
        context.timer_service().register_event_time_timer(row.ms + 10_000)

    def on_timer(self, timestamp, context):
        yield context.current_key, self.count.value(), timestamp


def due_timers(spark, folder):
    """Timers that the old query has set fire in the new one, with the migrated state."""

    def put(name, *rows):
        Path(f"{folder}/alarms").mkdir(exist_ok=True)
        lines = [json.dumps({"user": user, "ms": ms}) for user, ms in rows]
        Path(f"{folder}/alarms/{name}.json").write_text("\n".join(lines))

    def timed(df):
        return df.selectExpr("*", "timestamp_millis(ms) AS at").withWatermark("at", "0 seconds")

    def old():
        alarms = timed(files()).groupBy("user")
        return run(alarms.transformWithState(Alarms(), ALARM, "Append", "EventTime"), *place)

    def files():
        return spark.readStream.schema("user string, ms bigint").json(f"{folder}/alarms")

    place = f"{folder}/ringing", "append"
    put("1", ("ann", 1_000), ("bob", 2_000), ("ann", 4_000))
    assert old() == []
    given = {"uid": "alarms", "states": {"count": COUNT}, "event_time_timers": "timers"}
    start = migrate(spark, place[0], f"{folder}/rung", **given)
    put("2", ("eve", 100_000))
    expected = [("ann", 2, 14_000), ("bob", 1, 12_000)]
    assert sorted(old()) == expected
    spark.conf.set("spark.millpond.checkpoint.restore", f"{folder}/rung")
    rows = key_by(timed(start.sources[0].unread(files())), "user")
    new = rows.process(Ringing(), output=ALARM, uid="alarms")
    assert sorted(run(new, f"{folder}/rings", "append")) == expected
    spark.conf.unset("spark.millpond.checkpoint.restore")


def saved(table, column):
    """Return each key of a savepoint's table with its value in a column."""
    found = pd.concat(pd.read_parquet(path) for path in Path(table).glob("*.parquet"))
    return sorted(zip(found["key"], found[column], strict=True), key=str)


def run(df, checkpoint, mode="update"):
    """Run one batch of a query, or in append mode all batches; return its rows."""
    found = []
    writer = df.writeStream.outputMode(mode).option("checkpointLocation", checkpoint)
    writer = writer.foreachBatch(lambda batch, _: found.extend(map(tuple, batch.collect())))
    once = {"once": True} if mode == "update" else {"availableNow": True}
    writer.trigger(**once).start().awaitTermination()
    return found
