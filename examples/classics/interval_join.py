"""Interval join: join order lines with the customer's visits in the half hour before."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

import millpond as mp

TITLE = "Interval join"
OUTPUT = "customer string, line string, visit string"
MINUTE = 60_000
START = 1_700_000_000_000
BEFORE = 30 * MINUTE
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


class Joined(mp.KeyedCoProcessFunction):
    """A function that keeps rows of each input while rows of the other can match."""

    def open(self, context: mp.RuntimeContext) -> None:
        """Get the kept rows of both inputs, by time."""
        by_time = (int, list[str])
        self.lines = context.get_sorted_map_state(mp.SortedMapStateDescriptor("lines", *by_time))
        self.visits = context.get_sorted_map_state(mp.SortedMapStateDescriptor("visits", *by_time))

    def process_element1(self, row: Any, context: mp.Context) -> Iterable[Any]:
        """Yield the line with each kept visit."""
        self._keep(self.lines, row.ms, row.line, context, row.ms)
        for _, visits in self.visits.range(row.ms - BEFORE, row.ms + 1):
            yield from ((context.current_key, row.line, visit) for visit in visits)

    def process_element2(self, row: Any, context: mp.Context) -> Iterable[Any]:
        """Yield the visit with each kept line."""
        self._keep(self.visits, row.at, row.visit, context, row.at + BEFORE)
        for _, lines in self.lines.range(row.at, row.at + BEFORE + 1):
            yield from ((context.current_key, line, row.visit) for line in lines)

    def _keep(self, state: Any, time: int, name: str, context: mp.Context, until: int) -> None:
        """Keep a row until no row of the other input can match."""
        timers = context.timer_service()
        if timers.current_watermark() < until:
            state.put(time, [*state.get(time, []), name])
            timers.register_event_time_timer(until)

    def on_timer(self, timestamp: int, context: mp.Context) -> None:
        """Drop the rows that cannot match any more."""
        self.lines.remove(timestamp)
        self.visits.remove(timestamp - BEFORE)


def local(rows: list[dict[str, Any]]) -> list[Any]:
    """Run the job in this process."""
    return mp.local.run(
        Joined(),
        rows,
        key="customer",
        event_time="ms",
        second=SECOND,
        second_key="visitor",
        second_event_time="at",
        watermark_delay=30 * MINUTE,
    )


def visits(lines: Any) -> Any:
    """Return the second stream with its own watermark."""
    stream = lines.sparkSession.readStream.schema(SECOND_SCHEMA).json(SECOND_FOLDER)
    return stream.selectExpr("*", "timestamp_millis(at) as seen").withWatermark("seen", "14 days")


def spark(lines: Any, key_by: Any) -> Any:
    """Build the job; the visits are the second stream."""
    connected = key_by(lines, "customer").connect(key_by(visits(lines), "visitor"))
    return connected.process(Joined(), output=OUTPUT, uid="joined")


def expected(rows: list[dict[str, Any]]) -> list[Any]:
    """Return the result by comparing each line with each visit."""
    return [
        (row["customer"], row["line"], visit["visit"])
        for row in rows
        for visit in SECOND
        if visit["visitor"] == row["customer"] and 0 <= row["ms"] - visit["at"] <= BEFORE
    ]


def by_spark(lines: Any) -> Any:
    """Return the result of Spark's own join of two streams."""
    seen = visits(lines)
    near = lines.t.between(seen.seen, seen.seen + timedelta(milliseconds=BEFORE))
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
