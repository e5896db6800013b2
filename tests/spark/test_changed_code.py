"""A query that is changed and started again in one session, as in a notebook."""

import attrs
import millpond as mp
import pytest
from millpond.spark import key_by
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F

from tests.spark.streaming import output, run

OUTPUT = "said string"


def first():
    """The original cell."""

    @attrs.define
    class Totals:
        count: int = 0

    class Counting(mp.KeyedProcessFunction):
        def open(self, context):
            self.totals = context.get_state(mp.ValueStateDescriptor("totals", Totals))

        def process_element(self, row, context):
            totals = self.totals.value() or Totals()
            totals.count += row.n
            self.totals.update(totals)
            yield (repr(attrs.astuple(totals)),)

    return Counting()


def changed():
    """The changed cell: a class of the same name with another field, and a wider type."""

    @attrs.define
    class Totals:
        count: float = 0.0
        last: str = "none"

    class Counting(mp.KeyedProcessFunction):
        def open(self, context):
            self.totals = context.get_state(mp.ValueStateDescriptor("totals", Totals))

        def process_element(self, row, context):
            totals = self.totals.value() or Totals()
            totals.count += row.n
            self.totals.update(totals)
            yield (repr(attrs.astuple(totals)),)
            totals.last = row.k
            self.totals.update(totals)

    return Counting()


@pytest.mark.long
def test_a_changed_class_is_migrated(spark, job_conf, files, tmp_path):
    """A new field and a wider type are migrated at a restart in the same session."""
    job_conf(state_backend="heap")
    for function in (first(), first(), changed(), changed()):
        files.add(("a", 1))
        keyed = key_by(files.stream(), "k")
        run(keyed.process(function, output=OUTPUT, uid="totals"), tmp_path)
    said = ["(1,)", "(2,)", "(3.0, 'none')", "(4.0, 'a')"]
    assert output(spark, tmp_path) == [(each,) for each in said]


def test_a_changed_key_type_is_refused_and_harms_nothing(spark, job_conf, files, tmp_path):
    """A changed key type is refused, on heap too; with the original type the state is still there."""
    job_conf(state_backend="heap")

    def restart(key):
        files.add(("a", 1))
        df = files.stream().withColumn("k", F.expr(key))
        job = key_by(df, "k").process(first(), output=OUTPUT, uid="totals")
        run(job, tmp_path)

    restart("k")
    with pytest.raises(StreamingQueryException, match="key.*str.*bytes"):
        restart("encode(k, 'utf-8')")
    restart("k")
    assert output(spark, tmp_path) == [("(1,)",), ("(2,)",), ("(3,)",)]
