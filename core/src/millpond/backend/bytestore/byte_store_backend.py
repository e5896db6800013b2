"""The whole keyed-backend SPI over a ByteStore."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any

from typing_extensions import override

from millpond.arguments import check_type
from millpond.backend.bytestore.buffered_tables import (
    BufferedCellTable,
    BufferedMapTable,
    end_of_prefix,
)
from millpond.backend.bytestore.buffered_timers import BufferedTimerRows
from millpond.backend.bytestore.store import META_FAMILY, ByteStore
from millpond.backend.bytestore.store_view import ByteStoreView
from millpond.backend.changes import Change
from millpond.backend.cleanup import PROGRESS_BYTES
from millpond.backend.failures import named
from millpond.backend.keyed import KeyedStateBackend, RegisteredState, addresses_of
from millpond.backend.migration import CellMigration
from millpond.backend.parameters import KeyedBackendParameters
from millpond.backend.state_view import StateView
from millpond.backend.tables import CellTable, MapTable
from millpond.backend.timer_queue import TimerRows
from millpond.errors import ConfigError, StoreAccessError, StoreFullError
from millpond.keygroups import key_group_prefix_bytes
from millpond.state.descriptors import StateKind
from millpond.types import KeyCodec
from millpond.untrusted import unreadable

__all__ = ["ByteStoreBackend"]

_VERSION_KEY = b"version"
_SWEEP_KEY = b"swept/"
_CHUNK = 1024
_LOAD_BATCH_BYTES = 8 << 20


class ByteStoreBackend(KeyedStateBackend):
    """A keyed backend over an ordered key-value store.

    A subclass says how a store is opened in a directory and how an unusable one is removed.
    The store's version is written with each flush, in the same atomic batch; a flush in the
    middle of a bundle erases it, so a store is never taken for more than it holds.
    """

    def __init__(self, parameters: KeyedBackendParameters) -> None:
        if parameters.directory is None:
            reason = f"the backend {self.name!r} needs a directory"
            raise ConfigError("directory", reason, "open_keyed_backend(...)")
        super().__init__(parameters)
        self.prefix: bytes | None = None
        size = self._prefix_bytes
        self._group_prefixes = {
            group: group.to_bytes(size, "big") for group in self.key_group_range
        }
        limits = parameters.config.buffer
        self._entry_cost = max(1, limits.max_bytes // limits.max_entries)
        self._room: int = limits.max_bytes
        self.store_reads = 0
        self._store_writes = 0
        self.store = self._open_reusable(parameters.directory, parameters.reuse_versions)

    @property
    def _prefix_bytes(self) -> int:
        return key_group_prefix_bytes(self.max_parallelism)

    # ---------------------------------------------------------------- what a subclass adds

    @abstractmethod
    def open_store(self, directory: Path) -> ByteStore:
        """Open the store in a directory, which exists; made anew where there is none."""

    @abstractmethod
    def destroy_store(self, directory: Path) -> None:
        """Delete a closed or broken store from a directory."""

    # ---------------------------------------------------------------- opening

    def _open_reusable(self, directory: Path, versions: frozenset[str]) -> ByteStore:
        store = self._reusable(directory, versions) if versions else None
        if store is not None:
            return store
        with named(self.name, directory):
            self.destroy_store(directory)
            return self.open_store(directory)

    def _reusable(self, directory: Path, versions: frozenset[str]) -> ByteStore | None:
        """The store that lies there, if it is at one of the versions; what is broken is not."""
        store = None
        try:
            with named(self.name, directory):
                store = self.open_store(directory)
                found = store.get(META_FAMILY, _VERSION_KEY)
            if found and found.decode() in versions:
                self.version = found.decode()
                return store
        except (StoreAccessError, StoreFullError):
            # Not the copy's fault; a new store could not be opened either.
            raise
        except Exception as error:  # noqa: BLE001 - a broken local copy is only a copy: restore instead
            self.discarded = str(error)
        if store is not None:
            store.close()
        return None

    def replace_store(self, store: ByteStore) -> None:
        """Go on with another store, before any state was requested; the old one is closed."""
        self.store = store

    def _family(self, name: str) -> str:
        if name not in self.store.families():
            self.store.create_family(name)
        return name

    # ---------------------------------------------------------------- key context

    @override
    def _select(self, key: Any, key_group: int) -> None:
        self.prefix = self._group_prefixes[key_group] + self.key_codec.encode(key)

    @override
    def _unselect(self) -> None:
        self.prefix = None

    # ---------------------------------------------------------------- the buffer

    def make_room(self, weight: int) -> None:
        """Account for a buffered entry of so many bytes; flush early where the limit is hit."""
        self._room -= max(self._entry_cost, weight)
        if self._room < 0:
            self._flush_early()

    def _flush_early(self) -> None:
        try:
            self.flush()
        except BaseException as error:
            # The operation that needs the room may be half done, and is not undone.
            self.fail(error)
            raise

    @override
    def flush(self, version: str | None = None) -> None:
        self.require_open()
        check_type("version", version, str | None)
        self.remove_expired()
        batch: dict[str, list[Change]] = {}
        for name, table in self._tables.items():
            changes = table.changes()  # type: ignore[union-attr]
            if changes:
                batch[name] = changes
        if batch or version is None or self.version is None:
            marker = None if version is None else version.encode()
            self.store.write({**batch, META_FAMILY: [(_VERSION_KEY, marker), *self._progress()]})
            self.version = version
        for table in self._tables.values():
            table.flushed()  # type: ignore[union-attr]
        self._room = self.parameters.config.buffer.max_bytes
        self._store_writes += sum(map(len, batch.values()))
        self._all_flushed()
        self._tell(batch)

    @override
    def counters(self) -> dict[str, int]:
        stored = {"store_reads": self.store_reads, "store_writes": self._store_writes}
        return {**super().counters(), **stored}

    @override
    def native_metrics(self) -> Mapping[str, float]:
        return self.store.metrics()

    # ---------------------------------------------------------------- clean-up

    @override
    def _plan_cleanup(self, fresh: RegisteredState) -> None:
        """Goes on where the last process with this store has stopped."""
        super()._plan_cleanup(fresh)
        name = fresh.meta.name
        known = self.store.get(META_FAMILY, _SWEEP_KEY + name.encode())
        if known and name in self._sweeps:
            table: Any = self._tables[name]
            table.swept = known[PROGRESS_BYTES:]
            self._sweeps[name].resume(known[:PROGRESS_BYTES])

    def _progress(self) -> Iterator[Change]:
        for name, sweep in self._sweeps.items():
            table: Any = self._tables[name]
            yield _SWEEP_KEY + name.encode(), sweep.progress() + table.swept

    # ---------------------------------------------------------------- tables and rows

    @override
    def _create_table(self, registered: RegisteredState) -> CellTable | MapTable:
        family = self._family(registered.meta.name)
        namespaces = registered.namespace_codec
        if registered.map_key_codec is not None:
            return BufferedMapTable(
                self, family, namespaces, registered.map_key_codec, registered.serializer
            )
        return BufferedCellTable(self, family, namespaces, registered.serializer)

    @override
    def _create_timer_rows(self, name: str) -> TimerRows:
        return BufferedTimerRows(self, self._family(name), list(self._group_prefixes.values()))

    def end_of_namespace(self, address: bytes, namespaces: KeyCodec) -> int:
        """Where, in a physical key, the map key begins."""
        try:
            _, end = self.key_codec.decode(address, self._prefix_bytes)
            return namespaces.decode(address, end)[1]
        except Exception as error:
            raise unreadable(self.parameters.operator.label, "", address, error) from error

    def scan_in_chunks(self, family: str, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Scan a prefix; no store iterator is open while the caller works, so it may write."""
        for chunk in self.chunks(family, prefix):
            yield from chunk

    def chunks(self, family: str, prefix: bytes) -> Iterator[list[tuple[bytes, bytes]]]:
        """The same, in lists of what was read at once."""
        start, end = prefix, end_of_prefix(prefix)
        while True:
            self.require_open()
            with closing(self.store.scan(family, start, end)) as scan:
                rows = list(islice(scan, _CHUNK))
            if rows:
                yield rows
            if len(rows) < _CHUNK:
                return
            start = rows[-1][0] + b"\0"

    @override
    def _addresses(self, name: str, namespaces: KeyCodec) -> Iterator[tuple[Any, Any]]:
        self.flush()
        family = self._family(name)
        for group in self.key_group_range:
            rows = self.scan_in_chunks(family, self._group_prefixes[group])
            physical = (address for address, _ in rows)
            yield from addresses_of(physical, self.key_codec, namespaces, self._prefix_bytes)

    @override
    def _count_entries(self) -> int:
        self.flush()
        return sum(
            1
            for meta in self.state_metas()
            if meta.kind is not StateKind.TIMER
            for _ in self.scan_in_chunks(self._family(meta.name), b"")
        )

    @override
    def freeze(self) -> StateView:
        """Through the store's own snapshot, where it has one."""
        self.require_open()
        for meta in self.state_metas():
            self._family(meta.name)
        return ByteStoreView(self.shape(), self.store)

    @override
    def migrate_rows(self, state_name: str, migrate: CellMigration) -> None:
        """The version marker goes first, so a half-done store is not used."""
        self.flush(None)
        family = self._family(state_name)
        for _, value in self.scan_in_chunks(family, b""):
            migrate(value)  # before anything is written, for a part of them would be of no type
        try:
            for chunk in self.chunks(family, b""):
                changes = [(key, migrate(value)) for key, value in chunk]
                self.store.write({family: changes})
                self._report(state_name, changes)
        except BaseException as error:
            self.fail(error)
            raise

    @override
    def expect_states(self, names: Iterable[str]) -> None:
        for name in names:
            self._family(name)

    @override
    def load_rows(self, state_name: str, rows: Iterable[Change]) -> None:
        family = self._family(state_name)
        batch: list[Change] = []
        size = 0
        for row in rows:
            batch.append(row)
            size += len(row[0]) + len(row[1] or b"")
            if size > _LOAD_BATCH_BYTES:
                self.store.write({family: batch})
                batch, size = [], 0
        if batch:
            self.store.write({family: batch})

    @override
    def _close(self) -> None:
        if self.store.damaged:
            self.distrust()
        self.store.close()
