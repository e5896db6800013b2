"""A batch that fails after another subtask has committed, and is repeated with another division.

Usage: rerun_job.py ROOT. `configure` creates the session, on Spark's own file system.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import millpond as mp
from millpond.spark import configure, create_savepoint, key_by
from pyspark import cloudpickle
from pyspark.sql import SparkSession

KEYS = [f"c{number}" for number in range(12)]


class Totals(mp.KeyedProcessFunction):
    """Function that sums by key; if poisoned, it fails once a state partition has committed the batch.

    There is one core, so the partitions' tasks run one after the other.
    """

    def __init__(self, state, poisoned):
        self.state, self.poisoned = state, poisoned

    def open(self, context):
        self.sum = context.get_state(mp.ValueStateDescriptor("sum", int, default=0))

    def process_element(self, row, context):
        if self.poisoned and any(Path(self.state).glob("*/2.delta")):
            raise RuntimeError("poisoned")
        self.sum.update(self.sum.value() + row.amount)
        yield context.current_key, self.sum.value()


def run(spark, root, parallelism, *, poisoned=False):
    """Run the query to the end of its input; return whether it succeeded."""
    spark.conf.set("spark.millpond.parallelism", parallelism)
    rows = spark.readStream.schema("customer string, amount bigint").json(f"{root}/in")
    function = Totals(f"{root}/checkpoint/state/0", poisoned)
    made = key_by(rows, "customer").process(
        function, output="customer string, total bigint", uid="totals"
    )
    writer = made.writeStream.format("json").option("path", f"{root}/out")
    writer = writer.option("checkpointLocation", f"{root}/checkpoint").trigger(availableNow=True)
    try:
        writer.start().awaitTermination()
    except Exception as error:
        if not poisoned or "poisoned" not in str(error):
            raise
        return False
    return True


def add(root, number, amounts):
    """Write a file of input."""
    rows = [json.dumps({"customer": key, "amount": n}) for key, n in amounts.items()]
    (root / "in" / f"{number}.json").write_text("\n".join(rows))


def main(root):
    """Run two batches, the second one twice; print Spark's file manager, and the sums."""
    (root / "in").mkdir(parents=True)
    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.bindAddress", "127.0.0.1")
    builder = builder.config("spark.driver.host", "127.0.0.1").config("spark.log.level", "OFF")
    configure(builder, parallelism=2, checkpoint_dir=f"{root}/snapshots")
    spark = builder.getOrCreate()
    add(root, 0, dict.fromkeys(KEYS, 1))
    assert run(spark, root, 2)
    add(root, 1, dict.fromkeys(KEYS, 2))
    assert not run(spark, root, 3, poisoned=True)
    assert run(spark, root, 2)
    saved = create_savepoint(spark, f"{root}/checkpoint", f"{root}/saved")
    with mp.open_keyed_backend("heap", key_type=str, place="totals", restore=[saved]) as backend:
        total = backend.get_partitioned_state(mp.ValueStateDescriptor("sum", int))
        sums = {}
        for key in KEYS:
            backend.set_current_key(key)
            sums[key] = total.value()
    manager = spark.conf.get("spark.sql.streaming.checkpointFileManagerClass", "")
    sys.stdout.write(json.dumps({"manager": manager.rpartition(".")[2], "sums": sums}) + "\n")
    spark.stop()


if __name__ == "__main__":
    cloudpickle.register_pickle_by_value(sys.modules["__main__"])
    main(Path(sys.argv[1]))
