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
