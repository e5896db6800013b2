"""Sessions: sum the lines of each customer until a pause of half an hour."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import millpond as mp
from millpond import windows

TITLE = "Sessions of customers"
OUTPUT = "customer string, start bigint, end bigint, lines bigint, cents bigint"
GAP = timedelta(minutes=30)


class Basket(mp.AggregateFunction[Any, tuple[int, int], tuple[int, int]]):
    """The lines and money of a session."""

    def create_accumulator(self) -> tuple[int, int]:
        """Return an empty basket."""
        return (0, 0)

    def add(self, value: Any, accumulator: tuple[int, int]) -> tuple[int, int]:
        """Add one line."""
        return (accumulator[0] + 1, accumulator[1] + value.cents)

    def get_result(self, accumulator: tuple[int, int]) -> tuple[int, int]:
        """Return the basket."""
        return accumulator

    def merge(self, a: tuple[int, int], b: tuple[int, int]) -> tuple[int, int]:
        """Merge two sessions."""
        return (a[0] + b[0], a[1] + b[1])


SESSIONS = windows.EventTimeSessionWindows.with_gap(GAP)


def local(rows: list[dict[str, Any]]) -> list[Any]:
    """Run the job in this process."""
    function = windows.window(SESSIONS).aggregate(Basket(), tuple[int, int])
    return mp.local.run(function, rows, key="customer", event_time="ms")


def spark(lines: Any, key_by: Any) -> Any:
    """Build the job. It drops late rows, unless the stream has ``side_output_late_data``."""
    windowed = key_by(lines, "customer").window(SESSIONS)
    return windowed.aggregate(Basket(), tuple[int, int], output=OUTPUT, uid="sessions")


def expected(rows: list[dict[str, Any]]) -> list[Any]:
    """Return the result by sorting."""
    gap = GAP // timedelta(milliseconds=1)
    found: list[list[Any]] = []
    for row in sorted(rows, key=lambda row: (row["customer"], row["ms"])):
        last = found[-1] if found else None
        if last and last[0] == row["customer"] and row["ms"] <= last[2]:
            last[2:] = [row["ms"] + gap, last[3] + 1, last[4] + row["cents"]]
        else:
            found.append([row["customer"], row["ms"], row["ms"] + gap, 1, row["cents"]])
    return [tuple(session) for session in found]


def draw(axis: Any, result: list[Any]) -> None:
    """Each session as a bar on its customer's line."""
    customers = sorted({session[0] for session in result})[:40]
    begin = min(session[1] for session in result)
    for customer, start, end, _, cents in result:
        if customer in customers:
            hours = ((start - begin) / 3.6e6, (end - start) / 3.6e6)
            color = "tab:red" if cents > 20_000 else "tab:blue"
            axis.broken_barh([hours], (customers.index(customer) - 0.4, 0.8), color=color)
    axis.set(xlabel="hours", ylabel="customers", title="sessions; red: more than 200.00")
