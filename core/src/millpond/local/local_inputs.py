"""The inputs of a run in this process: rows, keys, event times, and the order they come in."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Any

import attrs

from millpond.arguments import event_time_ms
from millpond.errors import ArgumentTypeError
from millpond.functions.functions import INPUTS
from millpond.functions.row_conversion import as_row, selector
from millpond.functions.timer_service import MIN_TIMESTAMP
from millpond.local.local_batches import each_row
from millpond.operator.arrow_results import rows_of_table, table_of
from millpond.operator.row_keys import KeyOfRow, key_reader
from millpond.types import DeclaredKeyType, SerializerSnapshot, infer_key_type
from millpond.types.key_columns import codec_without_class

Keyed = tuple[Any, Any, int | None, str]
"""A row with its key, its event time in ms, and the method that takes it."""


@attrs.frozen
class Input:
    """An input.

    Attributes:
        rows: its rows, or batches of them.
        key: what gives the key of a row.
        event_time: what gives its event time.
        method: the function's method that takes them.
        is_timed: whether they have event times.
    """

    rows: Iterable[Any]
    key: Callable[[Any], Any]
    event_time: Callable[[Any], int | None]
    method: str
    is_timed: bool

    def keyed(self, highest: dict[str, int]) -> Iterator[Keyed]:
        """The rows; at their end the input no longer holds the watermark back."""
        for row in map(as_row, self.rows):
            yield self.key(row), row, self.event_time(row), self.method
        highest.pop(self.method, None)


def second_input(
    rows: Any,
    key: KeyOfRow | None,
    event_time: str | Callable[[Any], Any] | None,
    first: Input,
) -> Input:
    """The second input of a function that has two; its keys as the first's where none are named."""
    return Input(
        () if rows is None else each_row(rows, "second"),
        first.key if key is None else key_reader(key, "second_key"),
        times(event_time, "second_event_time"),
        INPUTS[1],
        event_time is not None,
    )


def times(field: str | Callable[[Any], Any] | None, argument: str) -> Callable[[Any], int | None]:
    """What gives a row's event time in ms; None for each where no field was named."""
    if field is None:
        return lambda _: None
    read = selector(field, argument)
    return lambda row: event_time_ms(argument, read(row))


def merged(inputs: Sequence[Input], highest: dict[str, int]) -> Iterator[Keyed]:
    """The rows of all inputs, by event time if they have one; each input in its own order."""
    keyed = [each.keyed(highest) for each in inputs]
    if not all(each.is_timed for each in inputs):
        return chain.from_iterable(keyed)
    return heapq.merge(*keyed, key=lambda row: MIN_TIMESTAMP if row[2] is None else row[2])


def inferred_key_type(
    inputs: Sequence[Input], stored: SerializerSnapshot | None
) -> tuple[DeclaredKeyType[Any], list[Input]]:
    """The type of the keys, and the inputs, whose first row may have been looked at.

    It is that of the first row's key, in the first input that has a row; else of the stored keys.

    Raises:
        ArgumentTypeError: there is no row, and the stored keys are of a class.
    """
    found = list(inputs)
    for at, each in enumerate(found):
        rows = iter(each.rows)
        first = list(islice(rows, 1))
        found[at] = attrs.evolve(each, rows=chain(first, rows))
        if first:
            return infer_key_type(each.key(_first_row(first[0]))), found
    if stored is None:
        return str, found  # there is no key, whatever its type
    codec = codec_without_class(stored)
    if codec is None:
        expected = f"the type of the stored keys ({stored}), as no row tells it"
        raise ArgumentTypeError("key_type", expected, "None")
    return codec, found


def _first_row(given: Any) -> Any:
    """A row as functions see it, out of a row or a batch of rows."""
    table = table_of(given)
    if table is None:
        return as_row(given)
    if not table.num_rows:  # batches that this module makes have rows
        raise ArgumentTypeError("rows", "rows, or one table of them", "an empty table among rows")
    return next(iter(rows_of_table(table.slice(0, 1))))
