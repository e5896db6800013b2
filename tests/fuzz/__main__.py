"""``python -m fuzz``: mutants of every target, or of some; status 1 where one was not refused."""

import argparse
import sys
import time
from pathlib import Path

from fuzz import runner
from fuzz.commands import TARGETS as COMMANDS
from fuzz.files import TARGETS as FILES

TARGETS = {**COMMANDS, **FILES}
PAGE = """# Mutated files

`make fuzz` changes what outlives a process, and uses it: bytes flipped, cut and repeated, numbers and types
in metadata exchanged for hostile ones, tables and rows changed; with digests left as they were, and with
digests mended by somebody who knows the format. A mutant is *equal* (it gives the same values), *changed*
(digests were mended, and it gives other values), or *refused* by an error of Millpond's. Not allowed are
WRONG values under old digests, RAW exceptions, a HANG of more than 5 s, the DEATH of the process, and MEMORY
of more than 64 MB beyond the file's size.

{table}

Seeds from {first} on. `tests/fuzz` has a module per kind of target; a single mutant is run again by
`python -m fuzz --target rows --first SEED --count 1` in `tests/`.
"""


def main():
    """Run what the arguments say."""
    parser = argparse.ArgumentParser(prog="fuzz", description=__doc__)
    parser.add_argument("--target", action="append", choices=TARGETS)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=1000, help="of each target")
    parser.add_argument("--markdown", type=Path)
    parser.add_argument("--child", nargs=3)
    given = parser.parse_args()
    if given.child:
        name, first, count = given.child
        runner.child(TARGETS[name], int(first), int(count))
        return 0
    counts, bad = {}, 0
    for name in given.target or TARGETS:
        started = time.monotonic()
        counts[name], found = runner.run(name, given.first, given.count)
        print(f"{name}: {dict(counts[name])} in {runner.minutes(started):.1f} min", flush=True)
        for word, seeds in sorted(found.items(), key=lambda item: -len(item[1])):
            bad += len(seeds)
            print(f"  {len(seeds):5}  {word}  seeds {seeds[:3]}", flush=True)
    if given.markdown:
        text = PAGE.format(table=runner.table(counts), first=given.first)
        given.markdown.write_text(text, encoding="utf-8")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
