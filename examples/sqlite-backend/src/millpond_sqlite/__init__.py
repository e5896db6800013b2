"""The state backend ``sqlite``, which stores its entries in an ordered byte store."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from millpond.backend import KeyedStateBackend
from millpond.spi import Capability, KeyedBackendParameters, StateBackend, hookimpl
from typing_extensions import override

MILLPOND_API = 1


class SqliteStateBackend(StateBackend):
    """The factory of a backend that stores state in a SQLite database."""

    name: ClassVar[str] = "sqlite"
    capabilities: ClassVar[frozenset[Capability]] = frozenset({Capability.LOCAL_COPY})

    @override
    def create_keyed_backend(self, parameters: KeyedBackendParameters) -> KeyedStateBackend:
        """Open the backend. Only now is the database's module imported."""
        from millpond_sqlite.backend import SqliteKeyedStateBackend  # noqa: PLC0415

        return SqliteKeyedStateBackend(parameters)

    @override
    def native_version(self) -> str:
        """Return the version of the SQLite library."""
        import sqlite3  # noqa: PLC0415

        return f"SQLite {sqlite3.sqlite_version}"


@hookimpl
def millpond_state_backends() -> Iterable[StateBackend]:
    """Provide the backend ``sqlite``."""
    return [SqliteStateBackend()]
