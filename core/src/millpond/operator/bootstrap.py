"""Bootstrapping: filling the states of a new savepoint from rows. Names are Flink's."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, groupby
from typing import Any, Generic, NoReturn, TypeAlias

import attrs
from typing_extensions import TypeVar, override

from millpond.backend.single_key import FillingBackend
from millpond.config import Config
from millpond.errors import brief
from millpond.functions.functions import Context, KeyedProcessFunction, RuntimeContext
from millpond.functions.row_conversion import selector
from millpond.operator.operators import KeyedOperator
from millpond.savepoints.savepoint_file import SavedOperator
from millpond.savepoints.table_files import RowsView, SpooledRows
from millpond.snapshots.handles import SavepointHandle
from millpond.snapshots.progress import ProgressLog
from millpond.spi.portable_rows import StateShape
from millpond.state import StateDescriptor, StateKind
from millpond.types import VOID_NAMESPACE, KeyCodec

K = TypeVar("K", default=Any)
IN = TypeVar("IN", default=Any)


class KeyedStateBootstrapFunction(KeyedProcessFunction[K, IN, Any], Generic[K, IN]):
    """A function that fills the states of a savepoint; see ``SavepointWriter.with_operator``.

    ``open`` gets the states, and ``process_element`` fills the states, key by key, without yielding
    rows. A timer that the function sets fires in the job that restores the savepoint.
    """

    @abstractmethod
    @override
    def process_element(self, row: IN, context: Context[K]) -> None:
        """Put ``row`` into the states of the current key."""


class ColumnsToStates(KeyedStateBootstrapFunction):
    """Puts each column of a row into the state with the column's name; a null changes nothing.

    A value state takes the column's value, from one row per key. A list state takes all elements of
    a list, a map state all entries of a map. Other states add the value.
    """

    def __init__(self, descriptors: Sequence[StateDescriptor]) -> None:
        self._descriptors = tuple(descriptors)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns and states."""
        return tuple(descriptor.name for descriptor in self._descriptors)

    @override
    def open(self, context: RuntimeContext) -> None:
        self._filled: tuple[Any, set[str]] = (None, set())
        self._columns = []
        for descriptor in self._descriptors:
            state = context.get_namespaced_state(descriptor, VOID_NAMESPACE)
            put = getattr(state, _FILLING_METHODS[descriptor.kind])
            once = descriptor.kind is StateKind.VALUE
            self._columns.append((descriptor.name, selector(descriptor.name, "states"), put, once))

    @override
    def process_element(self, row: Any, context: Context) -> None:
        if self._filled[0] is not context.current_key:
            self._filled = (context.current_key, set())
        filled = self._filled[1]
        for name, read, put, once in self._columns:
            value = read(row)
            if value is None:
                continue
            if once and name in filled:  # the order of a key's rows is not defined
                raise ValueError(
                    f"the value state {name!r} has a value of an earlier row of this key: give one "
                    "row a key, or a KeyedStateBootstrapFunction that combines several values"
                )
            filled.add(name)
            put(value)


_FILLING_METHODS = {
    StateKind.VALUE: "update",
    StateKind.LIST: "add_all",
    StateKind.MAP: "put_all",
    StateKind.REDUCING: "add",
    StateKind.AGGREGATING: "add",
    StateKind.FOLDING: "add",
}


BootstrapRow: TypeAlias = tuple[Any, int, Any, int | None]
"""A key of the right type, its key group, a row with this key, and the row's timestamp in ms."""


@attrs.frozen
class Bootstrap:
    """The arguments for filling the state of a savepoint's new operator from rows.

    Attributes:
        uid: the operator's uid.
        function: fills the states.
        max_parallelism: the number of key groups.
        config: names the plugins that may provide types.
    """

    uid: str
    function: KeyedStateBootstrapFunction
    max_parallelism: int
    config: Config


class KeyedRows(ABC):
    """Rows with a key, from which a savepoint's state is filled: in this process, or on Spark."""

    @abstractmethod
    def check_bootstrap(self, function: KeyedStateBootstrapFunction) -> None:
        """Raise an error if the function does not fit the rows; called before writing."""

    @abstractmethod
    def bootstrap(self, job: Bootstrap, target: SavepointHandle) -> SavedOperator:
        """Write the tables of the operator that ``job`` describes into the savepoint ``target``."""

    @abstractmethod
    def bootstrap_config(self, place: str) -> Config | None:
        """Return the configuration that belongs to the rows, such as the Spark session's, or None.

        The savepoint writer uses it if it was given no configuration itself.

        Args:
            place: the path or URI of the savepoint to write.
        """


class BootstrapOperator(KeyedOperator):
    """Runs a bootstrap function, and raises an error if it yields a row."""

    def __init__(self, *args: Any, **given: Any) -> None:
        super().__init__(*args, **{**given, "check": _refuse, "checked_calls": sys.maxsize})


def _refuse(row: Any) -> NoReturn:
    raise TypeError(f"a bootstrap function fills states and gives no rows, got {brief(row)}")


def fill_states(
    operator: KeyedOperator, rows: Iterable[BootstrapRow], backend: FillingBackend
) -> None:
    """Fill the states from rows, one key after the other.

    Args:
        operator: runs the bootstrap function.
        rows: the rows, sorted by key group and key.
        backend: the operator's backend, which passes on the state of each key.
    """
    label = backend.parameters.operator.label
    progress = ProgressLog(lambda done: f"{label}: {done:,} rows are in the states")
    with operator.opened():
        operator.process_all(progress.counted(_one_object_a_key(rows, backend.current.codec)), [])
        backend.finish()


def _one_object_a_key(rows: Iterable[BootstrapRow], codec: KeyCodec) -> Iterator[BootstrapRow]:
    """Yield the rows. All rows of a key get the same key object.

    Python may find two keys equal whose bytes differ, or two keys unequal whose bytes are equal.
    """
    if codec.exact:
        yield from rows
        return
    for _, mine in groupby(rows, key=lambda row: codec.encode(row[0])):
        first = next(mine)
        for row in chain((first,), mine):
            yield (first[0], *row[1:])


def filled_view(backend: FillingBackend, spooled: SpooledRows) -> RowsView:
    """Return a view of the filled states, from which ``save_operator`` writes their tables."""
    metas = backend.states.metas()
    shape = StateShape.of_states(backend.parameters, backend.current.codec, metas)
    return RowsView(shape, spooled.rows)
