"""Enrichment: order lines with the country's manager, both streams keyed by country."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import millpond as mp
from data import Row

TITLE = "Enrichment by a second stream"
OUTPUT = "line string, country string, manager string, cents bigint"
SECOND = [
    {"country": "FR", "manager": "Ada"},
    {"country": "DE", "manager": "Emil"},
    {"country": "UK", "manager": "Mary"},
]
SECOND_SCHEMA = "country string, manager string"


class Enriched(mp.KeyedCoProcessFunction):
    """Joins each line with the manager of its country; lines that come too early wait."""

    def open(self, context: mp.RuntimeContext) -> None:
        """Get the manager, and the lines that wait for one."""
        self.manager = context.get_state(mp.ValueStateDescriptor("manager", str))
        waiting = mp.ListStateDescriptor("waiting", tuple[str, int])
        self.waiting = context.get_list_state(waiting)

    def process_element1(self, row: Any, context: mp.Context) -> Iterable[Any]:
        """A line: give it, or have it wait."""
        manager = self.manager.value()
        if manager is None:
            self.waiting.add((row.line, row.cents))
        else:
            yield row.line, context.current_key, manager, row.cents

    def process_element2(self, row: Any, context: mp.Context) -> Iterable[Any]:
        """A manager: give the lines that have waited."""
        self.manager.update(row.manager)
        for line, cents in self.waiting.get():
            yield line, context.current_key, row.manager, cents
        self.waiting.clear()


def local(rows: list[Row]) -> list[Any]:
    """The job in this process."""
    return mp.local.run(Enriched(), rows, key="country", second=SECOND)


def managers(lines: Any) -> Any:
    """The second stream."""
    return lines.sparkSession.readStream.schema(SECOND_SCHEMA).json(SECOND_FOLDER)


def spark(lines: Any, key_by: Any) -> Any:
    """The same job; the managers are a stream of their own."""
    connected = key_by(lines, "country").connect(key_by(managers(lines), "country"))
    return connected.process(Enriched(), output=OUTPUT, uid="enriched")


SECOND_FOLDER = ""
"""Where the second stream reads; the runner sets it."""


def beside(lines: Any) -> Any:
    """The same by Spark's own join of two streams."""
    return lines.join(managers(lines), "country").select("line", "country", "manager", "cents")


def expected(rows: list[Row]) -> list[Any]:
    """The same by a dictionary."""
    named = {row["country"]: row["manager"] for row in SECOND}
    return [
        (row["line"], row["country"], named[row["country"]], row["cents"])
        for row in rows
        if row["country"] in named
    ]


def draw(axis: Any, result: list[Any]) -> None:
    """What each manager's customers have bought."""
    cents: dict[str, int] = {}
    for _, _, manager, paid in result:
        cents[manager] = cents.get(manager, 0) + paid
    axis.bar(list(cents), [paid / 100 for paid in cents.values()])
    axis.set(ylabel="revenue", title="revenue by manager")
