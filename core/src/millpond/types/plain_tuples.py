"""Tuples of plain scalars: told, packed and unpacked by the exact types of their parts.

Most values that are no scalars are such tuples. To check one of four ints takes 0.25 µs where to
pack and to unpack it part by part takes 1.5, to pack it 0.5 instead of 0.9, to unpack it 0.4
instead of 0.8.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Self

import attrs

from millpond.types.node import SCALAR_NODES, Node

__all__ = ["quickened"]

_PLAIN = frozenset({int, float, bool, bytes, str})
_LEAST, _GREATEST = -(1 << 63), (1 << 63) - 1


def quickened(node: Node, parts: Sequence[Node]) -> Node:
    """The node of a tuple, quicker where its parts are plain scalars."""
    plain = _PlainTuple.of(node.python_type, parts)
    if plain is None:
        return node
    slow_pack, slow_unpack = node.pack, node.unpack

    def pack(value: Any) -> Any:
        packed = plain.packed(value)
        return slow_pack(value) if packed is None else packed

    def unpack(packed: Any) -> Any:
        value = plain.unpacked(packed)
        return slow_unpack(packed) if value is None else value

    return attrs.evolve(node, pack=pack, unpack=unpack, holds=plain.holds)


@attrs.frozen
class _PlainTuple:
    """Tuples of one class whose parts have these types.

    Attributes:
        kind: the class.
        parts: the types.
        make: a tuple of its parts.
        texts, numbers: where parts are texts, and where whole numbers.
    """

    kind: type[Any]
    parts: tuple[type, ...]
    make: Callable[[list[Any]], Any]
    texts: tuple[int, ...]
    numbers: tuple[int, ...]

    @classmethod
    def of(cls, kind: type[Any], nodes: Sequence[Node]) -> Self | None:
        """Those of a class with parts of some nodes; None where not all are plain scalars."""
        parts = tuple(node.python_type for node in nodes)
        scalars = all(SCALAR_NODES.get(node.python_type) is node for node in nodes)
        # Objects with attributes of their own do not come back as they were.
        if not scalars or not _PLAIN.issuperset(parts) or kind.__dictoffset__:
            return None
        make = tuple if kind is tuple else kind._make
        texts = tuple(at for at, part in enumerate(parts) if part is str)
        numbers = tuple(at for at, part in enumerate(parts) if part is int)
        return cls(kind, parts, make, texts, numbers)

    def holds(self, value: Any) -> bool:
        """Whether a value surely is such a tuple; one of other texts than ASCII may be one, too."""
        if type(value) is not self.kind or tuple(map(type, value)) != self.parts:
            return False
        # Other texts may hold halves of pairs of surrogates.
        return not self.texts or all(map(str.isascii, map(value.__getitem__, self.texts)))

    def packed(self, value: Any) -> list[Any] | None:
        """The parts as plain MessagePack values, if it takes no more than to list them."""
        if not self.holds(value):
            return None
        for at in self.numbers:
            if not _LEAST <= value[at] <= _GREATEST:
                return None
        return list(value)

    def unpacked(self, plain: Any) -> Any:
        """The tuple of what was packed so; None for anything else."""
        if type(plain) is list and tuple(map(type, plain)) == self.parts:
            return self.make(plain)
        return None
