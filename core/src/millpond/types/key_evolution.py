"""Decides whether and how stored keys are read under another type of keys, and loses none.

An address is found by its bytes, and its key group is a hash of its key. So a key's new bytes must
be made of the old ones alone, two keys must never become one, and a key must stay in its group.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs

from millpond.types.base import Outcome, SerializerSnapshot
from millpond.types.key_columns import codec_from_snapshot, nested_snapshot
from millpond.types.keys import (
    KeyCodec,
    NullableKeyCodec,
    SerializedKeyCodec,
    TupleKeyCodec,
    unescape,
)
from millpond.types.scalar_keys import ScalarKeyCodec

Recode = Callable[[bytes, int], tuple[bytes, int]]
"""From data and where a stored key begins in it: its new bytes, and where the old ones end."""


class KeyNotCompatibleError(Exception):
    """A stored type of keys cannot become a declared one."""


@attrs.frozen
class KeyChange:
    """How stored keys become keys of a declared type.

    Attributes:
        recode: the new bytes of a stored key.
        keeps_group: whether the hash of each key stays what it was.
    """

    recode: Recode
    keeps_group: bool = True


def key_change(old: SerializerSnapshot, new: KeyCodec) -> KeyChange | None:
    """How keys of an older type become those of a codec; None where they are already.

    Raises:
        KeyNotCompatibleError: they cannot, or two of them could become one.
    """
    return None if old == new.snapshot() else _change(old, new)


def _change(old: SerializerSnapshot, new: KeyCodec) -> KeyChange:
    if old == new.snapshot():
        return _as_is(codec_from_snapshot(old))
    if isinstance(new, ScalarKeyCodec) and old.id == new.id:
        return _same_column(old, new)
    if isinstance(new, NullableKeyCodec):
        return _nullable(old, new)
    if isinstance(new, TupleKeyCodec) and old.id == TupleKeyCodec.id:
        return _tuple(old.payload, new)
    if isinstance(new, SerializedKeyCodec):
        return _reconfigured(old, new)
    raise KeyNotCompatibleError(f"{old} cannot become {new.snapshot()}")


def _as_is(codec: KeyCodec) -> KeyChange:
    def recode(data: bytes, start: int) -> tuple[bytes, int]:
        end = codec.decode(data, start)[1]
        return data[start:end], end

    return KeyChange(recode)


def _same_column(old: SerializerSnapshot, new: ScalarKeyCodec) -> KeyChange:
    """Keys of one type: those of another column's are others, where both columns are known."""
    if None not in (old.payload, new.column):
        reason = f"{old} cannot become {new.snapshot()}: cast the column to what it was"
        raise KeyNotCompatibleError(reason)
    return _as_is(new)


def _nullable(old: SerializerSnapshot, new: NullableKeyCodec) -> KeyChange:
    """``X`` or ``X | None`` to ``Y | None``; a hash passes over both None and the mark before X."""
    was = old.id == NullableKeyCodec.id
    inner = _change(nested_snapshot(old.payload) if was else old, new.inner)

    def recode(data: bytes, start: int) -> tuple[bytes, int]:
        if was and data[start] == 0:
            return data[start : start + 1], start + 1
        made, end = inner.recode(data, start + was)
        return b"\1" + made, end

    return KeyChange(recode, inner.keeps_group)


def _tuple(payload: Any, new: TupleKeyCodec) -> KeyChange:
    """The same fields, and optional ones after them; a plain tuple may get names or lose them."""
    olds = [nested_snapshot(part) for part in payload["parts"]]
    names, known = payload["names"], new.names
    if names and known and list(known[: len(names)]) != names:
        raise KeyNotCompatibleError(
            f"its fields are stored as {', '.join(names)}: new ones may only follow these"
        )
    if len(olds) > len(new.parts):
        raise KeyNotCompatibleError("a part of it would be lost")
    kept = [_change(old, part) for old, part in zip(olds, new.parts, strict=False)]
    added, keeps_group = b"", True
    for at in range(len(olds), len(new.parts)):
        if not known or known[at] not in new.defaults:
            raise KeyNotCompatibleError(f"part {at + 1} of it is new and has no default")
        default = new.defaults[known[at]]
        added += new.parts[at].encode(new.parts[at].check(default))
        keeps_group = keeps_group and default is None

    def recode(data: bytes, start: int) -> tuple[bytes, int]:
        made = []
        for each in kept:
            part, start = each.recode(data, start)
            made.append(part)
        return b"".join([*made, added]), start

    return KeyChange(recode, keeps_group and all(each.keeps_group for each in kept))


def _reconfigured(old: SerializerSnapshot, new: SerializedKeyCodec) -> KeyChange:
    """A serializer that reads the stored bytes as they are, and would write the same ones."""
    verdict = new.serializer.compatibility(old)
    if verdict.outcome not in (Outcome.AS_IS, Outcome.RECONFIGURED):
        reason = verdict.reason or "its serializer migrates, which no address can"
        raise KeyNotCompatibleError(reason)

    def recode(data: bytes, start: int) -> tuple[bytes, int]:
        raw, end = unescape(data, start)
        if new.serializer.serialize(new.serializer.deserialize(raw)) != raw:
            reason = "its serializer says that it reads stored keys as they are, and writes others"
            raise KeyNotCompatibleError(reason)
        return data[start:end], end

    return KeyChange(recode)
