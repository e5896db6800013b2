"""Steps on values, lists and accumulators, and steps on states of any kind."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

from millpond.errors import StateTypeError

from millpond_conformance.comparing import assert_same, mutate
from millpond_conformance.semantics import FUSE, TTL_MS, BlownError
from millpond_conformance.wide.bench import Bench, Place
from millpond_conformance.wide.steps import MERGING

_ACCUMULATING = ("reducing", "aggregating", "folding")


_MOMENTS = 3
"""The maximum number of expiry times that `outlive` tests one after the other."""


def stamps_of(held: Any) -> list[int]:
    """Return the TTL timestamps in the content of a `StateModel` for one key and namespace."""
    if isinstance(held, tuple):
        return [held[1]]
    return [stamp for _, stamp in (held.values() if isinstance(held, dict) else held)]


class _Wrong:
    """The class of values that no state accepts."""


class CellSteps(Bench):
    """Steps on values, lists and accumulators, and on states of any kind."""

    def write(self, number: int, key: int, space: int, value: int, blow: int) -> None:
        """Set a value, or add to a list or an accumulator.

        If `blow` is not 0, the accumulator's function raises an error at this call.
        """
        at, kind = (key, space), self.kind(number)
        if kind == "map":
            return
        state, spec = self.state(number, at), self.world.states[number]
        element = spec.element(value) if kind in ("value", "list", "reducing") else value
        if kind == "value":
            state.update(element)
        elif self._blown(blow if kind in _ACCUMULATING else 0, lambda: state.add(element)):
            return
        self.models[number].write(at, value, self.clock.now_ms)
        mutate(element)  # the state must have a copy of the caller's object
        self.wrote()

    def _blown(self, calls: int, action: Any) -> bool:
        """Run `action`, and let the user's function raise an error at the call number `calls`.

        Return whether the function has raised the error. It has not if there were fewer calls.
        """
        FUSE.set(calls)
        try:
            action()
        except BlownError:
            self.coverage.note("function that raised")
            return True
        finally:
            FUSE.set(0)
        return False

    def extend(self, number: int, key: int, space: int, count: int, value: int) -> None:
        """Add `count` elements to a list, or replace all elements of the list by them."""
        if self.kind(number) != "list":
            return
        at, spec = (key, space), self.world.states[number]
        state, model = self.state(number, at), self.models[number]
        elements = [spec.element(value + n) for n in range(count)]
        if value % 3 == 0:
            state.update(iter(elements))
            model.held.pop(at, None)
        else:
            state.add_all(elements)
        for n in range(count):
            model.write(at, value + n, self.clock.now_ms)
        self.wrote()

    def blow_up(self, number: int, key: int, space: int, value: int) -> None:
        """Add two elements. The user's function raises an error for the second element.

        This element must not be in the state afterwards.
        """
        self.write(number, key, space, value, 0)
        self.write(number, key, space, value, 1)
        self.read(number, key, space)

    def rewrite(self, number: int, key: int, space: int, value: int) -> None:
        """Clear a state and write to it again, without a flush in between."""
        self.clear(number, key, space)
        self.write(number, key, space, value, 0)

    def refuse(self, number: int, key: int, space: int) -> None:
        """Write values of a wrong type, and iterables that raise an error; nothing may change."""
        at, kind, spec = (key, space), self.kind(number), self.world.states[number]
        state = self.state(number, at)

        def half() -> Iterator[Any]:
            yield spec.element(0)
            raise BlownError

        actions: dict[str, list[Any]] = {
            "value": [lambda: state.update(_Wrong())],
            "list": [
                lambda: state.add_all(half()),
                lambda: state.add_all([spec.element(0), _Wrong()]),
                lambda: state.update(half()),
            ],
            "map": [
                lambda: state.put(spec.map_key(0), _Wrong()),
                lambda: state.put_all({spec.map_key(0): spec.element(0), _Wrong(): None}),
                lambda: state.put_all(
                    {spec.map_key(0): spec.element(0), spec.map_key(1): _Wrong()}
                ),
            ],
        }
        for action in actions.get(kind, []):
            try:
                action()
            except (StateTypeError, BlownError):
                self.coverage.note("refused write")
            else:
                raise AssertionError(f"{self.describe(number, at)}: a wrong value was taken")

    def repeat(self, number: int, key: int, space: int, value: int, apart: int) -> None:
        """Write a value, and `apart` ms later an equal one, which only renews the TTL timestamp."""
        self.write(number, key, space, value, 0)
        self.clock.advance(apart)
        self.write(number, key, space, value, 0)

    def clear(self, number: int, key: int, space: int) -> None:
        """Clear a state for a key and namespace."""
        at = (key, space)
        self.state(number, at).clear()
        self.models[number].held.pop(at, None)
        self.forget_entries(number, at)
        self.wrote()

    def forget_entries(self, number: int, at: Place) -> None:
        """Allow open iterations to omit the entries that `clear` has removed."""

    def read(self, number: int, key: int, space: int) -> None:
        """Read a state, and compare. Then modify the result, which must not change the state."""
        at, kind = (key, space), self.kind(number)
        if kind == "map":
            return
        state, model = self.state(number, at), self.models[number]
        if any(self._expired_now(number, at)):
            self.coverage.note("expired entry read")
        found = state.value() if kind == "value" else state.get()
        assert_same(found, model.read(at, self.clock.now_ms), self.describe(number, at))
        mutate(found)

    def _expired_now(self, number: int, at: Place) -> Iterator[bool]:
        model, now = self.models[number], self.clock.now_ms
        held = model.held.get(at)
        if held is not None:
            for each in held if model.kind == "list" else [held]:
                yield model.expired(each, now)

    # ---------------------------------------------------------------- namespaces and keys

    def merge(
        self, number: int, key: int, target: int, sources: tuple[int, ...], blow: int
    ) -> None:
        """Merge the namespaces `sources` of a key into `target`.

        If `blow` is not 0, the user's function raises an error at this call.
        """
        if self.kind(number) not in MERGING:
            return
        world, model = self.world, self.models[number]
        state = self.state(number, (key, sources[0] if sources else target))
        spaces = [world.spaces[source] for source in sources]
        filled = sum((key, at) in model.held for at in {target, *sources})
        blow = 0 if self.kind(number) == "list" else blow
        if self._blown(blow, lambda: state.merge_namespaces(world.spaces[target], iter(spaces))):
            return
        model.merge(key, target, list(sources), self.clock.now_ms)
        notes = {2: "merge of two filled sides", 5: "merge of five or more filled sides"}
        if filled > 1:
            several = "merge of three or more filled sides"
            self.coverage.note(notes.get(min(filled, 5), several))
        self.wrote()

    def unite(
        self,
        number: int,
        key: int,
        target: int,
        sources: tuple[int, ...],
        blow: int,
        filled: int,
        apart: int,
    ) -> None:
        """Write to several namespaces as windows do, merge them, and let the result expire.

        Args:
            number: the state.
            key: the key.
            target: the namespace into which the namespaces `sources` are merged.
            sources: the namespaces to merge.
            blow: the call at which the user's function raises an error; 0 for none.
            filled: the namespaces to write to, as a bit mask.
            apart: the time in ms between two writes.
        """
        for space in range(len(self.world.spaces)):
            if (filled >> space) & 1:
                self.write(number, key, space, 10 * filled + space, 0)
                self.clock.advance(apart)
        self.merge(number, key, target, sources, blow)
        if apart:
            self.outlive(number, key)

    def outlive(self, number: int, key: int) -> None:
        """Read a state of `key` right before and at the times at which its contents expire."""
        model = self.models[number]
        if not model.mode.expires:
            return
        stamps = {
            stamp for at, held in model.held.items() if at[0] == key for stamp in stamps_of(held)
        }
        for when in sorted(stamps)[:_MOMENTS]:
            for moment in (when + TTL_MS - 1, when + TTL_MS):
                self.clock.advance(max(0, moment - self.clock.now_ms))
                self.see(number, key)
        self.coverage.note("content outlived")

    def see(self, number: int, key: int) -> None:
        """Read and compare a state for a key in every namespace."""
        for space in range(len(self.world.spaces)):
            if self.kind(number) == "map":
                self.look(number, key, space, "items", 0)
            else:
                self.read(number, key, space)

    def look(self, number: int, key: int, space: int, call: str, entry: int) -> None:
        """Read a map by the method that `call` names; see `MapSteps`."""
        raise NotImplementedError

    def enumerate(self, number: int) -> None:
        """Compare the keys and namespaces that the backend lists for a state with the model."""
        self.state(number, (0, 0))
        self.coverage.note("enumeration")
        world, model = self.world, self.models[number]
        found = [repr(pair) for pair in self.backend.keys_and_namespaces(world.states[number].name)]
        self.dirty = 0
        held = {repr((world.keys[k], world.spaces[s])) for k, s in model.held}
        readable = {
            repr((world.keys[k], world.spaces[s]))
            for k, s in model.held
            if self.readable(number, (k, s))
        }
        assert_same(
            sorted(set(found)),
            sorted(found),
            f"each key and namespace of {world.states[number].name!r} once",
        )
        lost, strange = readable - set(found), set(found) - held
        assert_same(
            (sorted(lost), sorted(strange)), ([], []), "keys that are not listed, and wrong ones"
        )

    def count(self) -> None:
        """Compare the number of entries in the backend with the model, if no state has a TTL."""
        if any(model.mode.expires for model in self.models):
            return
        sizes = [
            sum(map(len, model.held.values())) if model.kind == "map" else len(model.held)
            for model in self.models
        ]
        assert_same(self.backend.num_state_entries(), sum(sizes), "number of entries")

    def readable(self, number: int, at: Place) -> bool:
        """Return whether, by the model, a read at the key and namespace `at` returns content."""
        model, now = copy.deepcopy(self.models[number]), self.clock.now_ms
        if model.kind == "map":
            return not model.is_empty(at, now)
        found = model.read(at, now)
        return found != [] if model.kind == "list" else found is not None

    def apply(self, number: int, space: int, blow: int) -> None:
        """For all keys of a namespace, apply a function that clears the state.

        If `blow` is not 0, call number `blow` of the function raises an error after it has
        cleared the state.
        """
        if self.kind(number) == "map":
            return
        world, model, keys = self.world, self.models[number], []
        expected = [k for k, s in model.held if s == space and self.readable(number, (k, s))]
        known = [k for k, s in model.held if s == space]
        self.state(number, (0, space))

        def seen(key: Any, state: Any) -> None:
            keys.append(repr(key))
            state.clear()
            FUSE.burn()

        arguments = world.states[number].descriptor(), seen, world.spaces[space]
        blown = self._blown(blow, lambda: self.backend.apply_to_all_keys(*arguments))
        assert_same(
            repr(self.backend.current_key), repr(world.keys[0]), "the key after apply_to_all_keys"
        )
        lost = set() if blown else {repr(world.keys[k]) for k in expected} - set(keys)
        strange = set(keys) - {repr(world.keys[k]) for k in known}
        assert_same(
            (sorted(lost), sorted(strange)),
            ([], []),
            "keys that were not applied to, and wrong ones",
        )
        for key in known:
            if not blown or repr(world.keys[key]) in keys:
                model.held.pop((key, space), None)
        self.dirty = len(keys)
