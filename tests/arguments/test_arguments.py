"""Every public function takes any argument, or refuses it by the parameter's name, soon."""

import resource
import signal
import warnings

import arguments
import millpond as mp
import pytest

CASES = [
    (target, parameter) for target, (_, good) in arguments.TARGETS.items() for parameter in good
]
SECONDS = 2
WAITING = 20
MEGABYTES = 200
NOT_CALLED = {
    # Made by Millpond, handed to functions.
    "BroadcastContext", "Context", "RuntimeContext", "SnapshotContext",
    "StateInitializationContext", "TimerService",
    # Base classes and interfaces of what users write, enumerations, constants, modules.
    "AggregateFunction", "CheckpointedFunction", "KeyedBroadcastProcessFunction",
    "KeyedProcessFunction", "ListCheckpointed", "StateDescriptor", "TypeSerializer", "Capability",
    "Outcome", "StateVisibility", "TimeDomain", "UpdateType", "MAX_TIMESTAMP", "MIN_TIMESTAMP",
    "VOID_NAMESPACE", "__version__", "errors", "local", "testing", "windows", "hookimpl",
    # Plain records, and what takes no argument.
    "Compatibility", "SerializerSnapshot", "SavepointHandle", "SystemClock", "PickleSerializer",
    # A decorator of classes: what it is told is checked where the class is used.
    "renamed_from",
}  # fmt: skip


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """A working directory where paths may be made."""
    monkeypatch.chdir(tmp_path)


def too_long(*_):
    """What the timer does."""
    raise AssertionError(f"it took more than {SECONDS} s of work, or {WAITING} s")


def complaint(target, parameter, value):
    """What is wrong with how a call takes a value; None where nothing is."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    signal.setitimer(signal.ITIMER_REAL, WAITING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = arguments.complaint(target, {parameter: value})
    except Exception as error:  # noqa: BLE001 - whatever it is, it is told
        found = f"{type(error).__name__}: {str(error)[:120]}"
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
    if found:
        return found
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10
    return None if grown < MEGABYTES else f"it took {grown} MB"


@pytest.mark.parametrize(("target", "parameter"), CASES, ids=[".".join(case) for case in CASES])
def test_odd_arguments(target, parameter):
    """Each odd value is taken, or refused by an error that says which parameter it was."""
    before = {which: signal.signal(which, too_long) for which in (signal.SIGALRM, signal.SIGPROF)}
    try:
        found = {name: complaint(target, parameter, value) for name, value in arguments.ODD.items()}
    finally:
        for which, handler in before.items():
            signal.signal(which, handler)
    assert {name: text for name, text in found.items() if text} == {}


def test_every_public_name_is_tried():
    """What is public is called with odd arguments, or takes none from users."""
    tried = {target.split(".")[0].split("(")[0] for target in arguments.TARGETS}
    missing = set(mp.__all__) - tried - NOT_CALLED
    assert missing == set()
