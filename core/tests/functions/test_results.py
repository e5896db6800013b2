"""Results and errors of functions, as users see them, without Spark."""

import functools

import millpond as mp
import pytest
from millpond import errors
from millpond.local.harness import KeyedOperatorHarness
from millpond.windows import TumblingEventTimeWindows, window

ROWS = [{"k": "a", "n": 1}]


def returning(value):
    """Return a function that returns a value for each row instead of yielding."""

    class Returning(mp.KeyedProcessFunction):
        def process_element(self, row, context):
            return value

    return Returning()


@pytest.mark.parametrize(
    "value", [5, "text", b"bytes", ("a", 1), {"k": 1}, len, 1.5, True], ids=repr
)
def test_one_row_is_no_collection_of_rows(value):
    """A returned single row or value is refused with method, file and line."""
    with pytest.raises(errors.UserFunctionError) as caught:
        mp.local.run(returning(value), ROWS, key="k")
    said = str(caught.value)
    assert f"it returned {errors.brief(value)} instead of rows: yield each row" in said
    assert "Returning.process_element" in said
    assert "test_results.py, line " in said
    with (
        pytest.raises(errors.UserFunctionError, match="instead of rows"),
        KeyedOperatorHarness(returning(value), key="k") as harness,
    ):
        harness.process(ROWS[0])


@pytest.mark.parametrize("value", [[("a", 1)], {3}, iter([3]), range(2), (x for x in [1]), []])
def test_collections_of_rows(value):
    """Lists, sets, iterators and generators of rows are accepted."""
    assert isinstance(mp.local.run(returning(value), ROWS, key="k"), list)


def test_an_iterator_that_is_empty():
    """A StopIteration of ``next`` in a generator is reported with the line of ``next``."""

    class Taking(mp.KeyedProcessFunction):
        def process_element(self, row, context):
            yield next(iter(()))

    with pytest.raises(errors.UserFunctionError) as caught:
        mp.local.run(Taking(), ROWS, key="k")
    line = Taking.process_element.__code__.co_firstlineno + 1
    assert (caught.value.file, caught.value.line) == (__file__, line)


def test_on_timer_and_windows_keep_the_same_rule():
    """A single row that a timer's or a window's function returns is refused too."""

    class Timed(mp.KeyedProcessFunction):
        def process_element(self, row, context):
            context.timer_service().register_event_time_timer(1)

        def on_timer(self, timestamp, context):
            return "fired"

    with pytest.raises(errors.UserFunctionError, match="returned str 'fired'.*Timed.on_timer"):
        mp.local.run(Timed(), ROWS, key="k")
    counting = window(TumblingEventTimeWindows.of(10)).process(
        lambda key, window, rows: (key, len(list(rows))), element_type=int, value="n"
    )
    with pytest.raises(errors.UserFunctionError, match=r"test_results.*returned tuple \('a', 1\)"):
        mp.local.run(counting, ROWS, key="k", event_time="n")


def test_functions_without_code_of_their_own():
    """A method without Python code is named by its repr."""
    function = returning(None)
    function.process_element = functools.partial(lambda *_: 7)
    with pytest.raises(
        errors.UserFunctionError, match="it returned int 7 .*from functools.partial"
    ):
        mp.local.run(function, ROWS, key="k")


@pytest.mark.parametrize("method", ["open", "close"])
def test_errors_where_no_key_is_current(method):
    """Errors without a current key name no key."""

    def fail(self, *_):
        raise ValueError("no network")

    function = returning(None)
    setattr(type(function), method, fail)
    expected = rf"^Operator 'local', subtask 0: Returning\.{method} failed \(.*: ValueError: no net"
    with pytest.raises(errors.UserFunctionError, match=expected):
        mp.local.run(function, ROWS, key="k")


USES = {
    "process": lambda harness: harness.process(ROWS[0]),
    "advance_watermark": lambda harness: harness.advance_watermark(1),
    "advance_processing_time": lambda harness: harness.advance_processing_time(1),
    "snapshot": lambda harness: harness.snapshot(),
    "savepoint": lambda harness: harness.savepoint("never"),
    "process_broadcast": lambda harness: harness.process_broadcast(ROWS[0]),
}


@pytest.mark.parametrize("use", USES)
def test_a_harness_is_entered_first(use):
    """Using a harness before or after its `with` block is refused."""
    harness = KeyedOperatorHarness(returning(None), key="k")
    for _ in range(2):
        with pytest.raises(errors.HarnessNotOpenError, match=rf"^{use}\(\) needs .* with Keyed"):
            USES[use](harness)
        with harness:
            pass


def test_a_negative_delay_of_the_watermark():
    """A negative watermark delay is refused by name."""
    with pytest.raises(errors.ArgumentValueError, match="watermark_delay: expected a whole number"):
        mp.local.run(returning(None), ROWS, key="k", event_time="n", watermark_delay=-1)
