"""A job in this process, without Spark: for trying a function out and for small data."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable
from itertools import chain, islice
from typing import Any

from typing_extensions import TypeVar

from millpond.arguments import INT64, check_type, check_within, checked
from millpond.clock import Clock
from millpond.config import Config
from millpond.runtime.broadcast import KeyedBroadcastProcessFunction
from millpond.runtime.functions import (
    KeyedProcessFunction,
    SubtaskInfo,
)
from millpond.runtime.keyed_operator import KeyedOperator
from millpond.runtime.opening import open_keyed_backend, open_operator_backend
from millpond.runtime.rows import as_row, selector
from millpond.runtime.timer_service import MAX_TIMESTAMP
from millpond.types import DeclaredKeyType, infer_key_type

__all__ = ["run"]

OUT = TypeVar("OUT", default=Any)


@checked
def run(
    function: KeyedProcessFunction[Any, Any, OUT],
    rows: Iterable[Any],
    *,
    key: str | Callable[[Any], Any],
    backend: str = "heap",
    key_type: DeclaredKeyType[Any] | None = None,
    config: Config | None = None,
    clock: Clock | None = None,
    event_time: str | Callable[[Any], Any] | None = None,
    watermark_delay: int | None = None,
    broadcast: Iterable[Any] = (),
    broadcast_event_time: str | Callable[[Any], Any] | None = None,
) -> list[OUT]:
    """Run a keyed function over rows and return what it yielded.

    Processing-time timers fire before the next row, and after the last one, where the clock has
    passed their time by then; event-time timers when the watermark reaches theirs, and at the end
    of the rows, when no further one can come.

    Args:
        function: the function.
        rows: named tuples, objects with attributes, or mappings.
        key: a field's name, or a function of the row.
        backend: an installed backend's name.
        key_type: the type of the keys; taken from the first row's key where it is None.
        config: further configuration.
        clock: the source of processing time.
        event_time: a field with the row's event time in ms, or a function of the row.
        watermark_delay: by how many ms rows may be out of order: after each row the watermark is
            the highest event time so far less this delay less 1, as Flink has it. By default
            there is no watermark until the end.
        broadcast: the rows for a ``KeyedBroadcastProcessFunction``; they come first.
        broadcast_event_time: the same as ``event_time`` for them; they move no watermark.
    """
    if watermark_delay is not None:
        check_within("watermark_delay", watermark_delay, 0, INT64[1])
    select = selector(key, "key")
    event_time_of = _times(event_time, "event_time")
    sent_at = _times(broadcast_event_time, "broadcast_event_time")
    kind, rows = _key_type(key_type, select, rows)
    output: list[OUT] = []
    with (
        tempfile.TemporaryDirectory(prefix="millpond-") as directory,
        open_keyed_backend(
            backend, key_type=kind, directory=directory, config=config, clock=clock
        ) as opened,
        open_operator_backend(config=config) as operator_state,
    ):
        operator = KeyedOperator(function, opened, SubtaskInfo("local"), operator_state)
        operator.open()
        try:
            for row in map(as_row, broadcast):
                check_type("function", function, KeyedBroadcastProcessFunction)
                operator.process_broadcast(row, sent_at(row), output)
            keyed = ((select(row), row, event_time_of(row)) for row in map(as_row, rows))
            _process(operator, keyed, watermark_delay, output)
        finally:
            operator.close()
    return output


def _times(field: str | Callable[[Any], Any] | None, argument: str) -> Callable[[Any], Any]:
    """What gives a row's event time; None for each where no field was named."""
    return (lambda _: None) if field is None else selector(field, argument)


def _key_type(
    declared: DeclaredKeyType[Any] | None, select: Callable[[Any], Any], rows: Iterable[Any]
) -> tuple[DeclaredKeyType[Any], Iterable[Any]]:
    """The type of the keys, from the first row if it is not declared; and all rows."""
    if declared is not None:
        return declared, rows
    iterator = iter(rows)
    first = list(islice(iterator, 1))
    # Without a row there is no key, whatever its type.
    found = infer_key_type(select(as_row(first[0]))) if first else str
    return found, chain(first, iterator)


def _process(
    operator: KeyedOperator,
    rows: Iterable[tuple[Any, Any, Any]],
    watermark_delay: int | None,
    output: list[Any],
) -> None:
    """Process rows, given with key and event time, and fire the timers as time goes on."""
    for key, row, timestamp in rows:
        operator.fire_processing_time(output)
        check_type("event_time", timestamp, int | None)
        operator.process(key, row, timestamp, output)
        if watermark_delay is not None and timestamp is not None:
            operator.advance_watermark(timestamp - watermark_delay - 1, output)
    operator.fire_processing_time(output)
    operator.advance_watermark(MAX_TIMESTAMP, output)
