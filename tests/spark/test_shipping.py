"""Functions that cannot be pickled, and functions that workers cannot load."""

import importlib
import re
import sys
import threading
from types import SimpleNamespace

import millpond as mp
import pytest
from hypothesis import given
from hypothesis import strategies as st
from millpond import errors
from millpond.spark import key_by
from millpond.windows import TumblingProcessingTimeWindows
from millpond_spark.worker.shipping import unpicklable_part
from pyspark import cloudpickle
from pyspark.errors import PythonException, StreamingQueryException

from tests.spark.streaming import RUNNING, Running, run

LOCK = threading.Lock()
STEPS = {
    ".part": lambda inner: SimpleNamespace(before=1, part=inner),
    "['part']": lambda inner: {"before": 1, "part": inner},
    "[1]": lambda inner: [1, inner],
    "[2]": lambda inner: (1, (), inner),
}


class Holding(Running):
    """Function that holds any object."""

    def __init__(self, held):
        self.held = held


class Locking(Running):
    def process_element(self, row, context):
        with LOCK:
            yield from super().process_element(row, context)


class Shared(Running):
    lock = threading.Lock()


@pytest.fixture(autouse=True, scope="module")
def shipped_by_value():
    """Pickle this module's classes by value, like those of a script."""
    module = sys.modules[__name__]
    cloudpickle.register_pickle_by_value(module)
    yield
    cloudpickle.unregister_pickle_by_value(module)


@given(st.lists(st.sampled_from(sorted(STEPS)), max_size=5))
def test_the_path_to_what_cannot_be_pickled(steps):
    """The path leads through attributes and items to the object."""
    held = threading.Lock()
    for step in reversed(steps):
        held = STEPS[step](held)
    path, part = unpicklable_part(Holding(held))
    assert path == "Holding.held" + "".join(steps)
    assert isinstance(part, type(LOCK))


def closing_over():
    lock = threading.Lock()
    return lambda row: (lock, row)


def looping():
    function = Holding(None)
    function.held = [function, threading.Lock()]
    return function


@pytest.mark.parametrize(
    ("function", "path"),
    [
        (Locking(), "Locking.process_element, variable 'LOCK'"),
        (Shared(), "Shared.lock"),
        (Holding(closing_over()), "Holding.held, variable 'lock'"),
        (looping(), "Holding.held[1]"),
        (Holding(x for x in "ab"), "Holding.held"),
    ],
)
def test_what_else_holds_it(function, path):
    """Globals, class attributes, closures and circular references are followed."""
    assert unpicklable_part(function)[0] == path


@pytest.mark.spark
def test_process_names_the_path(spark):
    """``process`` names the attribute that cannot be pickled, its type, and the cure."""
    df = spark.createDataFrame([("a", 1)], "k string, n bigint")
    function = Holding({"db": threading.Lock()})
    said = (
        r"uid='totals'.*Holding cannot be pickled for the workers: Holding\.held\['db'\] is of type "
        r"_thread\.lock: .*Create it in open\(\)"
    )
    with pytest.raises(errors.ConfigError, match=said):
        key_by(df, "k").process(function, output=RUNNING, uid="totals")


@pytest.mark.spark
def test_windows_name_the_variable(spark):
    """For windows the path ends at the variable that a user's function holds."""
    df = spark.createDataFrame([("a", 1)], "k string, n bigint")
    lock = threading.Lock()

    def add(left, right):
        return (lock, left)

    windows = key_by(df, "k").window(TumblingProcessingTimeWindows.of(1_000))
    with pytest.raises(errors.ConfigError, match="variable 'lock' is of type"):
        windows.reduce(add, int, lambda row: row.n, output="n bigint", uid="totals")


@pytest.fixture
def lacking(tmp_path, monkeypatch):
    """Return a function of a module that only the driver has, and the module's file."""
    name = "millpond_lacking_shop"
    file = tmp_path / "modules" / f"{name}.py"
    file.parent.mkdir()
    file.write_text(
        "from tests.spark.streaming import Running\n\n\nclass Shop(Running):\n    pass\n"
    )
    monkeypatch.syspath_prepend(str(file.parent))
    yield importlib.import_module(name).Shop(), file
    sys.modules.pop(name)


SAID = (
    r"Operator 'shop': this worker cannot load Shop: ModuleNotFoundError: No module named "
    r"'millpond_lacking_shop'\. .*addPyFile.*\(the operator is made at {}, line \d+\)"
)


@pytest.mark.spark
def test_a_module_that_workers_lack(spark, job_conf, files, tmp_path, lacking):
    """Batch and query name operator, module and cure; with the cure they run."""
    function, file = lacking
    said = SAID.format(re.escape(__file__))
    df = spark.createDataFrame([("a", 1)], "k string, n bigint")
    files.add(("a", 1))
    batch = key_by(df, "k").process(function, output=RUNNING, uid="shop")
    with pytest.raises(PythonException) as caught:
        batch.collect()
    assert re.search(said, str(caught.value).splitlines()[1]), str(caught.value)
    stream = key_by(files.stream(), "k").process(function, output=RUNNING, uid="shop")
    with pytest.raises(StreamingQueryException) as failed:
        run(stream, tmp_path)
    assert re.search(said, str(failed.value).splitlines()[0]), str(failed.value)
    spark.sparkContext.addPyFile(str(file))
    again = key_by(df, "k").process(function, output=RUNNING, uid="shop")
    assert list(map(tuple, again.collect())) == [("a", 1, 1)]


class Importing(Running):
    def process_element(self, row, context):
        import millpond_no_such_module  # noqa: F401 - it fails


def test_a_module_that_a_method_imports():
    """An import that fails in a method is reported with the cure too."""
    with pytest.raises(errors.UserFunctionError, match=r"No module named .*addPyFile"):
        mp.local.run(Importing(), [{"k": "a", "n": 1}], key="k")
