"""Random programs that mix bulk calls, i.e. calls for many keys, with calls for a single key."""

from __future__ import annotations

from typing import Any

from typing_extensions import override

from millpond_conformance.comparing import assert_same
from millpond_conformance.programs import ENTRIES, MERGING, SPACES, SemanticsProgram
from millpond_conformance.semantics import KINDS

MANY = ("a", "b", "c", "d", "e", "f")


class BulkProgram(SemanticsProgram):
    """A random program with bulk calls, i.e. calls that take several keys at once.

    The expected results come from a model, which handles the keys one after the other.
    """

    def __init__(self, seed: int, open_backend: Any, clock: Any, storage: Any) -> None:
        super().__init__(seed, open_backend, clock, storage, MANY)

    @override
    def run(self, steps: int = 60) -> None:
        random = self._random
        actions = [self._read_many, self._write_many, self._write_many, self._clear_many]
        actions += [self._put_entries, self._put_entries, self._read_entries, self._list_entries]
        for _ in range(steps // 3):
            random.choice([*actions, self._write, self._read, self._merge, self._wait])()
            if random.random() < 0.2:  # noqa: PLR2004 - now and then
                random.choice([self._backend.flush, self._snapshot])()
        super().run(steps // 3)

    def _chosen(self, *, distinct: bool = False) -> list[str]:
        """Return a random number of random keys; with `distinct` no key is repeated."""
        count = self._random.randrange(len(MANY) + 1)
        draw = self._random.sample if distinct else self._random.choices
        return draw(MANY, k=count)

    def _many(self, kind: str, space: str) -> Any:
        """Set a random current key, and return a state of this kind in the namespace `space`.

        The current key is stored in `_before`, because a bulk call must not change it.
        """
        state = self._state(kind, (self._random.choice(MANY), space))
        self._before = self._backend.current_key
        return state

    def _read_many(self) -> None:
        kind = self._random.choice([kind for kind in KINDS if kind != "map"])
        keys, space = self._chosen(distinct=True), self._random.choice(SPACES)
        found = self._many(kind, space).get_many(keys)
        model = self._models[kind]
        now = self._now(model)
        expected = [model.read((key, space), now) for key in keys]
        assert_same(list(found), expected, (kind, model.mode, keys, space))
        assert self._backend.current_key == self._before
        for value in found:
            if isinstance(value, list):
                value.clear()  # the result belongs to the caller

    def _write_many(self) -> None:
        kind = self._random.choice(["value", *MERGING, "folding"])
        keys, space = self._chosen(), self._random.choice(SPACES)
        numbers = [self._random.randrange(100) for _ in keys]
        values: list[Any] = (
            [[n] for n in numbers] if kind in ("value", "list", "reducing") else numbers
        )
        state, model = self._many(kind, space), self._models[kind]
        if kind == "value":
            values = [
                None if n % 7 == 0 else value for n, value in zip(numbers, values, strict=True)
            ]
            state.update_many(keys, values)
        elif self._random.random() < 0.5:  # noqa: PLR2004 - either way
            state.add_many(keys, values)
        else:
            state.add_many(MANY, values, [MANY.index(key) for key in keys])
        for key, number in zip(keys, numbers, strict=True):
            if kind == "value" and number % 7 == 0:
                model.held.pop((key, space), None)
            else:
                model.write((key, space), number, self._now(model))
        assert self._backend.current_key == self._before
        for value in values:
            if isinstance(value, list):
                value.clear()  # this value was not passed to the state

    def _clear_many(self) -> None:
        kind, keys = self._random.choice([k for k in KINDS if k != "map"]), self._chosen()
        space = self._random.choice(SPACES)
        self._many(kind, space).clear_many(keys)
        for key in keys:
            self._models[kind].held.pop((key, space), None)
        assert self._backend.current_key == self._before

    def _places(self) -> tuple[list[str], list[str], list[int], str]:
        """Return random keys, the map keys and positions of random entries, and a namespace."""
        random = self._random
        keys = self._chosen(distinct=True) or ["a"]
        entries = random.choices(ENTRIES, k=random.randrange(6))
        positions = [random.randrange(len(keys)) for _ in entries]
        return keys, entries, positions, random.choice(SPACES)

    def _put_entries(self) -> None:
        keys, entries, positions, space = self._places()
        values = [[self._random.randrange(100)] for _ in entries]
        self._many("map", space).put_many(keys, entries, values, positions)
        model = self._models["map"]
        for position, entry, (number,) in zip(positions, entries, values, strict=True):
            model.put((keys[position], space), entry, number, self._now(model))
        assert self._backend.current_key == self._before
        for value in values:
            value.clear()  # this value was not passed to the state

    def _read_entries(self) -> None:
        keys, entries, positions, space = self._places()
        found = self._many("map", space).get_many(keys, entries, positions)
        model = self._models["map"]
        now = self._now(model)
        places = zip(positions, entries, strict=True)
        expected = [model.get((keys[at], space), entry, now) for at, entry in places]
        assert_same(found, expected, (model.mode, keys, entries, positions, space))
        assert self._backend.current_key == self._before

    def _list_entries(self) -> None:
        keys, space = self._chosen(distinct=True), self._random.choice(SPACES)
        columns = self._many("map", space).items_many(keys)
        model = self._models["map"]
        now = self._now(model)
        expected = [
            (at, entry, value)
            for at, key in enumerate(keys)
            for entry in list(model.held.get((key, space), {}))
            if (value := model.get((key, space), entry, now)) is not None
        ]
        plain = [each if isinstance(each, list) else each.to_pylist() for each in columns]
        found = list(zip(*plain, strict=True))
        assert_same(sorted(found), sorted(expected), (model.mode, keys, space))
        assert self._backend.current_key == self._before
