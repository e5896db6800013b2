"""Fraud rules by broadcast: report customers whose total exceeds their country's current limit."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import millpond as mp

TITLE = "Fraud rules by broadcast"
OUTPUT = "customer string, country string, line string, beyond bigint"
SECOND = [
    {"seq": 1, "country": "FR", "limit": 12_000},
    {"seq": 2, "country": "DE", "limit": 90_000},
    {"seq": 3, "country": "DE", "limit": 15_000},
    {"seq": 4, "country": "United Kingdom", "limit": 100_000},
]
SECOND_FOLDER = ""  # of JSON files with these rows; run.py sets it
SECOND_SCHEMA = "seq int, country string, limit bigint"
LIMITS = mp.MapStateDescriptor("limits", str, int)


class Limits(mp.KeyedBroadcastProcessFunction):
    """A function that yields each order line beyond the limit of its country."""

    def open(self, context: mp.RuntimeContext) -> None:
        """Get each customer's total."""
        self.spent = context.get_state(mp.ValueStateDescriptor("spent", int, default=0))

    def process_element(self, row: Any, context: mp.Context) -> Iterable[Any]:
        """Add the amount and compare the total with the current rule."""
        self.spent.update(self.spent.value() + row.cents)
        limit = context.get_broadcast_state(LIMITS).get(row.country)
        if limit is not None and self.spent.value() > limit:
            yield row.customer, row.country, row.line, self.spent.value() - limit

    def process_broadcast_element(self, row: Any, context: mp.BroadcastContext) -> None:
        """Store the changed rule."""
        context.get_broadcast_state(LIMITS).put(row.country, row.limit)


def local(rows: list[dict[str, Any]]) -> list[Any]:
    """Run the job in this process."""
    return mp.local.run(Limits(), rows, key="customer", broadcast=SECOND)


def spark(lines: Any, key_by: Any) -> Any:
    """Build the job. In each micro-batch, the rules are processed before the order lines."""
    rules = lines.sparkSession.readStream.schema(SECOND_SCHEMA).json(SECOND_FOLDER)
    connected = key_by(lines, "customer").connect(rules, order_by="seq")
    return connected.process(Limits(), output=OUTPUT, uid="limits", order_by="arrival")


def expected(rows: list[dict[str, Any]]) -> list[Any]:
    """Return the result by running totals."""
    limits = {rule["country"]: rule["limit"] for rule in SECOND}
    spent: dict[str, int] = {}
    found = []
    for row in rows:
        customer = row["customer"]
        spent[customer] = spent.get(customer, 0) + row["cents"]
        limit = limits.get(row["country"])
        if limit is not None and spent[customer] > limit:
            found.append((customer, row["country"], row["line"], spent[customer] - limit))
    return found


def draw(axis: Any, result: list[Any]) -> None:
    """Draw the amounts beyond the limits."""
    most: dict[str, int] = {}
    for customer, _, _, beyond in result:
        most[customer] = max(most.get(customer, 0), beyond)
    top = sorted(most.items(), key=lambda pair: -pair[1])[:15]
    axis.barh([name for name, _ in top][::-1], [beyond / 100 for _, beyond in top][::-1])
    axis.set(xlabel="beyond the limit", title="customers over the limit of their country")
