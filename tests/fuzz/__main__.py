"""``python -m tests.fuzz``: run mutants of all or some targets; the exit status is 1 if one was not refused."""

import argparse
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.fuzz import calls, commands, copies, files, runner

TARGETS = {**files.TARGETS, **copies.TARGETS, **calls.TARGETS, **commands.TARGETS}
PAGE = """# Mutated files and odd calls

After reading this page you know how Millpond reads damaged and hostile files, and how it answers odd calls.

`make fuzz` makes *mutants*, which are changed copies of a stored file, and lets Millpond read them. It flips, cuts and repeats
bytes, replaces numbers and types in metadata by values that an attacker might choose, and edits tables and rows. In some
mutants the digests do not fit the changed content. In others `make fuzz` also corrects the digests, as an attacker who knows
the format would do. `make fuzz` also calls every public function and every command with odd arguments.

| outcome | meaning |
|---|---|
| equal | the values are unchanged, or the call is accepted |
| changed | the digests are correct, and the values differ |
| refused | one of Millpond's errors |
| WRONG | a fault: other values under old digests |
| RAW | a fault: an exception that is not Millpond's |
| HANG | a fault: more than 5 s of processor time or 30 s of waiting |
| DEATH | a fault: the process ends |
| MEMORY | a fault: more than 64 MB beyond the file's size |

{table}

| target | changed data |
|---|---|
| handles, rocksdb-handles | the JSON of a snapshot's handle, including embedded files |
| metadata, layouts | the metadata at the end of snapshots, and the files that Spark's driver reads |
| rows, values | snapshot files: streams, footers, rows; keys and values alone |
| savepoints, operator-state | their metadata, tables and elements |
| rocksdb-copies, lmdb-copies | files of a closed local copy, or its marker of a clean shutdown: Millpond deletes the copy without opening it |
| rocksdb-forged-copies | files of a local copy, with a marker that fits them: RocksDB's own checksums find the damage |
| lmdb-forged-copies | LMDB's pages have no checksums, see [security](../explanation/security.md). Each mutant is opened in its own process, and its outcome is not part of the sum |
| arguments, configuration | arguments of the public functions; TOML files |
| commands | calls of the command line, on intact and damaged directories |

The seeds of the mutants begin at {first}. To run a single mutant again, use
`python -m tests.fuzz --target rows --first SEED --count 1`. `--seconds` limits the time of a run.
"""


def run_all(given):
    """Run the chosen targets, several at a time; return counts and faults by target."""
    names = given.target or list(TARGETS)
    share = given.seconds * given.jobs / len(names) if given.seconds else None

    def one(name):
        started = time.monotonic()
        until = started + share if share else None
        count = max(1, round(given.count * getattr(TARGETS[name], "weight", 1)))
        found = runner.run(name, given.first, count, until)
        print(f"{name}: {dict(found[0])} in {runner.minutes(started):.1f} min", flush=True)
        for word, seeds in sorted(found[1].items(), key=lambda item: -len(item[1])):
            print(f"  {len(seeds):5}  {word}  seeds {seeds[:3]}", flush=True)
        return found

    with ThreadPoolExecutor(given.jobs) as pool:
        return dict(zip(names, pool.map(one, names), strict=True))


def main():
    """Run as the arguments say."""
    parser = argparse.ArgumentParser(prog="tests.fuzz", description=__doc__)
    parser.add_argument("--target", action="append", choices=TARGETS)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=1000, help="of each target, by its weight")
    parser.add_argument("--seconds", type=int, help="for all targets together")
    parser.add_argument("--jobs", type=int, default=1, help="targets that run at the same time")
    parser.add_argument("--markdown", type=Path)
    parser.add_argument("--child", nargs=3)
    given = parser.parse_args()
    if given.child:
        name, first, count = given.child
        runner.child(TARGETS[name], int(first), int(count))
        return 0
    found = run_all(given)
    if given.markdown:
        table = runner.table(with_total({name: counts for name, (counts, _) in found.items()}))
        given.markdown.write_text(PAGE.format(table=table, first=given.first), encoding="utf-8")
    bad = [name for name, (_, bad) in found.items() if bad and not bounded(name)]
    return 1 if bad else 0


def with_total(counts):
    """Add a row with the total of all targets, except those with documented limits."""
    total = sum((each for name, each in counts.items() if not bounded(name)), Counter())
    return {**counts, "all but lmdb-forged-copies": total}


def bounded(name):
    """Return whether a target's faults are a documented limit."""
    return getattr(TARGETS[name], "bound", False)


if __name__ == "__main__":
    sys.exit(main())
