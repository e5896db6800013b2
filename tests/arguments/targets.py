"""All targets that need no Spark."""

from arguments import doors, functions, states, windowing
from arguments.calling import TARGETS

__all__ = ["TARGETS"]

for part in (doors, states, functions, windowing):
    TARGETS.update(part.TARGETS)
