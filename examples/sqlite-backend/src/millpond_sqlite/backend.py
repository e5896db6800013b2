"""The byte store, and the keyed backend that uses it."""

from __future__ import annotations

import sqlite3
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

from millpond.backend import ByteStoreBackend
from millpond.spi import META_FAMILY, ByteStore, WriteBatch, store_error
from typing_extensions import override

_FILE = "state.sqlite"
_FULL = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR)
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def _table(family: str) -> str:
    """Return the SQL name of the table for `family`. It has the family in hexadecimal."""
    return '"f_' + family.encode().hex() + '"'


class SqliteStore(ByteStore):
    """An ordered byte store in SQLite, with a table for each family of entries.

    The keys are blobs, which SQLite compares byte by byte. Several threads may use the store one
    after the other. The store does not override ``reader()``, so a snapshot is read before the next
    write.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        with self._failures():
            self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        try:
            # The file has one user at a time, so SQLite need not release its lock. If a process is
            # killed, the journal undoes its open transaction. To delete the journal after each
            # transaction would take a third of the system time.
            self._execute("pragma locking_mode = exclusive")
            self._execute("pragma journal_mode = persist")
            self._execute("pragma synchronous = off")
            self.create_family(META_FAMILY)
        except BaseException:
            self._connection.close()
            raise

    @contextmanager
    def _failures(self) -> Iterator[None]:
        """In the ``with`` block, replace SQLite's errors by Millpond's."""
        try:
            yield
        except sqlite3.Error as error:
            # The lowest byte of the code is the kind of error. Errors of the module have no code.
            code = getattr(error, "sqlite_errorcode", 0) & 0xFF
            damaged, full = code in _DAMAGED, code in _FULL
            self.damaged = self.damaged or damaged
            cure, place = "The text is SQLite's own; see its documentation", self._path.parent
            raise store_error("sqlite", place, error, cure, damaged=damaged, full=full) from error

    def _execute(self, sql: str, values: tuple[bytes, ...] = ()) -> Any:
        with self._failures():
            return self._connection.execute(sql, values)

    @override
    def families(self) -> list[str]:
        with self._failures():
            tables = self._connection.execute("select name from sqlite_master where type = 'table'")
            return [bytes.fromhex(name[2:]).decode() for (name,) in tables]

    @override
    def create_family(self, family: str) -> None:
        sql = f"create table if not exists {_table(family)} (k blob primary key, v blob not null)"
        self._execute(sql + " without rowid")

    @override
    def get(self, family: str, key: bytes) -> bytes | None:
        sql = f"select v from {_table(family)} where k = ?"  # noqa: S608 - the name is hexadecimal
        with self._failures():
            row = self._connection.execute(sql, (key,)).fetchone()
        return None if row is None else row[0]

    @override
    def scan(
        self, family: str, start: bytes, end: bytes | None
    ) -> Generator[tuple[bytes, bytes], None, None]:
        below = "" if end is None else "and k < ?"
        sql = f"select k, v from {_table(family)} where k >= ? {below} order by k"  # noqa: S608
        with self._failures():
            yield from self._connection.execute(sql, (start,) if end is None else (start, end))

    @override
    def write(self, batch: WriteBatch) -> None:
        with self._failures(), self._connection:  # which commits in the end, or rolls back
            self._connection.execute("begin")
            for family, changes in batch.items():
                self._apply(_table(family), changes)

    def _apply(self, table: str, changes: Sequence[tuple[bytes, bytes | None]]) -> None:
        puts = [change for change in changes if change[1] is not None]
        deletes = [(key,) for key, value in changes if value is None]
        self._connection.executemany(f"replace into {table} values (?, ?)", puts)  # noqa: S608
        self._connection.executemany(f"delete from {table} where k = ?", deletes)  # noqa: S608

    @override
    def close(self) -> None:
        self._connection.close()


class SqliteKeyedStateBackend(ByteStoreBackend):
    """Keyed state in SQLite."""

    name: ClassVar[str] = "sqlite"

    @override
    def open_store(self, directory: Path) -> ByteStore:
        return SqliteStore(directory / _FILE)

    @override
    def destroy_store(self, directory: Path) -> None:
        for path in directory.glob(f"{_FILE}*"):
            path.unlink()
