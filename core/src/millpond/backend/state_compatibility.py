"""Whether a declared state fits what is stored under its name, and the migration to it."""

from __future__ import annotations

from millpond.errors import StateConflictError, StateMigrationError
from millpond.safe_decoding import decoding
from millpond.spi.backend import CellMigration
from millpond.spi.rows import APPENDED, join_cells, split_cells
from millpond.state.descriptors import StateKind
from millpond.state.state_meta import StateMeta
from millpond.state.ttl.stamp import STAMP, last_expired
from millpond.types import Compatibility, Outcome, SerializerSnapshot, TypeSerializer


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
