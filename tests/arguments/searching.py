"""Targets: patterns, and the search for them."""

import millpond as mp
from millpond.patterns import AfterMatchSkipStrategy, Pattern, pattern

from tests.arguments.calling import call

__all__ = ["TARGETS", "begun"]


def begun():
    """Return a pattern with one stage."""
    return Pattern.begin("a")


def search():
    """Return a search for a pattern."""
    return pattern(begun().within(10), int)


def tag():
    """Return a tag of a side output."""
    return mp.OutputTag("late")


STAGE = {"name": lambda: "b", "where": lambda: bool}

TARGETS = {
    "Pattern.begin": (Pattern.begin, {**STAGE, "skip": AfterMatchSkipStrategy.no_skip}),
    **{
        f"Pattern.{method}": (call(begun, method), STAGE)
        for method in ("next", "followed_by", "followed_by_any", "not_next", "not_followed_by")
    },
    "Pattern.times": (call(begun, "times"), {"least": lambda: 2, "most": lambda: 3}),
    "Pattern.times_or_more": (call(begun, "times_or_more"), {"least": lambda: 2}),
    "Pattern.within": (call(begun, "within"), {"duration": lambda: 5}),
    **{
        f"AfterMatchSkipStrategy.{method}": (
            getattr(AfterMatchSkipStrategy, method), {"stage": lambda: "a"},
        )
        for method in ("skip_to_first", "skip_to_last")
    },
    "pattern": (pattern, {"pattern": begun, "row_type": lambda: int}),
    "PatternSearch.select": (call(search, "select"), {"function": lambda: print}),
    "PatternSearch.flat_select": (call(search, "flat_select"), {"function": lambda: print}),
    "PatternSearch.side_output_late_data": (call(search, "side_output_late_data"), {"tag": tag}),
    "PatternSearch.side_output_timed_out": (
        call(search, "side_output_timed_out"), {"tag": tag, "select": lambda: print},
    ),
}  # fmt: skip
