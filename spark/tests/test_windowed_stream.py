"""Window arguments that are refused when the job is built."""

import pytest
from millpond import errors, windows
from millpond_spark.api.windowed_stream import WindowedStream

from tests.arguments.making import Last


@pytest.mark.parametrize("call", ["reduce", "aggregate", "process"])
def test_a_misspelt_value_is_refused_with_the_nearest_column(call):
    """A misspelt value column is refused with the nearest one, before anything is created."""

    def make(*_, **__):
        pytest.fail("an operator was made")

    windowing = windows.window(windows.TumblingEventTimeWindows.of(10))
    stream = WindowedStream(make, ["k", "price"], windowing)
    with pytest.raises(errors.ConfigError, match=r"'price'\?$") as caught:
        getattr(stream, call)(Last(), int, value="prise", output="k string, n bigint", uid="w")
    assert str(caught.value) == (
        f"{call}(value=...): prise: there is no such column; there are: k, price. "
        "Did you mean 'price'?"
    )


class PurgingByRow(windows.PurgingTrigger):
    """A user's subclass of a trigger of Millpond's; it reads the whole row."""

    def on_element(self, element, timestamp, window, ctx):
        return super().on_element(element.other, timestamp, window, ctx)


@pytest.mark.parametrize(
    ("kind", "read"), [(windows.PurgingTrigger, "price"), (PurgingByRow, None)]
)
def test_a_subclass_of_a_trigger_gets_whole_rows(kind, read):
    """Columns are left out only if all triggers are Millpond's, not if one is a user's subclass."""
    tens = windows.window(windows.TumblingEventTimeWindows.of(10))
    windowing = tens.trigger(kind(windows.EventTimeTrigger()))
    stream = WindowedStream(lambda *_, **__: None, ["k", "price", "other"], windowing)
    assert stream._column_read("price", "reduce") == read
