"""Random programs on a sorted map state, compared with dictionaries sorted at each read."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import timedelta

import attrs
import millpond as mp
from millpond.backend import KeyedStateBackend

KEYS, SPACES, MAP_KEYS = ("a", "b"), ("", "n"), range(24)
BOUNDS = (None, *MAP_KEYS, -5, 99)
Place = tuple[str, str]


@attrs.frozen
class Span:
    """A range of keys, and the direction of an iteration over it."""

    start: int | None
    stop: int | None
    reverse: bool = False

    def __contains__(self, key: int) -> bool:
        begun = self.start is None or key >= self.start
        return begun and (self.stop is None or key < self.stop)


@attrs.define
class _Iteration:
    """An open iteration over the map of a key and namespace, with the last returned map key."""

    place: Place
    span: Span
    entries: Iterator[tuple[int, int]]
    passed: int | None = None


class SortedModel:
    """The expected content of a sorted map state. With a TTL, entries expire.

    Attributes:
        place: the current key and namespace.
        now: the time in ms.
    """

    def __init__(self, ttl_ms: int | None) -> None:
        self._maps: dict[Place, dict[int, tuple[int, int]]] = {}
        self._ttl_ms = ttl_ms
        self.place = ("", "")
        self.now = 0

    def live(self, place: Place | None = None, span: Span = Span(None, None)) -> dict[int, int]:
        """Return the entries in the range `span` that have not expired.

        The default for `place` is the current key and namespace.
        """
        entries = self._maps.setdefault(place or self.place, {})
        if self._ttl_ms is not None:
            for key, (_, written) in list(entries.items()):
                if written + self._ttl_ms <= self.now:
                    del entries[key]
        return {key: value for key, (value, _) in entries.items() if key in span}

    def put(self, key: int, value: int) -> None:
        """Set an entry in the map of the current key and namespace."""
        self._maps.setdefault(self.place, {})[key] = (value, self.now)

    def remove(self, key: int) -> None:
        """Remove an entry, if it exists, from the map of the current key and namespace."""
        self._maps.get(self.place, {}).pop(key, None)

    def in_order(self, span: Span, place: Place | None = None) -> list[tuple[int, int]]:
        """Return the entries in the range `span`, sorted in its direction."""
        return sorted(self.live(place, span).items(), reverse=span.reverse)

    def following(self, iteration: _Iteration) -> tuple[int, int] | None:
        """Return the entry that `iteration` must return next; None if it must end."""
        for entry in self.in_order(iteration.span, iteration.place):
            passed = iteration.passed
            if passed is None or (
                entry[0] < passed if iteration.span.reverse else entry[0] > passed
            ):
                return entry
        return None


class SortedProgram:
    """A program of random steps on a sorted map state and its model.

    Args:
        backend: the backend.
        seed: the seed of all random choices.
        clock: the backend's clock, to advance; None if entries do not expire.
        ttl_ms: the time to live of entries.
        keys: the keys to use.
    """

    def __init__(
        self,
        backend: KeyedStateBackend,
        seed: int,
        clock: mp.ManualClock | None = None,
        ttl_ms: int | None = None,
        keys: tuple[str, ...] = KEYS,
    ) -> None:
        self._random = random.Random(seed)  # noqa: S311 - a program, no secret
        self._clock, self._keys = clock, keys
        self._model = SortedModel(ttl_ms)
        self._descriptor = mp.SortedMapStateDescriptor("sorted", int, int)
        if ttl_ms is not None:
            ttl = mp.StateTtlConfig(timedelta(milliseconds=ttl_ms))
            self._descriptor.enable_time_to_live(ttl)
        if clock is not None:
            self._model.now = clock.now_ms
        self.adopt(backend)

    def adopt(self, backend: KeyedStateBackend) -> None:
        """Continue on `backend`, which has equal content, and forget all open iterations."""
        self._backend = backend
        self._state = backend.get_partitioned_state(self._descriptor, "")
        self._iterations: list[_Iteration] = []
        self._choose()

    def run(self, steps: int) -> None:
        """Run `steps` random steps, and compare each result with the model."""
        choices = [
            self._change_some,
            self._choose,
            self._read,
            self._read_all,
            self._read_range,
            self._read_ends,
            self._pop,
            self._remove_last,
            self._remove_range,
            self._clear,
            self._begin,
            self._go_on,
            self._wait,
            self._backend.flush,
        ]
        for _ in range(steps):
            self._random.choice(choices)()

    def check(self) -> None:
        """Compare the content of all keys and namespaces with the model, in both directions."""
        for place in ((key, space) for key in self._keys for space in SPACES):
            self._select(place)
            expected = self._model.in_order(Span(None, None))
            assert list(self._state.items()) == expected
            assert list(self._state.range(reverse=True)) == expected[::-1]

    # ---------------------------------------------------------------- steps

    def _select(self, place: Place) -> None:
        self._model.place = place
        self._backend.set_current_key(place[0])
        self._state.set_current_namespace(place[1])

    def _choose(self) -> None:
        self._select((self._random.choice(self._keys), self._random.choice(SPACES)))

    def _span(self) -> Span:
        reverse = self._random.random() < 0.5  # noqa: PLR2004 - one in two
        return Span(self._random.choice(BOUNDS), self._random.choice(BOUNDS), reverse)

    def _change(self) -> None:
        key, value = self._random.choice(MAP_KEYS), self._random.randrange(1000)
        if value % 5 > 1:
            self._state.put(key, value)
            self._model.put(key, value)
        else:
            self._state.remove(key)
            self._model.remove(key)

    def _change_some(self) -> None:
        for _ in range(self._random.randrange(6)):
            self._change()

    def _clear(self) -> None:
        if self._random.random() < 0.2:  # noqa: PLR2004 - now and then
            self._state.clear()
            for key in self._model.live():
                self._model.remove(key)

    def _remove_range(self) -> None:
        span = self._span()
        self._state.remove_range(span.start, span.stop)
        for key in self._model.live(span=span):
            self._model.remove(key)

    def _pop(self) -> None:
        for _ in range(self._random.randrange(4)):
            expected = min(self._model.live().items(), default=None)
            assert self._state.pop_first() == expected
            if expected is not None:
                self._model.remove(expected[0])

    def _remove_last(self) -> None:
        last = self._state.last()
        assert last == max(self._model.live().items(), default=None)
        if last is not None:
            self._state.remove(last[0])
            self._model.remove(last[0])

    def _read(self) -> None:
        key, live = self._random.choice(MAP_KEYS), self._model.live()
        assert self._state.get(key) == live.get(key)
        assert self._state.contains(key) == (key in live)

    def _read_all(self) -> None:
        expected = self._model.in_order(Span(None, None))
        assert list(self._state.items()) == expected
        assert list(self._state.keys()) == list(self._state) == [key for key, _ in expected]
        assert list(self._state.values()) == [value for _, value in expected]
        assert len(self._state) == len(expected)
        assert self._state.is_empty() == (not expected)

    def _read_range(self) -> None:
        span, limit = self._span(), self._random.choice([None, 0, 1, 3])
        found = self._state.range(span.start, span.stop, reverse=span.reverse, limit=limit)
        assert list(found) == self._model.in_order(span)[:limit]

    def _read_ends(self) -> None:
        entries = self._model.live().items()
        assert self._state.first() == min(entries, default=None)
        assert self._state.last() == max(entries, default=None)

    def _begin(self) -> None:
        span = self._span()
        entries = self._state.range(span.start, span.stop, reverse=span.reverse)
        self._iterations.append(_Iteration(self._model.place, span, entries))

    def _go_on(self) -> None:
        """Continue open iterations, and change entries between their steps."""
        for _ in range(self._random.randrange(5)):
            if not self._iterations:
                return
            iteration = self._random.choice(self._iterations)
            expected = self._model.following(iteration)
            assert next(iteration.entries, None) == expected
            if expected is None:
                self._iterations.remove(iteration)
            else:
                iteration.passed = expected[0]
            if self._random.random() < 0.5:  # noqa: PLR2004 - one in two
                self._change()

    def _wait(self) -> None:
        if self._clock is not None:
            self._model.now += self._random.randrange(30)
            self._clock.set(self._model.now)
