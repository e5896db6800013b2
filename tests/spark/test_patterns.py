"""Patterns on Spark: streams with restarts and rescales, batches, processing time, refusals."""

import random
from datetime import timedelta

import millpond as mp
import pytest
from millpond import errors
from millpond.patterns import AfterMatchSkipStrategy, Pattern
from millpond.patterns import pattern as search_for
from millpond.spark import key_by

from tests.spark.streaming import Files, run

pytestmark = pytest.mark.spark

SCHEMA = "k string, s bigint, n bigint, kind string"
ORDERED = (
    Pattern.begin(
        "order",
        lambda row: row.kind == "order",
        skip=AfterMatchSkipStrategy.skip_past_last_event(),
    )
    .followed_by("item", lambda row, match: row.kind == "item" and row.n > match["order"][0].n)
    .one_or_more()
    .greedy()
    .followed_by("paid", lambda row: row.kind == "paid")
    .within(timedelta(minutes=10))
)
UNPAID = mp.OutputTag("unpaid", "k string, n bigint")
OUTPUT = "k string, numbers string"


def numbers(match):
    rows = [row for rows in match.values() for row in rows]
    return rows[0].k, " ".join(str(row.n) for row in rows)


def first(match):
    return match["order"][0].k, match["order"][0].n


def events(parts):
    """Return rows in several parts, out of order by less than 5 minutes."""
    rng = random.Random(4)
    made = []
    for part in range(parts):
        rows = []
        for n in range(60):
            second = 100_000 + (part * 60 + n) * 20 - rng.randrange(200)
            kind = rng.choice(("order", "item", "item", "paid"))
            rows.append((rng.choice("abcdef"), second, part * 60 + n, kind))
        made.append(rows)
    return made


def found_locally(rows):
    search = search_for(ORDERED, SCHEMA).side_output_timed_out(UNPAID, first)
    named = [dict(zip(("k", "s", "n", "kind"), row, strict=True)) for row in rows]
    out = mp.local.run(search.select(numbers), named, key="k", event_time=lambda row: row.s * 1000)
    return sorted(out), sorted(out.side_output(UNPAID))


def selected(df, **options):
    search = key_by(df, "k").pattern(ORDERED).side_output_timed_out(UNPAID, first)
    return search.select(numbers, output=OUTPUT, uid="orders", **options).with_side_outputs(UNPAID)


def divided(written):
    main = written.where("unpaid is null").drop("unpaid").collect()
    aside = written.where("unpaid is not null").select("unpaid.*").collect()
    return sorted(map(tuple, main)), sorted(map(tuple, aside))


@pytest.mark.long
@pytest.mark.parametrize("backend", ["rocksdb", "lmdb"])
def test_a_stream_with_restarts_and_rescales(spark, job_conf, tmp_path, backend):
    """A stream finds the matches of a local run, although it restarts with other subtasks."""
    files = Files(spark, tmp_path / "in", SCHEMA)
    parts = events(3)
    end = [("z", 200_000, 1000, "order")]
    for part, parallelism in (*zip(parts, (2, 3, 1), strict=True), (end, 1)):
        job_conf(state_backend=backend, parallelism=parallelism)
        files.add(*part)
        stream = files.stream().selectExpr("*", "timestamp_seconds(s) AS at")
        run(selected(stream.withWatermark("at", "5 minutes")), tmp_path)
    written = spark.read.parquet(str(tmp_path / "query" / "output"))
    assert divided(written) == found_locally([row for part in parts for row in part])


@pytest.mark.parametrize("mode", ["streaming", "batch"])
def test_batches(spark, job_conf, mode):
    """Both ways to execute a batch find the matches of a local run, and the time of all ends."""
    job_conf(state_backend="heap")
    rows = [row for part in events(2) for row in part]
    df = spark.createDataFrame(rows, SCHEMA).selectExpr("*", "timestamp_seconds(s) AS at")
    out = selected(df, event_time="at", execution_mode=mode)
    assert divided(out) == found_locally(rows)


def test_processing_time(spark, job_conf, tmp_path):
    """In processing time a stream needs no watermark, and rows match across micro-batches."""
    job_conf(state_backend="heap")
    files = Files(spark, tmp_path / "in", SCHEMA)
    pair = Pattern.begin("order", lambda row: row.kind == "order").next("item")
    search = key_by(files.stream(), "k").pattern(pair.within(timedelta(days=1)))
    out = search.in_processing_time().flat_select(
        lambda match: [numbers(match)], output=OUTPUT, uid="pairs", order_by="n"
    )
    files.add(("a", 0, 1, "order"), ("b", 0, 2, "order"), ("b", 0, 3, "paid"))
    files.add(("a", 0, 4, "item"), ("b", 0, 5, "item"))
    run(out, tmp_path)
    written = spark.read.parquet(str(tmp_path / "query" / "output")).collect()
    assert sorted(map(tuple, written)) == [("a", "1 4"), ("b", "2 3")]


def test_event_time_is_missing(spark, job_conf, tmp_path):
    """Without a watermark or an event-time column, a search by event time is refused."""
    job_conf(state_backend="heap")
    files = Files(spark, tmp_path / "in", SCHEMA)
    with pytest.raises(errors.NoWatermarkError, match="patterns of event time"):
        selected(files.stream())
    with pytest.raises(errors.ConfigError, match="patterns of event time need it"):
        selected(spark.createDataFrame([("a", 0, 1, "order")], SCHEMA))
