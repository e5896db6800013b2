"""The public functions, good and odd arguments for them, and what is wrong with a call."""

from arguments.calling import complaint
from arguments.odd import ODD, random_value
from arguments.targets import TARGETS

__all__ = ["ODD", "TARGETS", "complaint", "random_value"]
