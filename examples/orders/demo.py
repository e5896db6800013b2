"""Run one streaming job on each installed backend, restart it half way, and check it by SQL."""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import millpond as mp
from generate import SCHEMA, generate
from job import OUTPUT, CustomerSummary
from millpond.plugins import get_registry
from millpond.snapshots.handles import KeyedStateHandle
from millpond.spark import configure, key_by
from millpond_spark.plan.pointer import read_pointers
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery
from rich.console import Console
from rich.table import Table

CONSOLE = Console(width=110)
LOGGING = Path(__file__).with_name("log4j2.properties").resolve()
ORDER = ("ordered_at", "order_no", "line")

EXPECTED = """
with lines as (
  select *, row_number() over (partition by customer order by {order}) as n
  from orders where customer is not null
), firsts as (
  select customer, order_no, min(n) as n from lines group by customer, order_no
), baskets as (
  select customer, map_from_entries(collect_list(struct(item, q))) as basket
  from (select customer, item, sum(quantity) as q from lines group by customer, item)
  where q != 0 group by customer
)
select customer, count(*) as lines, sum(quantity * price_cents) as spent_cents,
       max(price_cents) as max_price, sum(price_cents) / count(*) as mean_price,
       first(coalesce(basket, map())) as basket,
       first(last_orders) as last_orders
from lines left join baskets using (customer) join (
  select customer, transform(slice(array_sort(collect_list(struct(n, order_no))),
         greatest(1, cast(count(*) - 2 as int)), 3), x -> x.order_no) as last_orders
  from firsts group by customer
) using (customer) group by customer
""".format(order=", ".join(ORDER))  # noqa: S608 - all parts are constants


@contextmanager
def spark_session(root: Path) -> Iterator[SparkSession]:
    """Return a small local session that listens on loopback only."""
    builder = (
        SparkSession.builder.master("local[2]")
        .appName("millpond demo")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.session.timeZone", "UTC")
        # Stopping a query in the middle of a batch logs harmless errors.
        .config("spark.log.level", "FATAL")
        .config("spark.driver.extraJavaOptions", f"-Dlog4j2.configurationFile={LOGGING.as_uri()}")
    )
    configure(builder, parallelism=2, checkpoint_dir=(root / "snapshots").as_uri())
    spark = builder.getOrCreate()
    try:
        yield spark
    finally:
        spark.stop()


def start(spark: SparkSession, root: Path, backend: str, *, to_the_end: bool) -> StreamingQuery:
    """Start the job, or continue it after a stop."""
    spark.conf.set("spark.millpond.state.backend", backend)
    orders = (
        spark.readStream.schema(SCHEMA)
        .options(maxFilesPerTrigger=1, escape='"')
        .csv(str(root / "input"))
    )
    summaries = key_by(orders, "customer", null_keys="drop").process(
        CustomerSummary(), output=OUTPUT, uid="customer-summary", order_by=ORDER
    )
    writer = (
        summaries.writeStream.format("parquet")
        .option("path", str(root / backend / "output"))
        .option("checkpointLocation", str(root / backend / "checkpoint"))
    )
    return (writer.trigger(availableNow=True) if to_the_end else writer).start()


def run_with_a_stop(spark: SparkSession, root: Path, backend: str, days: int) -> str:
    """Run over all days with a stop half way; return the rows per second of a steady batch."""
    query = start(spark, root, backend, to_the_end=False)
    while len(query.recentProgress) < days // 2 and not query.awaitTermination(0.1):
        pass
    query.stop()
    CONSOLE.print(f"  {backend}: stopped after batch {query.recentProgress[-1].batchId}, again …")
    again = start(spark, root, backend, to_the_end=True)
    again.awaitTermination()
    # The first batch of each run starts workers and compiles code.
    steady = [*query.recentProgress[1:], *again.recentProgress[1:]]
    rates = [
        each.numInputRows / each.durationMs["triggerExecution"] * 1000
        for each in steady
        if each.numInputRows
    ]
    return f"{statistics.median(rates):,.0f}" if rates else "–"


def final_summaries(spark: SparkSession, root: Path, backend: str) -> DataFrame:
    """Return each customer's last summary in the output."""
    spark.read.parquet(str(root / backend / "output")).createOrReplaceTempView("output")
    return spark.sql(
        "select * from (select *, row_number() over (partition by customer order by lines desc) "
        "as n from output) where n = 1"
    )


def comparable(rows: DataFrame) -> dict[str, tuple[Any, ...]]:
    """Return comparable summaries by customer."""
    return {
        row.customer: (
            row.lines, row.spent_cents, dict(row.basket), list(row.last_orders), row.max_price,
            row.mean_price,
        )
        for row in rows.collect()
    }  # fmt: skip


def state_size(spark: SparkSession, root: Path, backend: str) -> tuple[int, int]:
    """Return the entries in the committed state and the bytes of its snapshots."""
    storage = mp.checkpoint_storage((root / "snapshots").as_uri())
    pointers = read_pointers(spark, str(root / backend / "checkpoint"))
    handles = [KeyedStateHandle.from_json(pointer.handle, storage) for pointer in pointers]
    with mp.open_keyed_backend("heap", key_type=str, restore=handles) as opened:
        return opened.num_state_entries(), sum(handle.size for handle in handles)


def show_some(rows: dict[str, tuple[Any, ...]]) -> None:
    """Print the five customers with the largest totals."""
    table = Table("customer", "lines", "spent", "top of the basket", "last orders", "max", "mean")
    top = sorted(rows.items(), key=lambda pair: (-pair[1][1], pair[0]))[:5]
    for customer, (lines, spent, basket, last, highest, mean) in top:
        best = ", ".join(sorted(basket, key=lambda item: (-basket[item], item))[:2])
        table.add_row(
            customer, str(lines), f"{spent / 100:,.2f}", best, " ".join(last),
            f"{highest / 100:.2f}", f"{mean / 100:.2f}",
        )  # fmt: skip
    CONSOLE.print(table)


def main() -> int:
    """Run the demo; return 0 if every backend agrees with Spark's SQL."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--days", type=int, default=6)
    parser.add_argument("--lines", type=int, default=20_000, help="order lines a day")
    options = parser.parse_args()
    cloudpickle.register_pickle_by_value(sys.modules["job"])
    backends = get_registry().backend_names()
    with tempfile.TemporaryDirectory(prefix="millpond-demo-") as name:
        root = Path(name)
        lines = generate(root / "input", options.days, options.lines)
        CONSOLE.print(f"{lines:,} generated order lines of {options.days} days; the job runs on")
        CONSOLE.print(f"{', '.join(backends)} in turn, and is stopped half way each time.\n")
        with spark_session(root) as spark:
            return run_all(spark, root, backends, options.days)


def run_all(spark: SparkSession, root: Path, backends: list[str], days: int) -> int:
    """Run on each backend and compare with the batch result."""
    spark.read.schema(SCHEMA).option("escape", '"').csv(
        str(root / "input")
    ).createOrReplaceTempView("orders")
    expected = comparable(spark.sql(EXPECTED))
    report = Table(
        "backend", "rows/s, steady", "state entries", "snapshot bytes", "equals Spark SQL"
    )
    agreed = True
    for backend in backends:
        rate = run_with_a_stop(spark, root, backend, days)
        found = comparable(final_summaries(spark, root, backend))
        entries, size = state_size(spark, root, backend)
        same = found == expected
        agreed = agreed and same
        report.add_row(
            backend, rate, f"{entries:,}", f"{size:,}",
            "[green]yes[/]" if same else "[red]NO[/]",
        )  # fmt: skip
    CONSOLE.print("\nThe customers who spent most:")
    show_some(expected)
    CONSOLE.print(f"\nState of {len(expected):,} customers, on each backend:")
    CONSOLE.print(report)
    if agreed:
        CONSOLE.print("\nAll backends agree with Spark's batch SQL.")
    else:
        CONSOLE.print("\n[red]A backend differs from Spark's batch SQL.[/]")
    return 0 if agreed else 1


if __name__ == "__main__":
    sys.exit(main())
