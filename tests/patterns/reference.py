"""A plain matcher: it enumerates the matches in a whole sequence of rows by backtracking.

It looks at slices of the finished sequence, and keeps no state from row to row. A *chain* is a list
of pairs: the index of a stage in the pattern, and the index of a row in the sequence.
"""

from itertools import takewhile
from typing import NamedTuple

from millpond.functions.patterns.pattern import Contiguity


class Found(NamedTuple):
    """The results for the rows of one key: matches and timed-out partial matches in order."""

    matches: list
    timed_out: list


class Reference:
    """The matches of a pattern in the rows of one key.

    Args:
        pattern: the pattern.
        rows: pairs of time and row, in the order of processing.
    """

    def __init__(self, pattern, rows):
        self.stages, self.skip, self.within = pattern.stages, pattern.skip, pattern.duration
        self.rows = rows
        self.chains = []
        for stage in self.behind(-1):
            if not self.stages[stage].is_negative:
                for row in range(len(rows)):
                    if self.fits(stage, row, []) and not self.is_held([], row + 1, stage):
                        self.explore([(stage, row)])

    def explore(self, chain):
        self.chains.append(chain)
        stage, last = chain[-1]
        for following in self.following(chain):
            inner = following == stage
            rule = self.stages[following].inner if inner else self.stages[following].contiguity
            for row in range(last + 1, self.end(chain)):
                between = range(last + 1, row)
                passed = {
                    Contiguity.STRICT: not between,
                    Contiguity.RELAXED: not any(self.fits(following, r, chain) for r in between),
                    Contiguity.ANY: True,
                }[rule]
                if (
                    passed
                    and self.fits(following, row, chain)
                    and not self.is_discarded(chain, row + 1)
                    and not self.is_held(chain, row + 1, following)
                ):
                    self.explore([*chain, (following, row)])

    # ---------------------------------------------------------------- rules

    def fits(self, stage, row, chain):
        where = self.stages[stage].where
        if where is None:
            return True
        if self.stages[stage].reads_match:
            return bool(where(self.rows[row][1], self.by_stage(chain)))
        return bool(where(self.rows[row][1]))

    def by_stage(self, chain):
        taking = [stage for stage in self.stages if not stage.is_negative]
        return {
            stage.name: [self.rows[r][1] for s, r in chain if self.stages[s] is stage]
            for stage in taking
        }

    def behind(self, stage):
        """Return the stages behind a stage, up to the first one that must have rows."""
        later = range(stage + 1, len(self.stages))
        skipped = list(
            takewhile(lambda s: self.stages[s].is_negative or self.stages[s].is_optional, later)
        )
        return [*skipped, *later[len(skipped) : len(skipped) + 1]]

    def count(self, chain):
        return sum(stage == chain[-1][0] for stage, _ in chain)

    def is_full(self, chain):
        return self.count(chain) >= self.stages[chain[-1][0]].least

    def following(self, chain):
        """Return the stages that may take the row after a chain."""
        stage = chain[-1][0]
        most = self.stages[stage].most
        again = [stage] if most is None or self.count(chain) < most else []
        later = self.behind(stage) if self.is_full(chain) else []
        return again + [s for s in later if not self.stages[s].is_negative]

    def guards(self, chain):
        """Return the negative stages directly behind a chain's last stage."""
        later = range(chain[-1][0] + 1, len(self.stages))
        return list(takewhile(lambda s: self.stages[s].is_negative, later))

    def is_discarded(self, chain, stop):
        """Return whether a row after the chain, before the row ``stop``, fits a negative stage."""
        first = chain[-1][1] + 1
        for guard in self.guards(chain):
            strict = self.stages[guard].contiguity is Contiguity.STRICT
            if strict and not self.is_full(chain):
                continue
            rows = range(first, min(stop, first + 1) if strict else stop)
            if any(self.fits(guard, row, chain) for row in rows):
                return True
        return False

    def is_held(self, chain, stop, following):
        """Return whether a greedy stage keeps a row before ``stop`` from a stage behind it."""
        own, last = chain[-1] if chain else (0, stop - 2)
        return any(
            self.stages[stage].is_greedy
            and self.stages[stage].least != self.stages[stage].most
            and any(self.fits(stage, row, chain) for row in range(last + 1, stop))
            for stage in range(own, following)
        )

    def end(self, chain):
        """Return the index after the last row in the chain's time."""
        if self.within is None:
            return len(self.rows)
        limit = self.rows[chain[0][1]][0] + self.within
        return sum(time < limit for time, _ in self.rows)

    # ---------------------------------------------------------------- matches

    def completion(self, chain):
        """Return the step that completes a match: a row, or the number of rows; None if none."""
        behind = [self.stages[stage] for stage in self.behind(chain[-1][0])]
        if not self.is_full(chain) or not all(s.is_negative or s.is_optional for s in behind):
            return None
        rules = {self.stages[guard].contiguity for guard in self.guards(chain)}
        stop = self.end(chain)
        if not rules:
            return chain[-1][1]
        if Contiguity.RELAXED in rules:
            over = self.is_discarded(chain, stop) or self.is_held(chain, stop, len(self.stages))
            return None if over else len(self.rows)
        following = chain[-1][1] + 1
        if following >= stop or self.is_discarded(chain, following + 1):
            return None
        return following

    def is_left(self, chain):
        """Return whether a chain is a partial match when its time is over, or after all rows."""
        stop = self.end(chain)
        first = chain[-1][1] + 1
        if self.is_discarded(chain, stop):
            return False
        if self.completion(chain) == len(self.rows):
            return False
        by_row = self.guards(chain) and self.completion(chain) is None and self.is_full(chain)
        if by_row and first == stop and self.guards(chain)[-1] == len(self.stages) - 1:
            return True
        for stage in self.following(chain):
            inner = stage == chain[-1][0]
            rule = self.stages[stage].inner if inner else self.stages[stage].contiguity
            rows = range(first, stop)
            passed = {
                Contiguity.STRICT: not rows,
                Contiguity.RELAXED: not any(self.fits(stage, row, chain) for row in rows),
                Contiguity.ANY: True,
            }[rule]
            if passed and not self.is_held(chain, stop, stage):
                return True
        return False

    def found(self):
        """Return the matches, and without a skip strategy the timed-out partial matches."""
        completed = [(self.completion(chain), chain) for chain in self.chains]
        completed = [each for each in completed if each[0] is not None]
        left = [chain for chain in self.chains if self.is_left(chain)]
        over = [self.by_stage(chain) for chain in left if self.within is not None]
        if not self.skip.is_skipping:
            completed.sort(key=lambda each: (self.moment(*each), order(each[1])))
            return Found([self.by_stage(chain) for _, chain in completed], over)
        completed.sort(key=lambda each: (each[1][0][1], each[0], order(each[1])))
        # Without a limit, the partial matches that are left hold later matches back for ever.
        holding = {chain[0][1] for chain in left if self.within is None}
        matches, last = [], -1
        for _, chain in completed:
            if any(last < first < chain[0][1] for first in holding):
                break
            if chain[0][1] > last:
                matches.append(self.by_stage(chain))
                last = max(last, self.last_discarded(chain))
        return Found(matches, None)

    def moment(self, completion, chain):
        """Return the sort key of the step that puts out a match."""
        if completion < len(self.rows):
            return self.rows[completion][0], completion
        return self.rows[chain[0][1]][0] + self.within, -1

    def last_discarded(self, chain):
        rows = [row for _, row in chain]
        of_stage = [row for stage, row in chain if self.stages[stage].name == self.skip.stage]
        kind = self.skip._kind
        if kind == "to_next":
            return rows[0]
        if kind == "past_last_event":
            return rows[-1]
        if not of_stage:
            return -1
        return of_stage[0 if kind == "to_first" else -1] - 1


def order(chain):
    return [(row, stage) for stage, row in chain]
