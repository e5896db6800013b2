"""The gallery: subtly wrong backends, written from the SPI and the docs without knowing the clauses.

Each changes one thing in one of our backends, and demonstrates its own mistake. The
gallery measures the kit: which of them a profile catches (``survey.py``).
"""

from __future__ import annotations

import importlib
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, ClassVar

import millpond as mp
from millpond.backend import KeyedStateBackend
from millpond.spi import KeyedBackendParameters, StateBackend
from millpond_conformance.opening import open_at

__all__ = ["GALLERY", "Opener", "Wrong", "load", "original", "room"]

HERE = Path(__file__).parent
EXAMPLE = HERE.parents[2] / "examples" / "sqlite-backend" / "src"
if str(EXAMPLE) not in sys.path:
    sys.path.append(str(EXAMPLE))

FIRST = ("wrong_maps", "wrong_cells", "wrong_times", "wrong_stores")
SECOND = ("wrong_sharing", "wrong_deltas", "wrong_reads", "wrong_sweeps", "wrong_families")
THIRD = ("third_sharing", "third_states", "third_stores", "third_times", "third_walks")
"""The modules of the third gallery, which was written after the clauses caught the earlier two."""

GALLERY: dict[str, Wrong] = {}
"""All wrong backends by name."""

_TITLES = {"heap": "Heap", "lmdb": "Lmdb", "rocksdb": "RocksDB", "sqlite": "Sqlite"}

Opener = Callable[..., KeyedStateBackend]


class Wrong(StateBackend):
    """Base class of the gallery's members: one of our backends with one thing changed.

    Attributes:
        base: the name of the backend that is changed.
    """

    MILLPOND_API = 1
    base: ClassVar[str] = "heap"

    def __init_subclass__(cls) -> None:
        cls.name = cls.__name__
        cls.capabilities = _factory(cls.base).capabilities
        GALLERY[cls.name] = cls()

    def check_options(self, options: Mapping[str, Any]) -> None:
        """Check options as the unchanged backend does."""
        _factory(self.base).check_options(options)

    def create_keyed_backend(self, parameters: KeyedBackendParameters) -> KeyedStateBackend:
        """Create the backend with its change."""
        backend = _factory(self.base).create_keyed_backend(parameters)
        self.spoil(backend)
        return backend

    def spoil(self, backend: Any) -> None:
        """Make the backend wrong."""
        raise NotImplementedError

    def show(self, opened: Opener) -> None:
        """Show the mistake: raise an AssertionError with this backend, and pass with the unchanged one."""
        raise NotImplementedError


def original(base: str) -> str:
    """Return a name by which the unchanged backend can be opened, installed or not."""
    return f"millpond_{base}:{base.title()}StateBackend" if base == "sqlite" else base


def _factory(base: str) -> StateBackend:
    """Return the factory of the unchanged backend.

    The registry would also take one that is not installed for usable from then on, and the clauses,
    collected after the gallery, would run on it too.
    """
    module = importlib.import_module(f"millpond_{base}")
    made: StateBackend = getattr(module, f"{_TITLES[base]}StateBackend")()
    return made


def load() -> dict[str, Wrong]:
    """Import the modules of the gallery, and return its members."""
    for module in (*FIRST, *SECOND, *THIRD):
        importlib.import_module(f"{__package__}.{module}")
    return GALLERY


def room(stack: ExitStack, name: str) -> Opener:
    """Yield a function that opens backends by name, each in its own directory, until the context ends.

    The directory may contain the given `versions`, as in a Spark worker.
    """
    place = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    count = 0

    def opened(**options: Any) -> KeyedStateBackend:
        nonlocal count
        count += 1
        given = {"directory": place / str(count), **options}
        if "versions" in given:
            return stack.enter_context(open_at(name, **given))
        return stack.enter_context(mp.open_keyed_backend(name, **{"key_type": str, **given}))

    return opened


def __getattr__(name: str) -> Any:
    """Find a member by the attribute `w_<name>` of this module."""
    if name.startswith("w_") and name[2:] in load():
        return GALLERY[name[2:]]
    raise AttributeError(name)
