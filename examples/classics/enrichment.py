"""Enrichment: add the country's manager to each order line; both streams are keyed by country."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import millpond as mp

TITLE = "Enrichment by a second stream"
OUTPUT = "line string, country string, manager string, cents bigint"
SECOND = [
    {"country": "FR", "manager": "Ada"},
    {"country": "DE", "manager": "Emil"},
    {"country": "UK", "manager": "Mary"},
]
SECOND_FOLDER = ""  # of JSON files with these rows; run.py sets it
SECOND_SCHEMA = "country string, manager string"


class Enriched(mp.KeyedCoProcessFunction):
    """A function that joins each line with its country's manager; early lines wait."""

    def open(self, context: mp.RuntimeContext) -> None:
        """Get the manager and the waiting lines."""
        self.manager = context.get_state(mp.ValueStateDescriptor("manager", str))
        waiting = mp.ListStateDescriptor("waiting", tuple[str, int])
        self.waiting = context.get_list_state(waiting)

    def process_element1(self, row: Any, context: mp.Context) -> Iterable[Any]:
        """Yield the line with its manager, or let it wait."""
        manager = self.manager.value()
        if manager is None:
            self.waiting.add((row.line, row.cents))
        else:
            yield row.line, context.current_key, manager, row.cents

    def process_element2(self, row: Any, context: mp.Context) -> Iterable[Any]:
        """Store the manager and yield the waiting lines."""
        self.manager.update(row.manager)
        for line, cents in self.waiting.get():
            yield line, context.current_key, row.manager, cents
        self.waiting.clear()


def local(rows: list[dict[str, Any]]) -> list[Any]:
    """Run the job in this process."""
    return mp.local.run(Enriched(), rows, key="country", second=SECOND)


def managers(lines: Any) -> Any:
    """Return the second stream."""
    return lines.sparkSession.readStream.schema(SECOND_SCHEMA).json(SECOND_FOLDER)


def spark(lines: Any, key_by: Any) -> Any:
    """Build the job; the managers are the second stream."""
    connected = key_by(lines, "country").connect(key_by(managers(lines), "country"))
    return connected.process(Enriched(), output=OUTPUT, uid="enriched")


def expected(rows: list[dict[str, Any]]) -> list[Any]:
    """Return the result by a dictionary."""
    named = {row["country"]: row["manager"] for row in SECOND}
    return [
        (row["line"], row["country"], named[row["country"]], row["cents"])
        for row in rows
        if row["country"] in named
    ]


def by_spark(lines: Any) -> Any:
    """Return the result of Spark's own join of two streams."""
    return lines.join(managers(lines), "country").select("line", "country", "manager", "cents")


def draw(axis: Any, result: list[Any]) -> None:
    """Draw the sales of each manager's customers."""
    cents: dict[str, int] = {}
    for _, _, manager, paid in result:
        cents[manager] = cents.get(manager, 0) + paid
    axis.bar(list(cents), [paid / 100 for paid in cents.values()])
    axis.set(ylabel="revenue", title="revenue by manager")
