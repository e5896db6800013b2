"""Every public function accepts an argument or refuses it by the parameter's name, within limits."""

import fnmatch
import json
import mmap
import os
import signal
from contextlib import suppress

import pytest

from tests.arguments import TARGETS, complaint, judging, onspark, walk
from tests.arguments.exceptions import EXCEPTIONS


@pytest.fixture(scope="module")
def judge():
    """A process that calls functions with odd arguments and reports faults."""
    made = judging.Judge()
    yield made
    made.close()


@pytest.mark.sample(110)
@pytest.mark.parametrize("target", TARGETS)
def test_odd_arguments(judge, target):
    """Odd values, single and combined, are accepted or refused by an error that names the parameter."""
    assert judge.complaints(target, 0, 5) == {}


@pytest.mark.soak
@pytest.mark.parametrize("target", TARGETS)
def test_many_odd_arguments(judge, target):
    """Thousands of combinations of odd values, which ARGUMENTS_SEED and ARGUMENTS_COUNT select, are accepted or refused."""
    first, count = (int(os.environ.get(f"ARGUMENTS_{name}", default))
                    for name, default in (("SEED", "5"), ("COUNT", "3000")))  # fmt: skip
    assert judge.complaints(target, first, count, patience=3600) == {}


def needed():
    """Return all public callables that have parameters, with the parameters."""
    found = {name: walk.parameters(each) for name, each in walk.callables().items()}
    return {name: parameters for name, parameters in found.items() if parameters}


def excepted(name):
    """Return the patterns of exceptions that match a name."""
    return [pattern for pattern in EXCEPTIONS if fnmatch.fnmatchcase(name, pattern)]


def tried():
    """Return the parameters that targets test, by callable."""
    found = {}
    for target, (_, good) in {**TARGETS, **onspark.TARGETS}.items():
        found.setdefault(target.partition(" [")[0], set()).update(good)
    return found


def test_every_public_parameter_is_tried():
    """Each parameter of a public function is tested with odd values, or the function is an exception."""
    given = tried()
    missing = {name: left for name, parameters in needed().items()
               if not excepted(name) and (left := set(parameters) - given.get(name, set()))}  # fmt: skip
    assert missing == {}


def test_no_exception_is_stale():
    """Each exception matches an existing function that no target tests."""
    names, given = needed(), tried()
    matched = {pattern: fnmatch.filter(names, pattern) for pattern in EXCEPTIONS}
    assert [pattern for pattern, found in matched.items() if not found] == []
    assert [name for found in matched.values() for name in found if name in given] == []


def test_every_target_is_public():
    """Each target calls a public function with parameters that it has."""
    names, found = needed(), walk.callables()
    wrong = {name: given - set(names.get(name, ())) for name, given in tried().items()
             if not walk.takes_any_name(found[name])}  # fmt: skip
    assert {name: left for name, left in wrong.items() if left} == {}


def test_the_walk_finds_a_new_function(monkeypatch):
    """The walk finds a function that is added to a public module, and methods of the class that it returns."""

    class Fresh:
        def twist(self, how: int) -> None:
            """A method of the class that the new function returns."""

    def new_function(what: str) -> Fresh:
        """A new function."""

    for each in (Fresh, new_function, Fresh.twist):
        each.__module__ = "millpond"
    module = walk.MODULES[0]
    monkeypatch.setattr(module, "new_function", new_function, raising=False)
    monkeypatch.setattr(module, "__all__", [*module.__all__, "new_function"])
    walk.callables.cache_clear()
    try:
        assert {"new_function", "Fresh.twist"} <= needed().keys()
    finally:
        walk.callables.cache_clear()


# ---------------------------------------------------------------- tests of the judge


def verdicts(*functions):
    """Return the judge's answers for functions that one child calls in turn."""

    def work():
        before = judging.set_limits()
        return [judging.judged(function, before) for function in functions]

    reader, writer = os.pipe()
    judging.in_a_child(work, writer)
    os.close(writer)
    with os.fdopen(reader) as answers:
        return json.loads(answers.readline())


def taking(size):
    """Return a function that allocates memory, uses it, and frees it."""

    def take():
        taken = bytearray(size)
        taken[::4096] = b"x" * len(taken[::4096])

    return take


def mapped():
    """Allocate memory that Python's own counts do not include."""
    with mmap.mmap(-1, 300 << 20) as taken:
        taken.write(b"x" * 4096 * 4)
        for page in range(0, len(taken), mmap.PAGESIZE):
            taken[page] = 1


def endless():
    """Run forever, and catch every Exception."""
    while True:
        with suppress(Exception):  # as careless code does
            sum(range(1000))


def test_the_judge_sees_memory_after_memory():
    """Each call is judged separately: a second call that uses as much memory as the first is noticed too."""
    assert verdicts(taking(150 << 20), taking(150 << 20)) == [None, None]
    first, second = verdicts(taking(300 << 20), taking(300 << 20))
    assert first.endswith(" MB")
    assert second.endswith(" MB")
    assert verdicts(mapped)[0].endswith(" MB")
    assert "MemoryError" in verdicts(taking(10 << 30))[0]


def test_the_judge_sees_time_and_death():
    """An endless call is ended and reported, and so is a crash of the process."""
    assert verdicts(endless) == ["more than 2 s of work, or 20 s"]
    assert verdicts(lambda: os.kill(os.getpid(), signal.SIGKILL)) == {"process": "it ended with -9"}


def test_the_judge_tells_what_is_no_refusal(monkeypatch):
    """A wrong error class, a missing parameter name, and a wrongly accepted value are reported."""
    monkeypatch.setitem(TARGETS, "KeyGroupRange", (wrong_in_three_ways, {"start": lambda: 0}))
    assert complaint("KeyGroupRange", {"start": 1}) == "TypeError without the parameter's name: no"
    assert complaint("KeyGroupRange", {"start": "2"}).startswith(
        "it was taken: start: expected int"
    )
    assert complaint("KeyGroupRange", {"start": 3}) is None
    with pytest.raises(AttributeError):
        complaint("KeyGroupRange", {"start": 4})


def wrong_in_three_ways(start):
    """Raise a wrong error or accept a wrong value, depending on the argument."""
    if start == 1:
        raise TypeError("no")
    if start == 3:
        raise ValueError("start: no")
    if start == 4:
        raise AttributeError("start")
