"""The open backends that this worker process keeps between tasks.

Which worker runs a subtask is Spark's choice alone, made anew in each batch: a worker keeps what
it has run last, and whoever meets the subtask next finds it here or gets it another way.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import TypeAlias

from millpond.backend import KeyedStateBackend

from millpond_spark.worker.collector import look_at_all_again

__all__ = ["keep", "let_go", "taken"]

Terms: TypeAlias = tuple[object, ...]
"""What the next task must agree in to use a backend."""

_KEPT_AT_MOST = 16
_kept: OrderedDict[Hashable, tuple[Terms, KeyedStateBackend]] = OrderedDict()


def keep(owner: Hashable, terms: Terms, backend: KeyedStateBackend) -> None:
    """Keep a backend for its owner's next task; the one that was not used for longest may go."""
    _kept[owner] = terms, backend
    while len(_kept) > _KEPT_AT_MOST:
        let_go(_kept.popitem(last=False)[1][1])


def taken(owner: Hashable) -> tuple[Terms | None, KeyedStateBackend | None]:
    """The backend that is kept for an owner, which is no longer kept then, and its terms."""
    return _kept.pop(owner, (None, None))


def let_go(backend: KeyedStateBackend) -> None:
    """Close a backend that was kept, and have the collector find what it held."""
    held = backend.num_state_entries()
    backend.close()
    if held:
        look_at_all_again()
