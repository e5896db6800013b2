"""``spark.read.format("millpond")``: state as a DataFrame with typed columns.

The source reads a savepoint, a checkpoint directory of Millpond, or the ``checkpointLocation`` of a
query. For a ``checkpointLocation``, the option ``snapshots`` must name the checkpoint directory.

Spark plans Python data sources in a process without a session, so the source cannot ask Spark which
snapshots are committed. It uses the metadata next to the snapshots instead. If several attempts
have written snapshots of a batch, it raises an error.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, cast, get_args

import attrs
import pyarrow as pa
from millpond.backend.operator_state import OperatorStateMeta
from millpond.config import Config, S3Config
from millpond.errors import ConfigError, CorruptSnapshotError, brief
from millpond.plugins import get_registry
from millpond.savepoints.savepoint_file import is_savepoint
from millpond.snapshots.catalog import OperatorChoice, operator_named, read_catalog
from millpond.snapshots.handles import SavepointHandle
from millpond.snapshots.spark_checkpoint import last_batch, query_id
from millpond.snapshots.subtasks import newest_id
from millpond.state.names import Scope
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType
from typing_extensions import override

from millpond_cli.inspection.stored_operator import (
    StoredOperator,
    open_stored,
    pick_operator,
    state_schema,
    state_table,
)

_PLACE = 'format("millpond")'
_RULES = ("plugins.allow", "plugins.block", "plugins.disable-all")
_S3 = tuple(f"checkpoint.s3.{name.replace('_', '-')}" for name in attrs.fields_dict(S3Config))
_OPTIONS = ("path", "state", "scope", "operator", "batchId", "snapshots", *_RULES, *_S3)


class MillpondDataSource(DataSource):
    """The data source of the format ``millpond``.

    Options:

    * ``state``: the name of the state.
    * ``scope``: selects a state if several have this name: ``keyed``, ``list`` (operator state) or
      ``broadcast``.
    * ``operator``: the uid of the operator, if there are several.
    * ``batchId``: the batch; by default the last one.
    * ``snapshots``: the checkpoint directory, if the path is a ``checkpointLocation``.
    * ``plugins.allow``, ``plugins.block``, ``plugins.disable-all`` and ``checkpoint.s3.…``: as in
      the configuration. These are options here because the process that plans the reading does not
      have the session's configuration.
    """

    @classmethod
    @override
    def name(cls) -> str:
        """Return the name of the format."""
        return "millpond"

    def _operator(self) -> StoredOperator:
        """Read the options, and return the operator that they select."""
        options = {name.lower(): value for name, value in self.options.items()}
        unknown = sorted(set(options) - {name.lower() for name in _OPTIONS})
        if unknown:
            reason = f"is not an option; there are: {', '.join(_OPTIONS)}"
            raise ConfigError(unknown[0], reason, _PLACE)
        path = options.get("path")
        if path is None:
            reason = "give a savepoint or a checkpoint to load(...)"
            raise ConfigError("path", reason, _PLACE)
        given = {key: options[key] for key in (*_RULES, *_S3) if key in options}
        config = Config(given, place=_PLACE)
        registry = get_registry(config.plugins)
        given_batch = options.get("batchid")
        if given_batch is not None and not given_batch.isdecimal():
            reason = f"expected a batch's number, got {brief(given_batch)}"
            raise ConfigError("batchId", reason, _PLACE)
        batch = None if given_batch is None else int(given_batch)
        where = registry.savepoint(options.get("snapshots", path), config)
        query = last = None
        if "snapshots" in options:
            checkpoint = registry.savepoint(path, config).storage
            try:
                query = query_id(checkpoint)
            except CorruptSnapshotError as error:
                reason = (
                    f"{path} is no checkpointLocation of a Spark query; without the option "
                    "snapshots, load(...) takes a directory of Millpond"
                )
                raise ConfigError("path", reason, _PLACE) from error
            last = last_batch(checkpoint)
        wanted = operator_named(options.get("operator"), query)
        if batch is not None:
            _check_batch(batch, where, wanted, None if last is None else last + 1)
        batch = last if batch is None else batch
        at = None if batch is None else batch + 1
        found = open_stored(where, registry, at, wanted=wanted)
        mine = [each for each in found if query is None or each.operator.query == query]
        return pick_operator(mine, options.get("operator"), path)

    def _state(self, operator: StoredOperator) -> tuple[str, Scope | None]:
        """Return the name and the scope of the state that the options select."""
        options = {name.lower(): value for name, value in self.options.items()}
        if "state" not in options:
            names = ", ".join(operator.state_names())
            raise ConfigError("state", f"name one of: {names}", _PLACE)
        scope = options.get("scope")
        if scope not in (None, *get_args(Scope)):
            reason = f"expected one of {', '.join(get_args(Scope))}, got {scope!r}"
            raise ConfigError("scope", reason, _PLACE)
        return options["state"], cast("Scope | None", scope)

    @override
    def schema(self) -> StructType:
        """Return the columns of the state's table."""
        operator = self._operator()
        schema: StructType = from_arrow_schema(state_schema(operator, *self._state(operator)))
        return schema

    @override
    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a data source reader, which has a partition for each snapshot or savepoint."""
        operator = self._operator()
        return _Reader(operator, *self._state(operator))


def _check_batch(
    batch: int, where: SavepointHandle, wanted: OperatorChoice, last: int | None
) -> None:
    """Raise ConfigError if `batch` is newer than all committed batches or older than all snapshots.

    If the operator has no snapshots at all, do nothing, because reading raises an error later.

    Args:
        batch: the number of the batch.
        where: the savepoint or checkpoint directory.
        wanted: the operator.
        last: the checkpoint of the last committed batch; None if unknown.
    """
    if is_savepoint(where):
        raise ConfigError("batchId", "a savepoint holds one batch; leave it out", _PLACE)
    subtasks = read_catalog(where.storage).subtasks
    mine = [subtask for subtask in subtasks if wanted(subtask.operator)]
    ids = [handle.checkpoint_id for subtask in mine for handle in subtask.handles]
    if last is None:
        queries = {subtask.operator.query for subtask in mine}
        last = newest_id(each for each in subtasks if each.operator.query in queries)
    if ids and not min(ids) <= batch + 1 <= last:
        there = f"{min(ids) - 1} to {last - 1}" if min(ids) <= last else "none"
        raise ConfigError("batchId", f"there is no batch {batch}; there are {there}", _PLACE)


class _Part(InputPartition):
    """A Spark partition. Its value is the index of a snapshot, or None for operator state."""


class _Reader(DataSourceReader):
    """The reader of one state. Each snapshot or savepoint of the operator is a Spark partition."""

    def __init__(self, operator: StoredOperator, state: str, scope: Scope | None) -> None:
        self._operator = operator
        self._state = state
        self._scope = scope

    @override
    def partitions(self) -> Sequence[InputPartition]:
        if isinstance(self._operator.find(self._state, self._scope), OperatorStateMeta):
            return [_Part(None)]
        return [_Part(at) for at in range(len(self._operator.parts))]

    @override
    def read(self, partition: InputPartition) -> Iterator[Any]:
        whole = self._operator
        part = whole if partition.value is None else whole.part(partition.value)
        table: pa.Table = state_table(part, self._state, scope=self._scope, exact=False)
        yield from table.to_batches()
