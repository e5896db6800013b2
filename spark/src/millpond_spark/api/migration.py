"""``migrate``: the state of a query that uses Spark's own state becomes a savepoint."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from functools import reduce
from os import PathLike
from typing import Any

import attrs
from millpond.arguments import check_elements, check_type, check_within, checked
from millpond.errors import ConfigError
from millpond.functions.functions import Context, RuntimeContext
from millpond.local.savepoint_writer import SavepointWriter
from millpond.operator.bootstrap import ColumnsToStates
from millpond.state import StateDescriptor, StateKind
from millpond.types import VOID_NAMESPACE
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    IntegralType,
    MapType,
    NullType,
    StructField,
    StructType,
)
from typing_extensions import override

from millpond_spark.api.keyed_stream import key_by
from millpond_spark.driver.source_positions import QueryPositions, read_positions
from millpond_spark.plan.pointer import (
    check_query,
    checkpoint_storage,
    readable_path,
    reading_checkpoint,
)
from millpond_spark.values.schemas import brief_reason, quoted

CALL = "migrate(...)"
ENTRIES = "entries of "
NULL_KEY = "a key of the old state is null"
EVENT_TIMERS, CLOCK_TIMERS = "event-time timers", "processing-time timers"


@checked
def migrate(
    spark: SparkSession,
    checkpoint: str,
    target: str | PathLike[str],
    *,
    uid: str,
    states: Mapping[str, StateDescriptor],
    keys: Sequence[str] = (),
    event_time_timers: str | None = None,
    processing_time_timers: str | None = None,
    operator: int = 0,
    max_parallelism: int = 128,
) -> QueryPositions:
    """Write a savepoint with the state that a stopped query has in Spark's own state store.

    The arguments with expressions are Spark SQL over a table with one row per key of the old query:
    the key columns, and the columns of the old state. They are: with ``applyInPandasWithState`` the
    fields of the state, and ``timers`` if it has timeouts; with ``transformWithState`` each state
    variable, and ``timers``; with ``dropDuplicatesWithinWatermark`` ``expires``; with aggregations
    Spark's buffers, such as ``sum`` and ``count``. Times are in milliseconds.

    Args:
        spark: a session.
        checkpoint: the ``checkpointLocation`` of the old query.
        target: the path or URI of an empty or new directory for the savepoint.
        uid: the uid of the operator in the new query.
        states: for each expression, the state that receives its values: a value, a list, a map, or
            a value to add. If the expression is a variable with a time to live, each entry keeps
            its time of expiry; expired entries are left out.
        keys: expressions for the key columns of the new operator, such as ``user`` or
            ``window.start AS start``; by default the key columns of the old query.
        event_time_timers: the event-time timers of a key, a time or an array of times. Null and
            negative times set no timer.
        processing_time_timers: the processing-time timers of a key.
        operator: the number of the stateful operator in the old query; 0 is the one nearest to the
            sink.
        max_parallelism: the number of key groups of the new operator.

    Returns:
        The positions of the sources, at which the new query must start. They are also printed.

    Raises:
        ConfigError: Spark cannot read the state; or an expression is wrong; or the old state has
            timers and no argument names them; or a key is null.
        CorruptSnapshotError: a log of the old query's sources is damaged.
        RestoreError: the old query has not committed a batch.
        DirectoryNotEmptyError: `target` has files.
    """
    check_query(spark, checkpoint, None)
    check_within("operator", operator, 0, 2**31 - 1)
    if not states:
        raise ConfigError("states", "name at least one state to fill", CALL)
    for expression, descriptor in states.items():
        check_type("states", expression, str)
        check_type("states", descriptor, StateDescriptor)
    check_elements("keys", keys)
    for key in keys:
        check_type("keys", key, str)
    timers = {EVENT_TIMERS: event_time_timers, CLOCK_TIMERS: processing_time_timers}
    with reading_checkpoint(checkpoint):
        positions = read_positions(checkpoint_storage(spark, checkpoint))
        old = _OldState(spark, readable_path(spark, checkpoint), operator, positions.batch_id)
        table, key_columns = old.table()
        chosen = keys or [quoted(name) for name in key_columns]
        rows, filling = _selected(table, chosen, states, timers)
        names = rows.columns[: len(chosen)]
    writer = SavepointWriter.new_savepoint(max_parallelism)
    writer.with_operator(uid, key_by(rows, *map(quoted, names)), function=filling)
    with _explaining_null_keys():
        writer.write(target)
    print(positions)  # noqa: T201 - the user acts on it
    return positions


class MigratedStates(ColumnsToStates):
    """Fills states from columns, keeps the expiry of entries, and sets timers."""

    def __init__(
        self, plain: Sequence[StateDescriptor], expiring: Sequence[StateDescriptor]
    ) -> None:
        super().__init__(plain)
        self._with_expiry = tuple(expiring)

    @override
    def open(self, context: RuntimeContext) -> None:
        super().open(context)
        self._expiring = [
            (ENTRIES + each.name, _writer(each, context.get_namespaced_state(each, VOID_NAMESPACE)))
            for each in self._with_expiry
        ]

    @override
    def process_element(self, row: Any, context: Context) -> None:
        super().process_element(row, context)
        timers = context.timer_service()
        now = timers.current_processing_time()
        for column, write in self._expiring:
            for key, value, expires in getattr(row, column) or ():
                if expires > now:
                    write(key, value, timedelta(milliseconds=expires - now))
        for time in getattr(row, EVENT_TIMERS) or ():
            timers.register_event_time_timer(time)
        for time in getattr(row, CLOCK_TIMERS) or ():
            timers.register_processing_time_timer(time)


def _writer(descriptor: StateDescriptor, state: Any) -> Any:
    """Return a function that writes one entry: a map's key or None, the value, its time to live."""
    if descriptor.kind is StateKind.MAP:
        return state.put
    put = state.update if descriptor.kind is StateKind.VALUE else state.add
    return lambda _, value, ttl: put(value, ttl)


@attrs.frozen
class _OldState:
    """The state of one operator of a query of Spark, read by Spark's state data source."""

    spark: SparkSession
    path: str
    operator: int
    batch_id: int

    def table(self) -> tuple[DataFrame, list[str]]:
        """Return a table with one row per key, and the names of its key columns."""
        variables = self._variables()
        if variables is not None:
            return self._joined(
                [self._variable(name, kind, expires=ttl) for name, kind, ttl in variables]
            )
        df = self._read()
        value = df.schema["value"].dataType
        assert isinstance(value, StructType)
        if "groupState" in value.names:
            columns = _fields(F.col("value.groupState"), value["groupState"].dataType)
            if "timeoutTimestamp" in value.names:
                columns.append(F.col("value.timeoutTimestamp").alias("timers"))
        elif value.names == ["expiresAtMicros"]:
            columns = [F.expr("value.expiresAtMicros div 1000").alias("expires")]
        elif value.names == ["__dummy__"]:
            columns = []
        else:
            columns = _fields(F.col("value"), value)
        return _with_distinct_names(df.select(*_key_fields(df), *columns)), _key_names(df)

    def _variables(self) -> list[tuple[str, str, bool]] | None:
        """Return name, type and expiry of each variable, or None without ``transformWithState``."""
        metadata = self.spark.read.format("state-metadata").load(self.path).collect()
        mine = [row for row in metadata if row.operatorId == self.operator]
        if not mine or mine[0].operatorName == "symmetricHashJoin":
            known = ", ".join(
                sorted({f"{row.operatorId} ({row.operatorName})" for row in metadata})
            )
            existing = known or "no state"
            reason = (
                f"the query has no operator {self.operator} that can migrate; it has {existing}"
            )
            raise ConfigError("operator", reason, CALL)
        if not mine[0].operatorName.startswith("transformWithState"):
            return None
        if self.path.startswith("millpond:"):  # the metadata has absolute paths, outside the mount
            reason = (
                "Spark cannot read a state of transformWithState if the path has spaces or other "
                "characters that a URI must escape: copy the directory to a path without them, and "
                "leave the original where it is"
            )
            raise ConfigError("checkpoint", reason, CALL)
        properties = json.loads(mine[0].operatorProperties)
        found = [
            (each["stateName"], each["stateVariableType"], each["ttlEnabled"])
            for each in properties["stateVariables"]
            if not each["stateName"].startswith("$")
        ]
        has_timers = properties["timeMode"] not in ("None", "NoTime")
        return [*found, ("timers", "Timers", False)] if has_timers else found

    def _variable(self, name: str, kind: str, *, expires: bool) -> DataFrame:
        """Return the key and the columns of a state variable, or of the timers."""
        if kind == "Timers":
            timers = self._read(readRegisteredTimers="true")
            times = F.collect_list("expiration_timestamp_ms").alias(name)
            return timers.groupBy("key").agg(times)
        df = self._read(stateVarName=name, flattenCollectionTypes="false")
        column = df.columns[1]
        entries = _entries(df, column, kind, expires=expires)
        columns = [_plain(entries, kind).alias(name)]
        if expires:
            columns.append(entries.alias(ENTRIES + name))
        return df.select("key", *columns)

    def _read(self, **options: str) -> DataFrame:
        reader = self.spark.read.format("statestore").option("operatorId", self.operator)
        return reader.option("batchId", self.batch_id).options(**options).load(self.path)

    def _joined(self, parts: list[DataFrame]) -> tuple[DataFrame, list[str]]:
        """Return the variables as columns of one table; null if a key lacks a variable."""
        union = reduce(lambda a, b: a.unionByName(b, allowMissingColumns=True), parts)
        columns = [
            F.first(quoted(name), ignorenulls=True).alias(name) for name in union.columns[1:]
        ]
        joined = union.groupBy("key").agg(*columns)
        values = map(quoted, joined.columns[1:])
        return _with_distinct_names(joined.select(*_key_fields(joined), *values)), _key_names(
            joined
        )


def _entries(df: DataFrame, column: str, kind: str, *, expires: bool) -> Any:
    """Return the entries of a variable: an array of structs of key or null, value and expiry."""
    field: Any = df.schema[column].dataType
    if kind == "MapState":
        array = F.map_entries(column)
        key_type, value_type = field.keyType, field.valueType
    else:
        listed = F.col(column) if kind == "ListState" else F.array(column)
        array = F.transform(
            listed, lambda each: F.struct(F.lit(None).alias("key"), each.alias("value"))
        )
        key_type, value_type = None, field.elementType if kind == "ListState" else field
    inner = value_type["value"].dataType if expires else value_type

    def entry(each: Any) -> Any:
        value = each["value"]["value"] if expires else each["value"]
        return F.struct(
            _single(each["key"], key_type).alias("key"),
            _single(value, inner).alias("value"),
            (each["value"]["ttlExpirationMs"] if expires else F.lit(0)).alias("expires"),
        )

    return F.transform(array, entry)


def _plain(entries: Any, kind: str) -> Any:
    """Return entries as the value, list or map that they are."""
    if kind == "MapState":
        pair = F.transform(entries, lambda each: F.struct(each["key"], each["value"]))
        return F.map_from_entries(pair)
    values = F.transform(entries, lambda each: each["value"])
    return values if kind == "ListState" else values[0]


def _single(column: Any, kind: Any) -> Any:
    """Return the field of a struct with a single field, and other columns unchanged."""
    if isinstance(kind, StructType) and len(kind.names) == 1:
        return column[kind.names[0]]
    return column


def _selected(
    table: DataFrame,
    keys: Sequence[str],
    states: Mapping[str, StateDescriptor],
    timers: Mapping[str, str | None],
) -> tuple[DataFrame, MigratedStates]:
    """Return rows of keys, states and timers, and the function that reads the rows."""
    if "timers" in table.columns and not any(timers.values()):
        reason = "the old state has timers; name them, as 'timers', or as 'NULL' to leave them out"
        raise ConfigError("event_time_timers", reason, CALL)
    plain, expiring, columns = [], [], []
    for expression, descriptor in states.items():
        if _keeps_expiry(table, expression, descriptor):
            expiring.append(descriptor)
            columns.append(F.col(quoted(ENTRIES + expression)).alias(ENTRIES + descriptor.name))
        else:
            plain.append(descriptor)
            columns.append(_expression(table, "states", expression).alias(descriptor.name))
    times = [
        _times(table, name, expression or "NULL").alias(name) for name, expression in timers.items()
    ]
    found = [_not_null(table, _expression(table, "keys", key)) for key in keys]
    rows = table.select(*found, *columns, *times)
    twice = [name for name, count in Counter(rows.columns).items() if count > 1]
    if twice:
        reason = f"two keys or states have the name {twice[0]!r}; give the key another one: AS"
        raise ConfigError("keys", reason, CALL)
    return rows, MigratedStates(plain, expiring)


def _keeps_expiry(table: DataFrame, variable: str, descriptor: StateDescriptor) -> bool:
    """Return whether a variable and a state have a time to live, and are of the same kind."""
    if ENTRIES + variable not in table.columns or descriptor.ttl_config is None:
        return False
    entries: Any = table.schema[ENTRIES + variable].dataType
    value, column = entries.elementType["value"].dataType, table.schema[variable].dataType
    if descriptor.kind is StateKind.VALUE:
        return bool(column == value)
    if descriptor.kind is StateKind.LIST:
        return isinstance(column, ArrayType) and column.elementType == value
    return descriptor.kind is StateKind.MAP and isinstance(column, MapType)


def _not_null(table: DataFrame, key: Any) -> Any:
    """Return the key column, with an error of Spark in place of a null."""
    return F.coalesce(key, F.raise_error(F.lit(NULL_KEY))).alias(table.select(key).columns[0])


@contextmanager
def _explaining_null_keys() -> Iterator[None]:
    """Replace Spark's error about a null key by a ConfigError."""
    try:
        yield
    except PySparkException as error:
        if NULL_KEY not in str(error):
            raise
        cure = """replace it, as in keys=["coalesce(user, '?') AS user"], also in the new query"""
        raise ConfigError("keys", f"{NULL_KEY}; {cure}", CALL) from error


def _times(table: DataFrame, name: str, expression: str) -> Any:
    """Return the expression's times that are not null or negative, as an array."""
    parameter = name.replace(" ", "_").replace("-", "_")
    column = _expression(table, parameter, expression)
    kind = table.select(column).schema[0].dataType
    if not isinstance(kind, ArrayType):
        column, kind = F.array(column), ArrayType(kind)
    if not isinstance(kind.elementType, (IntegralType, NullType)):
        reason = f"its times must be whole numbers of milliseconds, not {kind.simpleString()}"
        raise ConfigError(parameter, reason, CALL)
    return F.filter(column.cast("array<bigint>"), lambda time: time >= 0)


def _expression(table: DataFrame, parameter: str, text: str) -> Any:
    """Return the column of an expression; raise ConfigError if Spark cannot resolve it."""
    with _explained(parameter, f"the columns of the old state are {', '.join(_shown(table))}"):
        column = F.expr(text)
        _ = table.select("*", column).schema  # next to columns, sum(x) is an error
    return column


@contextmanager
def _explained(parameter: str, cure: str) -> Iterator[None]:
    """Replace Spark's errors about an expression by a ConfigError about the user's argument."""
    try:
        yield
    except PySparkException as error:
        raise ConfigError(parameter, f"{brief_reason(error)}; {cure}", CALL) from error


def _shown(table: DataFrame) -> list[str]:
    return [name for name in table.columns if not name.startswith(ENTRIES)]


def _with_distinct_names(table: DataFrame) -> DataFrame:
    """Return the table with ``_2`` and so on after a name that occurs again, such as a second sum.

    Spark ignores the case of names. The column with the entries of a variable follows the variable.
    """
    seen: Counter[str] = Counter()
    names: list[str] = []
    for name in table.columns:
        if name.startswith(ENTRIES):
            names.append(ENTRIES + names[-1])
            continue
        seen[name.lower()] += 1
        number = seen[name.lower()]
        names.append(name if number == 1 else f"{name}_{number}")
    return table.toDF(*names)


def _fields(struct: Any, kind: Any) -> list[Any]:
    """Return the fields of a struct column as columns with the fields' names.

    Spark's optimizer reads the last of several fields with the same name for each of them, such as
    the buffers of two sums (seen in Spark 4.3). So each field gets a name of its own first.
    """
    names = [f"field {number}" for number in range(len(kind.fields))]
    fields = [
        StructField(name, each.dataType) for name, each in zip(names, kind.fields, strict=True)
    ]
    renamed = struct.cast(StructType(fields))
    return [renamed[name].alias(each) for name, each in zip(names, kind.names, strict=True)]


def _key_fields(df: DataFrame) -> list[Any]:
    return _fields(F.col("key"), df.schema["key"].dataType)


def _key_names(df: DataFrame) -> list[str]:
    key = df.schema["key"].dataType
    assert isinstance(key, StructType)
    return key.names
