"""The jobs that the throughput benchmark compares: each sums an amount per customer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import millpond as mp
import numpy as np
import pandas as pd
import pyarrow as pa
from millpond.spark import key_by
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from typing_extensions import override

__all__ = ["CASES", "INPUT_SCHEMA", "input_schema", "session"]

STREAMING = "org.apache.spark.sql.execution.streaming"
ROCKSDB_PROVIDER = f"{STREAMING}.state.RocksDBStateStoreProvider"
DEFAULT_FILES = {
    "spark.sql.streaming.checkpointFileManagerClass": (
        f"{STREAMING}.checkpointing.FileContextBasedCheckpointFileManager"
    )
}
"""Spark's default file manager for checkpoints; ``configure`` sets another one."""


def input_schema(key: str) -> str:
    """Return the columns of the input; customers have the type of the key."""
    return f"customer {key}, amount double"


INPUT_SCHEMA = input_schema("string")


def output_schema(rows: DataFrame) -> str:
    """Return the columns of the output; customers keep the type of the input."""
    return f"customer {rows.schema['customer'].dataType.simpleString()}, total double"


class Totals(mp.KeyedProcessFunction):
    """A running total per key: read, add, write."""

    @override
    def open(self, context: mp.RuntimeContext) -> None:
        """Get the state."""
        self.total = context.get_state(mp.ValueStateDescriptor("total", float))

    @override
    def process_element(self, row: Any, context: mp.Context) -> Iterable[Any]:
        """Add the amount."""
        total = (self.total.value() or 0.0) + row.amount
        self.total.update(total)
        yield row.customer, total


class VectorizedTotals(mp.VectorizedProcessFunction):
    """A running total over frames of rows; yields one row per key, as the aggregation does."""

    @override
    def open(self, context: mp.RuntimeContext) -> None:
        """Get the state."""
        self.total = context.get_state(mp.ValueStateDescriptor("total", float))

    @override
    def process_batch(self, rows: pa.RecordBatch, context: mp.VectorizedContext) -> Any:
        """Add each key's amounts."""
        added = np.add.reduceat(rows["amount"].to_numpy(), context.offsets[:-1])
        totals = self.total.get_many(context.keys).fill_null(0.0).to_numpy() + added
        self.total.update_many(context.keys, totals)
        return pa.record_batch({"customer": context.keys, "total": totals})


def millpond_job(rows: DataFrame) -> DataFrame:
    """Millpond, with the backend that the session names."""
    return key_by(rows, "customer").process(Totals(), output=output_schema(rows), uid="totals")


def vectorized_job(rows: DataFrame) -> DataFrame:
    """Return the vectorized Millpond job."""
    return key_by(rows, "customer").process(
        VectorizedTotals(), output=output_schema(rows), uid="totals"
    )


def repartition(rows: DataFrame) -> DataFrame:
    """Return a bare shuffle with a pass through Python: the floor of every Python job."""
    count = int(rows.sparkSession.conf.get("spark.sql.shuffle.partitions") or 2)
    return rows.repartition(count, "customer").mapInPandas(lambda frames: frames, rows.schema)


def jvm_aggregation(rows: DataFrame) -> DataFrame:
    """Return Spark's own aggregation in the JVM."""
    return rows.groupBy("customer").agg(F.sum("amount").alias("total"))


class _RowProcessor(StatefulProcessor):
    @override
    def init(self, handle: StatefulProcessorHandle) -> None:
        self._total = handle.getValueState("total", "total double")

    @override
    def handleInputRows(
        self,
        key: Any,
        rows: Iterator[Any],
        timerValues: Any,
    ) -> Iterator[Any]:
        current = self._total.get()
        total = current[0] if current else 0.0
        for row in rows:
            total += row.amount
            yield Row(customer=key[0], total=total)
        self._total.update((total,))

    @override
    def close(self) -> None:
        pass


class _PandasProcessor(_RowProcessor):
    @override
    def handleInputRows(
        self,
        key: Any,
        rows: Iterator[Any],
        timerValues: Any,
    ) -> Iterator[Any]:
        current = self._total.get()
        total = current[0] if current else 0.0
        for frame in rows:
            sums = frame["amount"].cumsum() + total
            total = float(sums.iloc[-1])
            yield pd.DataFrame({"customer": key[0], "total": sums})
        self._total.update((total,))


def transform_with_state(rows: DataFrame) -> DataFrame:
    """Return Spark's ``transformWithState`` with rows."""
    return rows.groupBy("customer").transformWithState(
        _RowProcessor(), output_schema(rows), "Update", "None"
    )


def transform_with_state_in_pandas(rows: DataFrame) -> DataFrame:
    """Return Spark's ``transformWithStateInPandas``."""
    return rows.groupBy("customer").transformWithStateInPandas(
        _PandasProcessor(), output_schema(rows), "Update", "None"
    )


def apply_in_pandas_with_state(rows: DataFrame) -> DataFrame:
    """Return Spark's ``applyInPandasWithState`` with one group per key."""

    def add(key: Any, frames: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
        total = state.get[0] if state.exists else 0.0
        for frame in frames:
            sums = frame["amount"].cumsum() + total
            total = float(sums.iloc[-1])
            yield pd.DataFrame({"customer": key[0], "total": sums})
        state.update((total,))

    return rows.groupBy("customer").applyInPandasWithState(
        add, output_schema(rows), "total double", "update", "NoTimeout"
    )


Job = Callable[[DataFrame], DataFrame]

CASES: dict[str, tuple[Job, dict[str, str]]] = {
    "repartition": (repartition, {}),
    "spark-jvm-agg": (
        jvm_aggregation,
        {"spark.sql.streaming.stateStore.providerClass": ROCKSDB_PROVIDER},
    ),
    "spark-jvm-default": (
        jvm_aggregation,
        {"spark.sql.streaming.stateStore.providerClass": ROCKSDB_PROVIDER, **DEFAULT_FILES},
    ),
    "millpond-heap": (millpond_job, {"spark.millpond.state.backend": "heap"}),
    "millpond-rocksdb": (millpond_job, {"spark.millpond.state.backend": "rocksdb"}),
    "millpond-lmdb": (millpond_job, {"spark.millpond.state.backend": "lmdb"}),
    "vectorized-heap": (vectorized_job, {"spark.millpond.state.backend": "heap"}),
    "vectorized-rocksdb": (vectorized_job, {"spark.millpond.state.backend": "rocksdb"}),
    "vectorized-lmdb": (vectorized_job, {"spark.millpond.state.backend": "lmdb"}),
    "spark-tws-row": (
        transform_with_state,
        {"spark.sql.streaming.stateStore.providerClass": ROCKSDB_PROVIDER},
    ),
    "spark-tws-pandas": (
        transform_with_state_in_pandas,
        {"spark.sql.streaming.stateStore.providerClass": ROCKSDB_PROVIDER},
    ),
    "spark-aipws": (
        apply_in_pandas_with_state,
        {"spark.sql.streaming.stateStore.providerClass": ROCKSDB_PROVIDER},
    ),
}


def session(name: str, checkpoint: Path, extra: Sequence[str] = ()) -> SparkSession:
    """Return a local session with two cores and the settings of a case."""
    from millpond.spark import configure  # noqa: PLC0415 - after the module's own names

    builder = (
        SparkSession.builder.master("local[2]")
        .appName(name)
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.memory", "4g")
        .config("spark.sql.streaming.numRecentProgressUpdates", "1000")
    )
    configure(builder, parallelism=2, checkpoint_dir=checkpoint.as_uri())
    for key, value in [*CASES[name][1].items(), *(pair.split("=", 1) for pair in extra)]:
        builder.config(key, value)
    made = builder.getOrCreate()
    made.sparkContext.setLogLevel("ERROR")
    return made
