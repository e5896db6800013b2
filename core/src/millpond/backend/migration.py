"""Functions that convert stored keys and values after a change of a state's declared types."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from millpond.errors import StateConflictError, StateMigrationError
from millpond.safe_decoding import decoding
from millpond.spi.backend import AddressChange, CellMigration
from millpond.spi.keys import KeyLayout
from millpond.spi.parameters import KeyedBackendParameters
from millpond.spi.portable_rows import APPENDED, Change, join_cells, split_cells
from millpond.spi.tables import TIMESTAMP_BYTES
from millpond.state.descriptors import StateKind
from millpond.state.state_meta import StateMeta
from millpond.state.ttl.expiry_rule import STAMP, has_expired
from millpond.types import Compatibility, KeyCodec, Outcome, SerializerSnapshot, TypeSerializer
from millpond.types.evolution import KeyNotCompatibleError, Recode, key_change


def checked_change(
    state: str, part: str, stored: SerializerSnapshot | None, codec: KeyCodec | None
) -> Recode | None:
    """Return a function that converts stored keys to the keys of `codec`.

    Return None if the keys remain unchanged.

    Args:
        state: the name of the state, for errors.
        part: the kind of key, such as ``namespace``, for errors.
        stored: the description of the stored keys' type.
        codec: the codec of the declared type.

    Raises:
        StateMigrationError: the keys cannot be converted.
    """
    if stored is None or codec is None:
        return None
    try:
        return key_change(stored, codec)
    except KeyNotCompatibleError as error:
        reason = (
            f"{error}. Addresses are found by their bytes, so only optional parts may be added at "
            "the end of this type, and a part may become optional"
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
    """Return a function that converts the namespace and map key in a stored physical key.

    Return None if the physical keys remain unchanged.

    Args:
        stored: the description of the stored state.
        layout: the form of physical keys.
        keys: the codec of the keys.
        namespaces: the declared codec of the namespaces.
        map_keys: the declared codec of the map keys, if the state is a map.

    Raises:
        StateMigrationError: namespaces or map keys cannot be converted.
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
            made, end = space(physical, start)
        tail = physical[end:] if entry is None else entry(physical, end)[0]
        return physical[:start] + made + tail

    return convert


def _head(meta: StateMeta, layout: KeyLayout) -> int:
    """Return the number of bytes before the key in a state's physical keys."""
    return layout.group_bytes + (TIMESTAMP_BYTES if meta.kind is StateKind.TIMER else 0)


KeyRewrite = Callable[[StateMeta, Iterable[Change]], Iterator[Change]]
"""A function that takes a state and its rows, and returns the rows with converted keys."""


def key_rewrite(
    label: str, stored: SerializerSnapshot, codec: KeyCodec, layout: KeyLayout
) -> KeyRewrite | None:
    """Return a function that converts the keys in a snapshot's rows to the key type of a backend.

    Return None if the keys remain unchanged.

    Args:
        label: the name of the operator, for errors.
        stored: the description of the stored keys' type.
        codec: the codec of the backend's keys.
        layout: the form of physical keys.

    Raises:
        StateMigrationError: the keys cannot be converted.
    """
    recode = checked_change(label, "key", stored, codec)
    if recode is None:
        return None

    def rewrite(meta: StateMeta, rows: Iterable[Change]) -> Iterator[Change]:
        head = _head(meta, layout)
        for physical, value in rows:
            made, end = recode(physical, head)
            yield physical[:head] + made + physical[end:], value

    return rewrite


def check_kind(stored: StateMeta, declared: StateMeta) -> None:
    """Raise StateConflictError if the kinds of two states differ."""
    if stored.kind is not declared.kind:
        raise StateConflictError(stored.name, stored.kind.value, declared.kind.value)


def cell_migration(
    stored: StateMeta,
    declared: StateMeta,
    serializer: TypeSerializer[object],
    parameters: KeyedBackendParameters,
) -> CellMigration | None:
    """Return a function that converts stored values to the declared type.

    Return None if the values remain unchanged. If TTL is new, the function adds timestamps. If TTL
    was removed, the function removes the timestamps and drops expired values.

    Args:
        stored: the state in the snapshot.
        declared: the state that the descriptor declares.
        serializer: the serializer of the declared values, without timestamps.
        parameters: has the current time.

    Raises:
        StateConflictError, StateMigrationError: the stored state cannot become the declared state.
    """
    check_kind(stored, declared)
    with decoding("its snapshot's metadata", f"the type of state {stored.name!r} cannot be read"):
        verdict = serializer.compatibility(stored.value)
    if verdict.outcome is Outcome.INCOMPATIBLE:
        raise incompatible_error(stored.name, stored.value, declared.value, verdict)
    if verdict.migrate is None and stored.ttl == declared.ttl:
        return None
    element = _element_migration(stored, declared, verdict, parameters)
    migrate = _per_element(element) if stored.kind is StateKind.LIST else element

    def guarded(data: bytes) -> bytes | None:
        with decoding("keyed state", f"state {stored.name!r}: a value cannot be decoded"):
            return migrate(data)

    return guarded


def retiming(
    stored: StateMeta, restored: StateMeta, parameters: KeyedBackendParameters
) -> CellMigration | None:
    """Return a function that adds timestamps to values, or removes them.

    Return None if nothing needs to be done. If the function removes timestamps, it also drops
    expired values.

    Args:
        stored: the state in the snapshot that contains the rows.
        restored: the state as it is restored, which has the same types.
        parameters: has the current time.
    """
    if stored.ttl == restored.ttl:
        return None
    element = _element_migration(stored, restored, Compatibility(Outcome.AS_IS), parameters)
    if stored.kind is not StateKind.LIST:
        return element
    migrate, start = _per_element(element), len(APPENDED)

    def retimed(data: bytes) -> bytes | None:
        if data[:start] == APPENDED:
            return APPENDED + (migrate(data[start:]) or b"")
        return migrate(data)

    return retimed


def incompatible_error(
    state: str, stored: SerializerSnapshot, declared: SerializerSnapshot, verdict: Compatibility
) -> StateMigrationError:
    """Return the error for stored values that the declared serializer cannot read."""
    return StateMigrationError(
        state, "value", str(stored), str(declared), field=verdict.field, reason=verdict.reason
    )


def _element_migration(
    stored: StateMeta,
    declared: StateMeta,
    verdict: Compatibility,
    parameters: KeyedBackendParameters,
) -> CellMigration:
    clock, event_time = parameters.clock, parameters.event_time
    now = clock.now_ms if stored.watermark is None else event_time.now_ms
    written = clock.now_ms if declared.watermark is None else event_time.stamp_ms(clock)

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
        stamp = written
        if stored.ttl_ms is not None:
            (stamp,) = STAMP.unpack_from(data)
            data = data[STAMP.size :]
            if declared.ttl_ms is None and has_expired(stamp, stored.ttl_ms, now):
                return None
        value = convert(data)
        return value if declared.ttl_ms is None else STAMP.pack(stamp) + value

    return migrate


def _per_element(element: CellMigration) -> CellMigration:
    def migrate(data: bytes) -> bytes | None:
        kept = [made for cell in split_cells(data) if (made := element(cell)) is not None]
        return join_cells(kept) if kept else None

    return migrate
