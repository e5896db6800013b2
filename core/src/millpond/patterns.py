"""``millpond.patterns``: patterns of rows, as in Flink's CEP."""

from millpond.functions.patterns.pattern import AfterMatchSkipStrategy, Pattern
from millpond.functions.patterns.pattern_operator import PatternOperator, PatternSearch, pattern

__all__ = [
    "AfterMatchSkipStrategy",
    "Pattern",
    "PatternOperator",
    "PatternSearch",
    "pattern",
]
