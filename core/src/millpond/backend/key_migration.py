"""Rewrites of stored addresses after a change of key, namespace or map-key types."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator

import attrs

from millpond.backend.changes import Change
from millpond.backend.key_layout import KeyLayout
from millpond.backend.state_compatibility import CellMigration
from millpond.backend.state_view import StateView
from millpond.backend.timer_queue import TIMESTAMP_BYTES
from millpond.errors import StateMigrationError
from millpond.state.descriptors import StateKind
from millpond.state.state_meta import StateMeta
from millpond.types import KeyCodec, SerializerSnapshot
from millpond.types.key_evolution import KeyChange, KeyNotCompatibleError, key_change

AddressChange = Callable[[bytes], bytes]
"""From a stored physical key to the one that the declared types find."""


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


class PortableRows(ABC):
    """What a backend provides for snapshots and restores."""

    @abstractmethod
    def flush(self, version: str | None = None) -> None:
        """End a bundle: buffered changes reach the store and the change listeners.

        A failure before anything was stored, in a serializer or the store's write, leaves all
        changes in the buffer: reads still see them, and the next flush includes them.

        Args:
            version: the state's new version name; the present name stays if nothing changed
                since it was given. A store that survives the process records the name in the
                same atomic write. None: the state is at no named version.

        Raises:
            BackendFailedError: a change listener, or a flush in the middle of an operation, has
                failed before. Every call except closing raises it.
        """

    @abstractmethod
    def freeze(self) -> StateView:
        """A view of all flushed entries, which later changes do not touch."""

    def expect_states(self, names: Iterable[str]) -> None:
        """Learn, before ``load_rows``, which states may have rows.

        Does nothing by default; for stores that prepare all states faster together than singly.
        """

    @abstractmethod
    def load_rows(self, state_name: str, rows: Iterable[Change]) -> None:
        """Put portable rows of a state into the store; the value None removes a row.

        They are a few MiB at most: restores come in parts.
        """

    @abstractmethod
    def readdress_rows(self, state_name: str, change: AddressChange) -> None:
        """Give all stored rows of a restored state that was not requested yet other physical keys.

        Each stays in its key group, and no two become one. Afterwards all is as after
        ``migrate_rows``; if ``change`` refuses a row, all stay as they were.
        """

    @abstractmethod
    def migrate_rows(self, state_name: str, migrate: CellMigration) -> None:
        """Rewrite all stored values of a restored state that was not requested yet.

        Afterwards the state is at no named version, and the change listeners know the changes. If
        ``migrate`` refuses a value, all values stay unchanged.
        """
