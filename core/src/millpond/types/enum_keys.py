"""Key codecs of enums."""

from __future__ import annotations

import enum
from typing import Any

from typing_extensions import override

from millpond.errors import StateTypeError, brief
from millpond.types.keys import HASH_SEED, KeyCodec
from millpond.types.scalar_keys import StrKeyCodec


class _EnumNameCodec(StrKeyCodec):
    """The names of an enum's members, where its class is not at hand."""

    def __init__(self) -> None:
        super().__init__()
        self.id = EnumKeyCodec.id


class EnumKeyCodec(KeyCodec):
    """An enum by the names of its members, so members can be added and get other values."""

    id = "enum"
    exact = False

    def __init__(self, declared: type[enum.Enum]) -> None:
        self._declared = declared

    @override
    def check(self, key: Any) -> Any:
        if not isinstance(key, self._declared):
            raise StateTypeError(self._declared.__name__, brief(key))
        return key

    @override
    def encode(self, key: Any) -> bytes:
        return ENUM_NAMES.encode(key.name)

    @override
    def decode(self, data: bytes, start: int) -> tuple[Any, int]:
        name, end = ENUM_NAMES.decode(data, start)
        if name not in self._declared.__members__:
            raise StateTypeError(self._declared.__name__, brief(name), reason="it has no such name")
        return self._declared[name], end

    @override
    def hash(self, key: Any, seed: int = HASH_SEED) -> int:
        return ENUM_NAMES.hash(key.name, seed)


ENUM_NAMES = _EnumNameCodec()
