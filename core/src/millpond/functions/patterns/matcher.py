"""The matcher: finds the matches of a pattern in the rows of one key, row by row.

A partial match is a chain of nodes, one for each row that it has taken, together with the set of
stages that it waits for. The set is an int with a bit for each stage. A row may do several things
to a partial match at once:

* If the row fits a negative stage in the set, the partial match is discarded.
* For each other stage in the set that the row fits, a longer partial match begins. It shares the
  nodes of the shorter one.
* The shorter partial match keeps the stages that may pass over the row. Without any such stage it
  ends.

Optional stages and loops need no states of their own. After each row of a stage, the set has all
stages that may come next: the same stage if it takes more rows, and the stages behind it up to the
first one that is not optional.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

import attrs

from millpond.arguments import unstarted_kind
from millpond.errors import ConfigError
from millpond.functions.patterns.pattern import Contiguity, Match, Pattern
from millpond.functions.user_code import result_error


@attrs.define(eq=False)
class Node:
    """A row in a match.

    Attributes:
        parent: the row of the match before; None for the first row.
        stage: the index of the stage that has taken the row.
        row: the number of the row. Rows of a key are numbered in the order of processing.
        count: the number of consecutive rows of the stage, up to this one.
        first_row: the number of the match's first row.
        first_time: the time of the match's first row in ms.
    """

    parent: Node | None
    stage: int
    row: int
    count: int
    first_row: int
    first_time: int

    @classmethod
    def after(cls, parent: Node | None, stage: int, row: int, time: int) -> Node:
        """Return a node for a row that follows ``parent``; ``time`` is the row's time in ms."""
        if parent is None:
            return cls(None, stage, row, 1, row, time)
        count = parent.count + 1 if parent.stage == stage else 1
        return cls(parent, stage, row, count, parent.first_row, parent.first_time)

    def chain(self) -> list[Node]:
        """Return the nodes from the match's first row to this one."""
        nodes = [self]
        while (parent := nodes[-1].parent) is not None:
            nodes.append(parent)
        nodes.reverse()
        return nodes


@attrs.frozen
class StoredMatches:
    """The partial matches of a key, as they are stored.

    Attributes:
        stages: identifies the stages of the pattern.
        nodes: for each node the index of its parent (-1 for none), the stage, the number of the
            row, and the time of the match's first row. Parents come before their children.
        partials: for each partial match the index of its last node, and the stages it waits for.
        completed: the last nodes of the matches that wait for partial matches with earlier rows.
    """

    stages: int
    nodes: tuple[tuple[int, int, int, int], ...]
    partials: tuple[tuple[int, int], ...]
    completed: tuple[int, ...]


class Automaton:
    """A pattern in the form that matchers use.

    Sets of stages are ints with a bit for each stage, and the bit ``pending``.

    Attributes:
        pattern: the pattern.
        stages: its stages.
        names: the names of the stages that take rows.
        identity: identifies the stages in stored matches.
        start: the stages that the first row of a match may fit.
        reads_match: for each stage, whether its condition gets the rows of the partial match.
        by_row: the set of ``not_next`` at the end of the pattern; else empty. Then a match is
            complete with the row that follows it.
        pending: the bit of a partial match that is a match when its time is over, because of
            ``not_followed_by`` at the end of the pattern.
        at_once: whether a match is complete with its last row.
        greedy: the indexes of the greedy stages. The stages behind them do not get rows that fit
            them.
    """

    def __init__(self, pattern: Pattern) -> None:
        self.pattern = pattern
        self.stages = stages = pattern.stages
        negative = [index for index, stage in enumerate(stages) if stage.is_negative]
        taking = [index for index, stage in enumerate(stages) if not stage.is_negative]
        self.names = [stages[index].name for index in taking]
        self.identity = zlib.crc32(repr([(s.name, s.is_negative) for s in stages]).encode())
        self.reads_match = [stage.reads_match for stage in stages]
        self.start = self._behind(-1)
        self._followers = [self._behind(index) for index in range(len(stages))]
        self._end = max((i for i in taking if not stages[i].is_optional), default=-1)
        relaxed = [i for i in negative if stages[i].contiguity is Contiguity.RELAXED]
        self._lasting = sum(1 << index for index in relaxed)
        last = len(stages) - 1
        self.by_row = 1 << last if last in negative and last not in relaxed else 0
        self.pending = 1 << len(stages)
        self._ends_in_time = last in relaxed
        self.at_once = last not in negative
        self.greedy = [
            i for i in taking if stages[i].is_greedy and stages[i].least != stages[i].most
        ]
        self._parts: dict[int, tuple[list[int], list[int]]] = {}

    def _behind(self, index: int) -> int:
        """Return the stages that may come when a stage has all its rows."""
        waits = 0
        for later in range(index + 1, len(self.stages)):
            waits |= 1 << later
            if not (self.stages[later].is_negative or self.stages[later].is_optional):
                break
        return waits

    def parts(self, waits: int) -> tuple[list[int], list[int]]:
        """Return the indexes of the negative stages in a set, and of its other stages."""
        found = self._parts.get(waits)
        if found is None:
            members = [index for index in range(len(self.stages)) if waits >> index & 1]
            negative = [index for index in members if self.stages[index].is_negative]
            others = [index for index in members if not self.stages[index].is_negative]
            found = self._parts[waits] = negative, others
        return found

    def waits_after(self, node: Node) -> int:
        """Return the stages that a partial match waits for after its last row ``node``."""
        stage, followers = self.stages[node.stage], self._followers[node.stage]
        again = 1 << node.stage
        if node.count < stage.least:
            # As in Flink, ``not_followed_by`` applies from the first row of the stage before.
            return again | (followers & self._lasting)
        # After a restore the count may be higher than a limit that the user has lowered.
        is_full = stage.most is not None and node.count >= stage.most
        waits = followers if is_full else again | followers
        return waits | self.pending if self._ends_in_time and self.is_complete(node) else waits

    def is_complete(self, node: Node) -> bool:
        """Return whether ``node`` may be the last row of a match.

        If there are negative stages at the end of the pattern, they still decide about the match.
        """
        return node.count >= self.stages[node.stage].least and node.stage >= self._end

    def left(self, waits: int, passing: int) -> int:
        """Return the set that a partial match still waits for after a row; 0 if it ends.

        Args:
            waits: the set it has waited for.
            passing: the members that may pass over the row, except negative stages.
        """
        return passing | (waits & self._lasting) if passing else 0


class Matcher:
    """The partial matches of one key.

    Args:
        automaton: the pattern.
        stored: the stored partial matches; None if there are none.
        read_row: returns the stored row with a number.

    Attributes:
        partials: the last node of each partial match, with the stages it waits for.
        stored_rows: the numbers of the rows that are stored.
    """

    def __init__(
        self, automaton: Automaton, stored: StoredMatches | None, read_row: Callable[[int], Any]
    ) -> None:
        self._automaton = automaton
        self._read_row = read_row
        self._rows: dict[int, Any] = {}
        self._row: Any = None
        self._fits: dict[int, bool] = {}
        self.partials: list[tuple[Node, int]] = []
        self._completed: list[Node] = []
        self.stored_rows: set[int] = set()
        self._number = 0
        if stored is not None:
            self._load(stored)

    def _load(self, stored: StoredMatches) -> None:
        if stored.stages != self._automaton.identity:
            reason = "the stored partial matches belong to other stages: choose another uid"
            raise ConfigError("pattern", reason, "restored state")
        nodes: list[Node] = []
        for parent, stage, row, time in stored.nodes:
            nodes.append(Node.after(None if parent < 0 else nodes[parent], stage, row, time))
        self.partials = [(nodes[last], waits) for last, waits in stored.partials]
        self._completed = [nodes[last] for last in stored.completed]
        self.stored_rows = {node.row for node in nodes}
        self._number = max(self.stored_rows, default=-1) + 1

    # ---------------------------------------------------------------- rows

    def process(self, row: Any, time: int) -> list[Node]:
        """Process the next row; return the last nodes of the matches to put out.

        Args:
            row: the row.
            time: its time in ms.
        """
        automaton, number = self._automaton, self._number
        self._row, self._fits = row, {}
        completed: list[Node] = []
        kept: list[tuple[Node, int]] = []
        taken: list[Node] = []
        for node, waits in self.partials:
            if any(self._row_fits(index, node) for index in automaton.parts(waits)[0]):
                continue
            if waits & automaton.by_row:
                completed.append(node)
            taking, passing = self._divided(node, waits)
            taken += [Node.after(node, index, number, time) for index in taking]
            if left := automaton.left(waits, passing):
                kept.append((node, left))
        taking, _ = self._divided(None, automaton.start)
        taken += [Node.after(None, index, number, time) for index in taking]
        for node in taken:
            if automaton.at_once and automaton.is_complete(node):
                completed.append(node)
            if waits := automaton.waits_after(node):
                kept.append((node, waits))
        if taken:
            self._rows[number] = row
            self._number += 1
        self.partials = kept
        return self._settle(completed)

    def _divided(self, node: Node | None, waits: int) -> tuple[list[int], int]:
        """Return the stages that take the row, and the set of members that may pass over it.

        Args:
            node: the last row of the partial match; None before its first row.
            waits: the set it waits for.
        """
        stages, own = self._automaton.stages, -1 if node is None else node.stage
        for index in self._automaton.greedy:
            if own <= index and waits >> index > 1 and self._row_fits(index, node):
                waits &= (2 << index) - 1
                break
        taking, passing = [], waits & self._automaton.pending
        for index in self._automaton.parts(waits)[1]:
            fits = self._row_fits(index, node)
            if fits:
                taking.append(index)
            rule = stages[index].inner if index == own else stages[index].contiguity
            if rule is Contiguity.ANY or (rule is Contiguity.RELAXED and not fits):
                passing |= 1 << index
        return taking, passing

    def _row_fits(self, index: int, node: Node | None) -> bool:
        """Return whether the row fits a stage, for the partial match that ends with ``node``."""
        where: Any = self._automaton.stages[index].where
        if where is None:
            return True
        if self._automaton.reads_match[index]:
            return _decision(where, where(self._row, self.match(node)))
        if index not in self._fits:
            self._fits[index] = _decision(where, where(self._row))
        return self._fits[index]

    # ---------------------------------------------------------------- time

    def advance(self, time: int) -> tuple[list[Node], list[Node]]:
        """Remove the partial matches whose time is over at ``time``, in ms.

        Returns:
            The last nodes of the matches to put out, and of the partial matches that ran out of
            time.
        """
        automaton, duration = self._automaton, self._automaton.pattern.duration
        if duration is None:
            return [], []
        completed, over, kept = [], [], []
        for node, waits in self.partials:
            if node.first_time + duration > time:
                kept.append((node, waits))
            elif waits & automaton.pending:
                completed.append(node)
            else:
                over.append(node)
        if len(kept) == len(self.partials):
            return [], []
        self.partials = kept
        return self._settle(completed), sorted(over, key=_order)

    # ---------------------------------------------------------------- matches

    def _settle(self, completed: list[Node]) -> list[Node]:
        """Apply the skip strategy; return the matches to put out, in order.

        A match waits while there is a partial match with an earlier first row. That partial match
        may become a match that discards this one.
        """
        skip = self._automaton.pattern.skip
        if len(completed) > 1:
            completed.sort(key=_order)
        if not skip.is_skipping:
            # A strategy before the last restore may have left matches that wait.
            completed, self._completed = self._completed + completed, []
            return completed
        self._completed = sorted(self._completed + completed, key=lambda node: node.first_row)
        found = []
        while self._completed:
            first = min((node.first_row for node, _ in self.partials), default=None)
            if first is not None and first < self._completed[0].first_row:
                break
            match = self._completed.pop(0)
            found.append(match)
            last = skip.last_discarded(self._numbers(match))
            if last is not None:
                self.partials = [each for each in self.partials if each[0].first_row > last]
                self._completed = [node for node in self._completed if node.first_row > last]
        return found

    def _numbers(self, node: Node | None) -> dict[str, list[int]]:
        """Return the numbers of a match's rows by stage."""
        found: dict[str, list[int]] = {name: [] for name in self._automaton.names}
        for each in () if node is None else node.chain():
            found[self._automaton.stages[each.stage].name].append(each.row)
        return found

    def match(self, node: Node | None) -> Match:
        """Return the rows of the match or partial match that ends with ``node``, by stage."""
        return {
            name: [self.row(number) for number in numbers]
            for name, numbers in self._numbers(node).items()
        }

    def row(self, number: int) -> Any:
        """Return the row with a number."""
        if number not in self._rows:
            self._rows[number] = self._read_row(number)
        return self._rows[number]

    def to_stored(self) -> StoredMatches | None:
        """Return the partial matches in the form in which they are stored; None if there are none.

        Nodes that no partial match needs any longer are left out.
        """
        nodes: list[tuple[int, int, int, int]] = []
        indexes: dict[Node, int] = {}

        def index_of(last: Node) -> int:
            added = []
            node: Node | None = last
            while node is not None and node not in indexes:
                added.append(node)
                node = node.parent
            for each in reversed(added):
                parent = -1 if each.parent is None else indexes[each.parent]
                indexes[each] = len(nodes)
                nodes.append((parent, each.stage, each.row, each.first_time))
            return indexes[last]

        partials = tuple((index_of(node), waits) for node, waits in self.partials)
        completed = tuple(map(index_of, self._completed))
        if not nodes:
            return None
        return StoredMatches(self._automaton.identity, tuple(nodes), partials, completed)


def _decision(where: Callable[..., Any], result: Any) -> bool:
    """Return the result of a condition as a bool.

    Raises:
        FunctionResultError: the condition is a generator function or a coroutine function.
    """
    if unstarted_kind(result):
        raise result_error(where, result, "whether the row fits")
    return bool(result)


def _order(node: Node) -> list[tuple[int, int]]:
    """Return the sort key of matches that are found together: their rows, and their stages."""
    return [(each.row, each.stage) for each in node.chain()]
