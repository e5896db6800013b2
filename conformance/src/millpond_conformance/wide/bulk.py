"""Steps that write, read or clear one state of many keys by one call."""

from __future__ import annotations

from typing import Any

from millpond_conformance.comparing import assert_same, mutate
from millpond_conformance.wide.cells import CellSteps
from millpond_conformance.wide.values import is_inexact_column


class BulkSteps(CellSteps):
    """Steps for many keys at once. The model handles the keys one after the other."""

    def write_many(self, number: int, space: int, keys: tuple[int, ...], value: int) -> None:
        """Change the state number `number` for each of `keys`, by one call. A key may occur twice.

        The call updates or clears values, or adds elements.
        """
        kind, spec, model = self.kind(number), self.world.states[number], self.models[number]
        if kind == "map":
            return
        state = self.state(number, (0, space))
        numbers = [value + n for n in range(len(keys))]
        items = kind in ("aggregating", "folding")
        values: list[Any] = numbers if items else [spec.element(n) for n in numbers]
        chosen = [self.world.keys[key] for key in keys]
        if kind == "value":
            values = [spec.element(n) if n % 5 else None for n in numbers]
            state.update_many(chosen, values)
        else:
            state.add_many(chosen, values)
        for key, each, written in zip(keys, numbers, values, strict=True):
            if written is None:
                model.held.pop((key, space), None)
            else:
                model.write((key, space), each, self.clock.now_ms)
        mutate(values)
        self.wrote(len(keys))
        self.coverage.note("call for many keys")

    def read_many(self, number: int, space: int, keys: tuple[int, ...]) -> None:
        """Read a state of all `keys` by one call, and compare. The current key must not change."""
        kind, spec, model = self.kind(number), self.world.states[number], self.models[number]
        if kind == "map" or (kind == "value" and is_inexact_column(spec.element_type)):
            return
        state = self.state(number, (0, space))
        chosen = list(dict.fromkeys(keys))
        column = state.get_many([self.world.keys[key] for key in chosen])
        found = column if isinstance(column, list) else column.to_pylist()
        expected = [model.read((key, space), self.clock.now_ms) for key in chosen]
        assert_same(found, expected, f"{spec.name!r} of many keys, namespace {space}")
        assert_same(self.backend.current_key, self.world.keys[0], "the key after get_many")
        mutate(found)
        self.coverage.note("call for many keys")

    def frames(self, number: int, space: int, value: int) -> None:
        """Flush, and then three times: prefetch all keys, and read and write each of them.

        A worker prefetches the keys of a frame before it processes the rows.
        """
        self.backend.flush()
        current, groups = self.backend.current, []
        for key in self.world.keys:
            self.backend.set_current_key(key)
            groups.append(current.key_group)
        for _ in range(3):
            current.prefetch(self.world.keys, groups)
            for key in range(len(groups)):
                self.read(number, key, space)
                self.write(number, key, space, value + key, 0)

    def clear_many(self, number: int, space: int, keys: tuple[int, ...]) -> None:
        """Clear a state of all `keys` by one call."""
        if self.kind(number) == "map":
            return
        self.state(number, (0, space)).clear_many([self.world.keys[key] for key in keys])
        for key in keys:
            self.models[number].held.pop((key, space), None)
        self.wrote(len(keys))
