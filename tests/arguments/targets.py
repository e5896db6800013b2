"""All targets that need no Spark."""

from tests.arguments import doors, functions, searching, states, windowing
from tests.arguments.calling import TARGETS

__all__ = ["TARGETS"]

for part in (doors, states, functions, windowing, searching):
    TARGETS.update(part.TARGETS)
