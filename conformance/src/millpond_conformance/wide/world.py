"""The world of a program: its states, keys, namespaces and settings, all drawn from a seed."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from functools import cached_property
from typing import Any
from uuid import UUID

import attrs
import millpond as mp
from millpond.types.key_codecs import VoidNamespace

from millpond_conformance.semantics import KINDS, MODES, Mode, StateModel, descriptor_of
from millpond_conformance.wide.values import ITEMS, draw_element

_COMPOSED, _DECOMPOSED = "\u00e9", "e\u0301"

_NAMES = ("s", "s_", "s_2", "S", "ss", "\u00df", _COMPOSED, _DECOMPOSED, "s.s", "s s", "1", "s/s")

_STRINGS = (
    *("", "a", "ab", "A", "a\0", "\0", _COMPOSED, _DECOMPOSED, "\uffff", "\U0001f600"),
    *("k" * 255, "k" * 256, "k" * 495, "k" * 511, "k" * 512, "k" * 4096, "k" * 65535, "k" * 65536),
    *(f"{'k' * size}{end}" for size in (255, 490, 511, 4096) for end in "ab"),
)
_INTEGERS = (0, 1, -1, -2, 255, 256, -256, (1 << 63) - 1, -(1 << 63), 1 << 32, (1 << 62) + 1)
_BYTES = (b"", b"\0", b"\0\0", b"\xff", b"\xff\xff", b"a", b"a\0", b"a\0b", b"a" * 511, b"a" * 600)
_PAIRS = (("", 0), ("a", 0), ("a", 1), ("a\0", 0), ("ab", 0), ("a", -1), ("a" * 500, 1))
_NESTED = tuple((a, (b, c)) for a, b, c in ((1, 1, ""), (1, 1, "a"), (1, 2, ""), (-1, 1, ""),
                                            (1, 1, "\0"), (0, 1, "")))  # fmt: skip

_KEYS: tuple[tuple[Any, tuple[Any, ...]], ...] = (
    (str, _STRINGS),
    (int, _INTEGERS),
    (bytes, _BYTES),
    (tuple[str, int], _PAIRS),
    (Decimal, tuple(map(Decimal, ("0", "1", "1.0", "1.00", "-1", "0.00", "10", "1E+1")))),
    (bool, (False, True)),
    (datetime, tuple(datetime(year, 1, 1, tzinfo=UTC) for year in (1, 1969, 1970, 2024, 9999))),
    (UUID, tuple(UUID(int=number) for number in (0, 1, 1 << 64, (1 << 128) - 1, 255))),
    (tuple[str | None, int], ((None, 0), ("", 0), ("a", 0), (None, -1), ("a", 1), ("\0", 0))),
)
_MAP_KEYS = 5
"""The number of types at the start of `_KEYS` that are also types of map keys."""
_SPACES: tuple[tuple[Any, tuple[Any, ...]], ...] = (
    (str, ("", "n", "nn", "n\0", "N", _COMPOSED, _DECOMPOSED, "n" * 300)),
    (int, _INTEGERS),
    (tuple[str, int], _PAIRS),
    (tuple[int, tuple[int, str]], _NESTED),
    (VoidNamespace, (mp.VOID_NAMESPACE,)),
)

GROUPS = (1, 2, 100, 128, 129, 300, 1024, 32_768)
_GROUP_WEIGHTS = (3, 3, 3, 4, 3, 3, 1, 0.1)
_BUFFERS = (1, 2, 3, 5, 16, 200_000)
_BYTES_BUFFERED = (1, 64, 4096, 65_536, 256 << 20, 256 << 20, 256 << 20)
OWN_STRATEGY = "own"
"""A placeholder for a snapshot strategy that only the backend provides; see `side.py`."""

_PLAIN, _SHOWN, _TYPED = 0.4, 0.3, 0.7
"""The probabilities that a world has no TTL, that it shows expired entries, and that a state has a
random type."""

TIMES = (0, 1, 5, 6, -1, -5, 255, 256, 65_535, 65_536, (1 << 63) - 1, -(1 << 63), 1 << 40)


@attrs.frozen
class Spec:
    """The declaration of one state.

    Attributes:
        name: the name of the state.
        kind: one of KINDS.
        mode: the TTL configuration.
        element_type: the type of the elements or of the accumulator.
        elements: values of this type; empty if elements are lists of items.
        map_key_type: the type of map keys.
        map_keys: some map keys.
        item: returns the item for a number.
    """

    name: str
    kind: str
    mode: Mode
    element_type: Any
    elements: tuple[Any, ...]
    map_key_type: Any = str
    map_keys: tuple[Any, ...] = ()
    item: Callable[[int], Any] = int

    def element(self, number: int) -> Any:
        """Return the element for `number`. If the element is mutable, it is a new object."""
        if not self.elements:
            return [self.item(number)]
        return copy.deepcopy(self.elements[number % len(self.elements)])

    def map_key(self, number: int) -> Any:
        """Return the map key for `number`: one of `map_keys` if `number` is low, else another."""
        if number < len(self.map_keys):
            return self.map_keys[number]
        if self.map_key_type is int:
            return number * 1000
        if self.map_key_type is Decimal:
            return Decimal(number * 1000)
        if self.map_key_type is bytes:
            return b"entry %d" % number
        return f"entry {number}" if self.map_key_type is str else (f"entry {number // 3}", number)

    def descriptor(self) -> Any:
        """Return a new descriptor of the state."""
        return descriptor_of(
            self.kind, self.mode, self.name, self.element_type, self.map_key_type, self.item
        )

    def model(self) -> StateModel:
        """Return a new, empty model of the state."""
        return StateModel(self.kind, self.mode, element=self.element, item=self.item)


@attrs.frozen
class World:
    """The world of a program. Two worlds with the same seed have the same properties.

    Args:
        seed: the seed.
    """

    seed: int

    @cached_property
    def _drawn(self) -> dict[str, Any]:
        draw = random.Random(f"world {self.seed}")  # noqa: S311 - a program, no secret
        key_type, keys = draw.choice(_KEYS)
        space_type, spaces = draw.choice(_SPACES)
        plain = draw.random() < _PLAIN
        modes: tuple[Mode, ...] = MODES[:1] if plain else (*MODES, *[Mode(swept=True)] * 2)
        count = draw.choice((1, 2, 3, 4, 6, len(_NAMES)))
        shown = draw.random() < _SHOWN
        modes = tuple(mode for mode in modes if shown or not mode.shows)
        # The strategy decides whether a snapshot contains expired entries that are still readable.
        shows = any(mode.shows for mode in modes)
        strategy = "full" if shows else draw.choice(("full", "changelog", OWN_STRATEGY))
        return {
            "keys": tuple(draw.sample(keys, min(5, len(keys)))),
            "key_type": key_type,
            "spaces": tuple(draw.sample(spaces, min(draw.choice((3, 4, 6, 6)), len(spaces)))),
            "space_type": space_type,
            "groups": draw.choices(GROUPS, _GROUP_WEIGHTS)[0],
            "strategy": strategy,
            "ratio": draw.choice((1.0, 4.0, 1000.0)),
            "bytes": draw.choice(_BYTES_BUFFERED),
            "compression": draw.choice(("none", "lz4", "zstd")),
            "states": tuple(_spec(draw, name, modes) for name in draw.sample(_NAMES, count)),
            "steps": draw.choice((20, 60, 60, 120)),
            "threads": draw.choice((1, 1, 2)),
        }

    def __getattr__(self, name: str) -> Any:
        """Return the random value of a property such as `keys`, `spaces` or `states`."""
        if name.startswith("_"):
            raise AttributeError(name)
        try:
            return self._drawn[name]
        except KeyError:
            raise AttributeError(name) from None

    def config(self, number: int, strategy: str) -> mp.Config:
        """Return the configuration of a backend.

        Args:
            number: a number that selects the size of the buffer.
            strategy: the snapshot strategy.
        """
        limit = _BUFFERS[number % len(_BUFFERS)]
        snapshot = {"strategy": strategy, "base_ratio": self.ratio}
        return mp.Config(
            buffer={"max_entries": limit, "max_bytes": self.bytes},
            state={"snapshot": snapshot},
            checkpoint={"compression": self.compression},
        )


def _spec(draw: random.Random, name: str, modes: tuple[Mode, ...]) -> Spec:
    kind, mode = draw.choice(KINDS), draw.choice(modes)
    elements: tuple[Any, ...] = ()
    element_type, item = draw.choice(ITEMS)
    if kind in ("value", "list", "map") and draw.random() < _TYPED:
        element_type, elements = draw_element(draw, nullable=kind == "map")
    map_key_type, map_keys = draw.choice(_KEYS[:_MAP_KEYS])
    chosen = tuple(draw.sample(map_keys, 4))
    return Spec(name, kind, mode, element_type, elements, map_key_type, chosen, item)
