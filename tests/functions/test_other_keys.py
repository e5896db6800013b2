"""``at`` in a function of single rows selects another key until the next row or timer."""

import millpond as mp
import pytest
from millpond import errors
from millpond.functions.functions import SubtaskInfo
from millpond.functions.row_conversion import as_row
from millpond.operator.opening import open_batch_backend
from millpond.operator.operators import KeyedOperator

TOTAL = mp.ValueStateDescriptor("total", int, default=0)


class Moves(mp.KeyedProcessFunction):
    """Function that adds a number to its key's total, and then to that of another key."""

    def open(self, context):
        self.total = context.get_state(TOTAL)

    def process_element(self, row, context):
        self.add(row.n)
        yield context.current_key, self.total.value()
        if row.to:
            self.total.at(row.to)
            self.add(row.n)
            context.timer_service().register_event_time_timer(5)

    def on_timer(self, timestamp, context):
        yield context.current_key, -self.total.value()
        self.total.at("c").update(0)

    def add(self, number):
        self.total.update(self.total.value() + number)


def rows(*given):
    return [as_row(dict(zip(("k", "n", "to"), each, strict=True))) for each in given]


def run_of_rows(operator, rows, output):
    """Process rows as a worker does, which selects the key of consecutive equal rows once."""
    keyed = [(row.k, mp.assign_to_key_group(row.k, 128), row, None) for row in rows]
    operator.process_all(keyed, output)


@pytest.mark.parametrize("backend", ["heap", "rocksdb", "lmdb"])
def test_the_next_row_has_its_own_key(backend):
    """The next row has its own key, whether it is the previous key, the selected one or a third."""
    given = rows(
        ("a", 1, "b"),
        ("a", 10, "b"),
        ("b", 100, "c"),
        ("c", 1000, "c"),
        ("a", 5, "a"),
        ("a", 7, ""),
    )
    expected = [("a", 1), ("a", 11), ("b", 111), ("c", 1100), ("a", 16), ("a", 28)]
    assert mp.local.run(Moves(), given, key="k", backend=backend)[: len(given)] == expected
    with mp.testing.KeyedOperatorHarness(Moves(), key="k", backend=backend) as harness:
        run_of_rows(harness._operator, given, harness.output)
        assert harness.output == expected
        harness.output.clear()
        harness.advance_watermark(5)
        assert harness.output[:2] == [("a", -28), ("b", -111)]


@pytest.mark.parametrize(
    "call",
    [
        lambda state: state.at("b"),
        lambda state: state.get_many(["a", "b"]),
        lambda state: state.update_many(["b"], [1]),
        lambda state: state.clear_many(["b"]),
    ],
)
def test_batch_execution_has_no_other_key(call):
    """Batch execution refuses another key, and keeps the state of the current one."""

    class Reaches(Moves):
        def process_element(self, row, context):
            if row.to:
                with pytest.raises(
                    errors.BulkCallError, match="state 'total': the state of key str 'b' is not"
                ):
                    call(self.total)
            self.total.at(row.k)
            self.add(row.n)
            yield context.current_key, self.total.get_many(["a"])[0].as_py()

    output = []
    with open_batch_backend(key_type=str) as backend, mp.open_operator_backend() as own:
        operator = KeyedOperator(Reaches(), backend, SubtaskInfo("op"), own)
        with operator.opened():
            run_of_rows(operator, rows(("a", 1, ""), ("a", 10, "b"), ("a", 100, "")), output)
    assert output == [("a", 1), ("a", 11), ("a", 111)]
