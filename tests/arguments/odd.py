"""Odd values for arguments: wrong types, huge, negative, empty, and nested values."""

import copy
import math
from datetime import timedelta
from pathlib import Path

import millpond as mp

__all__ = ["ODD", "anything", "random_value"]


class Count(int):
    """A subclass of int."""


class Name(str):
    """A subclass of str."""

    __slots__ = ()


def anything(*_, **__):
    """Accept any arguments, and return an odd value."""
    return object()


def deep():
    """Return a list that is nested deeper than Python can recurse."""
    nested = []
    for _ in range(100_000):
        nested = [nested]
    return nested


SCALARS = {
    "None": None,
    "empty str": "",
    "empty bytes": b"",
    "zero": 0,
    "minus one": -1,
    "2**31": 1 << 31,
    "2**63": 1 << 63,
    "10**30": 10**30,
    "5,001 digits": 10**5000,
    "half": 0.5,
    "nan": math.nan,
    "inf": math.inf,
    "long": "x" * 10**5,
    "object": object(),
    "surrogate": "\ud800",
    "zero byte": "a\0b",
    "Path": Path("odd/place"),
    "bool": True,
    "int subclass": Count(3),
    "str subclass": Name("k"),
    "type": int,
    "function": anything,
    "bytes": b"\xff",
    "duration": timedelta.max,
    "descriptor": mp.FoldingStateDescriptor("odd", 0, anything, int),
    "config": mp.Config(),
}
INSIDE = ("None", "10**30", "object", "surrogate")
CONTAINERS = {
    "list": [],
    "dict": {},
    "nested": [[[None]]],
    "deep": deep(),
    **{f"list of {name}": [SCALARS[name]] for name in INSIDE},
    **{f"dict of {name}": {"a": SCALARS[name]} for name in INSIDE},
    **{f"dict by {name}": {SCALARS[name]: 1} for name in INSIDE},
    "mixed list": [1, "a", None, object()],
    "list of pairs": [(1, object())],
    "dict of dicts": {"state": {"backend": [object()]}},
    "set": {object()},
}
ODD = {**SCALARS, **CONTAINERS}


def random_value(rng, more=(), depth=0):
    """Return an odd value, or a container of several; ``more`` are further values."""
    kind = rng.randrange(8)
    if kind < 5 or depth > 2:
        pool = more if more and kind % 2 else [*ODD.values()]
        value = rng.choice(pool)
        return value if value is CONTAINERS["deep"] else copy.deepcopy(value)
    parts = [random_value(rng, more, depth + 1) for _ in range(rng.randrange(4))]
    if kind == 5:
        return parts
    if kind == 6:
        return tuple(parts)
    return {repr(type(part)) if rng.random() < 0.7 else number: part
            for number, part in enumerate(parts)}  # fmt: skip
