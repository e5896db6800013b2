"""Tests that call every public function with good and odd arguments, and judge the outcome."""

from tests.arguments.calling import complaint
from tests.arguments.odd import ODD, random_value
from tests.arguments.targets import TARGETS

__all__ = ["ODD", "TARGETS", "complaint", "random_value"]
