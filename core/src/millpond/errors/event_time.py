"""Errors of event time and processing time on Spark."""

from __future__ import annotations

from typing_extensions import override

from millpond.errors.base import MillpondError


class NoWatermarkError(MillpondError):
    """An operator of a stream uses event time without a watermark.

    Attributes:
        what: the windows, timers or time mode that need a watermark.
        column: the operator's column of event time; empty if it has none.
    """

    operator_uid: str
    what: str
    column: str = ""

    @override
    def sentence(self) -> str:
        named = f"the event time {self.column!r}" if self.column else "the stream"
        column = repr(self.column) if self.column else "column"
        return (
            f"Operator {self.operator_uid!r}: {self.what} need a watermark, and {named} has none: "
            f"nothing would ever fire. Call withWatermark({column}, delay) right before key_by. "
            "The output of another operator has no watermark, nor has a column that is computed "
            "or comes with the schema of a file; a union has that of its first side."
        )


class TimeModeError(MillpondError):
    """A function sets a timer of processing time on a stream with a watermark.

    By default Spark then runs a batch without rows only when the watermark has moved.
    """

    message = (
        "Operator {operator_uid!r} sets a processing-time timer on a stream with a "
        "watermark. While no row comes, Spark runs no batch in which it could fire. Choose by "
        "process(..., time_mode=...): with 'processing-time' Spark runs batch after batch, "
        "and timers of both kinds fire; with 'event-time' the timer fires in the next batch, "
        "which comes with a row or a moved watermark."
    )

    operator_uid: str


class EventTimeChainError(MillpondError):
    """Two steps of a query that use event time cannot share its single watermark.

    Attributes:
        behind: the operator whose output the later step reads; empty for an outer join of two
            streams.
        later: the later operator that uses event time; empty if a watermark is set there.
        policy: Spark's policy for several watermarks.
    """

    behind: str
    later: str
    policy: str

    @override
    def sentence(self) -> str:
        if not self.behind:
            return (
                f"Operator {self.later!r} works by event time, and its rows come from an outer "
                "join of two streams. Spark gives the join's rows without a match only when the "
                f"watermark has passed them, so they would be late for {self.later!r}. Write the "
                "output of the join to a table or topic, and start a second query that reads it, "
                "with a watermark of its own whose delay is longer than the join holds rows back; "
                "or use an inner join."
            )
        if self.later:
            fault = (
                f"Operator {self.later!r} works by event time, and so does operator "
                f"{self.behind!r} before it. Both have the query's one watermark, so rows that "
                f"{self.behind!r} gives when the watermark passes would be late for {self.later!r}"
            )
        elif self.policy == "max":
            fault = (
                f"A watermark is set on the output of operator {self.behind!r}, and another one "
                "before it. The query's one watermark is the higher of the two (the setting "
                "spark.sql.streaming.multipleWatermarkPolicy is max), so rows would be late "
                "behind the operator"
            )
        else:
            fault = (
                f"A watermark is set on the output of operator {self.behind!r}, and another one "
                "before it. The query's one watermark is the lower of the two, so it would wait "
                "for rows that are given only when it has moved"
            )
        return (
            f"{fault}. Write the output of {self.behind!r} to a table or topic, and start a second "
            "query that reads it, with a watermark of its own; or set no watermark before an "
            "operator that does not work by event time."
        )
