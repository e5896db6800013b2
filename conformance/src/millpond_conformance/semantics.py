"""A model of the visible behaviour of every kind of state, with and without TTL.

The model consists of dictionaries and shares no code with the core. It removes an expired entry
only when the entry is read.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import attrs
import millpond as mp
from typing_extensions import override

TTL_MS = 1000
"""The TTL of states in ms. It is so long that a timestamp that is wrong by 0.1 % is noticed."""
KINDS = ("value", "list", "map", "reducing", "aggregating", "folding")
_FOR_EVER = 1 << 62


@attrs.frozen
class Mode:
    """The TTL configuration of a state.

    Attributes:
        expires: whether the state has a TTL.
        renews: whether reads renew the timestamp of an entry.
        shows: whether reads return entries that have expired but are not removed yet.
        swept: whether expired entries are cleaned up in the background.
        by_event: whether entries expire by the watermark.
    """

    expires: bool = True
    renews: bool = False
    shows: bool = False
    swept: bool = False
    by_event: bool = False


MODES = (
    Mode(expires=False),
    Mode(),
    Mode(renews=True),
    Mode(shows=True),
    Mode(renews=True, shows=True),
)
EVENT_MODES = (
    Mode(by_event=True),
    Mode(renews=True, by_event=True),
    Mode(shows=True, by_event=True),
)


class Own(int):
    """The timestamp of a content with its own TTL, with which the state's TTL expires it in time.

    Reads do not renew it.
    """


class BlownError(Exception):
    """The error that the kit's user functions raise after they have modified their arguments."""


class Fuse:
    """A counter that lets one call of the kit's user functions raise BlownError."""

    def __init__(self) -> None:
        self._left = 0

    def set(self, calls: int) -> None:
        """Let the call number `calls` raise the error. The first call has number 1; 0 is none."""
        self._left = calls

    def burn(self) -> None:
        """Count a call; raise BlownError if it has the number that was given to `set`."""
        if self._left:
            self._left -= 1
            if not self._left:
                raise BlownError


FUSE = Fuse()


Item = Callable[[int], Any]
"""A function that returns, for a number, the item that an accumulator has for this number."""


@attrs.frozen
class _Reduce:
    """A reduce function that modifies both arguments. Its result shows the order of the calls."""

    item: Item

    def __call__(self, a: list[Any], b: list[Any]) -> list[Any]:
        a.append(self.item(-1))
        a.extend(b)
        b.clear()
        FUSE.burn()
        return a


def shown_result(accumulator: list[Any], item: Item) -> Any:
    """Return the expected result of an aggregating state for the items in `accumulator`."""
    result = [*accumulator, item(-3)]
    return repr(result) if item is int else result


class _Gather(mp.AggregateFunction[int, list[Any], Any]):
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
    def get_result(self, accumulator: list[Any]) -> Any:
        accumulator.append(self._item(-3))
        return shown_result(accumulator[:-1], self._item)

    @override
    def merge(self, a: list[Any], b: list[Any]) -> list[Any]:
        merged = [*a, self._item(-2), *b]
        a.clear()
        b.clear()
        FUSE.burn()
        return merged


@attrs.frozen
class _Fold:
    """A fold function that puts the newest item first, and modifies its accumulator."""

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
    """Return the descriptor of a state. Its functions, if any, modify their arguments.

    Args:
        kind: one of KINDS.
        mode: the TTL configuration.
        name: the name of the state; by default the kind.
        element_type: the type of values, list elements, map values or accumulators.
        map_key_type: the type of the keys of a map.
        item: returns the item for a number. An accumulator is a list of such items.
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
                mp.TtlTime.EVENT_TIME if mode.by_event else mp.TtlTime.PROCESSING_TIME,
            )
        )
    return made


def _alone(number: int) -> Any:
    return [number]


@attrs.define
class StateModel:
    """The model of one state.

    Attributes:
        kind: one of KINDS.
        mode: the TTL configuration.
        held: the contents by key and namespace. A value or an accumulator is a pair of the content
            and its timestamp. A list is a list of such pairs, and a map a dictionary of them.
        element: returns the content for a number.
        item: returns the item of an accumulator for a number.
    """

    kind: str
    mode: Mode
    held: dict[Any, Any] = attrs.field(factory=dict)
    element: Callable[[int], Any] = _alone
    item: Item = int

    def expired(self, stamped: Any, now: int) -> bool:
        """Return whether `stamped`, a content with its timestamp, has expired at `now`."""
        return self.mode.expires and bool(stamped[1] + TTL_MS <= now)

    def _visible(self, stamped: Any, now: int) -> bool:
        return self.mode.shows or not self.expired(stamped, now)

    def _read(self, entries: dict[Any, Any], at: Any, now: int) -> Any:
        """Read the entry `at` of `entries`, and return its content; None if it is missing.

        As in a backend, the read may renew the entry's timestamp, or remove the expired entry.
        """
        stamped = entries.get(at)
        if stamped is None:
            return None
        if self.expired(stamped, now):
            del entries[at]
            return stamped[0] if self.mode.shows else None
        if self.mode.renews:
            entries[at] = self._renewed(stamped, now)
        return stamped[0]

    def _renewed(self, stamped: Any, now: int) -> Any:
        return stamped if isinstance(stamped[1], Own) else (stamped[0], now)

    def read(self, at: Any, now: int) -> Any:
        """Return the expected result of ``value`` or ``get``, for any kind except maps."""
        if self.kind == "list":
            return self._read_list(at, now)
        found = self._read(self.held, at, now)
        shown = found is not None and self.kind == "aggregating"
        return shown_result(found, self.item) if shown else found

    def _read_list(self, at: Any, now: int) -> list[Any]:
        stored = self.held.get(at, [])
        live = [each for each in stored if not self.expired(each, now)]
        if self.mode.renews:
            self._keep(at, [self._renewed(each, now) for each in live])
        else:
            self._keep(at, live)
        return [value for value, _ in (stored if self.mode.shows else live)]

    def _keep(self, at: Any, content: Any) -> None:
        if content:
            self.held[at] = content
        else:
            self.held.pop(at, None)

    def expire(self, now: int) -> None:
        """Remove all entries that have expired at `now`. A full snapshot omits these entries."""
        for at, content in list(self.held.items()):
            if self.kind == "map":
                live = {e: each for e, each in content.items() if not self.expired(each, now)}
                self._keep(at, live)
            elif self.kind == "list":
                self._keep(at, [each for each in content if not self.expired(each, now)])
            elif self.expired(content, now):
                del self.held[at]

    def write(self, at: Any, number: int, now: int, ttl_ms: int | None = None) -> None:
        """Write `number` to the content at `at`, for any kind except maps.

        A value is replaced. In a list or an accumulator, the number is added. A value or a list
        element may have its own TTL.
        """
        before = self.held.get(at)
        if self.kind == "value":
            self.held[at] = (self.element(number), self._stamp(now, ttl_ms))
        elif self.kind == "list":
            added = (self.element(number), self._stamp(now, ttl_ms))
            self.held[at] = [*(before or []), added]
        else:
            seen = before[0] if before is not None and self._visible(before, now) else None
            self.held[at] = (self._added(seen, number), now)

    def _stamp(self, now: int, ttl_ms: int | None) -> int:
        return now if ttl_ms is None else Own(now + ttl_ms - TTL_MS)

    def _added(self, seen: Any, number: int) -> list[Any]:
        new = self.item(number)
        if self.kind == "reducing":
            return [new] if seen is None else [*seen, self.item(-1), new]
        if self.kind == "aggregating":
            return [*(seen or []), new]
        return [new, *([self.item(0)] if seen is None else seen)]

    def merge(self, key: Any, target: Any, sources: list[Any], now: int) -> None:
        """Merge the namespaces `sources` of a key into the namespace `target`."""
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

    def put(self, at: Any, entry: Any, number: int, now: int, ttl_ms: int | None = None) -> None:
        """Put an entry into a map. The entry may have its own TTL."""
        self.held.setdefault(at, {})[entry] = (self.element(number), self._stamp(now, ttl_ms))

    def remove(self, at: Any, entry: Any) -> None:
        """Remove an entry of a map."""
        entries = self.held.get(at, {})
        entries.pop(entry, None)
        self._keep(at, entries)

    def get(self, at: Any, entry: Any, now: int) -> Any:
        """Return the expected result of reading an entry of a map; None if it is missing."""
        entries = self.held.get(at, {})
        found = self._read(entries, entry, now)
        self._keep(at, entries)
        return found

    def is_empty(self, at: Any, now: int) -> bool:
        """Return whether an iteration over a map would return no entries."""
        return not any(self._visible(each, now) for each in self.held.get(at, {}).values())

    def lives(self, at: Any, entry: Any, now: int) -> bool:
        """Return whether a map has an entry `entry` that has not expired."""
        stamped = self.held.get(at, {}).get(entry)
        return stamped is not None and not self.expired(stamped, now)

    def visible(self, at: Any, entry: Any, now: int) -> bool:
        """Return whether a read of the map entry `entry` returns a value, even an expired one."""
        stamped = self.held.get(at, {}).get(entry)
        return stamped is not None and self._visible(stamped, now)

    def rest(self, at: Any, entries: set[str], now: int) -> None:
        """Assert that all of `entries` have expired. A finished iteration has not returned them."""
        for entry in entries:
            assert self.get(at, entry, now) is None, (at, entry)
