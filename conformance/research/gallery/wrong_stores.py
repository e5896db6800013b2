"""First gallery: mistakes in stores: sizes, scans, versions, families, readers."""

from __future__ import annotations

import locale
import os
import sqlite3
from contextlib import suppress
from pathlib import Path
from typing import Any

import millpond as mp
from millpond.config import Config
from millpond.errors import MillpondError

from conformance.research.gallery.gallery import Opener, Wrong
from conformance.research.mutants.sabotage_tools import around

SMALL = Config(buffer={"max_entries": 4})


def _value(backend: Any, kind: Any = str, name: str = "v") -> Any:
    return backend.get_partitioned_state(mp.ValueStateDescriptor(name, kind))


class EvenPages(Wrong):
    """A stored value whose length is a multiple of 65,536 loses its last byte."""

    base = "sqlite"

    def spoil(self, backend: Any) -> None:
        def get(original: Any, family: str, key: bytes) -> Any:
            found = original(family, key)
            return found[:-1] if found and len(found) % 65536 == 0 else found

        around(backend.store, "get", get)

    def show(self, opened: Opener) -> None:
        store = opened().store
        store.write({"default": [(b"k", bytes(65536))]})
        assert store.get("default", b"k") == bytes(65536)


class MegabyteValues(Wrong):
    """Values above 4 MiB are truncated."""

    base = "lmdb"

    def spoil(self, backend: Any) -> None:
        def write(original: Any, batch: Any) -> None:
            original(
                {
                    f: [(k, v if v is None else v[: 4 << 20]) for k, v in rows]
                    for f, rows in batch.items()
                }
            )

        around(backend.store, "write", write)

    def show(self, opened: Opener) -> None:
        backend = opened()
        backend.set_current_key("k")
        state = _value(backend, bytes)
        state.update(bytes(5 << 20))
        backend.flush()
        assert len(state.value()) == 5 << 20


class LongDeletes(Wrong):
    """Rows with a key of more than 510 bytes are never deleted."""

    base = "lmdb"

    def spoil(self, backend: Any) -> None:
        def write(original: Any, batch: Any) -> None:
            original(
                {
                    f: [(k, v) for k, v in rows if v is not None or len(k) <= 510]
                    for f, rows in batch.items()
                }
            )

        around(backend.store, "write", write)

    def show(self, opened: Opener) -> None:
        backend = opened()
        backend.set_current_key("k" * 600)
        state = _value(backend)
        state.update("x")
        backend.flush()
        state.clear()
        backend.flush()
        assert state.value() is None


class ManyDeletes(Wrong):
    """A write deletes at most 999 rows of a family."""

    base = "sqlite"

    def spoil(self, backend: Any) -> None:
        def write(original: Any, batch: Any) -> None:
            cut = {}
            for family, rows in batch.items():
                extra = [key for key, value in rows if value is None][999:]
                cut[family] = [row for row in rows if row[0] not in set(extra)]
            original(cut)

        around(backend.store, "write", write)

    def show(self, opened: Opener) -> None:
        backend = opened()
        for number in range(1000):
            backend.set_current_key(str(number))
            _value(backend).update("x")
        backend.flush()
        for number in range(1000):
            backend.set_current_key(str(number))
            _value(backend).clear()
        assert backend.num_state_entries() == 0


class UnorderedLongKeys(Wrong):
    """Keys with the same first 495 bytes are scanned in no order."""

    base = "lmdb"

    def spoil(self, backend: Any) -> None:
        def scan(original: Any, family: str, start: bytes, end: Any) -> Any:
            held: list[Any] = []
            for row in original(family, start, end):
                if held and (len(row[0]) < 511 or row[0][:495] != held[0][0][:495]):
                    yield from reversed(held)
                    held = []
                held.append(row)
            yield from reversed(held)

        around(backend.store, "scan", scan)

    def show(self, opened: Opener) -> None:
        backend = opened()
        backend.set_current_key("k" * 600)
        found = backend.get_partitioned_state(mp.MapStateDescriptor("m", int, int))
        found.put_all(dict.fromkeys(range(3000), 0))
        backend.flush()
        assert len(found) == 3000


class ClaimsVersion(Wrong):
    """A flush in the middle of a bundle leaves the old version in the store."""

    base = "sqlite"

    def spoil(self, backend: Any) -> None:
        def write(original: Any, batch: Any) -> None:
            meta = [row for row in batch.get("default", ()) if row != (b"version", None)]
            original({**batch, "default": meta})

        around(backend.store, "write", write)

    def show(self, opened: Opener) -> None:
        backend = opened()
        backend.set_current_key("k")
        _value(backend).update("one")
        backend.flush("v1")
        _value(backend).update("two")
        backend.flush()
        assert backend.store.get("default", b"version") is None


class ReaderMoves(Wrong):
    """A running snapshot contains later writes."""

    base = "lmdb"

    def spoil(self, backend: Any) -> None:
        class Reader:
            def scan(self, family: str, start: bytes, end: Any) -> Any:
                return backend.store.scan(family, start, end)

            def close(self) -> None:
                pass

        backend.store.reader = Reader

    def show(self, opened: Opener) -> None:
        backend = opened()
        backend.set_current_key("k")
        _value(backend).update("one")
        backend.flush()
        view = backend.freeze()
        _value(backend).update("two")
        backend.flush()
        rows = [row for group in range(128) for _, chunk in view.rows(group) for row in chunk]
        view.close()
        assert rows[0][1] != backend.store.get("v", rows[0][0])


class FamilyCase(Wrong):
    """Families whose names differ only in case are one family."""

    base = "sqlite"

    def spoil(self, backend: Any) -> None:
        for method in ("get", "scan", "create_family"):
            around(backend.store, method, lambda original, f, *rest: original(f.lower(), *rest))

        def write(original: Any, batch: Any) -> None:
            merged: dict[str, Any] = {}
            for family, rows in batch.items():
                merged.setdefault(family.lower(), []).extend(rows)
            original(merged)

        around(backend.store, "write", write)

    def show(self, opened: Opener) -> None:
        backend = opened()
        backend.set_current_key("k")
        _value(backend, name="A").update("one")
        backend.flush()
        assert _value(backend, name="a").value() is None


class PartMigrated(Wrong):
    """A migration changes only the first 1,024 entries of a state."""

    base = "sqlite"

    def spoil(self, backend: Any) -> None:
        def migrate(original: Any, name: str, change: Any) -> None:
            count = 0

            def first(value: bytes) -> Any:
                nonlocal count
                count += 1
                return change(value) if count % 5000 <= 1024 else value

            original(name, first)

        around(backend, "migrate_rows", migrate)

    def show(self, opened: Opener) -> None:
        backend = opened()
        seen = []
        backend.set_current_key("k")
        found = backend.get_partitioned_state(mp.MapStateDescriptor("m", int, int))
        found.put_all(dict.fromkeys(range(1100), 0))
        backend.migrate_rows("m", lambda value: seen.append(1) or b"x")
        rows = [v for _, v in backend.buffer.rows("m", b"")]
        assert rows == [b"x"] * 1100


class ChangesDirectory(Wrong):
    """Opening a backend changes the working directory of the process."""

    base = "sqlite"

    def spoil(self, backend: Any) -> None:
        os.chdir(backend.parameters.directory)

    def show(self, opened: Opener) -> None:
        before = Path.cwd()
        try:
            opened()
            assert Path.cwd() == before
        finally:
            os.chdir(before)


class SetsLocale(Wrong):
    """Opening a backend changes the locale of the process."""

    def spoil(self, backend: Any) -> None:
        locale.setlocale(locale.LC_CTYPE, "C")
        locale.setlocale(locale.LC_NUMERIC, "C.UTF-8")

    def show(self, opened: Opener) -> None:
        before = locale.setlocale(locale.LC_NUMERIC), locale.setlocale(locale.LC_CTYPE)
        try:
            opened()
            after = locale.setlocale(locale.LC_NUMERIC), locale.setlocale(locale.LC_CTYPE)
            assert after == before
        finally:
            locale.setlocale(locale.LC_NUMERIC, before[0])
            locale.setlocale(locale.LC_CTYPE, before[1])


class FailedWriteIsQuiet(Wrong):
    """A write that the disk refuses raises no error."""

    base = "sqlite"

    def spoil(self, backend: Any) -> None:
        def write(original: Any, batch: Any) -> None:
            with suppress(sqlite3.Error, MillpondError):
                original(batch)

        around(backend.store, "write", write)

    def show(self, opened: Opener) -> None:
        backend = opened()
        backend.set_current_key("k")
        state = _value(backend)
        backend.store._connection.execute("pragma max_page_count = 1")
        state.update("x" * 100_000)
        told = False
        try:
            backend.flush()
        except (sqlite3.Error, MillpondError):
            told = True
        assert told or state.value() is not None


class ScanEndsEarly(Wrong):
    """A scan without an end stops before a key with the byte 0xff."""

    base = "lmdb"

    def spoil(self, backend: Any) -> None:
        def scan(original: Any, family: str, start: bytes, end: Any) -> Any:
            for row in original(family, start, end):
                if end is None and row[0][:1] == b"\xff":
                    return
                yield row

        around(backend.store, "scan", scan)

    def show(self, opened: Opener) -> None:
        store = opened(max_parallelism=32768).store
        store.create_family("f")
        store.write({"f": [(b"\xff\x00", b"1")]})
        assert len(list(store.scan("f", b"", None))) == 1
