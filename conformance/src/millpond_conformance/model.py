"""The model of the stateful machine: plain dictionaries with the contents that a backend must have.

The model shares no code with the core or a plugin.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import attrs
import millpond as mp

from millpond_conformance.comparing import by_key

KEYS = ("", "a", "b", "ab", "\0", "ключ")
SPACES = ("n", "m")
TTL_MS = 50
GROUPS = 8

Observations = dict[str, dict[tuple[str, str], Any]]
"""The visible contents of all states, by the name of the state, and then by key and namespace."""


@attrs.define
class Model:
    """The expected contents of a backend: for each state, the contents by key and namespace.

    Attributes:
        values: numbers.
        lists: lists of numbers.
        maps: the entries of maps.
        sums: sums of the added numbers.
        stamped: numbers that expire, each with the time at which it was written.
    """

    values: dict[Any, int] = attrs.field(factory=dict)
    lists: dict[Any, list[int]] = attrs.field(factory=dict)
    maps: dict[Any, dict[str, int]] = attrs.field(factory=dict)
    sums: dict[Any, int] = attrs.field(factory=dict)
    stamped: dict[Any, tuple[int, int]] = attrs.field(factory=dict)

    def expire(self, now: int) -> None:
        """Remove the values that have expired at `now`, as reads of a backend do."""
        self.stamped = {at: each for at, each in self.stamped.items() if each[1] + TTL_MS > now}

    def observations(self) -> Observations:
        """Return the contents that reads of a backend must show."""
        return {
            "values": dict(self.values),
            "lists": dict(self.lists),
            "maps": {at: entries for at, entries in self.maps.items() if entries},
            "sums": dict(self.sums),
            "stamped": {at: value for at, (value, _) in self.stamped.items()},
        }


def in_order(seen: Observations) -> Observations:
    """Return observations with keys, namespaces and entries in a fixed order."""
    ordered = {name: by_key(held) for name, held in seen.items()}
    ordered["maps"] = {at: by_key(entries) for at, entries in ordered["maps"].items()}
    return ordered


def descriptors() -> dict[str, Any]:
    """Return the descriptors of the states by name."""
    ttl = mp.StateTtlConfig(timedelta(milliseconds=TTL_MS))
    return {
        "values": mp.ValueStateDescriptor("values", int),
        "lists": mp.ListStateDescriptor("lists", int),
        "maps": mp.MapStateDescriptor("maps", str, int),
        "sums": mp.ReducingStateDescriptor("sums", int.__add__, int),
        "stamped": mp.ValueStateDescriptor("stamped", int).enable_time_to_live(ttl),
    }


def observations(backend: Any) -> Observations:
    """Return the contents that reads of a backend show, for each key and namespace."""
    seen: Observations = {name: {} for name in descriptors()}
    for key in KEYS:
        backend.set_current_key(key)
        for space in SPACES:
            for name, descriptor in descriptors().items():
                state = backend.get_partitioned_state(descriptor, space)
                found = state.value() if name in ("values", "stamped") else None
                if name in ("lists", "sums"):
                    found = state.get() or None if name == "lists" else state.get()
                elif name == "maps":
                    found = dict(state.items()) or None
                if found is not None:
                    seen[name][key, space] = found
    return seen
