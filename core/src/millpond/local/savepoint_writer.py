"""Writing and changing savepoints as data. Names are those of Flink's State Processor API."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from os import PathLike
from typing import Any, Self

import attrs
import pyarrow as pa
import pyarrow.compute as pc
from typing_extensions import override

from millpond.arguments import check_type, checked, nearest
from millpond.backend.bulk_keys import checked_key
from millpond.config import Config
from millpond.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    ConfigError,
    NotInSavepointError,
    brief,
)
from millpond.functions.functions import SubtaskInfo
from millpond.functions.row_conversion import as_row
from millpond.keygroups import check_parallelism
from millpond.local.local_inputs import (
    KeyOfRow,
    declared_key_type,
    iterate_rows,
    key_reader,
)
from millpond.operator.arrow_results import rows_of_table, table_of
from millpond.operator.bootstrap import (
    Bootstrap,
    BootstrapOperator,
    BootstrapRow,
    ColumnsToStates,
    KeyedRows,
    KeyedStateBootstrapFunction,
    fill_states,
    filled_view,
)
from millpond.operator.opening import Place, open_filling_backend, open_operator_backend
from millpond.operator_id import check_uid
from millpond.plugins import get_registry
from millpond.savepoints.rewriting import KeptOperator
from millpond.savepoints.savepoint_file import (
    SavedOperator,
    Savepoint,
    read_savepoint,
    reserved,
)
from millpond.savepoints.table_files import SpooledRows, save_operator
from millpond.snapshots.handles import SavepointHandle
from millpond.snapshots.snapshot_task import SnapshotTask
from millpond.spi.keys import CurrentKey
from millpond.state import StateDescriptor
from millpond.state.names import Scope
from millpond.storage.checkpoint_storage import public_uri
from millpond.types import DeclaredKeyType, infer_key_type


@attrs.frozen
class LocalRows(KeyedRows):
    """Rows in this process, as a table or other rows.

    A table is processed by key group, so that few of its rows are Python objects at the same time.
    Other rows are sorted by key in memory.
    """

    rows: pa.Table | Iterable[Any]
    key: KeyOfRow
    key_type: DeclaredKeyType[Any] | None

    @override
    def check_bootstrap(self, function: KeyedStateBootstrapFunction) -> None:
        """Do nothing. Rows that do not fit raise errors when they are read."""

    @override
    def bootstrap_config(self, place: str) -> Config | None:
        return None

    @override
    def bootstrap(self, job: Bootstrap, target: SavepointHandle) -> SavedOperator:
        kind: Any = declared_key_type(job.function, self.key, self.key_type, job.config)
        rows = self.rows if isinstance(self.rows, pa.Table) else list(map(as_row, self.rows))
        select = key_reader(self.key, "key")
        if kind is None:
            if not len(rows):
                expected = "the type of the keys, as there is no row to infer it from"
                raise ArgumentTypeError("key_type", expected, "None")
            first = rows_of_table(rows[:1]) if isinstance(rows, pa.Table) else rows
            kind = infer_key_type(select(next(iter(first))))
        with (
            SpooledRows() as spooled,
            open_filling_backend(
                spooled.add,
                key_type=kind,
                max_parallelism=job.max_parallelism,
                config=job.config,
                place=job.uid,
            ) as backend,
            open_operator_backend(config=job.config) as own,
        ):
            info = SubtaskInfo(job.uid, max_parallelism=job.max_parallelism)
            operator = BootstrapOperator(job.function, backend, info, own)
            fill_states(operator, self._sorted(rows, select, backend.current), backend)
            return save_operator(filled_view(backend, spooled), target, job.uid, SnapshotTask())

    def _sorted(
        self, rows: pa.Table | list[Any], select: Callable[[Any], Any], current: CurrentKey
    ) -> Iterator[BootstrapRow]:
        """Yield the rows sorted by key group and key. The rows of a key keep their order."""
        if not isinstance(rows, pa.Table):
            yield from _in_order(rows, select, current)
            return
        for part in _by_group(rows, select, self.key, current):
            yield from _in_order(rows_of_table(part), select, current)


_SLICE = 1 << 16
"""The number of rows that are Python objects at the same time while their keys are read."""


def _by_group(
    rows: pa.Table, select: Callable[[Any], Any], key: KeyOfRow, current: CurrentKey
) -> Iterator[pa.Table]:
    """Divide a table by key group. The rows of a key group keep their order."""
    keys = _key_columns(rows, key)
    groups = []
    for start in range(0, rows.num_rows, _SLICE):
        part = rows_of_table(keys.slice(start, _SLICE))
        found = [checked_key(current, select(row))[1] for row in part]
        groups.append(pa.array(found, pa.int32()))
    column = pa.chunked_array(groups, pa.int32()).combine_chunks()
    order = pc.sort_indices(column)  # a stable sort
    runs, start, whole = pc.run_end_encode(column.take(order)), 0, rows.combine_chunks()
    for end in runs.run_ends.to_pylist():
        yield whole.take(order[start:end])
        start = end


def _key_columns(rows: pa.Table, key: KeyOfRow) -> pa.Table:
    """Return only the columns of the key, if the table has all of them by name."""
    if callable(key):
        return rows
    names = [key] if isinstance(key, str) else list(key)
    return rows.select(names) if set(names) <= set(rows.column_names) else rows


def _in_order(
    rows: Iterable[Any], select: Callable[[Any], Any], current: CurrentKey
) -> Iterator[BootstrapRow]:
    """Check the keys of rows, and yield the rows sorted by key group and key."""
    rows = list(rows)
    keyed = [checked_key(current, select(row)) for row in rows]
    addresses = current.addresses([key for key, _ in keyed], [group for _, group in keyed])
    for at in sorted(range(len(rows)), key=addresses.__getitem__):
        yield (*keyed[at], rows[at], None)


@attrs.frozen
class _NewOperator:
    """A new operator, whose state will be filled from rows."""

    rows: KeyedRows
    function: KeyedStateBootstrapFunction


class SavepointWriter:
    """Writes a savepoint from rows, or a changed copy of another savepoint.

    Begin with ``new_savepoint`` or ``from_existing``. Each further method checks its arguments,
    changes the writer and returns the writer. Only ``write`` writes files. The existing savepoint
    is never changed.
    """

    def __init__(
        self,
        operators: dict[str, KeptOperator | _NewOperator],
        checkpoint_id: int,
        max_parallelism: int | None,
        config: Config | None,
        what: str,
    ) -> None:
        self._operators = operators
        self._checkpoint_id = checkpoint_id
        self._max_parallelism = max_parallelism
        self._config = config
        self._what = what

    @property
    def operators(self) -> tuple[str, ...]:
        """The uids of the operators to write."""
        return tuple(self._operators)

    @classmethod
    @checked
    def new_savepoint(cls, max_parallelism: int = 128, *, config: Config | None = None) -> Self:
        """Return a writer of a savepoint without operators.

        Args:
            max_parallelism: the number of key groups of the savepoint's operators.
            config: names the plugins that may provide storages and types, and configures storages.
                If rows come from Spark, it is by default the Spark session's configuration.
        """
        check_parallelism(max_parallelism)
        return cls({}, 0, max_parallelism, config, "The new savepoint")

    @classmethod
    @checked
    def from_existing(
        cls, path: Place, *, max_parallelism: int | None = None, config: Config | None = None
    ) -> Self:
        """Return a writer of a copy of a savepoint.

        Args:
            path: the savepoint's directory or URI; it remains unchanged.
            max_parallelism: the number of key groups of added operators. By default it is the
                number of the existing operators; it must be given if their numbers differ.
            config: as in ``new_savepoint``. It also limits the memory for reading.

        Raises:
            CorruptSnapshotError: there is no savepoint, or its metadata is damaged.
        """
        if max_parallelism is not None:
            check_parallelism(max_parallelism)
        source = get_registry((config or Config()).plugins).savepoint(path, config)
        savepoint = read_savepoint(source)
        groups = {operator.max_parallelism for operator in savepoint.operators}
        if max_parallelism is None and len(groups) == 1:
            (max_parallelism,) = groups
        operators = {saved.uid: KeptOperator(source, saved) for saved in savepoint.operators}
        what = f"The savepoint {public_uri(source.storage.uri)}"
        return cls(dict(operators), savepoint.checkpoint_id, max_parallelism, config, what)

    from_existing_savepoint = from_existing
    """Flink's name for ``from_existing``."""

    def with_operator(
        self,
        uid: str,
        rows: KeyedRows | Iterable[Any] | pa.Table | pa.RecordBatch,
        *states: StateDescriptor,
        function: KeyedStateBootstrapFunction | None = None,
        key: KeyOfRow | None = None,
        key_type: DeclaredKeyType[Any] | None = None,
    ) -> Self:
        """Add an operator, whose keyed state is filled from rows.

        Args:
            uid: the operator's uid. A job finds the state by this uid.
            rows: on Spark, ``key_by(df, …)`` of a DataFrame that is not streaming. Each task writes
                the state of a subtask, with the state of few keys at a time in memory. Without
                Spark, rows in any form that ``mp.local.run`` accepts. A table takes the least
                memory, because it is processed by key group. Other rows are sorted by key in
                memory, and an iterator is consumed immediately.
            states: the states to fill, each from the column of the same name. A null changes
                nothing. A value state takes the value, from one row per key. A list state takes all
                elements of a list, a map state all entries of a map. Other states add the value.
            function: a function that fills the states row by row, instead of ``states``.
            key: without Spark, the name of the key field, a list of several names, or a function
                that takes a row and returns the key.
            key_type: without Spark, the type of the keys; by default the first key's type.

        Raises:
            ArgumentValueError: the savepoint already has an operator with this uid.
            ConfigError: the uid is invalid; the rows have no column with a state's name; or
                ``max_parallelism`` is missing although the existing operators have different
                numbers of key groups.
        """
        check_uid(uid, "with_operator(...)")
        for state in states:
            check_type("states", state, StateDescriptor)
        check_type("function", function, KeyedStateBootstrapFunction | None)
        if bool(states) == (function is not None):
            raise ArgumentValueError("states", "descriptors, or else a function", f"{len(states)}")
        names = [state.name for state in states]
        if len(set(names)) < len(names):
            raise ArgumentValueError("states", "one descriptor a state", ", ".join(names))
        self._require_unused("uid", uid)
        if self._max_parallelism is None:
            reason = "the savepoint's operators have different ones: name that of the new operator"
            raise ConfigError("max_parallelism", reason, "from_existing(...)")
        keyed = _keyed(rows, key, key_type)
        filling = function or ColumnsToStates(states)
        keyed.check_bootstrap(filling)
        self._operators[uid] = _NewOperator(keyed, filling)
        return self

    @checked
    def remove_operator(self, uid: str) -> Self:
        """Leave out the operator ``uid``; raise NotInSavepointError if it does not exist."""
        self._require(uid)
        del self._operators[uid]
        return self

    @checked
    def rename_operator(self, uid: str, new_uid: str) -> Self:
        """Store the state of the operator ``uid`` under ``new_uid``.

        Raises:
            NotInSavepointError: there is no operator ``uid``.
            ArgumentValueError: there is an operator ``new_uid`` already.
            ConfigError: ``new_uid`` is invalid.
        """
        self._require(uid)
        self._require_unused("new_uid", check_uid(new_uid, "rename_operator(...)"))
        self._operators = {
            new_uid if known == uid else known: operator
            for known, operator in self._operators.items()
        }
        return self

    change_operator_identifier = rename_operator
    """Flink's name for ``rename_operator``."""

    @checked
    def remove_state(self, uid: str, name: str, scope: Scope | None = None) -> Self:
        """Leave out a state: keyed, operator or broadcast state, or the timers of a time domain.

        Args:
            uid: the operator's uid.
            name: the state's name.
            scope: ``keyed``, ``list`` (operator state) or ``broadcast``; needed only if several
                states of the operator have this name.

        Raises:
            NotInSavepointError: the operator does not exist, or the operator has no such state.
            ArgumentValueError: the operator was added by ``with_operator``; or several states of
                the operator have the name, and ``scope`` is missing.
        """
        self._operators[uid] = self._kept(uid).without_state(name, scope)
        return self

    @checked
    def rename_state(self, uid: str, name: str, new_name: str, scope: Scope | None = None) -> Self:
        """Give a state another name; see ``remove_state`` for the arguments.

        Raises:
            NotInSavepointError: the operator does not exist, or the operator has no such state.
            ArgumentValueError: the operator was added by ``with_operator``; or the operator already
                has a state with the new name in the same scope; or several states of the operator
                have the old name, and ``scope`` is missing.
            StateNameError: one of the names is reserved for Millpond, or the new name is invalid.
        """
        self._operators[uid] = self._kept(uid).with_state_renamed(name, new_name, scope)
        return self

    @checked
    def write(self, path: Place) -> SavepointHandle:
        """Write the savepoint to a new directory; its metadata file is written last.

        If writing fails, the written files are deleted. If the process is killed, a marker file in
        the directory shows that the savepoint is incomplete.

        Raises:
            ConfigError: there is no operator.
            DirectoryNotEmptyError: the directory contains files.
            CorruptSnapshotError: the copied savepoint is damaged.
        """
        if not self._operators:
            reason = "there is none: a savepoint holds the state of one or more"
            raise ConfigError("operators", reason, "write(...)")
        config = self._chosen_config(path)
        target = get_registry(config.plugins).savepoint(path, config)
        with reserved(target, self._operators) as reservation:
            saved = []
            for uid, operator in self._operators.items():
                if isinstance(operator, KeptOperator):
                    saved.append(operator.copied(uid, target))
                    continue
                assert self._max_parallelism is not None
                job = Bootstrap(uid, operator.function, self._max_parallelism, config)
                saved.append(operator.rows.bootstrap(job, target))
            reservation.complete(Savepoint(self._checkpoint_id, tuple(saved)))
        return target

    def _chosen_config(self, path: Place) -> Config:
        """Return the configuration of the writer, or else of the first rows that have one."""
        if self._config is not None:
            return self._config
        place = str(path) if isinstance(path, (str, PathLike)) else ""
        new = [each for each in self._operators.values() if isinstance(each, _NewOperator)]
        given = (each.rows.bootstrap_config(place) for each in new)
        return next(filter(None, given), Config())

    def _kept(self, uid: str) -> KeptOperator:
        """Return an operator of the existing savepoint.

        Raises:
            ArgumentValueError: the operator was added by ``with_operator``.
        """
        self._require(uid)
        operator = self._operators[uid]
        if not isinstance(operator, KeptOperator):
            raise ArgumentValueError("uid", "an operator of the savepoint that was read", repr(uid))
        return operator

    def _require(self, uid: str) -> None:
        """Raise NotInSavepointError if there is no operator ``uid``."""
        known = self.operators
        if uid not in known:
            raise NotInSavepointError(
                self._what, kind="operator", name=uid, known=known, suggestion=nearest(uid, known)
            )

    def _require_unused(self, argument: str, uid: str) -> None:
        """Raise an ArgumentValueError about ``argument`` if an operator already has ``uid``."""
        if uid in self._operators:
            raise ArgumentValueError(argument, "the uid of no other operator", repr(uid))


def _keyed(rows: Any, key: KeyOfRow | None, key_type: DeclaredKeyType[Any] | None) -> KeyedRows:
    """Check the arguments of ``with_operator``, and return the rows with their key."""
    if isinstance(rows, KeyedRows):
        if key is not None or key_type is not None:
            raise ArgumentValueError("key", "None, for the rows are keyed", brief(key or key_type))
        return rows
    if type(rows).__module__.startswith("pyspark."):
        raise ArgumentTypeError("rows", "a keyed DataFrame: millpond.spark.key_by(df, …)", "one")
    table = table_of(rows)
    given = iterate_rows(rows) if table is None else table
    if isinstance(given, Iterator):  # each call of ``write`` iterates over the rows
        given = list(given)
    if key is None:
        raise ArgumentTypeError("key", "a field's name or a function of the row", "None")
    key_reader(key, "key")
    return LocalRows(given, key, key_type)
