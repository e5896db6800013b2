"""Savepoints that are created from rows or rewritten from others, without Spark."""

import pickle
from datetime import timedelta

import millpond as mp
import pytest
from millpond import errors
from millpond.savepoints.savepoint_file import read_savepoint

from tests.checkpoint.stored import locate_savepoint

BACKENDS = ["heap", "rocksdb", "lmdb"]
ROWS = [
    {"customer": "ann", "spent": 2.5, "items": ["a", "b"], "prices": {"a": 1}, "peak": 3},
    {"customer": "bob", "spent": None, "items": ["c"], "prices": None, "peak": 1},
    {"customer": "ann", "spent": None, "items": ["d"], "prices": {"d": 4}, "peak": 9},
]
SPENT = mp.ValueStateDescriptor("spent", float)
ITEMS = mp.ListStateDescriptor("items", str)
PRICES = mp.MapStateDescriptor("prices", str, int)
PEAK = mp.ReducingStateDescriptor("peak", max, int)
STATES = (SPENT, ITEMS, PRICES, PEAK)
FOUND = {("ann", 2.5, "abd", "a=1 d=4", 9), ("bob", None, "c", "", 1)}


class Look(mp.KeyedProcessFunction):
    """Function that yields a key's states, and the time of a timer that fires."""

    def open(self, context):
        self.spent = context.get_state(SPENT)
        self.items = context.get_list_state(ITEMS)
        self.prices = context.get_map_state(PRICES)
        self.peak = context.get_reducing_state(PEAK)

    def process_element(self, row, context):
        prices = " ".join(f"{name}={price}" for name, price in sorted(self.prices.items()))
        items = "".join(self.items.get())
        yield context.current_key, self.spent.value(), items, prices, self.peak.get()

    def on_timer(self, timestamp, context):
        yield "timer", context.current_key, timestamp


class Filled(mp.KeyedStateBootstrapFunction):
    """Bootstrap function that fills a value state and sets a timer."""

    def open(self, context):
        self.spent = context.get_state(SPENT)

    def process_element(self, row, context):
        self.spent.update((self.spent.value() or 0.0) + row.amount)
        context.timer_service().register_event_time_timer(10)


def written(place, rows=ROWS, states=STATES, max_parallelism=16, **given):
    """Return a savepoint of an operator ``totals``."""
    writer = mp.SavepointWriter.new_savepoint(max_parallelism)
    return writer.with_operator("totals", rows, *states, key="customer", **given).write(place)


@pytest.mark.parametrize("backend", BACKENDS)
def test_columns_become_states(tmp_path, backend):
    """Rows of one key add up in lists, maps and reductions; a local run and a harness start from them."""
    written(tmp_path / "saved")
    asked = [{"customer": "ann"}, {"customer": "bob"}]
    found = mp.local.run(
        Look(), asked, key="customer", backend=backend, restore=tmp_path / "saved", uid="totals"
    )
    assert set(found) == FOUND
    halves = [mp.key_group_range(16, 2, index) for index in (0, 1)]
    output = []
    for half in halves:
        with mp.testing.KeyedOperatorHarness(
            Look(), key="customer", backend=backend, max_parallelism=16, key_group_range=half,
            restore=tmp_path / "saved",
        ) as harness:  # fmt: skip
            for row in asked:
                if mp.assign_to_key_group(row["customer"], 16) in half:
                    harness.process(row)
            output += harness.output
    assert set(output) == FOUND


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_function_fills_states_and_sets_timers(tmp_path, backend):
    """A bootstrap function gets all rows of a key; its timers fire in the job that restores them."""
    rows = [{"customer": "ann", "amount": 2.0}, {"customer": "ann", "amount": 0.5}]
    written(tmp_path / "saved", rows, (), function=Filled())
    with mp.testing.KeyedOperatorHarness(
        Look(), key="customer", backend=backend, max_parallelism=16, restore=tmp_path / "saved"
    ) as harness:
        harness.process({"customer": "ann"})
        harness.advance_watermark(10)
        assert harness.output == [("ann", 2.5, "", "", None), ("timer", "ann", 10)]


def test_values_beyond_the_natural_types_and_ttl(tmp_path):
    """A table uses exact strings if a value needs them; TTL starts when the savepoint is written."""
    rows = [{"k": "a", "n": 1}, {"k": "b", "n": 1 << 80}]
    counts = mp.ValueStateDescriptor("n", int).enable_time_to_live(
        mp.StateTtlConfig(timedelta(days=1))
    )
    writer = mp.SavepointWriter.new_savepoint().with_operator("job", rows, counts, key="k")
    assert writer.operators == ("job",)
    place = writer.write(tmp_path / "saved")
    assert len(list((tmp_path / "saved").rglob("*.parquet"))) == 1
    with mp.open_keyed_backend("heap", key_type=str, restore=[place]) as backend:
        state = backend.get_partitioned_state(counts)
        backend.set_current_key("b")
        assert state.value() == 1 << 80


def test_operators_are_added_removed_and_renamed(tmp_path):
    """A rewritten savepoint has exactly the chosen operators, and leaves the original unchanged."""
    written(tmp_path / "first")
    before = {path: path.read_bytes() for path in (tmp_path / "first").rglob("*.*")}
    writer = mp.SavepointWriter.from_existing_savepoint(tmp_path / "first")
    writer.with_operator("counts", [{"k": 1, "n": 7}], mp.ValueStateDescriptor("n", int), key="k")
    writer.change_operator_identifier("totals", "sums").remove_state("sums", "prices")
    writer.rename_state("sums", "items", "bought").write(tmp_path / "second")
    names = {
        path.relative_to(tmp_path / "second").parts[:2]
        for path in (tmp_path / "second").rglob("*.parquet")
    }
    expected = {("sums", "spent"), ("sums", "bought"), ("sums", "peak"), ("counts", "n")}
    assert names == expected
    assert {path: path.read_bytes() for path in (tmp_path / "first").rglob("*.*")} == before
    with mp.open_keyed_backend(
        "heap", key_type=str, max_parallelism=16, place="sums", restore=[tmp_path / "second"]
    ) as backend:
        backend.set_current_key("ann")
        bought = backend.get_partitioned_state(mp.ListStateDescriptor("bought", str))
        assert bought.get() == ["a", "b", "d"]
    last = mp.SavepointWriter.from_existing(tmp_path / "second").remove_operator("sums")
    last.write(tmp_path / "third")
    with mp.open_keyed_backend(
        "heap", key_type=int, max_parallelism=16, restore=[tmp_path / "third"]
    ) as backend:
        assert list(backend.keys("n")) == [1]


def test_operator_state_and_timers_are_states_too(tmp_path):
    """Broadcast state, list state and timers are kept, renamed and removed like keyed state."""

    class Rules(mp.KeyedProcessFunction, mp.CheckpointedFunction):
        def process_element(self, row, context):
            context.timer_service().register_event_time_timer(5)

        def initialize_state(self, context):
            store = context.operator_state_store
            self.seen = store.get_list_state(mp.ListStateDescriptor("seen", int))
            self.seen.add(3)

        def snapshot_state(self, context):
            """Leave the list unchanged."""

    with mp.testing.KeyedOperatorHarness(Rules(), key="k") as harness:
        harness.process({"k": "a"})
        harness.savepoint(tmp_path / "saved")
    writer = mp.SavepointWriter.from_existing(tmp_path / "saved")
    timers = "_millpond_timers_event-time"
    with pytest.raises(errors.StateNameError, match="reserved for Millpond"):
        writer.rename_state("operator", timers, "mine")
    writer.rename_state("operator", "seen", "known").remove_state("operator", timers)
    writer.write(tmp_path / "second")
    (operator,) = read_savepoint(locate_savepoint(tmp_path / "second")).operators
    assert operator.states == ()
    assert [state.meta.name for state in operator.operator_states] == ["known"]
    assert (tmp_path / "second" / "operator" / "known" / "operator.parquet").exists()


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda w: w.remove_operator("totls"), errors.NotInSavepointError, "mean 'totals'"),
        (lambda w: w.rename_operator("x", "y"), errors.NotInSavepointError, "'x'; there are: 't"),
        (lambda w: w.rename_operator("totals", "a/b"), errors.ConfigError, "letters, digits"),
        (lambda w: w.remove_state("totals", "spend"), errors.NotInSavepointError, "mean 'spent'"),
        (lambda w: w.remove_state("totls", "spent"), errors.NotInSavepointError, "no operator"),
        (lambda w: w.rename_state("totals", "spent", "peak"), errors.ArgumentValueError, "other"),
        (
            lambda w: w.rename_state("totals", "spent", "_millpond_x"),
            errors.StateNameError,
            "reserved",
        ),
        (
            lambda w: w.with_operator("totals", [], SPENT, key="customer"),
            errors.ArgumentValueError,
            "no other operator",
        ),
        (lambda w: w.with_operator("new", [], key="k"), errors.ArgumentValueError, "descriptors"),
        (lambda w: w.with_operator("new", [], SPENT), errors.ArgumentTypeError, "key: expected"),
    ],
)
def test_what_a_writer_refuses(tmp_path, change, error, message):
    """Each call refuses wrong arguments immediately and leaves the writer unchanged."""
    written(tmp_path / "saved")
    writer = mp.SavepointWriter.from_existing(tmp_path / "saved")
    with pytest.raises(error, match=message) as caught:
        change(writer)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
    assert writer.operators == ("totals",)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (
            [*ROWS, {"customer": "ann", "spent": 1.0, "items": [], "prices": {}, "peak": 1}],
            "one row",
        ),
        ([{**ROWS[0], "spent": "much"}], "expected float"),
        ([{"customer": "ann", "spend": 1.0}], "no field"),
    ],
)
def test_rows_that_cannot_be_state_leave_nothing(tmp_path, rows, message):
    """The error names key and row; no file is left, so the directory can be used again."""
    with pytest.raises(errors.UserFunctionError, match=message):
        written(tmp_path / "saved", rows)
    assert [path for path in (tmp_path / "saved").rglob("*") if path.is_file()] == []
    written(tmp_path / "saved")


def test_a_bootstrap_function_gives_no_rows(tmp_path):
    """A bootstrap function that yields rows is refused, because the rows would be lost."""

    class Yields(mp.KeyedStateBootstrapFunction):
        def process_element(self, row, context):
            yield row

    with pytest.raises(errors.UserFunctionError, match="gives no rows, got Row"):
        written(tmp_path / "saved", states=(), function=Yields())


def test_damage_and_half_a_savepoint_are_refused(tmp_path):
    """A damaged table is not copied, and a directory without its metadata is no savepoint."""
    written(tmp_path / "saved")
    table = next((tmp_path / "saved" / "totals" / "items").glob("*.parquet"))
    table.write_bytes(table.read_bytes()[:-1] + b"?")
    writer = mp.SavepointWriter.from_existing(tmp_path / "saved")
    with pytest.raises(errors.CorruptSnapshotError, match="digest is wrong"):
        writer.write(tmp_path / "copy")
    assert [path for path in (tmp_path / "copy").rglob("*") if path.is_file()] == []
    writer.remove_state("totals", "items").write(tmp_path / "copy")
    (tmp_path / "saved" / "savepoint.json").unlink()
    with pytest.raises(errors.CorruptSnapshotError, match=r"savepoint\.json"):
        mp.SavepointWriter.from_existing(tmp_path / "saved")
    with pytest.raises(errors.DirectoryNotEmptyError):
        writer.write(tmp_path / "copy")


def test_the_number_of_key_groups_of_what_is_added(tmp_path):
    """An added operator gets the other operators' number of key groups; if these differ, it must be given."""
    written(tmp_path / "few")
    writer = mp.SavepointWriter.from_existing(tmp_path / "few", max_parallelism=64)
    writer.with_operator("more", ROWS, ITEMS, key="customer").write(tmp_path / "both")
    both = read_savepoint(locate_savepoint(tmp_path / "both"))
    assert [each.max_parallelism for each in both.operators] == [16, 64]
    with pytest.raises(errors.ConfigError, match="max_parallelism: the savepoint's operators have"):
        mp.SavepointWriter.from_existing(tmp_path / "both").with_operator(
            "third", ROWS, ITEMS, key="customer"
        )
    with pytest.raises(errors.ConfigError, match="there is none"):
        mp.SavepointWriter.new_savepoint().write(tmp_path / "none")


@pytest.mark.parametrize("ttl", [False, True])
def test_a_text_is_no_list_of_letters(tmp_path, ttl):
    """A list state is filled neither from a string nor from the keys of a map; its methods refuse both too."""
    writer = mp.SavepointWriter.new_savepoint()
    letters = mp.ListStateDescriptor("letters", str)
    if ttl:
        letters.enable_time_to_live(mp.StateTtlConfig(timedelta(days=1)))
    writer.with_operator("texts", [{"k": "a", "letters": "abc"}], letters, key="k")
    with pytest.raises(errors.UserFunctionError, match="expected a collection of elements"):
        writer.write(tmp_path / "texts")
    with mp.open_keyed_backend("heap", key_type=str) as backend:
        backend.set_current_key("a")
        state = backend.get_partitioned_state(letters)
        for call in (state.add_all, state.update):
            for wrong in ("abc", bytearray(b"abc"), {"a": 1}):
                with pytest.raises(errors.ArgumentTypeError, match="values: expected a collection"):
                    call(wrong)
        with pytest.raises(errors.ArgumentTypeError, match="sources: expected a collection"):
            state.merge_namespaces(mp.VOID_NAMESPACE, "abc")
        assert state.get() == []
    with mp.open_operator_backend() as operator_state:
        split = operator_state.get_list_state(mp.ListStateDescriptor("letters", str))
        with pytest.raises(errors.ArgumentTypeError, match="values: expected a collection"):
            split.add_all("abc")


def test_a_uid_that_the_savepoint_does_not_hold(tmp_path):
    """A local run refuses a uid that the savepoint does not contain, even if there is only one operator."""
    counts = mp.ValueStateDescriptor("count", int)
    writer = mp.SavepointWriter.new_savepoint()
    writer.with_operator("mine", [{"k": "a", "count": 1}], counts, key="k").write(tmp_path / "one")
    function = mp.keyed.filter(bool)
    rows = [{"k": "a"}]
    assert mp.local.run(function, rows, key="k", restore=tmp_path / "one", uid="mine") == [("a",)]
    with pytest.raises(errors.RestoreError, match="no operator 'other'.*'mine'"):
        mp.local.run(function, rows, key="k", restore=tmp_path / "one", uid="other")
