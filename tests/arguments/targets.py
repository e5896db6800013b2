"""All targets that need no Spark."""

from tests.arguments import doors, functions, states, windowing
from tests.arguments.calling import TARGETS

__all__ = ["TARGETS"]

for part in (doors, states, functions, windowing):
    TARGETS.update(part.TARGETS)
