"""``millpond.testing``: the harness for unit tests of keyed functions."""

from millpond.local.harness import KeyedOperatorHarness

__all__ = ["KeyedOperatorHarness"]
