"""Steps on timers."""

from __future__ import annotations

import operator
from typing import Any

from millpond_conformance.comparing import assert_same
from millpond_conformance.wide.bench import Bench
from millpond_conformance.wide.world import TIMES

_DOMAINS = ("event", "event-2")
Timers = list[set[tuple[int, int, int]]]
"""The set timers of each domain: a timestamp and the numbers of a key and a namespace."""


class TimerSteps(Bench):
    """Steps on timers of two domains. The name of one domain is a prefix of the other's name."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.timers: Timers = [set() for _ in _DOMAINS]

    def queue(self, domain: int, backend: Any = None) -> Any:
        """Return the timer queue with the index `domain` of `backend`, by default this backend."""
        return (backend or self.backend).timer_queue(_DOMAINS[domain], self.world.space_type)

    def timer(self, domain: int, key: int, space: int, time: int) -> None:
        """Set a timer for a key, a namespace and a timestamp in `TIMES`."""
        self._set(domain, key, space, TIMES[time])

    def _set(self, domain: int, key: int, space: int, when: int) -> None:
        self.backend.set_current_key(self.world.keys[key])
        self.queue(domain).register(when, self.world.spaces[space])
        self.timers[domain].add((when, key, space))
        self.wrote()

    def ties(self, domain: int, key: int, time: int) -> None:
        """Set a timer with the same timestamp in every namespace of a key."""
        for space in range(len(self.world.spaces)):
            self.timer(domain, key, space, time)

    def untimer(self, domain: int, chosen: int) -> None:
        """Delete a set timer; sometimes try to delete one that may not be set."""
        held = sorted(self.timers[domain])
        when, key, space = held[chosen % len(held)] if held and chosen % 4 else (TIMES[0], 0, 0)
        self.backend.set_current_key(self.world.keys[key])
        self.queue(domain).delete(when, self.world.spaces[space])
        self.timers[domain].discard((when, key, space))
        self.wrote()

    def earliest(self, domain: int) -> None:
        """Compare the timestamp of the earliest timer with the model."""
        expected = min((when for when, _, _ in self.timers[domain]), default=None)
        assert_same(self.queue(domain).earliest(), expected, f"earliest of {_DOMAINS[domain]!r}")

    def fire(self, domain: int, limit: int, key: int, space: int, time: int) -> None:
        """Take all timers that are due, and set and delete timers between them.

        Args:
            domain: the domain.
            limit: the index in `TIMES` of the timestamp up to which timers are due.
            key: the key of the timer to set.
            space: the namespace of the timer to set.
            time: the index in `TIMES` of the timestamp of the timer to set.
        """
        queue, held, until = self.queue(domain), self.timers[domain], TIMES[limit]
        for count, timer in enumerate(queue.due(until)):
            self.coverage.note("timers due")
            self._check_taken(held, timer)
            if timer.timestamp > until:
                raise AssertionError(f"due up to {until}: got {timer!r}")
            earlier = [when for when, _, _ in held if when < timer.timestamp]
            if earlier:
                raise AssertionError(f"{timer!r} came before one at {min(earlier)}")
            if count == 0:
                self._set(domain, key, space, max(TIMES[time], timer.timestamp))
            elif count == 1 and held:
                self._delete_one(domain)
        left = sorted(when for when, _, _ in held if when <= until)
        assert_same(
            left, [], f"timers of {_DOMAINS[domain]!r} that were due up to {until} and never came"
        )
        self.wrote()

    def _delete_one(self, domain: int) -> None:
        when, key, space = min(self.timers[domain])
        self.backend.set_current_key(self.world.keys[key])
        self.queue(domain).delete(when, self.world.spaces[space])
        self.timers[domain].discard((when, key, space))
        self.coverage.note("timer deleted while others fire")

    def _check_taken(self, held: set[tuple[int, int, int]], timer: Any) -> None:
        keys = [repr(each) for each in self.world.keys]
        spaces = [repr(each) for each in self.world.spaces]
        if repr(timer.key) not in keys or repr(timer.namespace) not in spaces:
            raise AssertionError(f"a timer that was never set is due: {timer!r}")
        mine = (timer.timestamp, keys.index(repr(timer.key)), spaces.index(repr(timer.namespace)))
        if mine not in held:
            raise AssertionError(f"a timer that is not set is due: {timer!r}")
        held.discard(mine)

    def take_all(self, domain: int) -> None:
        """Take all timers of a domain, due or not, and compare them with the model."""
        held = self.timers[domain]
        times = []
        for timer in self.queue(domain).take_all():
            self._check_taken(held, timer)
            times.append(timer.timestamp)
        assert_same(times, sorted(times), "the order in which all timers come")
        assert_same(sorted(held, key=operator.itemgetter(0)), [], "timers that never came")
        self.wrote()

    def many_timers(self, domain: int, key: int, space: int, count: int) -> None:
        """Set more timers than a backend reads in one step, and take them."""
        start = 1 << 20
        for when in range(start, start + count):
            self._set(domain, key, space, when)
        if count % 2:
            self.backend.flush(None)
        self.coverage.note("more than 1,000 timers due")
        self.fire(domain, TIMES.index(1 << 40), key, space, 0)
