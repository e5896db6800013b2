"""The base class of keyed backends over a ``ByteStore``."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any

from typing_extensions import override

from millpond.backend.bytestore.buffered_cells import BufferedCellTable
from millpond.backend.bytestore.buffered_lists import (
    BufferedListTable,
    ListPieces,
    is_piece,
    whole_lists,
)
from millpond.backend.bytestore.buffered_maps import BufferedMapTable
from millpond.backend.bytestore.buffered_sorted_maps import BufferedSortedMapTable
from millpond.backend.bytestore.buffered_timers import BufferedTimerRows
from millpond.backend.bytestore.write_buffer import EncodedKey, WriteBuffer
from millpond.backend.keyed_backend import KeyedStateBackend
from millpond.backend.ttl_sweep import PROGRESS_BYTES
from millpond.errors import ConfigError, StoreAccessError, StoreFullError
from millpond.spi.backend import (
    AddressChange,
    Amount,
    CellMigration,
    RegisteredState,
    StateSize,
)
from millpond.spi.byte_store import META_FAMILY, ByteStore, StoreReader, named
from millpond.spi.keys import KeyLayout, end_of_prefix
from millpond.spi.parameters import KeyedBackendParameters
from millpond.spi.portable_rows import Change, Changes, ListSerializer, StateShape, StateView
from millpond.spi.tables import CellTable, MapTable, TimerRows
from millpond.state.descriptors import StateKind
from millpond.types import KeyCodec

_CHUNK = 4096


class ByteStoreView(StateView):
    """A view of the rows in a store.

    It reads from the store's own snapshot. If the store has none, it reads the store itself before
    the next write.
    """

    def __init__(self, shape: StateShape, store: ByteStore) -> None:
        super().__init__(shape)
        self._reader = store.reader()
        self._source: ByteStore | StoreReader = self._reader or store
        self._layout = KeyLayout(shape.max_parallelism)

    @override
    def rows(self, key_group: int) -> Iterator[tuple[str, list[Change]]]:
        prefix = self._layout.group_prefix(key_group)
        for meta in self.metas:
            with closing(self._source.scan(meta.name, prefix, end_of_prefix(prefix))) as scan:
                rows = whole_lists(scan) if meta.kind is StateKind.LIST else scan
                while chunk := list[Change](islice(rows, _CHUNK)):
                    yield meta.name, chunk

    @override
    def close(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()


_VERSION_KEY = b"version"
_SWEEP_KEY = b"swept/"
_MIGRATED = 1024


class ByteStoreBackend(KeyedStateBackend):
    """A keyed backend over an ordered key-value store.

    A subclass opens a store in a directory, and deletes a store that cannot be used.

    Each flush writes the name of the state's version in the same atomic batch. A flush that only
    makes room in the buffer erases the name. So a store that is found later never claims a version
    whose state it does not contain.
    """

    def __init__(self, parameters: KeyedBackendParameters) -> None:
        if parameters.directory is None:
            reason = f"the backend {self.name!r} needs a directory"
            raise ConfigError("directory", reason, "open_keyed_backend(...)")
        self._key = EncodedKey(self.name, parameters)
        super().__init__(parameters, self._key)
        versions = parameters.reuse_versions
        store = self._reusable(parameters.directory, versions) if versions else None
        if store is None:
            with named(self.name, parameters.directory):
                self.destroy_store(parameters.directory)
                store = self.open_store(parameters.directory)
        self.buffer = WriteBuffer(parameters, self._key, store, self._flush_early)
        self._store_writes = 0

    @property
    def store(self) -> ByteStore:
        """The store that flushes write to."""
        return self.buffer.store

    # ---------------------------------------------------------------- for subclasses

    @abstractmethod
    def open_store(self, directory: Path) -> ByteStore:
        """Return the open store in an existing directory. If there is no store, create it."""

    @abstractmethod
    def destroy_store(self, directory: Path) -> None:
        """Delete a closed or broken store from a directory."""

    # ---------------------------------------------------------------- opening

    def _reusable(self, directory: Path, versions: frozenset[str]) -> ByteStore | None:
        """Return the open store in `directory` if it is undamaged and has one of these versions."""
        store = None
        try:
            with named(self.name, directory):
                store = self.open_store(directory)
                found = store.get(META_FAMILY, _VERSION_KEY)
            if found and found.decode() in versions:
                self.version = found.decode()
                return store
        except (StoreAccessError, StoreFullError):
            # The store is not the cause: opening a new store would fail too.
            raise
        except Exception as error:  # noqa: BLE001 - a copy only: restore instead
            self.discarded = str(error)
        if store is not None:
            store.close()
        return None

    # ---------------------------------------------------------------- the buffer

    def _flush_early(self) -> None:
        try:
            self.flush()
        except BaseException as error:
            # The operation that needs the room may be half done, and nothing undoes it.
            self.fail(error)
            raise

    @override
    def write_changes(self, version: str | None) -> Mapping[str, Sequence[Change]]:
        batch: dict[str, Sequence[Change]] = {}
        stored: dict[str, Sequence[Change]] = {}
        for name, table in self.states.tables.items():
            changes = table.changes()  # type: ignore[union-attr]
            if changes:
                batch[name] = stored[name] = changes
                if isinstance(table, BufferedListTable):
                    stored[name] = table.stored(changes)
        if batch or version is None or self.version is None:
            marker = None if version is None else version.encode()
            notes: list[Change] = [(_VERSION_KEY, marker)]
            for name, progress in self.sweeper.progress():
                swept: Any = self.states.tables[name]
                notes.append((_SWEEP_KEY + name.encode(), progress + swept.swept))
            try:
                self.store.write({**stored, META_FAMILY: notes})
            except BaseException:
                self._settle()
                raise
            self.version = version
        for table in self.states.tables.values():
            table.flushed()  # type: ignore[union-attr]
        self.buffer.room = self.buffer.max_bytes
        self._store_writes += sum(map(len, batch.values()))
        return batch

    def _settle_all(self) -> None:
        """Flush the buffer, and a second time if entries can expire.

        The second flush removes expired entries among those that the first one has stored.
        """
        self.flush()
        if any(meta.ttl_ms is not None for meta in self.state_metas()):
            self.flush()

    def _settle(self) -> None:
        """After a failed write, find out which appended elements were stored.

        If that is impossible, the backend fails.
        """
        try:
            for table in self.states.tables.values():
                if isinstance(table, BufferedListTable):
                    table.settle()
        except BaseException as error:
            self.fail(error)
            raise

    @override
    def counters(self) -> dict[str, int]:
        stored = {"store_reads": self.buffer.reads, "store_writes": self._store_writes}
        return {**super().counters(), **stored}

    @override
    def state_sizes(self) -> dict[str, StateSize]:
        sizes = {}
        for meta in self.state_metas():
            found = self.store.family_size(self.buffer.family(meta.name))
            if found is None or meta.kind is StateKind.TIMER:
                continue
            # A large list has several rows.
            entries = Amount(found.rows, found.is_exact and meta.kind is not StateKind.LIST)
            keys = None if meta.kind is StateKind.MAP else entries
            sizes[meta.name] = StateSize(keys, entries, Amount(found.bytes, found.is_exact))
        return sizes

    @override
    def native_metrics(self) -> Mapping[str, float]:
        return self.store.metrics()

    # ---------------------------------------------------------------- clean-up

    @override
    def cleanup_planned(self, registered: RegisteredState) -> None:
        name = registered.meta.name
        known = self.store.get(META_FAMILY, _SWEEP_KEY + name.encode())
        sweep = self.sweeper.sweep_of(name)
        stored = self.restored.get(name)
        if stored is not None and stored.ttl_ms != registered.meta.ttl_ms:
            return  # entries may expire earlier than the progress says, so a new pass begins
        if known and sweep is not None:
            table: Any = self.states.tables[name]
            table.swept = known[PROGRESS_BYTES:]
            sweep.resume(known[:PROGRESS_BYTES])

    # ---------------------------------------------------------------- tables and rows

    @override
    def create_table(self, registered: RegisteredState) -> CellTable | MapTable:
        family = self.buffer.family(registered.meta.name)
        namespaces, serializer = registered.namespace_codec, registered.serializer
        if registered.map_key_codec is not None:
            map_keys = registered.map_key_codec
            is_sorted = registered.descriptor.is_sorted
            made = BufferedSortedMapTable if is_sorted else BufferedMapTable
            return made(self._key, self.buffer, family, namespaces, map_keys, serializer)
        if isinstance(serializer, ListSerializer):
            return BufferedListTable(self._key, self.buffer, family, namespaces, serializer)
        return BufferedCellTable(self._key, self.buffer, family, namespaces, serializer)

    @override
    def create_timer_rows(self, name: str) -> TimerRows:
        return BufferedTimerRows(
            self.buffer, self.buffer.family(name), list(self._key.group_prefixes.values())
        )

    @override
    def addresses(self, name: str, namespaces: KeyCodec) -> Iterator[tuple[Any, Any]]:
        self._settle_all()
        family = self.buffer.family(name)
        for group in self.key_group_range:
            rows = self.buffer.rows(family, self._key.group_prefixes[group])
            physical = (address for address, _ in rows)
            yield from self._key.layout.addresses(physical, self.key_codec, namespaces)

    @override
    def count_entries(self) -> int:
        self._settle_all()
        return sum(
            meta.kind is not StateKind.LIST or not is_piece(value)
            for meta in self.state_metas()
            if meta.kind is not StateKind.TIMER
            for _, value in self.buffer.rows(self.buffer.family(meta.name), b"")
        )

    @override
    def freeze(self) -> StateView:
        """Return a view of the store's content."""
        self.current.require_open()
        for meta in self.state_metas():
            self.buffer.family(meta.name)
        return ByteStoreView(self.shape(), self.store)

    @override
    def migrate_rows(self, state_name: str, migrate: CellMigration) -> None:
        """Replace the value of each row of a state by the result of `migrate`.

        The version name is erased first, so that a half-migrated store is never reopened.
        """
        self.flush(None)
        family = self.buffer.family(state_name)
        for _, value in self._whole_rows(state_name):
            migrate(value)  # try all rows before writing any, so that an error changes nothing
        rows = self._whole_rows(state_name)
        try:
            while chunk := list(islice(rows, _MIGRATED)):
                changes = [(key, migrate(value)) for key, value in chunk]
                self.store.write({family: self._stored(state_name, changes)})
                self.report({state_name: changes})
        except BaseException as error:
            self.fail(error)
            raise

    @override
    def readdress_rows(self, state_name: str, change: AddressChange) -> None:
        """Replace the physical key of each row of a state, one key group at a time.

        Errors have the same effects as in ``migrate_rows``.
        """
        self.flush(None)
        family, layout = self.buffer.family(state_name), self.current.layout
        for key, _ in self._whole_rows(state_name):
            change(key)
        try:
            for group in self.key_group_range:
                rows = list(self._whole_rows(state_name, layout.group_prefix(group)))
                moved = [(change(key), value) for key, value in rows]
                kept = {key for key, _ in moved}
                changes: list[Change] = [(key, None) for key, _ in rows if key not in kept]
                changes += moved
                self.store.write({family: self._stored(state_name, changes)})
                self.report({state_name: changes})
        except BaseException as error:
            self.fail(error)
            raise

    def _whole_rows(self, state_name: str, prefix: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """Iterate over a state's stored rows as portable rows. The caller may overwrite them."""
        rows = self.buffer.rows(self.buffer.family(state_name), prefix)
        return whole_lists(rows) if self.states.holds_lists(state_name) else rows

    def _stored(self, state_name: str, rows: Sequence[Change]) -> Sequence[Change]:
        """Return the rows to write to the store for portable rows of a state."""
        if not self.states.holds_lists(state_name):
            return rows
        return ListPieces(self.store, state_name).stored(list(rows), {})

    @override
    def expect_states(self, names: Iterable[str]) -> None:
        for name in names:
            self.buffer.family(name)

    @override
    def load_rows(self, state_name: str, rows: Iterable[Change]) -> None:
        family = self.buffer.family(state_name)
        self.store.write({family: self._stored(state_name, Changes.from_rows(rows))})

    @override
    def _close(self) -> None:
        if self.store.damaged:
            self.forbid_local_copy()
        self.store.close()
