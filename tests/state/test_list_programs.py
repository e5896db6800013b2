"""Generated programs over growing lists give the same results on every backend and in plain Python.

Elements are added one by one and many at once, during iterations, between snapshots, savepoints and
other backends, with and without TTL.
"""

import random
from datetime import timedelta

import millpond as mp
import pytest
from millpond import errors

BACKENDS = ("heap", "heap", "rocksdb", "lmdb")


class Lists(mp.KeyedProcessFunction):
    """Function that follows the rows' instructions for its list, and yields its reads."""

    def __init__(self, ttl):
        self.ttl = ttl

    def open(self, context):
        grown = mp.ListStateDescriptor("grown", int)
        if self.ttl is not None:
            time = timedelta(milliseconds=self.ttl)
            grown.enable_time_to_live(mp.StateTtlConfig.new_builder(time).build())
        self.grown = context.get_list_state(grown)

    def process_element(self, row, context):
        yield from getattr(self, row.call)(row.given) or ()

    def add(self, given):
        self.grown.add(given[0])

    def add_all(self, given):
        self.grown.add_all(given)

    def update(self, given):
        self.grown.update(given)

    def clear(self, given):
        self.grown.clear()

    def get(self, given):
        return [list(self.grown.get())]

    def grow_while_read(self, given):
        seen = []
        for number in self.grown.get():
            if len(seen) < len(given):
                self.grown.add(number + 1)
            seen.append(number)
        return [seen]

    def clear_while_read(self, given):
        elements = iter(self.grown.get())
        first = next(elements, None)
        self.grown.clear()
        return [(first, list(elements))]

    def change_what_was_read(self, given):
        self.grown.get().append(7)
        return self.get(given)

    def fail(self, given):
        for call in (self.grown.add_all, self.grown.update):
            with pytest.raises(errors.NullValueError):
                call([*given, None])


CALLS = ["add"] * 8 + ["add_all", "get"] * 3 + [
    "update", "clear", "grow_while_read", "clear_while_read", "change_what_was_read", "fail",
]  # fmt: skip


def modelled(rows, moments, ttl):
    """Return the expected output of ``Lists``, in plain Python."""
    held, found = {}, []
    for row, now in zip(rows, moments, strict=True):
        given = row["given"]
        live = [(n, at) for n, at in held.get(row["k"], []) if ttl is None or at + ttl > now]
        numbers = [number for number, _ in live]
        match row["call"]:
            case "add":
                live.append((given[0], now))
            case "add_all":
                live += [(number, now) for number in given]
            case "update":
                live = [(number, now) for number in given]
            case "clear":
                live = []
            case "get" | "change_what_was_read":
                found.append(numbers)
            case "grow_while_read":
                found.append(numbers)
                live += [(number + 1, now) for number in numbers[: len(given)]]
            case "clear_while_read":
                found.append((numbers[0] if numbers else None, numbers[1:]))
                live = []
        held[row["k"]] = live
    return found


def drawn(rng):
    """Return rows, and the processing time of each."""
    now, rows, moments = 1_000, [], []
    for _ in range(rng.choice([20, 80, 200])):
        given = [rng.randrange(100) for _ in range(rng.choice([1, 1, 3, rng.choice([40, 300])]))]
        rows.append({"k": rng.choice("abc"), "call": rng.choice(CALLS), "given": given})
        now += rng.choice([0, 0, 1, 5, 30])
        moments.append(now)
    return rows, moments


def run(seed, folder):
    """Run parts of a program's rows on one backend after the other, each from the previous state."""
    rng = random.Random(seed)
    (rows, moments), ttl = drawn(rng), rng.choice([None, 50])
    found, start, backend, at = [], None, rng.choice(BACKENDS), 0
    while at < len(rows):
        end = at + rng.choice([3, 10, 60])
        with mp.testing.KeyedOperatorHarness(
            Lists(ttl), key="k", backend=backend, restore=start, clock_ms=moments[at]
        ) as harness:
            for row, moment in zip(rows[at:end], moments[at:end], strict=True):
                harness.advance_processing_time(moment)
                harness.process(row)
                start = harness.snapshot() if rng.random() < 0.2 else start
            moves = rng.random() < 0.3
            start = harness.savepoint(folder / f"{seed}-{at}") if moves else harness.snapshot()
            found += harness.output
        backend, at = rng.choice(BACKENDS) if moves else backend, end
    assert found == modelled(rows, moments, ttl), seed


def test_lists_are_those_of_plain_python(tmp_path):
    """Each read of a list returns the written elements, after any operations in between."""
    for seed in range(15):
        run(seed, tmp_path)


@pytest.mark.soak
def test_many_lists_are_those_of_plain_python(tmp_path):
    """In a thousand generated programs, each read of a list returns the written elements."""
    for seed in range(1_000, 2_000):
        run(seed, tmp_path)
