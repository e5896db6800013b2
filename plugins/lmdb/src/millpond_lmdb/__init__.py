"""The LMDB backend: state on local disk, in one memory-mapped LMDB per subtask."""

from collections.abc import Iterable

from millpond.spi import StateBackend, hookimpl

from millpond_lmdb.factory import LmdbStateBackend

__all__ = ["LmdbStateBackend", "millpond_state_backends"]

MILLPOND_API = 1


@hookimpl
def millpond_state_backends() -> Iterable[StateBackend]:
    """Provide the backend ``lmdb``."""
    return [LmdbStateBackend()]
