"""Generated programs have the same results on Apache Flink and on every backend of Millpond."""

import copy
import json
import shutil
import subprocess
from collections import defaultdict
from pathlib import Path

import millpond as mp
import pytest
from millpond import errors, windows

from tests.flink.flink_programs import (
    SIDE,
    Operations,
    Program,
    described,
    program,
    window_operator,
)
from tests.windows.window_parts import GapByNumber

ROOT = Path(__file__).parents[2]
PROGRAMS = 200
PART = 50


@pytest.fixture(scope="module")
def on_flink(tmp_path_factory):
    """Return a function that runs programs as jobs of Flink and returns their rows."""
    jars = next((ROOT / ".tools" / "flink").glob("lib/python*/site-packages/pyflink/lib"), None)
    if jars is None or shutil.which("javac") is None:
        pytest.skip("NOT compared with Apache Flink: run tools/flink, and install javac")
    classes = tmp_path_factory.mktemp("classes")
    source = Path(__file__).with_name("Programs.java")
    subprocess.run(["javac", "-nowarn", "-d", classes, "-cp", f"{jars}/*", source], check=True)
    command = ["java", "-cp", f"{classes}:{jars}/*", "Programs"]

    def run(programs):
        lines = "".join(json.dumps(each) + "\n" for each in programs)
        done = subprocess.run(
            command, input=lines, capture_output=True, text=True, timeout=900, check=False
        )
        assert done.returncode == 0, done.stderr[-4000:]
        return [json.loads(line) for line in done.stdout.splitlines()]

    return run


def on_millpond(made, backend):
    """Return the output of a program, each row with the number of its step."""
    found = {"rows": [], "side": []}
    function = copy.deepcopy(made.function)
    with mp.testing.KeyedOperatorHarness(function, key="k", backend=backend) as harness:
        output = harness.output
        for number, (kind, *step) in enumerate(made.plain["steps"]):
            if kind == "row":
                key, n, time, *operations = step
                harness.process({"k": key, "n": n, "operations": (*operations, ())[0]}, time)
            elif kind == "watermark":
                harness.advance_watermark(*step)
            else:
                harness.advance_processing_time(max(*step, harness.clock.now_ms))
            for name, rows in (("rows", output), ("side", output.side_output(SIDE))):
                found[name] += [(number, *(row if name == "rows" else row[:2])) for row in rows]
                rows.clear()
    return json.loads(json.dumps(found))


def divided(result, windows):
    """Return the rows by step, key and window, sorted, because Flink leaves other orders open."""
    found = defaultdict(list)
    for name in ("rows", "side"):
        for row in result[name]:
            window = tuple(row[2]) if windows and name == "rows" else None
            found[name, row[0], row[1], window].append(row[2:])
    return dict(found)


def differences(seeds, on_flink):
    """Return the seeds of programs that differ from Flink on some backend, with the difference."""
    programs = [program(seed) for seed in seeds]
    for seed, made, wanted in zip(
        seeds, programs, on_flink([each.plain for each in programs]), strict=True
    ):
        assert "error" not in wanted, (seed, made.plain, wanted["error"])
        windows = "assigner" in made.plain
        for backend in ("heap", "rocksdb", "lmdb"):
            found = divided(on_millpond(made, backend), windows)
            if found != (expected := divided(wanted, windows)):
                places = [
                    (place, expected.get(place), found.get(place))
                    for place in sorted({*expected, *found}, key=str)
                    if expected.get(place) != found.get(place)
                ]
                yield seed, backend, made.plain, places


@pytest.mark.soak
@pytest.mark.parametrize("part", range(PROGRAMS // PART))
def test_programs_give_what_they_give_on_flink(part, on_flink):
    """200 programs with windows and keyed functions have Flink's results on every backend."""
    found = list(differences(range(PART * part, PART * part + PART), on_flink))
    assert not found, found[0]


LAST = mp.MAX_TIMESTAMP


def of_windows(assigner, *steps, lateness=0, trigger=None, evictor=None):
    """Return a program that sums numbers in windows, up to the end of time."""
    plain = {
        "assigner": described(assigner),
        "trigger": described(trigger),
        "evictor": described(evictor),
        "merging": assigner.is_merging,
        "lateness": lateness,
        "late": True,
        "contents": "reduce",
        "steps": [*map(list, steps), ["watermark", LAST], ["clock", 1000]],
    }
    windowing = windows.window(assigner)
    windowing = windowing if trigger is None else windowing.trigger(trigger)
    windowing = windowing if evictor is None else windowing.evictor(evictor)
    return Program(plain, window_operator(windowing, plain))


def of_operations(visibility, before, after):
    """Return a program with instructions at 0 ms and at 10 ms, when a TTL of 5 ms is over."""
    ttl = {"ms": 5, "update": "OnCreateAndWrite", "visibility": visibility}
    steps = [["row", "a", 0, 0, before], ["clock", 10], ["row", "a", 0, 0, after]]
    return Program({"timers": [[]], "ttl": ttl, "steps": steps}, Operations([[]], ttl))


TENS = windows.TumblingEventTimeWindows.of(10)
CLOCK = windows.TumblingProcessingTimeWindows.of(10)
SESSIONS = windows.EventTimeSessionWindows.with_gap(10)
DYNAMIC = windows.EventTimeSessionWindows.with_dynamic_gap(GapByNumber(10))
TIMEOUT = windows.ProcessingTimeoutTrigger.of(windows.ContinuousProcessingTimeTrigger.of(20), 4)
# A program, and the results of Flink and Millpond: the values of their rows, or an error.
DIFFERENCES = {
    "a session that equals one that has grown loses its rows": (
        of_windows(DYNAMIC, ("row", "a", 4, 0), ("row", "a", 7, 2), ("row", "a", 9, 0)),
        [[9]],
        [[20]],
    ),
    "the greatest lateness overflows when sessions merge": (
        of_windows(
            SESSIONS, ("row", "a", 1, 1), ("watermark", 0), ("row", "a", 2, 2), lateness=LAST
        ),
        "cannot become earlier than the current watermark by merging",
        [[3]],
    ),
    "a row whose window ends after the end of time is late": (
        of_windows(TENS, ("watermark", 0), ("row", "a", 1, LAST)),
        [],
        f"of a row at {LAST} ms, exceeds the range",
    ),
    "a window is not fired at its end if a trigger has taken that timer back": (
        of_windows(CLOCK, ("row", "a", 1, None), ("clock", 5), trigger=TIMEOUT),
        [[1]],
        [[1], [1]],
    ),
    "a TimeEvictor fails if only some rows have an event time": (
        of_windows(
            CLOCK,
            ("row", "a", 1, 7),
            ("row", "a", 2, None),
            ("clock", 10),
            evictor=windows.TimeEvictor.of(5),
        ),
        "Record has no timestamp",
        [[1]],
    ),
    "a map whose entries have expired is not empty": (
        of_operations("NeverReturnExpired", [["map put", 1]], [["map is_empty", 0]]),
        [[], [False]],
        [[], [True]],
    ),
    "expired elements of a list are read again": (
        of_operations(
            "ReturnExpiredIfNotCleanedUp",
            [["list add", 1]],
            [["list add", 2], ["list", 0], ["list", 0]],
        ),
        [[], [[1, 2], [1, 2]]],
        [[], [[1, 2], [2]]],
    ),
}


@pytest.fixture(scope="module")
def flinks_results(on_flink):
    """Flink's results of the programs with documented differences."""
    return dict(
        zip(DIFFERENCES, on_flink([made.plain for made, *_ in DIFFERENCES.values()]), strict=True)
    )


@pytest.mark.soak
@pytest.mark.parametrize("name", DIFFERENCES)
def test_documented_differences(name, flinks_results):
    """Flink behaves as documented, and Millpond differs as its documentation says."""
    made, flinks, millponds = DIFFERENCES[name]
    result = flinks_results[name]
    assert values(result) == flinks if isinstance(flinks, list) else flinks in result["error"]
    if isinstance(millponds, list):
        assert values(on_millpond(made, "heap")) == millponds
        return
    with pytest.raises(errors.UserFunctionError, match=millponds):
        on_millpond(made, "heap")


def values(result):
    """Return the last column: the sums of fired windows, or the values that a function has read."""
    return [row[-1] for row in result["rows"]]
