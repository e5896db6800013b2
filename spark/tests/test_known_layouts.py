"""The number of key groups of earlier queries with a uid, when its DataFrame is built."""

import millpond as mp
import pytest
from millpond.keygroups import default_max_parallelism
from millpond.operator_id import OperatorId
from millpond_spark.driver.query_start import known_max_parallelism
from millpond_spark.plan.layout import Layout, write_layout


class Nothing(mp.KeyedProcessFunction):
    """Function that keeps one value per key."""

    def open(self, context):
        self.seen = context.get_state(mp.ValueStateDescriptor("seen", int))

    def process_element(self, row, context):
        self.seen.update(1)


def known(tmp_path, parallelism, *layouts, uid="totals", **options):
    """Return the number of key groups after queries have left these layouts."""
    storage = mp.checkpoint_storage((tmp_path / "snapshots").as_uri())
    for number, layout in enumerate(layouts):
        write_layout(storage, OperatorId(f"query-{number}", uid), layout)
    config = mp.Config({"checkpoint.dir": storage.uri, **options})
    return known_max_parallelism(config, "totals", parallelism, streaming=True)


@pytest.mark.parametrize("parallelism", [1, 85, 86, 128, 129, 1000, 32768])
def test_a_new_operator_gets_flinks_default(tmp_path, parallelism):
    """Without earlier layouts it is the next power of two above 1.5 times the parallelism."""
    default = default_max_parallelism(parallelism)
    assert known(tmp_path, parallelism) == default
    assert known(tmp_path, parallelism, Layout(0, 2, 64), uid="other") == default


@pytest.mark.parametrize(
    ("stored", "parallelism", "expected"),
    [
        ((512,), 2, 512),
        ((100,), 100, 100),
        ((512, 512), 2, 512),
        ((512, 64), 2, 128),
        ((512, 64), 100, 512),
        ((128,), 129, 256),
    ],
)
def test_the_restored_number_is_adopted(tmp_path, stored, parallelism, expected):
    """If the uid's queries agree on a number, it is used, unless it is smaller than the parallelism."""
    layouts = [Layout(0, 1, number) for number in stored]
    assert known(tmp_path, parallelism, *layouts) == expected


def test_a_savepoints_number_is_adopted(tmp_path):
    """Before the first start the savepoint's number is used; its faults are reported at the start."""
    with mp.testing.KeyedOperatorHarness(Nothing(), key="k", max_parallelism=64) as harness:
        harness.process({"k": "a"})
        harness.savepoint(tmp_path / "saved")
    restore = {"checkpoint.restore": str(tmp_path / "saved")}
    assert known(tmp_path, 1, **restore) == 128
    config = mp.Config({"checkpoint.dir": (tmp_path / "snapshots").as_uri(), **restore})
    for streaming in (True, False):
        assert known_max_parallelism(config, "operator", 1, streaming=streaming) == 64
    for nowhere in (str(tmp_path / "nowhere"), "s4://x"):
        assert known(tmp_path, 1, **{"checkpoint.restore": nowhere}) == 128


def test_another_querys_damage_is_its_own_affair(tmp_path):
    """An unreadable layout of another query is ignored; that query reports it at its start."""
    layouts = (Layout(0, 1, 512), Layout(0, 1, 64))
    known(tmp_path, 1, *layouts)
    (tmp_path / "snapshots" / "query-0" / "totals" / "layout" / "00000000.json").write_text("{")
    assert known(tmp_path, 1) == 64
