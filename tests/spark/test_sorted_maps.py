"""Sorted map state on Spark: streams with restarts and rescales, vectorized functions, batches."""

import millpond as mp
import pyarrow as pa
import pytest
from millpond.spark import key_by

from tests.spark.streaming import Files, output, run

pytestmark = pytest.mark.spark

OUTPUT = "k string, n bigint, nearest array<bigint>"
LAST = 4
"""The maximum number of numbers per key."""


class Greatest(mp.KeyedProcessFunction):
    """Yield a key's greatest numbers, from the greatest one."""

    def open(self, context):
        descriptor = mp.SortedMapStateDescriptor("numbers", tuple[int, str], bool)
        self.numbers = context.get_sorted_map_state(descriptor)

    def process_element(self, row, context):
        self.numbers[row.n, "x"] = True
        self.numbers.remove_range((100,))
        found = [n for (n, _), _ in self.numbers.range(reverse=True, limit=LAST)]
        yield context.current_key, row.n, found
        if len(self.numbers) > LAST:
            self.numbers.pop_first()


class GreatestInFrames(mp.VectorizedProcessFunction):
    """The same for frames of rows, by ``at``."""

    open = Greatest.open

    def process_batch(self, rows, context):
        for key, mine in context.groups():
            state = self.numbers.at(key)
            found = []
            for n in mine["n"].to_pylist():
                state[n, "x"] = True
                state.remove_range((100,))
                found.append([n for (n, _), _ in state.range(reverse=True, limit=LAST)])
                if len(state) > LAST:
                    state.pop_first()
            yield pa.table({"k": mine["k"], "n": mine["n"], "nearest": pa.array(found)})


def rows_of(batch):
    return [("ab"[n % 2], (n * 37 + batch * 11) % 127 - 9) for n in range(12)]


def expected(batches):
    """Return the rows by lists that are sorted again for each row; each batch comes in order."""
    kept, found = {}, []
    for batch in range(batches):
        for k, n in sorted(rows_of(batch), key=lambda row: row[1]):
            mine = sorted({*kept.get(k, []), n} - set(range(100, 200)), reverse=True)[:LAST]
            kept[k] = mine
            found.append((k, n, mine))
    return sorted(found)


@pytest.mark.sample(2)
@pytest.mark.parametrize("backend", ["heap", "lmdb", "rocksdb"])
@pytest.mark.parametrize("function", [Greatest, GreatestInFrames])
def test_a_stream(spark, job_conf, tmp_path, backend, function):
    """A sorted map continues after a restart and with another number of subtasks."""
    files = Files(spark, tmp_path / "in")
    for batch in range(4):
        if batch % 2 == 0:
            job_conf(state_backend=backend, parallelism=1 + batch // 2)
        files.add(*rows_of(batch))
        out = key_by(files.stream(), "k").process(
            function(), output=OUTPUT, uid="greatest", order_by="n"
        )
        run(out, tmp_path)
    assert output(spark, tmp_path) == expected(4)


@pytest.mark.parametrize("mode", ["streaming", "batch"])
def test_a_batch(spark, job_conf, mode):
    """Plain DataFrames give the same rows in both execution modes."""
    job_conf(state_backend="lmdb", parallelism=2)
    df = spark.createDataFrame(rows_of(0), "k string, n long")
    out = key_by(df, "k").process(
        Greatest(), output=OUTPUT, uid="greatest", order_by="n", execution_mode=mode
    )
    assert sorted(map(tuple, out.collect())) == expected(1)
