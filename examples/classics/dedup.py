"""Deduplication with TTL: yield each order line once, although the source repeats some lines."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

import millpond as mp

TITLE = "Deduplication with TTL"
OUTPUT = "line string, customer string, cents bigint"
TTL = mp.StateTtlConfig(timedelta(days=1))


class Once(mp.KeyedProcessFunction):
    """A function that yields the first row of each key and forgets the key after a day."""

    def open(self, context: mp.RuntimeContext) -> None:
        """Get a state that expires after a day."""
        descriptor = mp.ValueStateDescriptor("seen", bool).enable_time_to_live(TTL)
        self.seen = context.get_state(descriptor)

    def process_element(self, row: Any, context: mp.Context) -> Iterable[Any]:
        """Yield the row if its key is new."""
        if self.seen.value() is None:
            self.seen.update(True)
            yield row.line, row.customer, row.cents


def repeated(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Repeat every fifth row, some rows later."""
    again = [row for number, row in enumerate(rows) if number % 5 == 0]
    half = len(rows) // 2
    return [*rows[:half], *again[: len(again) // 2], *rows[half:], *again[len(again) // 2 :]]


def local(rows: list[dict[str, Any]]) -> list[Any]:
    """Run the job in this process."""
    return mp.local.run(Once(), repeated(rows), key="line")


def spark(lines: Any, key_by: Any) -> Any:
    """Build the job over a DataFrame; TTL uses the time of the micro-batches."""
    return key_by(lines, "line").process(Once(), output=OUTPUT, uid="once")


def expected(rows: list[dict[str, Any]]) -> list[Any]:
    """Return each line once."""
    return [(row["line"], row["customer"], row["cents"]) for row in rows]


def draw(axis: Any, result: list[Any]) -> None:
    """Draw the number of rows in and out."""
    passed = len(result)
    axis.bar(["came", "passed"], [passed + -(-passed // 5), passed], color=["grey", "tab:green"])
    axis.set(ylabel="order lines", title="every fifth line came twice, none passed twice")
