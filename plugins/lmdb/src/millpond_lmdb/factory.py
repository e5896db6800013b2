"""The factory of LMDB backends; importable without lmdb."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from millpond.backend import KeyedStateBackend
from millpond.config import structure_options
from millpond.spi import Capability, KeyedBackendParameters, StateBackend
from typing_extensions import override

from millpond_lmdb.options import BACKEND, LmdbOptions


class LmdbStateBackend(StateBackend):
    """Keeps state in LMDB: reads and opens fast; best if state fits into the page cache."""

    name: ClassVar[str] = BACKEND
    capabilities: ClassVar[frozenset[Capability]] = frozenset(
        {Capability.LOCAL_COPY, Capability.ASYNC_SNAPSHOT}
    )

    @override
    def check_options(self, options: Mapping[str, Any]) -> None:
        structure_options(LmdbOptions, options, "configuration", f"backend.{BACKEND}")

    @override
    def create_keyed_backend(self, parameters: KeyedBackendParameters) -> KeyedStateBackend:
        from millpond_lmdb.backend import LmdbKeyedStateBackend  # noqa: PLC0415 - native

        return LmdbKeyedStateBackend(parameters)

    @override
    def native_version(self) -> str:
        import lmdb  # noqa: PLC0415 - raises if it is not installed

        return f"lmdb {lmdb.__version__} (LMDB {'.'.join(map(str, lmdb.version()))})"
