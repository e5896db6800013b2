"""``key_by(df, …).pattern(…)``: a search for a pattern in the rows of a keyed stream."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Self

import attrs
from millpond.functions.patterns.pattern import Match
from millpond.functions.side_outputs import OutputTag
from millpond.patterns import PatternSearch
from pyspark.sql.types import StructType
from typing_extensions import Unpack

from millpond_spark.api.operator_output import OperatorOutput
from millpond_spark.api.process_call import ProcessOptions


@attrs.frozen
class PatternStream:
    """A keyed stream whose rows are searched for a pattern.

    The methods ``select`` and ``flat_select`` take a function of matches and return the output.
    Their other arguments are documented at ``KeyedStream.process``.
    """

    _process: Callable[..., OperatorOutput]
    _search: PatternSearch

    def in_processing_time(self) -> Self:
        """Process rows in the order in which they arrive; the time of a row is processing time.

        By default, rows are processed in the order of their event times, when the watermark has
        reached them.
        """
        return attrs.evolve(self, search=self._search.in_processing_time())

    def side_output_late_data(self, tag: OutputTag) -> Self:
        """Put out the rows that come after the watermark, unchanged, to the side output `tag`.

        By default these rows are dropped.
        """
        return attrs.evolve(self, search=self._search.side_output_late_data(tag))

    def side_output_timed_out(self, tag: OutputTag, select: Callable[[Match], object]) -> Self:
        """Put out a row for each partial match whose time is over.

        Args:
            tag: the tag of the side output.
            select: a function that takes the rows of the partial match by stage, and returns a row
                of the side output.
        """
        return attrs.evolve(self, search=self._search.side_output_timed_out(tag, select))

    def select(
        self,
        function: Callable[[Match], object],
        *,
        output: str | StructType,
        uid: str,
        **options: Unpack[ProcessOptions],
    ) -> OperatorOutput:
        """Put out one row for each match.

        Args:
            function: a function that takes the rows of the match by stage, and returns a row.
            output: the columns of the main output, as DDL or a StructType.
            uid: the operator's stable name.
            options: the other arguments of ``process``.
        """
        return self._process(self._search.select(function), output=output, uid=uid, **options)

    def flat_select(
        self,
        function: Callable[[Match], Iterable[object] | None],
        *,
        output: str | StructType,
        uid: str,
        **options: Unpack[ProcessOptions],
    ) -> OperatorOutput:
        """Put out the rows that `function` yields for each match.

        Args:
            function: a function that takes the rows of the match by stage, and yields rows or
                returns a list of them.
            output: the columns of the main output, as DDL or a StructType.
            uid: the operator's stable name.
            options: the other arguments of ``process``.
        """
        return self._process(self._search.flat_select(function), output=output, uid=uid, **options)
