"""Rewrites of stored addresses after a change of key, namespace or map-key types."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import attrs

from millpond.errors import StateMigrationError
from millpond.spi.backend import AddressChange
from millpond.spi.keys import KeyLayout
from millpond.spi.rows import Change
from millpond.spi.tables import TIMESTAMP_BYTES
from millpond.state.descriptors import StateKind
from millpond.state.state_meta import StateMeta
from millpond.types import KeyCodec, SerializerSnapshot
from millpond.types.evolution import KeyChange, KeyNotCompatibleError, key_change


def checked_change(
    state: str, part: str, stored: SerializerSnapshot | None, codec: KeyCodec | None
) -> KeyChange | None:
    """How stored keys of one part of an address become those of a codec.

    Raises:
        StateMigrationError: they cannot, without a loss.
    """
    if stored is None or codec is None:
        return None
    try:
        return key_change(stored, codec)
    except KeyNotCompatibleError as error:
        reason = (
            f"{error}. Addresses are found by their bytes, so only optional parts may be added at "
            "the end of this type, and its parts become optional"
        )
        declared = str(codec.snapshot())
        raise StateMigrationError(state, part, str(stored), declared, reason=reason) from None


def namespace_change(
    stored: StateMeta,
    layout: KeyLayout,
    keys: KeyCodec,
    namespaces: KeyCodec,
    map_keys: KeyCodec | None = None,
) -> AddressChange | None:
    """How stored addresses get declared namespaces and map keys; None where they have them already.

    Raises:
        StateMigrationError: they cannot, without a loss.
    """
    space = checked_change(stored.name, "namespace", stored.namespace, namespaces)
    entry = checked_change(stored.name, "map key", stored.map_key, map_keys)
    if space is None and entry is None:
        return None
    head = _head(stored, layout)

    def convert(physical: bytes) -> bytes:
        _, start = keys.decode(physical, head)
        if space is None:
            end = namespaces.decode(physical, start)[1]
            made = physical[start:end]
        else:
            made, end = space.recode(physical, start)
        tail = physical[end:] if entry is None else entry.recode(physical, end)[0]
        return physical[:start] + made + tail

    return _guarded(convert, stored.name, "namespace or map key", stored.namespace)


def _head(meta: StateMeta, layout: KeyLayout) -> int:
    """How many bytes stand before the key."""
    return layout.group_bytes + (TIMESTAMP_BYTES if meta.kind is StateKind.TIMER else 0)


def _guarded(
    convert: AddressChange, state: str, part: str, stored: SerializerSnapshot
) -> AddressChange:
    def guarded(physical: bytes) -> bytes:
        try:
            return convert(physical)
        except KeyNotCompatibleError as error:
            raise StateMigrationError(
                state, part, str(stored), "the declared type", reason=str(error)
            ) from None

    return guarded


@attrs.frozen
class KeyRewrite:
    """Brings the rows of a snapshot to the type of keys that a backend has."""

    change: KeyChange
    layout: KeyLayout
    stored: SerializerSnapshot

    @classmethod
    def of(
        cls, label: str, stored: SerializerSnapshot, codec: KeyCodec, layout: KeyLayout
    ) -> KeyRewrite | None:
        """What a snapshot's rows need; None where its keys are of the backend's type.

        Raises:
            StateMigrationError: they cannot become such keys, or would change their key groups.
        """
        change = checked_change(label, "key", stored, codec)
        if change is None:
            return None
        if not change.keeps_group:
            reason = (
                "with a default other than None the stored keys would belong to other key groups: "
                "give the new part the type X | None and the default None, or read the state with "
                "its stored type and write it anew with mp.SavepointWriter"
            )
            declared = str(codec.snapshot())
            raise StateMigrationError(label, "key", str(stored), declared, reason=reason)
        return cls(change, layout, stored)

    def rows(self, meta: StateMeta, rows: Iterable[Change]) -> Iterator[Change]:
        """The rows of a state, each under its new key."""
        head = _head(meta, self.layout)

        def convert(physical: bytes) -> bytes:
            made, end = self.change.recode(physical, head)
            return physical[:head] + made + physical[end:]

        guarded = _guarded(convert, meta.name, "key", self.stored)
        return ((guarded(physical), value) for physical, value in rows)
