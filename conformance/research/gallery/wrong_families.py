"""Second gallery: mistakes in column families, counts, migrations and reopened stores."""

from __future__ import annotations

import json
from contextlib import closing, suppress
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

import attrs
import millpond as mp
from millpond.errors import MillpondError
from millpond.spi import META_FAMILY
from millpond.state.descriptors import StateKind
from millpond_conformance.refused import largest_file
from millpond_lmdb import LmdbStateBackend
from millpond_lmdb.backend import LmdbKeyedStateBackend
from millpond_lmdb.store import LmdbStore
from millpond_sqlite.backend import SqliteKeyedStateBackend, SqliteStore, _table

from conformance.research.gallery.gallery import Opener, Wrong
from conformance.research.gallery.wrong_tools import FULL, at, configured, stored_by, works

NUMBER = mp.ValueStateDescriptor("n", int)
DATA = mp.ValueStateDescriptor("v", bytes)


class _TransactionPerFamily(SqliteStore):
    def write(self, batch: Any) -> None:
        for family, changes in batch.items():
            super().write({family: changes})


class TransactionPerFamily(Wrong):
    """The changes of each state are written in a transaction of their own."""

    base = "sqlite"

    def spoil(self, backend: Any) -> None:
        stored_by(backend, _TransactionPerFamily)

    def show(self, opened: Opener) -> None:
        with opened(versions=["none"]) as backend:
            at(backend, "k", NUMBER).update(1)
            at(backend, "k", DATA).update(b"1")
            backend.flush("one")
            at(backend, "k", NUMBER).update(2)
            at(backend, "k", DATA).update(bytes(4 << 20))
            with largest_file(1 << 20), suppress(MillpondError):
                backend.flush("two")
        again = opened(directory=backend.parameters.directory, versions=["one"])
        assert at(again, "k", NUMBER).value() == 1


class _CutNames(SqliteStore):
    @staticmethod
    def _cut(family: str) -> str:
        return family.encode()[:60].decode(errors="ignore")

    def create_family(self, family: str) -> None:
        super().create_family(self._cut(family))

    def get(self, family: str, key: bytes) -> bytes | None:
        return super().get(self._cut(family), key)

    def scan(self, family: str, start: bytes, end: bytes | None) -> Any:
        return super().scan(self._cut(family), start, end)

    def write(self, batch: Any) -> None:
        cut: dict[str, list[Any]] = {}
        for family, changes in batch.items():
            cut.setdefault(self._cut(family), []).extend(changes)
        super().write(cut)


class CutNames(Wrong):
    """States whose names have the same first 60 characters are one state."""

    base = "sqlite"

    def spoil(self, backend: Any) -> None:
        stored_by(backend, _CutNames)

    def show(self, opened: Opener) -> None:
        backend = opened()
        names = ["customer/" * 7 + end for end in ("orders", "payments")]
        for name in names:
            at(backend, "k", mp.ValueStateDescriptor(name, str)).update(name)
        backend.flush()
        for name in names:
            assert at(backend, "k", mp.ValueStateDescriptor(name, str)).value() == name


class _NumberedBySort(SqliteStore):
    def __init__(self, path: Path) -> None:
        self._listed = path.with_name(f"{path.name}.names")
        names = json.loads(self._listed.read_text()) if self._listed.exists() else []
        self._numbers = {name: str(number) for number, name in enumerate(names)}
        super().__init__(path)

    def families(self) -> list[str]:
        return [META_FAMILY, *self._numbers]

    def _number(self, family: str) -> str:
        return self._numbers.get(family, family)

    def create_family(self, family: str) -> None:
        if family != META_FAMILY and family not in self._numbers:
            self._numbers[family] = str(len(self._numbers))
            self._listed.write_text(json.dumps(sorted(self._numbers)))
        super().create_family(self._number(family))

    def get(self, family: str, key: bytes) -> bytes | None:
        return super().get(self._number(family), key)

    def scan(self, family: str, start: bytes, end: bytes | None) -> Any:
        return super().scan(self._number(family), start, end)

    def write(self, batch: Any) -> None:
        super().write({self._number(family): changes for family, changes in batch.items()})


class NumberedBySort(Wrong):
    """Tables are numbered by the order of requests, but by the order of names when a store is reopened."""

    base = "sqlite"

    def create_keyed_backend(self, parameters: Any) -> Any:
        """Create a backend whose store is opened differently."""

        class Backend(SqliteKeyedStateBackend):
            def open_store(self, directory: Path) -> Any:
                return _NumberedBySort(directory / "state.sqlite")

        return Backend(parameters)

    def show(self, opened: Opener) -> None:
        states = [mp.ValueStateDescriptor(name, str) for name in ("z", "a")]
        with opened(versions=["none"]) as backend:
            for descriptor in states:
                at(backend, "k", descriptor).update(descriptor.name)
            backend.flush("one")
        again = opened(directory=backend.parameters.directory, versions=["one"])
        for descriptor in states:
            assert at(again, "k", descriptor).value() == descriptor.name


class _RecentRows(SqliteStore):
    recent: ClassVar[dict[tuple[str, str, bytes], bytes | None]] = {}

    def get(self, family: str, key: bytes) -> bytes | None:
        place = (str(self._path), family, key)
        if place not in self.recent:
            if len(self.recent) > 10_000:
                self.recent.clear()
            self.recent[place] = super().get(family, key)
        return self.recent[place]

    def write(self, batch: Any) -> None:
        super().write(batch)
        for family, changes in batch.items():
            self.recent.update({(str(self._path), family, key): data for key, data in changes})


class RecentRows(Wrong):
    """Recently read and written rows are cached by path, and returned by the next store in that directory."""

    base = "sqlite"

    def spoil(self, backend: Any) -> None:
        stored_by(backend, _RecentRows)

    def show(self, opened: Opener) -> None:
        with opened() as backend:
            at(backend, "k", NUMBER).update(1)
            backend.flush()
        assert at(opened(directory=backend.parameters.directory), "k", NUMBER).value() is None


class _FileIsLive(SqliteStore):
    def metrics(self) -> Any:
        (pages,) = self._execute("pragma page_count").fetchone()
        return {"live_bytes": float(pages * 4096)}


class FileIsLive(Wrong):
    """The gauge `live_bytes` is the size of the file, including free pages."""

    base = "sqlite"

    def spoil(self, backend: Any) -> None:
        stored_by(backend, _FileIsLive)

    def show(self, opened: Opener) -> None:
        backend, gauges = opened(), []
        for data in (bytes(5000), None):
            for number in range(300):
                at(backend, str(number), DATA).update(data)
            backend.flush()
            gauges.append(backend.native_metrics().get("live_bytes", 0.0))
        assert gauges[1] <= gauges[0] / 2


class _MigratesEdgesTwice(SqliteKeyedStateBackend):
    def migrate_rows(self, state_name: str, migrate: Any) -> None:
        if self.states.holds_lists(state_name):
            super().migrate_rows(state_name, migrate)
            return
        self.flush(None)
        for _, data in self.store.scan(state_name, b"", None):
            migrate(data)
        start, rows = b"", [(b"", b"")] * 1000
        while len(rows) == 1000:
            with closing(self.store.scan(state_name, start, None)) as scan:
                rows = list(islice(scan, 1000))
            changes = [(key, migrate(data)) for key, data in rows]
            self.store.write({state_name: changes})
            self.report({state_name: changes})
            start = rows[-1][0] if rows else start


class MigratesEdgesTwice(Wrong):
    """A migration takes 1,000 rows at a time, and migrates the last row of each thousand twice."""

    base = "sqlite"

    def spoil(self, backend: Any) -> None:
        backend.__class__ = _MigratesEdgesTwice

    def show(self, opened: Opener) -> None:
        backend = opened(config=mp.Config(FULL))
        keys = [str(number) for number in range(1500)]
        backend.get_partitioned_state(NUMBER).update_many(keys, list(range(1500)))
        handle = backend.snapshot(1, mp.checkpoint_storage("memory:edges")).result().handle
        again = opened(restore=[handle])
        state = again.get_partitioned_state(mp.ValueStateDescriptor("n", float))
        assert state.get_many(keys).to_pylist() == list(range(1500))


class _CountsRows(SqliteKeyedStateBackend):
    def count_entries(self) -> int:
        self.flush()
        store: Any = self.store
        names = [each.name for each in self.state_metas() if each.kind is not StateKind.TIMER]
        sql = "select count(*) from {}"
        return sum(store._execute(sql.format(_table(name))).fetchone()[0] for name in names)


class CountsRows(Wrong):
    """`num_state_entries()` counts rows, of which a long list has several."""

    base = "sqlite"

    def spoil(self, backend: Any) -> None:
        backend.__class__ = _CountsRows

    def show(self, opened: Opener) -> None:
        backend = opened()
        state = at(backend, "k", mp.ListStateDescriptor("l", bytes))
        for _ in range(5):
            state.add(bytes(3000))
            backend.flush()
        assert backend.num_state_entries() == 1


class OneStateLess(Wrong):
    """One state less than configured is possible, because Millpond's own records use a place."""

    base = "lmdb"

    def create_keyed_backend(self, parameters: Any) -> Any:
        """Create a backend whose store is opened differently."""

        class Backend(LmdbKeyedStateBackend):
            def open_store(self, directory: Path) -> Any:
                most = self._options.max_states - 1
                return LmdbStore(directory / "lmdb", attrs.evolve(self._options, max_states=most))

        return Backend(parameters, LmdbStateBackend().structured_options(parameters.options))

    def show(self, opened: Opener) -> None:
        backend = opened(config=configured(self, "lmdb", {"max_states": 3}))
        with works():
            for number in range(3):
                at(backend, "k", mp.ValueStateDescriptor(f"s{number}", int)).update(number)
