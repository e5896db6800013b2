"""Rewrites of stored state after a change of its declared types."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import attrs

from millpond.errors import StateConflictError, StateMigrationError
from millpond.safe_decoding import decoding
from millpond.spi.backend import AddressChange, CellMigration
from millpond.spi.keys import KeyLayout
from millpond.spi.rows import APPENDED, Change, join_cells, split_cells
from millpond.spi.tables import TIMESTAMP_BYTES
from millpond.state.descriptors import StateKind
from millpond.state.state_meta import StateMeta
from millpond.state.ttl.stamp import STAMP, last_expired
from millpond.types import Compatibility, KeyCodec, Outcome, SerializerSnapshot, TypeSerializer
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
    def between(
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


def check_kind(stored: StateMeta, declared: StateMeta) -> None:
    """Raise StateConflictError where it is another kind of state."""
    if stored.kind is not declared.kind:
        raise StateConflictError(stored.name, stored.kind.value, declared.kind.value)


def cell_migration(
    stored: StateMeta, declared: StateMeta, serializer: TypeSerializer[object], now: int
) -> CellMigration | None:
    """How stored cells become what the declared state reads; None where they are already.

    Args:
        stored: what the snapshot says of the state.
        declared: what the descriptor says.
        serializer: of the declared values, without TTL's envelope.
        now: the time in ms that entries get where TTL is new, and by which they are expired
            where TTL is gone.

    Raises:
        StateConflictError, StateMigrationError: the stored state cannot become the declared one.
    """
    check_kind(stored, declared)
    with decoding("its snapshot's metadata", f"the type of state {stored.name!r} cannot be read"):
        verdict = serializer.compatibility(stored.value)
    if verdict.outcome is Outcome.INCOMPATIBLE:
        raise refusal(stored.name, stored.value, declared.value, verdict)
    if verdict.migrate is None and stored.ttl == declared.ttl:
        return None
    element = _element_migration(stored, declared, verdict, now)
    migrate = _per_element(element) if stored.kind is StateKind.LIST else element

    def guarded(data: bytes) -> bytes | None:
        with decoding("keyed state", f"state {stored.name!r}: a value cannot be decoded"):
            return migrate(data)

    return guarded


def retiming(stored: StateMeta, restored: StateMeta, now: int) -> CellMigration | None:
    """How rows get the times of their values, or lose them; None where they stay as they are.

    Args:
        stored: what the rows' snapshot says of the state.
        restored: what the state is restored as, of the same types.
        now: the time in ms that rows without one get, and by which those that lose it are expired.
    """
    if stored.ttl == restored.ttl:
        return None
    element = _element_migration(stored, restored, Compatibility(Outcome.AS_IS), now)
    if stored.kind is not StateKind.LIST:
        return element
    migrate, start = _per_element(element), len(APPENDED)

    def retimed(data: bytes) -> bytes | None:
        if data[:start] == APPENDED:
            return APPENDED + (migrate(data[start:]) or b"")
        return migrate(data)

    return retimed


def refusal(
    state: str, stored: SerializerSnapshot, declared: SerializerSnapshot, verdict: Compatibility
) -> StateMigrationError:
    """The error of an incompatible value type."""
    return StateMigrationError(
        state, "value", str(stored), str(declared), field=verdict.field, reason=verdict.reason
    )


def _element_migration(
    stored: StateMeta, declared: StateMeta, verdict: Compatibility, now: int
) -> CellMigration:
    def convert(value: bytes) -> bytes:
        if verdict.migrate is None:
            return value
        try:
            return verdict.migrate(value)
        except Exception as error:
            raise StateMigrationError(
                stored.name, "value", str(stored.value), str(declared.value), reason=str(error)
            ) from error

    def migrate(data: bytes) -> bytes | None:
        stamp = now
        if stored.ttl_ms is not None:
            (stamp,) = STAMP.unpack_from(data)
            data = data[STAMP.size :]
            if declared.ttl_ms is None and stamp <= last_expired(stored.ttl_ms, now):
                return None
        value = convert(data)
        return value if declared.ttl_ms is None else STAMP.pack(stamp) + value

    return migrate


def _per_element(element: CellMigration) -> CellMigration:
    def migrate(data: bytes) -> bytes | None:
        kept = [made for cell in split_cells(data) if (made := element(cell)) is not None]
        return join_cells(kept) if kept else None

    return migrate
