"""Generated patterns, and generated inputs for them."""

import random
from itertools import groupby
from operator import itemgetter

import attrs
import millpond as mp
from millpond.functions.patterns.pattern import Contiguity
from millpond.functions.row_conversion import as_row
from millpond.patterns import AfterMatchSkipStrategy, Pattern, PatternSearch
from millpond.patterns import pattern as search_for

from tests.patterns.reference import Reference

ROW = "k string, n bigint, kind string"
LATE, OVER = mp.OutputTag("late"), mp.OutputTag("over")


@attrs.define
class Program:
    """A search for a pattern, and the steps of its input.

    A step is ``("row", key, n, kind, time)``, ``("watermark", time)``, ``("clock", time)``, or
    ``("move", backend, parallelism)``: take snapshots and restore them.
    """

    pattern: Pattern
    by_event: bool
    backend: str
    steps: list

    def search(self) -> PatternSearch:
        """Return the search for the pattern, with side outputs for late rows and timeouts."""
        search = search_for(self.pattern, ROW).side_output_late_data(LATE)
        search = search.side_output_timed_out(OVER, numbers)
        return search if self.by_event else search.in_processing_time()


def numbers(match):
    """Return the key of a match, and the numbers of its rows by stage."""
    key = next(row.k for rows in match.values() for row in rows)
    return key, str({name: [row.n for row in rows] for name, rows in match.items() if rows})


# ---------------------------------------------------------------- patterns


@attrs.frozen
class Kinds:
    """A condition: the row's kind is one of some letters."""

    kinds: str

    def __call__(self, row):
        return row.kind in self.kinds


@attrs.frozen
class Unlike:
    """A condition that also compares the row with the rows of a stage in the partial match."""

    kinds: str
    stage: str

    def __call__(self, row, match):
        return row.kind in self.kinds and all(row.n % 5 != r.n % 5 for r in match[self.stage])


def condition(rng, taking):
    kinds = "".join(rng.sample("abcd", rng.choice((1, 1, 1, 2))))
    if rng.random() < 0.15:
        return Unlike(kinds, rng.choice(taking))
    return None if rng.random() < 0.03 else Kinds(kinds)


def pattern(rng, *, negative=True, greedy=True):
    """Return a random pattern."""
    names = iter("uvwxyz")
    stages = rng.randint(1, 4)
    taking = [next(names)]
    skip = AfterMatchSkipStrategy
    strategies = [
        skip.no_skip(),
        skip.skip_to_next(),
        skip.skip_past_last_event(),
        skip.skip_to_first("u"),
        skip.skip_to_last("u"),
    ]
    strategy = rng.choice((strategies[0], rng.choice(strategies)))
    made = quantified(rng, Pattern.begin("u", condition(rng, taking), skip=strategy), greedy=greedy)
    for number in range(1, stages):
        name = next(names)
        last = made.stages[-1]
        if negative and rng.random() < 0.3 and not last.is_optional:
            method = rng.choice((made.not_next, made.not_followed_by))
            made = method(name, Kinds(rng.choice("abcd")))
            continue
        taking.append(name)
        method = rng.choice((made.next, made.followed_by, made.followed_by, made.followed_by_any))
        needed = last.is_negative and number == stages - 1
        made = quantified(rng, method(name, condition(rng, taking)), greedy=greedy, needed=needed)
    ends_negative = made.stages[-1].is_negative
    return made.within(rng.randint(3, 14)) if ends_negative or rng.random() < 0.6 else made


def quantified(rng, made, *, greedy, needed=False):
    """Give the last stage of a pattern a number of rows, or leave it as it is."""
    if rng.random() < 0.45:
        made = rng.choice(
            (
                made.one_or_more,
                lambda: made.times(rng.randint(2, 3)),
                lambda: made.times(1, rng.randint(2, 3)),
                lambda: made.times(2, 3),
                lambda: made.times_or_more(2),
            )
        )()
        draw = rng.random()
        if draw < 0.3:
            made = made.consecutive()
        elif draw < 0.5:
            made = made.allow_combinations()
        if greedy and rng.random() < 0.3:
            made = made.greedy()
    return made.optional() if rng.random() < 0.25 and not needed else made


def is_possible(made):
    try:
        made.check()
    except mp.errors.ConfigError:
        return False
    return True


# ---------------------------------------------------------------- inputs


def program(seed, *, most_rows=11):
    """Return the program of a seed."""
    rng = random.Random(seed)
    made = next(made for made in iter(lambda: pattern(rng), None) if is_possible(made))
    by_event = rng.random() < 0.8
    backend = rng.choice((*("heap",) * 6, "rocksdb", "lmdb"))
    steps, now = [], 10
    kinds = rng.choice(("abcd", "ab", "aabc", "abc"))
    for n in range(rng.randint(3, most_rows)):
        key = rng.choice("pppq")
        now += rng.choice((0, 1, 1, 2, 3))
        time = now - rng.choice((0, 0, 0, 2, 5)) if by_event else now
        if not by_event:
            steps.append(("clock", now))
        steps.append(("row", key, n, rng.choice(kinds), time))
        if by_event and rng.random() < 0.3:
            steps.append(("watermark", now - rng.randint(0, 4)))
        if rng.random() < 0.12:
            steps.append(("move", rng.choice(("heap", "rocksdb", "lmdb")), rng.choice((1, 2, 3))))
    last = now + 100
    steps.append(("watermark", mp.MAX_TIMESTAMP) if by_event else ("clock", last))
    return Program(made, by_event, backend, steps)


def expected(made):
    """Return the results of a program by key, as the reference finds them, and its late rows."""
    on_time, late, watermark = [], [], mp.MIN_TIMESTAMP
    for kind, *step in made.steps:
        if kind == "watermark":
            watermark = max(watermark, *step)
        elif kind == "row" and made.by_event and step[-1] <= watermark:
            late.append(step[1])
        elif kind == "row":
            on_time.append(step)
    results = {}
    on_time.sort(key=itemgetter(0))
    for key, steps in groupby(on_time, itemgetter(0)):
        rows = [(time, as_row({"k": k, "n": n, "kind": kind})) for k, n, kind, time in steps]
        rows.sort(key=itemgetter(0))
        found = Reference(made.pattern, rows).found()
        over = None if found.timed_out is None else sorted(map(numbers, found.timed_out))
        results[key] = list(map(numbers, found.matches)), over
    return results, late


def described(made):
    """Return a program as plain values for Flink."""
    skip = made.pattern.skip
    return {
        "stages": [described_stage(stage, n) for n, stage in enumerate(made.pattern.stages)],
        "skip": [skip._kind, skip.stage],
        "within": made.pattern.duration,
        "by_event": made.by_event,
        "steps": [described_step(made, *step) for step in made.steps if step[0] != "move"],
    }


def described_step(made, kind, *rest):
    if kind != "row":
        return [kind, *rest]
    key, n, letter, time = rest
    return ["row", key, n, time if made.by_event else None, letter]


METHODS = {
    (Contiguity.STRICT, False): "next",
    (Contiguity.RELAXED, False): "followed_by",
    (Contiguity.ANY, False): "followed_by_any",
    (Contiguity.STRICT, True): "not_next",
    (Contiguity.RELAXED, True): "not_followed_by",
}
INNER = {
    Contiguity.STRICT: "consecutive",
    Contiguity.RELAXED: "",
    Contiguity.ANY: "allow_combinations",
}


def described_stage(stage, number):
    return {
        "name": stage.name,
        "method": METHODS[stage.contiguity, stage.is_negative] if number else "begin",
        "kinds": None if stage.where is None else stage.where.kinds,
        "unlike": getattr(stage.where, "stage", ""),
        "least": stage.least,
        "most": stage.most or 0,
        "inner": INNER[stage.inner],
        "greedy": stage.is_greedy,
        "optional": stage.is_optional,
    }
