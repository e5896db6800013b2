"""Event time over chains of operators, with late rows, compared with a reference batch by batch."""

import random
from datetime import UTC, datetime

import millpond as mp
import pytest
from millpond import windows
from millpond.spark import key_by, several_operators

from tests.spark.streaming import Files, output, run

pytestmark = pytest.mark.spark

ROWS = "k string, t timestamp, n bigint"
DELAY = 5
SHORT, LONG = 10, 30


def moment(ms):
    return datetime.fromtimestamp(ms / 1000, UTC)


def total(key, window, n):
    yield key, moment(window.max_timestamp()), n


def summed(df, uid, size):
    """Return sums in tumbling windows of ``size`` seconds; late rows go to a column."""
    windowed = key_by(df, "k").window(windows.TumblingEventTimeWindows.of(size * 1000))
    return windowed.side_output_late_data("late").reduce(
        int.__add__, int, "n", total, output=ROWS, uid=uid, event_time="t"
    )


FIRST = {
    "windows": lambda df: summed(df, "first", SHORT).where("late is null").drop("late"),
    "map": lambda df: key_by(df, "k").filter(bool, uid="first", event_time="t"),
    "keyless": lambda df: mp.spark.operator(df).process(
        Same(), output=ROWS, uid="first", event_time="t"
    ),
}


class Same(mp.ProcessFunction):
    """Function that yields each row."""

    def process_element(self, row, context):
        yield row


class Windows:
    """The reference of tumbling windows: a watermark, open windows, and late rows."""

    def __init__(self, size):
        self.size, self.open, self.late, self.watermark = size, {}, [], float("-inf")

    def rows(self, rows):
        for key, time, n in rows:
            end = (time // self.size + 1) * self.size
            if end - 0.001 <= self.watermark:
                self.late.append((key, time, n))
            else:
                self.open[key, end] = self.open.get((key, end), 0) + n

    def advance(self, watermark):
        """Raise the watermark, and return the fired windows, dated by their last second."""
        self.watermark = max(self.watermark, watermark)
        due = [each for each in self.open if each[1] - 0.001 <= self.watermark]
        return [(key, end - 0.001, self.open.pop((key, end))) for key, end in due]


class Reference:
    """A chain of two operators, which gets micro-batches of rows."""

    def __init__(self, kind):
        self.first = Windows(SHORT) if kind == "windows" else None
        self.second, self.highest, self.fired = Windows(LONG), None, []

    def batch(self, rows):
        watermark = float("-inf") if self.highest is None else self.highest - DELAY
        held, passed = [], rows
        if self.first is not None:
            held = self.first.advance(watermark)
            self.first.rows(rows)
            passed = []
        for part in (held, [row for row in passed if row[1] <= watermark]):
            self.second.rows(part)
        self.fired += self.second.advance(watermark)
        self.second.rows(row for row in passed if row[1] > watermark)
        if rows:
            self.highest = max(
                [*(time for _, time, _ in rows), *([self.highest] * bool(self.highest))]
            )


def batches(draw, count):
    """Return micro-batches of rows that are out of order, some of them late."""
    made, second = [], 1
    for _ in range(count):
        second += draw.randrange(1, 25)
        times = [
            max(1, second - draw.choice((0, 1, 3, 6, 14, 40))) for _ in range(draw.randrange(1, 5))
        ]
        made.append([(draw.choice("abc"), time, draw.randrange(1, 9)) for time in times])
    return made


def chain(files, kind):
    df = files.stream().selectExpr("k", "timestamp_seconds(s) t", "n")
    first = FIRST[kind](df.withWatermark("t", f"{DELAY} seconds"))
    second = summed(first.select("k", "t", "n"), "second", LONG)
    columns = (
        "coalesce(late.k, k)",
        "unix_millis(coalesce(late.t, t)) / 1000",
        "coalesce(late.n, n)",
    )
    return second.selectExpr("late is not null", *columns).toDF("late", "k", "t", "n")


@pytest.mark.sample(2)
@pytest.mark.parametrize("kind", FIRST)
@pytest.mark.parametrize("parallelism", [2, 3])
def test_chains_with_late_rows(spark, job_conf, tmp_path, kind, parallelism):
    """Windows behind an operator equal the reference, with the same late rows, also after a restart."""
    draw = random.Random(f"{kind} {parallelism}")
    files = Files(spark, tmp_path / "in", "k string, s bigint, n bigint")
    reference = Reference(kind)
    for run_number, given in enumerate((batches(draw, 5), batches(draw, 5))):
        job_conf(
            state_backend=("heap", "rocksdb")[run_number],
            parallelism=2 if run_number else parallelism,
        )
        if run_number and parallelism != 2:
            reference.second.watermark = float("-inf")
        for rows in given:
            files.add(*rows)
            reference.batch(rows)
        with several_operators():
            run(chain(files, kind), tmp_path)
        reference.batch([])  # Spark runs a last batch, because the watermark has moved
    found = output(spark, tmp_path)
    assert [row[1:] for row in found if not row[0]] == sorted(reference.fired)
    assert [row[1:] for row in found if row[0]] == sorted(reference.second.late)
    assert reference.fired
