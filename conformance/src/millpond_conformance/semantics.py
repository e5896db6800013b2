"""The visible behaviour of states with and without TTL: a model of every kind in dictionaries.

It shares no code with the core. A state's mode says whether reads renew stamps and whether they
return expired entries. Nothing is cleaned up in the background, so only reads remove.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import attrs
import millpond as mp
from typing_extensions import override

TTL_MS = 10
KINDS = ("value", "list", "map", "reducing", "aggregating", "folding")
_FOR_EVER = 1 << 62


@attrs.frozen
class Mode:
    """How entries of a state expire."""

    expires: bool = True
    renews: bool = False
    shows: bool = False
    swept: bool = False


MODES = (
    Mode(expires=False),
    Mode(),
    Mode(renews=True),
    Mode(shows=True),
    Mode(renews=True, shows=True),
)


class BlownError(Exception):
    """The error that the kit's functions raise half-way."""


class Fuse:
    """Makes the kit's functions raise an error after they have modified their arguments."""

    def __init__(self) -> None:
        self._left = 0

    def set(self, calls: int) -> None:
        """Set the number of calls until the error; 0 for never."""
        self._left = calls

    def burn(self) -> None:
        """Count a call, and raise the error if it is the chosen one."""
        if self._left:
            self._left -= 1
            if not self._left:
                raise BlownError


FUSE = Fuse()


Item = Callable[[int], Any]
"""Return the number's item, as an accumulator contains it."""


@attrs.frozen
class _Reduce:
    """A reduce function that changes both arguments; its result shows the order of calls."""

    item: Item

    def __call__(self, a: list[Any], b: list[Any]) -> list[Any]:
        a.append(self.item(-1))
        a.extend(b)
        b.clear()
        FUSE.burn()
        return a


class _Gather(mp.AggregateFunction[int, list[Any], list[Any]]):
    def __init__(self, item: Item) -> None:
        self._item = item

    @override
    def create_accumulator(self) -> list[Any]:
        return []

    @override
    def add(self, value: int, accumulator: list[Any]) -> list[Any]:
        accumulator.append(self._item(value))
        FUSE.burn()
        return accumulator

    @override
    def get_result(self, accumulator: list[Any]) -> list[Any]:
        accumulator.append(self._item(-3))
        return accumulator

    @override
    def merge(self, a: list[Any], b: list[Any]) -> list[Any]:
        merged = [*a, self._item(-2), *b]
        a.clear()
        b.clear()
        FUSE.burn()
        return merged


@attrs.frozen
class _Fold:
    """A fold function that puts the newest item first."""

    item: Item

    def __call__(self, accumulator: list[Any], value: int) -> list[Any]:
        accumulator.insert(0, self.item(value))
        FUSE.burn()
        return accumulator


def descriptor_of(
    kind: str,
    mode: Mode,
    name: str = "",
    element_type: Any = list[int],
    map_key_type: Any = str,
    item: Item = int,
) -> Any:
    """Return the descriptor of a kind and mode, with functions that modify their arguments.

    Args:
        kind: one of KINDS.
        mode: how entries expire.
        name: the state's name; by default the kind.
        element_type: of values, list elements and map values, and of accumulators.
        map_key_type: the type of a map's keys.
        item: makes the items of an accumulator, which is a list.
    """
    name = name or kind
    makers: dict[str, Callable[[], Any]] = {
        "value": lambda: mp.ValueStateDescriptor(name, element_type),
        "list": lambda: mp.ListStateDescriptor(name, element_type),
        "map": lambda: mp.MapStateDescriptor(name, map_key_type, element_type),
        "reducing": lambda: mp.ReducingStateDescriptor(name, _Reduce(item), element_type),
        "aggregating": lambda: mp.AggregatingStateDescriptor(name, _Gather(item), element_type),
        "folding": lambda: mp.FoldingStateDescriptor(name, [item(0)], _Fold(item), element_type),
    }
    made = makers[kind]()
    if mode.expires:
        renewal = (mp.UpdateType.ON_CREATE_AND_WRITE, mp.UpdateType.ON_READ_AND_WRITE)
        visible = mp.StateVisibility.RETURN_EXPIRED_IF_NOT_CLEANED_UP
        hidden = mp.StateVisibility.NEVER_RETURN_EXPIRED
        made.enable_time_to_live(
            mp.StateTtlConfig(
                timedelta(milliseconds=TTL_MS),
                renewal[mode.renews],
                visible if mode.shows else hidden,
                mp.CleanupStrategies(in_background=mode.swept),
            )
        )
    return made


def _alone(number: int) -> Any:
    return [number]


@attrs.define
class StateModel:
    """The content of one state, by key and namespace.

    A value or an accumulator is a pair of content and stamp, a list is a list of them, a map
    a dictionary of them. ``element`` makes the content for a number, ``item`` an item of an
    accumulator.
    """

    kind: str
    mode: Mode
    held: dict[Any, Any] = attrs.field(factory=dict)
    element: Callable[[int], Any] = _alone
    item: Item = int

    def expired(self, stamped: Any, now: int) -> bool:
        """Return whether a content with its stamp has expired."""
        return self.mode.expires and bool(stamped[1] + TTL_MS <= now)

    def _visible(self, stamped: Any, now: int) -> bool:
        return self.mode.shows or not self.expired(stamped, now)

    def _read(self, entries: dict[Any, Any], at: Any, now: int) -> Any:
        """Return a stamped entry of a dictionary, or None; a read may renew or remove it."""
        stamped = entries.get(at)
        if stamped is None:
            return None
        if self.expired(stamped, now):
            del entries[at]
            return stamped[0] if self.mode.shows else None
        if self.mode.renews:
            entries[at] = (stamped[0], now)
        return stamped[0]

    def read(self, at: Any, now: int) -> Any:
        """Return the result of ``value`` or ``get``."""
        if self.kind == "list":
            return self._read_list(at, now)
        found = self._read(self.held, at, now)
        return (
            [*found, self.item(-3)] if found is not None and self.kind == "aggregating" else found
        )

    def _read_list(self, at: Any, now: int) -> list[Any]:
        stored = self.held.get(at, [])
        live = [each for each in stored if not self.expired(each, now)]
        if self.mode.renews:
            self._keep(at, [(value, now) for value, _ in live])
        else:
            self._keep(at, live)
        return [value for value, _ in (stored if self.mode.shows else live)]

    def _keep(self, at: Any, content: Any) -> None:
        if content:
            self.held[at] = content
        else:
            self.held.pop(at, None)

    def expire(self, now: int) -> None:
        """Drop expired entries, like a full snapshot."""
        for at, content in list(self.held.items()):
            if self.kind == "map":
                live = {e: each for e, each in content.items() if not self.expired(each, now)}
                self._keep(at, live)
            elif self.kind == "list":
                self._keep(at, [each for each in content if not self.expired(each, now)])
            elif self.expired(content, now):
                del self.held[at]

    def write(self, at: Any, number: int, now: int) -> None:
        """Update the value, add to a list or an accumulator."""
        before = self.held.get(at)
        if self.kind == "value":
            self.held[at] = (self.element(number), now)
        elif self.kind == "list":
            self.held[at] = [*(before or []), (self.element(number), now)]
        else:
            seen = before[0] if before is not None and self._visible(before, now) else None
            self.held[at] = (self._added(seen, number), now)

    def _added(self, seen: Any, number: int) -> list[Any]:
        new = self.item(number)
        if self.kind == "reducing":
            return [new] if seen is None else [*seen, self.item(-1), new]
        if self.kind == "aggregating":
            return [*(seen or []), new]
        return [new, *([self.item(0)] if seen is None else seen)]

    def merge(self, key: Any, target: Any, sources: list[Any], now: int) -> None:
        """Move the sources into the target."""
        places = list(dict.fromkeys([(key, target), *((key, source) for source in sources)]))
        found = [self.held[at] for at in places if at in self.held]
        if not any(at in self.held for at in places[1:]):
            return
        for at in places:
            self.held.pop(at, None)
        if self.kind == "list":
            self._keep(places[0], [each for elements in found for each in elements])
        elif len(found) == 1:
            self.held[places[0]] = found[0]
        else:
            self._merge_accumulators(places[0], found, now)

    def _merge_accumulators(self, at: Any, found: list[Any], now: int) -> None:
        seen = [content for content, stamp in found if self._visible((content, stamp), now)]
        if not seen:
            return
        between = self.item(-1 if self.kind == "reducing" else -2)
        merged = list(seen[0])
        for content in seen[1:]:
            merged += [between, *content]
        self.held[at] = (merged, now)

    # ---------------------------------------------------------------- maps

    def put(self, at: Any, entry: Any, number: int, now: int) -> None:
        """Set an entry of a map."""
        self.held.setdefault(at, {})[entry] = (self.element(number), now)

    def remove(self, at: Any, entry: Any) -> None:
        """Remove an entry of a map."""
        entries = self.held.get(at, {})
        entries.pop(entry, None)
        self._keep(at, entries)

    def get(self, at: Any, entry: Any, now: int) -> Any:
        """Read an entry of a map."""
        entries = self.held.get(at, {})
        found = self._read(entries, entry, now)
        self._keep(at, entries)
        return found

    def is_empty(self, at: Any, now: int) -> bool:
        """Return whether an iteration over a map would give nothing."""
        return not any(self._visible(each, now) for each in self.held.get(at, {}).values())

    def lives(self, at: Any, entry: Any, now: int) -> bool:
        """Return whether a map has an unexpired entry."""
        stamped = self.held.get(at, {}).get(entry)
        return stamped is not None and not self.expired(stamped, now)

    def visible(self, at: Any, entry: Any, now: int) -> bool:
        """Return whether a read of a map entry returns a value, expired or not."""
        stamped = self.held.get(at, {}).get(entry)
        return stamped is not None and self._visible(stamped, now)

    def rest(self, at: Any, entries: set[str], now: int) -> None:
        """Check that the entries missing in a finished iteration have expired."""
        for entry in entries:
            assert self.get(at, entry, now) is None, (at, entry)
