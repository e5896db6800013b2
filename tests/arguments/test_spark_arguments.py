"""The public functions of millpond.spark accept an argument or refuse it by name, within limits."""

import random
import signal

import pytest
from pyspark.sql import SparkSession

from tests.arguments import TARGETS, complaint, judging, onspark, walk
from tests.arguments.odd import ODD, random_value

TARGETS.update(onspark.TARGETS)
PARAMETERS = [(name, each) for name, (_, good) in onspark.TARGETS.items() for each in good]
# These calls create Spark plans, about 40 ms each: the soak test uses all odd values, others a few.
PLANS = ("KeyedStream.process", "OperatorStream", "WindowedStream")
TELLING = ("None", "surrogate", "deep", "object")
STRIDE = 13


def cases():
    """Return each parameter with all odd values; functions that create plans get a few, except in the soak test."""
    names = [*ODD]
    for at, (target, parameter) in enumerate(PARAMETERS):
        case = f"{target}.{parameter}"
        if target.startswith(PLANS):
            few = {*TELLING, *names[at % STRIDE :: STRIDE]}
            yield pytest.param(target, parameter, few, id=case)
            yield pytest.param(target, parameter, names, id=f"{case}-all", marks=pytest.mark.soak)
        else:
            yield pytest.param(target, parameter, names, id=case)


@pytest.fixture(scope="module")
def query(spark, tmp_path_factory):
    """A finished query for the functions that read checkpoints."""
    folder = tmp_path_factory.mktemp("query")
    snapshots = (folder / "snapshots").as_uri()
    spark.conf.set("spark.millpond.checkpoint.dir", snapshots)
    onspark.run_query(spark, folder)
    yield snapshots
    spark.conf.unset("spark.millpond.checkpoint.dir")


@pytest.fixture
def judged(query, tmp_path, monkeypatch):
    """Judge calls in this process, in a temporary working directory."""
    monkeypatch.chdir(tmp_path)
    walk.callables()
    which = (signal.SIGALRM, signal.SIGPROF)
    before = {each: signal.signal(each, judging.too_long) for each in which}
    memory = judging.memory("VmRSS")
    yield lambda target, given: judging.judged(lambda: complained(target, given), memory)
    for each, handler in before.items():
        signal.signal(each, handler)


def complained(target, given):
    """Return what is wrong with a call; skip values that Py4J cannot pass."""
    found = complaint(target, given)
    return found if SparkSession.getActiveSession() else f"{found}; the active session is lost"


@pytest.mark.sample(10)
@pytest.mark.parametrize("target", onspark.TARGETS)
def test_good_arguments(query, tmp_path, monkeypatch, target):
    """The calls succeed with the good values that replace the odd ones."""
    monkeypatch.chdir(tmp_path)
    function, good = onspark.TARGETS[target]
    function(**{name: make() for name, make in good.items()})


@pytest.mark.sample(25)
@pytest.mark.parametrize(("target", "parameter", "names"), [*cases()])
def test_odd_arguments(judged, target, parameter, names):
    """Each odd value is accepted, or refused by an error that explains it, within limits."""
    found = {name: judged(target, {parameter: ODD[name]}) for name in names}
    assert {name: text for name, text in found.items() if text} == {}


@pytest.mark.soak
@pytest.mark.parametrize("target", onspark.TARGETS)
def test_many_odd_arguments(judged, target):
    """Hundreds of combinations of odd values are accepted or refused, within limits."""
    names = [*onspark.TARGETS[target][1]]
    found = {}
    for seed in range(300):
        rng = random.Random(f"{seed} {target}")
        chosen = rng.sample(names, min(len(names), rng.choice((1, 2, 3))))
        found[seed] = judged(target, {name: random_value(rng) for name in chosen})
    assert {seed: text for seed, text in found.items() if text} == {}
