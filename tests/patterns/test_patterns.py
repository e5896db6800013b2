"""Patterns: generated ones, compared with a plain matcher, and the examples of Flink's manual."""

from contextlib import ExitStack
from datetime import timedelta

import millpond as mp
import pytest
from millpond.patterns import AfterMatchSkipStrategy as Skip
from millpond.patterns import Pattern
from millpond.patterns import pattern as search_for

from tests.patterns.pattern_programs import LATE, OVER, expected, numbers, program

GROUPS = 16
PART = 50


class Run:
    """A program on Millpond, with one harness per subtask."""

    def __init__(self, made):
        self.made, self.now, self.watermark = made, 0, mp.MIN_TIMESTAMP
        self.main, self.late, self.over = [], [], []
        self.opened = ExitStack()
        self.start(made.backend, None, 1)

    def start(self, backend, handles, parallelism):
        search = self.made.search()
        self.harnesses = [
            self.opened.enter_context(
                mp.testing.KeyedOperatorHarness(
                    search.select(numbers),
                    key="k",
                    backend=backend,
                    max_parallelism=GROUPS,
                    subtask=index,
                    parallelism=parallelism,
                    restore=handles,
                    clock_ms=self.now,
                )
            )
            for index in range(parallelism)
        ]
        for harness in self.harnesses:
            harness.advance_watermark(self.watermark)

    def step(self, kind, *rest):
        if kind == "row":
            key, n, letter, time = rest
            group = mp.assign_to_key_group(key, GROUPS)
            harness = self.harnesses[group * len(self.harnesses) // GROUPS]
            row = {"k": key, "n": n, "kind": letter}
            harness.process(row, time if self.made.by_event else None)
        elif kind == "watermark":
            self.watermark = max(self.watermark, *rest)
            for harness in self.harnesses:
                harness.advance_watermark(*rest)
        elif kind == "clock":
            (self.now,) = rest
            for harness in self.harnesses:
                harness.advance_processing_time(*rest)
        else:
            self.collect()
            handles = [harness.snapshot() for harness in self.harnesses]
            self.opened.close()
            self.start(rest[0], handles, rest[1])

    def collect(self):
        for harness in self.harnesses:
            self.main += harness.output
            self.late += [row.n for row in harness.output.side_output(LATE)]
            self.over += harness.output.side_output(OVER)

    def results(self):
        with self.opened:
            for step in self.made.steps:
                self.step(*step)
            self.collect()
        return self

    def of(self, key):
        """Return the matches of a key in order, and its timed-out partial matches."""
        matches = [row for row in self.main if row[0] == key]
        return matches, sorted(row for row in self.over if row[0] == key)


@pytest.mark.sample(4)
@pytest.mark.parametrize("part", range(20))
def test_generated_patterns(part):
    """Generated patterns find the matches that a plain matcher finds, also after restores."""
    for seed in range(PART * part, PART * part + PART):
        made = program(seed)
        wanted, late = expected(made)
        run = Run(made).results()
        assert sorted(run.late) == sorted(late), seed
        for key, (matches, over) in wanted.items():
            found = run.of(key)
            assert found[0] == matches, (seed, key, made)
            assert over is None or found[1] == over, (seed, key, made)


# ---------------------------------------------------------------- the examples of Flink's manual


def of(*kinds):
    return lambda row: row.name.rstrip("0123456789") in kinds


def found(pattern, names):
    """Return the matches of a pattern in rows with these names, as names separated by blanks."""
    rows = [{"name": name, "ms": ms} for ms, name in enumerate(names.split())]

    def joined(match):
        return " ".join(row.name for rows in match.values() for row in rows)

    function = search_for(pattern, "name string, ms bigint").select(joined)
    return mp.local.run(function, rows, key=lambda row: 0, key_type=int, event_time="ms")


A, B, C, D = map(of, "abcd")
BEGIN_C = Pattern.begin("start", C)
A_LOOP = BEGIN_C.followed_by("middle", A).one_or_more()
CONTIGUITY = "a c b1 b2"
LOOPS = "a b1 d1 b2 d2 b3 c"
CONSECUTIVE = "c d a1 a2 a3 d a4 b"
SKIPS = "b1 b2 b3 c"


def b_plus_c(skip):
    return Pattern.begin("b", B, skip=skip).one_or_more().consecutive().next("c", C)


def three(skip):
    first = Pattern.begin("first", of("a", "b", "c"), skip=skip).next("second", of("b", "c"))
    return first.next("c", C).one_or_more().consecutive().greedy().next("d", D)


def a_b_plus(skip):
    return Pattern.begin("a", A, skip=skip).followed_by("b", B).one_or_more()


def b_loop(pattern):
    return pattern.followed_by("c", C)


EXAMPLES = [
    (Pattern.begin("a", A).next("b", B), CONTIGUITY, []),
    (Pattern.begin("a", A).followed_by("b", B), CONTIGUITY, ["a b1"]),
    (Pattern.begin("a", A).followed_by_any("b", B), CONTIGUITY, ["a b1", "a b2"]),
    (
        Pattern.begin("a", A).followed_by_any("b", B).one_or_more().consecutive().next("c", C),
        LOOPS,
        ["a b3 c"],
    ),
    (
        b_loop(Pattern.begin("a", A).followed_by_any("b", B).one_or_more()),
        LOOPS,
        ["a b1 b2 b3 c", "a b1 b2 c", "a b1 c", "a b2 b3 c", "a b2 c", "a b3 c"],
    ),
    (
        b_loop(Pattern.begin("a", A).followed_by_any("b", B).one_or_more().allow_combinations()),
        LOOPS,
        ["a b1 b2 b3 c", "a b1 b2 c", "a b1 b3 c", "a b1 c", "a b2 b3 c", "a b2 c", "a b3 c"],
    ),
    (
        A_LOOP.consecutive().followed_by("end", B),
        CONSECUTIVE,
        ["c a1 a2 a3 b", "c a1 a2 b", "c a1 b"],
    ),
    (
        A_LOOP.followed_by("end", B),
        CONSECUTIVE,
        ["c a1 a2 a3 a4 b", "c a1 a2 a3 b", "c a1 a2 b", "c a1 b"],
    ),
    (
        BEGIN_C.followed_by_any("middle", A)
        .one_or_more()
        .allow_combinations()
        .followed_by("end", B),
        CONSECUTIVE,
        [
            "c a1 a2 a3 a4 b",
            "c a1 a2 a3 b",
            "c a1 a2 a4 b",
            "c a1 a2 b",
            "c a1 a3 a4 b",
            "c a1 a3 b",
            "c a1 a4 b",
            "c a1 b",
            "c a2 a3 a4 b",
            "c a2 a3 b",
            "c a2 a4 b",
            "c a2 b",
            "c a3 a4 b",
            "c a3 b",
            "c a4 b",
        ],
    ),
    (b_plus_c(Skip.no_skip()), SKIPS, ["b1 b2 b3 c", "b2 b3 c", "b3 c"]),
    (b_plus_c(Skip.skip_to_next()), SKIPS, ["b1 b2 b3 c", "b2 b3 c", "b3 c"]),
    (b_plus_c(Skip.skip_past_last_event()), SKIPS, ["b1 b2 b3 c"]),
    (b_plus_c(Skip.skip_to_first("b")), SKIPS, ["b1 b2 b3 c", "b2 b3 c", "b3 c"]),
    (b_plus_c(Skip.skip_to_last("b")), SKIPS, ["b1 b2 b3 c", "b3 c"]),
    (
        three(Skip.no_skip()),
        "a b c1 c2 c3 d",
        ["a b c1 c2 c3 d", "b c1 c2 c3 d", "c1 c2 c3 d"],
    ),
    (three(Skip.skip_to_first("c")), "a b c1 c2 c3 d", ["a b c1 c2 c3 d", "c1 c2 c3 d"]),
    (a_b_plus(Skip.no_skip()), "a b1 b2 b3", ["a b1", "a b1 b2", "a b1 b2 b3"]),
    (a_b_plus(Skip.skip_to_next()), "a b1 b2 b3", ["a b1"]),
]


@pytest.mark.parametrize(("pattern", "names", "wanted"), EXAMPLES)
def test_examples_of_flinks_manual(pattern, names, wanted):
    """The examples of Flink's manual have the results that it gives."""
    assert found(pattern, names) == wanted


NEGATIVE = Pattern.begin("a", A).not_followed_by("b", B)


@pytest.mark.parametrize(
    ("pattern", "names", "wanted"),
    [
        (NEGATIVE.followed_by("c", C), "a d c", ["a c"]),
        (NEGATIVE.followed_by("c", C), "a b c", []),
        (NEGATIVE.within(4), "a1 d d d a2 b d", ["a1"]),
        (NEGATIVE.within(4), "a d d d b", ["a"]),
        (NEGATIVE.within(5), "a d d d b", []),
        (Pattern.begin("a", A).not_next("b", B), "a1 b a2 c", ["a2"]),
        (Pattern.begin("a", A).not_next("b", B).followed_by("c", C), "a c", ["a c"]),
        (Pattern.begin("a", A).not_next("b", B).followed_by("c", C), "a d b c", ["a c"]),
        (Pattern.begin("a", A).not_next("b", B).followed_by("c", C), "a b c", []),
    ],
)
def test_negative_stages(pattern, names, wanted):
    """A row that fits a negative stage discards the partial match; the end of time completes it."""
    assert found(pattern, names) == wanted


def test_within_excludes_a_row_at_the_end_of_the_time():
    """The time from the first to the last row of a match is less than the limit."""
    pattern = Pattern.begin("a", A).followed_by("b", B)
    assert found(pattern.within(timedelta(milliseconds=3)), "a d b") == ["a b"]
    assert found(pattern.within(2), "a d b") == []
