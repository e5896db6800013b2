"""Interval join: join order lines with the customer's visits in the half hour before."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import millpond as mp

TITLE = "Interval join"
MINUTE = 60_000
START = 1_700_000_000_000
BEFORE = timedelta(minutes=30)
SECOND = [
    {
        "visitor": f"customer-{number % 40:02}",
        "at": START + number * 7 * MINUTE,
        "visit": f"v{number}",
    }
    for number in range(600)
]
SECOND_FOLDER = ""  # of JSON files with these rows; run.py sets it
SECOND_SCHEMA = "visitor string, at bigint, visit string"


LINES = "customer string, item string, country string, line string, ms bigint, cents bigint"


def local(rows: list[dict[str, Any]]) -> list[Any]:
    """Run the job in this process."""
    joined = mp.local.run(
        mp.IntervalJoin(LINES, SECOND_SCHEMA, lower=-BEFORE, upper=0),
        rows,
        key="customer",
        event_time="ms",
        second=SECOND,
        second_key="visitor",
        second_event_time="at",
        watermark_delay=30 * MINUTE,
    )
    return [(line.customer, line.line, visit.visit) for line, visit in joined]


def visits(lines: Any) -> Any:
    """Return the second stream with its own watermark."""
    stream = lines.sparkSession.readStream.schema(SECOND_SCHEMA).json(SECOND_FOLDER)
    return stream.selectExpr("*", "timestamp_millis(at) as seen").withWatermark("seen", "14 days")


def spark(lines: Any, key_by: Any) -> Any:
    """Build the job; the visits are the second stream."""
    by_visitor = key_by(visits(lines), "visitor")
    joined = key_by(lines, "customer").interval_join(
        by_visitor, lower=-BEFORE, upper=0, uid="joined"
    )
    return joined.select("customer", "line", "visit")


def expected(rows: list[dict[str, Any]]) -> list[Any]:
    """Return the result by comparing each line with each visit."""
    return [
        (row["customer"], row["line"], visit["visit"])
        for row in rows
        for visit in SECOND
        if visit["visitor"] == row["customer"]
        and timedelta() <= timedelta(milliseconds=row["ms"] - visit["at"]) <= BEFORE
    ]


def by_spark(lines: Any) -> Any:
    """Return the result of Spark's own join of two streams."""
    seen = visits(lines)
    near = lines.t.between(seen.seen, seen.seen + BEFORE)
    joined = lines.join(seen, (lines.customer == seen.visitor) & near)
    return joined.select("customer", "line", "visit")


def draw(axis: Any, result: list[Any]) -> None:
    """Draw the number of lines that followed a visit."""
    lines: dict[str, int] = {}
    for customer, _, _ in result:
        lines[customer] = lines.get(customer, 0) + 1
    top = sorted(lines.items(), key=lambda pair: -pair[1])[:15]
    axis.barh([name for name, _ in top][::-1], [count for _, count in top][::-1])
    axis.set(
        xlabel="lines within half an hour of a visit", title="customers who looked, then bought"
    )
