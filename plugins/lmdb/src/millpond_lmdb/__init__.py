"""The LMDB backend, which keeps state on local disk, in one memory-mapped LMDB for each subtask."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

from millpond.backend import KeyedStateBackend
from millpond.spi import Capability, KeyedBackendParameters, StateBackend, hookimpl
from typing_extensions import override

from millpond_lmdb.options import LmdbOptions


class LmdbStateBackend(StateBackend):
    """The backend that keeps state in LMDB. It is fast if the state fits into the page cache."""

    name: ClassVar[str] = "lmdb"
    capabilities: ClassVar[frozenset[Capability]] = frozenset(
        {Capability.LOCAL_COPY, Capability.ASYNC_SNAPSHOT}
    )
    options: ClassVar[type[Any]] = LmdbOptions

    @override
    def create_keyed_backend(self, parameters: KeyedBackendParameters) -> KeyedStateBackend:
        from millpond_lmdb.backend import LmdbKeyedStateBackend  # noqa: PLC0415 - native

        return LmdbKeyedStateBackend(parameters, self.structured_options(parameters.options))

    @override
    def native_version(self) -> str:
        import lmdb  # noqa: PLC0415 - raises if it is not installed

        return f"lmdb {lmdb.__version__} (LMDB {'.'.join(map(str, lmdb.version()))})"


MILLPOND_API = 1


@hookimpl
def millpond_state_backends() -> Iterable[StateBackend]:
    """Return the backend ``lmdb``."""
    return [LmdbStateBackend()]
