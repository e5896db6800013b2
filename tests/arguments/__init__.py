"""The public functions, good and odd arguments for them, and what is wrong with a call."""

from tests.arguments.calling import complaint
from tests.arguments.odd import ODD, random_value
from tests.arguments.targets import TARGETS

__all__ = ["ODD", "TARGETS", "complaint", "random_value"]
