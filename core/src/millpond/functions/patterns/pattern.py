"""``Pattern``: the description of a sequence of rows, with the names and rules of Flink's CEP."""

from __future__ import annotations

import enum
import inspect
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Literal, Self, TypeAlias

import attrs

from millpond.arguments import INT64, check_type, check_within, nearest
from millpond.errors import ConfigError, brief
from millpond.functions.windows.window import milliseconds

Match: TypeAlias = dict[str, list[Any]]
"""The rows of a match by the names of the stages. A stage without rows has an empty list."""

Condition: TypeAlias = Callable[[Any], Any] | Callable[[Any, Match], Any]
"""A function that decides whether a row fits a stage.

A function with two required parameters also gets the rows that the partial match has so far.
"""


class Contiguity(enum.Enum):
    """The rows that may come between one row of a match and the next."""

    STRICT = "no row"
    RELAXED = "rows that do not fit the stage"
    ANY = "all rows"


@attrs.frozen
class Stage:
    """A stage of a pattern: a condition, and the number of rows that must fit it.

    Attributes:
        name: the name of the stage.
        where: the condition; None if every row fits.
        contiguity: the rows that may come between the row before and the first row of the stage.
        is_negative: whether a row that fits discards the partial match, as with ``not_next``.
        least: the lowest number of rows.
        most: the highest number of rows; None if there is no limit.
        inner: the rows that may come between two rows of the stage.
        is_optional: whether the stage may have no rows at all.
        is_greedy: whether the stage takes as many rows as possible.
    """

    name: str
    where: Condition | None
    contiguity: Contiguity = Contiguity.RELAXED
    is_negative: bool = False
    least: int = 1
    most: int | None = 1
    inner: Contiguity = Contiguity.RELAXED
    is_optional: bool = False
    is_greedy: bool = False

    @property
    def is_loop(self) -> bool:
        """Whether the stage may have several rows."""
        return self.most != 1

    @property
    def reads_match(self) -> bool:
        """Whether the condition gets the rows of the partial match, too."""
        try:
            parameters = inspect.signature(self.where).parameters.values()  # type: ignore[arg-type]
        except (TypeError, ValueError):  # no condition, or a function of C without a signature
            return False
        positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        required = [p for p in parameters if p.kind in positional and p.default is p.empty]
        return len(required) == len(("row", "match"))


_SkipKind = Literal["no_skip", "to_next", "past_last_event", "to_first", "to_last"]


@attrs.frozen
class AfterMatchSkipStrategy:
    """The matches to discard when a match is found. The strategies are Flink's.

    With a strategy other than ``no_skip``, a match is put out once no partial match with an earlier
    first row exists.

    Attributes:
        stage: the stage whose rows decide, or None.
    """

    _kind: _SkipKind = "no_skip"
    stage: str | None = None

    @classmethod
    def no_skip(cls) -> Self:
        """Discard nothing: put out every match."""
        return cls()

    @classmethod
    def skip_to_next(cls) -> Self:
        """Discard the other matches that begin with the same row as the match."""
        return cls("to_next")

    @classmethod
    def skip_past_last_event(cls) -> Self:
        """Discard the matches that begin with or before the last row of the match."""
        return cls("past_last_event")

    @classmethod
    def skip_to_first(cls, stage: str) -> Self:
        """Discard the matches that begin before the match's first row of ``stage``.

        If the match has no row of ``stage``, discard nothing.
        """
        check_type("stage", stage, str)
        return cls("to_first", stage)

    @classmethod
    def skip_to_last(cls, stage: str) -> Self:
        """Discard the matches that begin before the match's last row of ``stage``.

        If the match has no row of ``stage``, discard nothing.
        """
        check_type("stage", stage, str)
        return cls("to_last", stage)

    @property
    def is_skipping(self) -> bool:
        """Whether the strategy discards matches."""
        return self._kind != "no_skip"

    def last_discarded(self, match: Mapping[str, Sequence[int]]) -> int | None:
        """Return the last row with which discarded matches begin; None to discard nothing.

        Args:
            match: the numbers of the match's rows by stage.
        """
        of_stage = match.get(self.stage or "", ())
        rows = sorted(number for numbers in match.values() for number in numbers)
        if self._kind == "to_next":
            return rows[0]
        if self._kind == "past_last_event":
            return rows[-1]
        if not of_stage:
            return None
        return of_stage[0 if self._kind == "to_first" else -1] - 1


@attrs.frozen
class Pattern:
    """A sequence of stages that the rows of a key must fit. ``Pattern.begin`` makes the first one.

    Each method returns a new pattern. ``next``, ``followed_by`` and the others append a stage;
    ``times``, ``optional`` and the others change the last stage. The rules are those of Flink's
    CEP.

    Attributes:
        stages: the stages in order.
        skip: the strategy after a match.
        duration: the limit that ``within`` sets, in ms, or None.
    """

    stages: tuple[Stage, ...]
    skip: AfterMatchSkipStrategy
    duration: int | None = attrs.field(default=None, alias="within")

    @classmethod
    def begin(
        cls,
        name: str,
        where: Condition | None = None,
        *,
        skip: AfterMatchSkipStrategy | None = None,
    ) -> Self:
        """Return a pattern with its first stage.

        Args:
            name: the name of the stage, by which the selecting function finds its rows.
            where: the condition: a function that takes a row. A function with two required
                parameters also gets the rows of the partial match by stage, without this row. By
                default every row fits.
            skip: the matches to discard when a match is found; by default none.
        """
        check_type("skip", skip, AfterMatchSkipStrategy | None)
        empty = cls((), skip or AfterMatchSkipStrategy())
        return empty._append(Stage(name, where))

    # ---------------------------------------------------------------- further stages

    def next(self, name: str, where: Condition | None = None) -> Self:
        """Append a stage whose row comes directly after the row before."""
        return self._append(Stage(name, where, Contiguity.STRICT))

    def followed_by(self, name: str, where: Condition | None = None) -> Self:
        """Append a stage that takes the first row that fits, after any other rows."""
        return self._append(Stage(name, where))

    def followed_by_any(self, name: str, where: Condition | None = None) -> Self:
        """Append a stage that may take every later row that fits, so one match becomes several."""
        return self._append(Stage(name, where, Contiguity.ANY))

    def not_next(self, name: str, where: Condition) -> Self:
        """Append a condition that discards the partial match if the next row fits it."""
        return self._append_negative(Stage(name, where, Contiguity.STRICT, is_negative=True))

    def not_followed_by(self, name: str, where: Condition) -> Self:
        """Append a condition that discards the partial match if a row before the next stage fits.

        At the end of a pattern it needs ``within``: there is a match if no row fits in this time.
        """
        return self._append_negative(Stage(name, where, is_negative=True))

    def _append_negative(self, stage: Stage) -> Self:
        check_type("where", stage.where, Callable)
        if self.stages[-1].is_optional:
            raise self._error(stage.name, "a negative stage cannot follow an optional stage")
        return self._append(stage)

    def _append(self, stage: Stage) -> Self:
        check_type("name", stage.name, str)
        check_type("where", stage.where, Callable | None)
        if not stage.name or stage.name in (each.name for each in self.stages):
            fault = "there is a stage of this name already" if stage.name else "it is empty"
            raise ConfigError("name", f"{brief(stage.name)}: {fault}", "pattern")
        return attrs.evolve(self, stages=(*self.stages, stage))

    # ---------------------------------------------------------------- the last stage

    def times(self, least: int, most: int | None = None) -> Self:
        """Let the last stage take ``least`` rows, or any number from ``least`` to ``most``."""
        check_within("least", least, 1, INT64[1])
        if most is not None:
            check_within("most", most, least, INT64[1])
        return self._loop(least, least if most is None else most)

    def times_or_more(self, least: int) -> Self:
        """Let the last stage take ``least`` rows or more."""
        check_within("least", least, 1, INT64[1])
        return self._loop(least, None)

    def one_or_more(self) -> Self:
        """Let the last stage take one row or more."""
        return self._loop(1, None)

    def _loop(self, least: int, most: int | None) -> Self:
        if (self.stages[-1].least, self.stages[-1].most) != (1, 1):
            raise self._error(self.stages[-1].name, "the number of its rows is set already")
        return self._change(least=least, most=most)

    def optional(self) -> Self:
        """Let the last stage have no rows: there are matches with it and matches without it."""
        return self._change(is_optional=True)

    def greedy(self) -> Self:
        """Let the last stage, a loop, take as many rows as possible.

        A partial match that waits for a later stage is discarded if a row fits the last stage.
        """
        return self._change_loop(is_greedy=True)

    def consecutive(self) -> Self:
        """Let no row come between two rows of the last stage, a loop."""
        return self._change_loop(inner=Contiguity.STRICT)

    def allow_combinations(self) -> Self:
        """Let the last stage, a loop, leave out rows that fit, so one match becomes several."""
        return self._change_loop(inner=Contiguity.ANY)

    def _change_loop(self, **changes: Any) -> Self:
        if not self.stages[-1].is_loop:
            raise self._error(self.stages[-1].name, "call times or one_or_more first")
        return self._change(**changes)

    def _change(self, **changes: Any) -> Self:
        *others, last = self.stages
        if last.is_negative:
            raise self._error(last.name, "a negative stage takes no rows, so it has no number")
        return attrs.evolve(self, stages=(*others, attrs.evolve(last, **changes)))

    # ---------------------------------------------------------------- the whole pattern

    def within(self, duration: timedelta | int) -> Self:
        """Limit the time from the first to the last row of a match: it is less than ``duration``.

        Once the time is over, a partial match is discarded. Without this limit, a partial match is
        stored until it is completed or discarded, which may be for ever.

        Args:
            duration: a timedelta, or a number of ms.

        Raises:
            ConfigError: the duration is not positive, or not a length of time.
        """
        limit = milliseconds(duration, "within", least=1, place="Pattern.within(...)")
        return attrs.evolve(self, within=limit)

    def _error(self, stage: str, reason: str) -> ConfigError:
        return ConfigError("pattern", f"stage {stage!r}: {reason}", "pattern")

    def check(self) -> None:
        """Raise ConfigError if the pattern is not complete, so that it could never match."""
        names = [stage.name for stage in self.stages if not stage.is_negative]
        wanted = self.skip.stage
        if wanted is not None and wanted not in names:
            reason = f"there is no stage {wanted!r} that takes rows"
            raise ConfigError("skip", reason, "pattern", suggestion=nearest(wanted, names))
        last = self.stages[-1]
        if last.is_negative:
            if last.contiguity is Contiguity.RELAXED and self.duration is None:
                raise self._error(last.name, "not_followed_by at the end needs within(...)")
            if len(self.stages) > 1 and self.stages[-2].is_negative:
                raise self._error(last.name, "two negative stages cannot end a pattern")
            return
        for stage in reversed(self.stages):
            if stage.is_negative:
                raise self._error(stage.name, "only optional stages follow this negative stage")
            if not stage.is_optional:
                return
