"""The demo's keyed function: a summary of each customer, in five kinds of state."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import millpond as mp

__all__ = ["OUTPUT", "CustomerSummary"]

OUTPUT = (
    "customer string, lines bigint, spent_cents bigint, basket map<string,bigint>, "
    "last_orders array<string>, max_price bigint, mean_price double"
)


class MeanPrice(mp.AggregateFunction[int, tuple[int, int], float]):
    """The mean of prices, from their sum and count."""

    def create_accumulator(self) -> tuple[int, int]:
        """Return an empty sum."""
        return (0, 0)

    def add(self, value: int, accumulator: tuple[int, int]) -> tuple[int, int]:
        """Add one price."""
        return (accumulator[0] + value, accumulator[1] + 1)

    def get_result(self, accumulator: tuple[int, int]) -> float:
        """Return the mean."""
        return accumulator[0] / accumulator[1]

    def merge(self, a: tuple[int, int], b: tuple[int, int]) -> tuple[int, int]:
        """Add two sums."""
        return (a[0] + b[0], a[1] + b[1])


class CustomerSummary(mp.KeyedProcessFunction):
    """Keep totals, basket, last orders, highest and mean price of each customer."""

    def open(self, context: mp.RuntimeContext) -> None:
        """Get the states."""
        self.lines = context.get_state(mp.ValueStateDescriptor("lines", int, default=0))
        self.spent = context.get_state(mp.ValueStateDescriptor("spent", int, default=0))
        self.basket = context.get_map_state(mp.MapStateDescriptor("basket", str, int))
        self.last = context.get_list_state(mp.ListStateDescriptor("last-orders", str))
        self.highest = context.get_reducing_state(mp.ReducingStateDescriptor("highest", max, int))
        self.mean = context.get_aggregating_state(
            mp.AggregatingStateDescriptor("mean", MeanPrice, tuple[int, int])
        )

    def process_element(self, row: Any, context: mp.Context) -> Iterable[Any]:
        """Add an order line and yield the customer's summary."""
        self.lines.update(self.lines.value() + 1)
        self.spent.update(self.spent.value() + row.quantity * row.price_cents)
        self._fill_basket(row)
        self._remember(row.order_no)
        self.highest.add(row.price_cents)
        self.mean.add(row.price_cents)
        yield (
            context.current_key,
            self.lines.value(),
            self.spent.value(),
            dict(self.basket.items()),
            self.last.get(),
            self.highest.get(),
            self.mean.get(),
        )

    def _fill_basket(self, row: Any) -> None:
        count = self.basket.get(row.item, 0) + row.quantity
        if count:
            self.basket[row.item] = count
        else:
            self.basket.remove(row.item)

    def _remember(self, order_no: str) -> None:
        orders = self.last.get()
        if order_no not in orders:
            self.last.update([*orders, order_no][-3:])
