"""Deduplication with TTL: each order line once, though a source sends some of them again."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

import millpond as mp
from data import Row

TITLE = "Deduplication with TTL"
OUTPUT = "line string, customer string, cents bigint"
TTL = mp.StateTtlConfig(timedelta(days=1))


class Once(mp.KeyedProcessFunction):
    """Lets the first row of each key pass; a day later the key is forgotten."""

    def open(self, context: mp.RuntimeContext) -> None:
        """Remember for a day."""
        descriptor = mp.ValueStateDescriptor("seen", bool).enable_time_to_live(TTL)
        self.seen = context.get_state(descriptor)

    def process_element(self, row: Any, context: mp.Context) -> Iterable[Any]:
        """Pass, or drop."""
        if self.seen.value() is None:
            self.seen.update(True)
            yield row.line, row.customer, row.cents


def repeated(rows: list[Row]) -> list[Row]:
    """Every fifth row comes a second time, some rows later."""
    again = [row for number, row in enumerate(rows) if number % 5 == 0]
    half = len(rows) // 2
    return [*rows[:half], *again[: len(again) // 2], *rows[half:], *again[len(again) // 2 :]]


def local(rows: list[Row]) -> list[Any]:
    """The job in this process."""
    return mp.local.run(Once(), repeated(rows), key="line")


def spark(lines: Any, key_by: Any) -> Any:
    """The same job over a DataFrame; TTL goes by the micro-batches' own time."""
    return key_by(lines, "line").process(Once(), output=OUTPUT, uid="once")


def expected(rows: list[Row]) -> list[Any]:
    """Each line once."""
    return [(row["line"], row["customer"], row["cents"]) for row in rows]


def draw(axis: Any, result: list[Any]) -> None:
    """What came and what passed."""
    passed = len(result)
    axis.bar(["came", "passed"], [passed + -(-passed // 5), passed], color=["grey", "tab:green"])
    axis.set(ylabel="order lines", title="every fifth line came twice, none passed twice")
