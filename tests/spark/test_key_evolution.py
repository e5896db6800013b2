"""Keys of wider columns, and maps whose keys have grown, in restarted queries."""

import attrs
import millpond as mp
from millpond.spark import key_by
from streaming import Files, output, run


@attrs.frozen
class Old:
    """A map's key."""

    n: int


@attrs.frozen
class New:
    """Its successor."""

    n: int
    note: str | None = None


class Seen(mp.KeyedProcessFunction):
    """Counts the numbers of a key in a map."""

    def __init__(self, kind):
        self.kind = kind

    def open(self, context):
        self.seen = context.get_map_state(mp.MapStateDescriptor("seen", self.kind, int))

    def process_element(self, row, context):
        key = self.kind(row.n)
        self.seen[key] = self.seen.get(key, 0) + 1
        yield context.current_key, self.seen[key], len(self.seen)


def test_an_int_key_becomes_a_bigint_and_a_map_key_grows(spark, job_conf, tmp_path):
    """A column's width is no part of its key, so state and key groups stay; also at a rescale."""
    for parallelism, column, kind in ((2, "int", Old), (3, "bigint", New)):
        job_conf(state_backend="rocksdb", parallelism=parallelism)
        files = Files(spark, tmp_path / "in", f"k {column}, n bigint")
        files.count = parallelism
        files.add(*((key, 7) for key in range(-5, 5)))
        df = key_by(files.stream(), "k").process(
            Seen(kind), output="k bigint, times bigint, held bigint", uid="seen"
        )
        run(df, tmp_path)
    expected = [(key, times, 1) for key in range(-5, 5) for times in (1, 2)]
    assert output(spark, tmp_path) == sorted(expected)
