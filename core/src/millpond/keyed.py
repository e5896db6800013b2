# ruff: noqa: A004 - names of PyFlink
"""``millpond.keyed``: short forms of keyed functions, for ``mp.local.run`` and the harness.

On Spark they are methods of ``key_by(…)``.
"""

from millpond.functions.short_forms import (
    FilterFunction,
    FlatMapFunction,
    MapFunction,
    ReduceFunction,
    RichFilterFunction,
    RichFlatMapFunction,
    RichMapFunction,
    RichReduceFunction,
    filter,
    flat_map,
    map,
    max,
    max_by,
    min,
    min_by,
    reduce,
    sum,
)

__all__ = [
    "FilterFunction",
    "FlatMapFunction",
    "MapFunction",
    "ReduceFunction",
    "RichFilterFunction",
    "RichFlatMapFunction",
    "RichMapFunction",
    "RichReduceFunction",
    "filter",
    "flat_map",
    "map",
    "max",
    "max_by",
    "min",
    "min_by",
    "reduce",
    "sum",
]
